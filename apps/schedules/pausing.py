"""Pausing a schedule without the ORM: the platform does it when a receiver is gone, or after failures in a row.

Failures are not counted anywhere: the newest finished runs of the schedule are looked at when one of them has died. So
a paused schedule that is tried again (half open) and dies again is paused again at once, and one success ends the row.

Whoever settles first calls `lock_to_pause`: due entries and schedules are locked before tickets (docs/architecture.md).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.audit.services import SYSTEM, Entry, record_by_system
from apps.due import entries
from apps.events import store as events
from apps.schedules.history import PAUSED
from apps.schedules.history_store import versions_stop
from apps.schedules.passed import pass_over
from apps.schedules.policy import first_due
from apps.schedules.timing import TimingInvalid, count_between, spec_from_json, spec_to_json
from apps.schedules.timing_runs import counted

Conn = psycopg.Connection[Any]
_MICROSECOND = timedelta(microseconds=1)

_ACTIVE = "deleted_at IS NULL AND (status = 'active' OR (status = 'paused' AND resume_at <= %(now)s))"

_PAUSE = f"""
UPDATE {{schema}}.schedules_schedule
SET status = 'paused', paused_reason = %(reason)s, paused_at = %(now)s, resume_at = %(resume_at)s,
    revision = revision + 1, updated_at = clock_timestamp()
WHERE id = %(id)s AND {_ACTIVE} RETURNING version
"""

# Its occurrences are accounted for from the time on at which it goes on.
_NEXT_VERSION = """
WITH made AS (
    INSERT INTO {schema}.schedules_scheduleversion
        (schedule_id, version, definition, spec, payload, own_payload, created_at, from_at)
    SELECT schedule_id, version + 1, definition, %(spec)s, payload, own_payload, %(resume_at)s, %(resume_at)s
    FROM {schema}.schedules_scheduleversion WHERE schedule_id = %(id)s AND version = %(version)s
    RETURNING schedule_id, version)
UPDATE {schema}.schedules_schedule s SET version = made.version FROM made WHERE s.id = made.schedule_id
"""

_FAILING = f"""
SELECT s.id, f.most, f.probe_s FROM {{schema}}.schedules_schedule s
JOIN {{schema}}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
CROSS JOIN LATERAL (SELECT (v.definition ->> 'pause_after_failures')::int AS most,
                           (v.definition ->> 'probe_after_s')::int AS probe_s) f
WHERE s.id = ANY(%(ids)s) AND {_ACTIVE} AND f.most IS NOT NULL AND f.most = (
    SELECT count(*) FILTER (WHERE n.state = 'dead') FROM (
        SELECT e.state FROM {{schema}}.executions_execution e
        WHERE e.schedule_id = s.id AND e.trigger IN ('schedule', 'catch_up')
          AND e.schedule_version >= s.failures_from AND e.state IN ('succeeded', 'dead')
        ORDER BY e.nominal_at DESC LIMIT f.most) n)
"""


_WATCHED = """
SELECT s.id FROM {schema}.schedules_schedule s
JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
WHERE s.id = ANY(%s) AND v.definition ->> 'pause_after_failures' IS NOT NULL
"""

_LOCK = "SELECT 1 FROM {schema}.schedules_schedule WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"


class Suspects(NamedTuple):
    """Schedules of a tenant that may be paused: their receiver is gone, or a run of theirs dies."""

    gone: set[UUID]
    dying: set[UUID]


class Failing(NamedTuple):
    """A schedule whose newest runs have all died: how many, and after how many seconds it is tried again."""

    schedule_id: UUID
    failures: int
    probe_after_s: int | None


def lock_to_pause(conn: Conn, by_schema: Mapping[str, Suspects]) -> set[UUID]:
    """Locks the due entries and the rows of those that will be paused or looked at; returns those that watch failures.

    For all tenants of the transaction at once, before it locks a ticket.
    """
    watching: set[UUID] = set()
    found: dict[str, list[UUID]] = {}
    for schema, (gone, dying) in by_schema.items():
        rows = conn.execute(sql.SQL(_WATCHED).format(schema=sql.Identifier(schema)), [sorted(dying)]) if dying else ()
        of_schema = {row[0] for row in rows}
        watching |= of_schema
        if gone or of_schema:
            found[schema] = sorted(gone | of_schema)
    if found:
        entries.lock(conn, [key for keys in found.values() for key in keys])
    for schema, keys in sorted(found.items()):
        conn.execute(sql.SQL(_LOCK).format(schema=sql.Identifier(schema)), [keys])
    return watching


def failing(conn: Conn, schema: str, died: Mapping[UUID, datetime]) -> list[Failing]:
    """Those of these schedules, each with the time at which a run of it died, that are to be paused for it."""
    query = sql.SQL(_FAILING).format(schema=sql.Identifier(schema))
    rows = conn.execute(query, {"ids": sorted(died), "now": max(died.values())})
    return [Failing._make(row) for row in rows]


def pause_failing(conn: Conn, schema: str, one: Failing, *, tenant_id: int, now: datetime) -> bool:
    """Pauses it, half open: with a probe it goes on by itself."""
    probe = None if one.probe_after_s is None else now + timedelta(seconds=one.probe_after_s)
    reason = f"{one.failures} runs in a row have died." if one.failures > 1 else "A run has died."
    return pause_by_system(
        conn, schema, tenant_id=tenant_id, schedule_id=one.schedule_id, reason=reason, now=now, resume_at=probe
    )


def pause_by_system(
    conn: Conn, schema: str, *, tenant_id: int, schedule_id: UUID, reason: str, now: datetime,
    resume_at: datetime | None = None,
) -> bool:  # fmt: skip
    """active -> paused, in the caller's transaction, which holds the locks of `lock_to_pause`."""
    found = entries.lock(conn, [schedule_id])
    given = {"reason": reason, "id": schedule_id, "now": now, "resume_at": resume_at}
    row = conn.execute(sql.SQL(_PAUSE).format(schema=sql.Identifier(schema)), given).fetchone()
    if row is None:
        return False
    pass_over(conn, schema, found, now=now, reason="schedule_paused", by=SYSTEM)
    entries.remove(conn, [schedule_id])
    versions_stop(conn, schema, [schedule_id], at=now, why=PAUSED)
    if resume_at is not None and found:
        again = found[0]._replace(version=row[0] + 1, spec=_from_then(found[0], resume_at, now), runs_done=None)
        made = {**given, "version": row[0], "spec": again.spec}
        conn.execute(sql.SQL(_NEXT_VERSION).format(schema=sql.Identifier(schema)), made)
        _wait(conn, again, resume_at, now)
    record_by_system(conn, Entry("schedule.pause", "schedule", schedule_id, reason=reason), tenant_id=tenant_id)
    told = paused_event(schedule_id, now, reason=reason, resume_at=resume_at, by=SYSTEM)
    events.emit(conn, schema, tenant_id, [told])
    return True


def paused_event(
    schedule_id: UUID, now: datetime, *, reason: str, resume_at: datetime | None, by: str
) -> events.NewEvent:  # fmt: skip
    """What is told of a pause."""
    until = None if resume_at is None else events.instant_text(resume_at)
    data = {"schedule": str(schedule_id), "reason": reason, "resume_at": until, "by": by}
    return events.new_event("schedule.paused", now, data, schedule_id=schedule_id)


def _from_then(entry: entries.Entry, resume_at: datetime, now: datetime) -> str:
    """Its spec. Of max_runs what is owed has its row and counts; what the pause passes over does not."""
    try:
        spec, _ = counted(spec_from_json(entry.spec), nominal_at=entry.nominal_at, done=entry.runs_done)
    except TimingInvalid:  # it was put aside for that, and comes back when its owner mends it
        return entry.spec
    if spec.max_runs is None:
        return entry.spec
    owed = count_between(spec, after=entry.nominal_at - _MICROSECOND, until=now)
    return spec_to_json(spec.counted(before=resume_at + _MICROSECOND, used=spec.runs_used + owed))


def _wait(conn: Conn, entry: entries.Entry, resume_at: datetime, now: datetime) -> None:
    """Its entry waits for the first instant after the pause."""
    try:
        first = first_due(spec_from_json(entry.spec), key=str(entry.key), after=resume_at)
    except TimingInvalid:
        return
    if first is not None:
        entries.put(conn, entry._replace(nominal_at=first[0], due_at=first[1]), now=now)
