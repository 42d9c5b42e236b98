"""Schedules whose due entry is missing or has left instants out: put back from the last disposition, not from now."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.dispatch.findings import CHUNK, CheckName, Finding, Found, in_schema
from apps.due import entries
from apps.due.entries import Entry
from apps.schedules import timing
from apps.schedules.keyed import flows_of_schedules
from apps.schedules.timing_rezoned import ZONE_SHIFT_MAX, follows_wall
from kernel.limitrules import Flow
from kernel.pools import pool_of
from tenants.registry import Tenancy
from tenants.work import database_now

Conn = psycopg.Connection[Any]

_SCHEDULE_IDS = """
SELECT id FROM {schema}.schedules_schedule
WHERE (status = 'active' OR (status = 'paused' AND resume_at IS NOT NULL)) AND deleted_at IS NULL AND id > %s
ORDER BY id LIMIT %s
"""

_SCHEDULES = """
SELECT s.id, s.version, v.spec, v.own_payload, j.id, j.kind, jv.queue, jv.version, jv.priority, jv.timeout_s,
       jv.max_concurrency, jv.max_queue_age_s, (v.definition->>'max_queue_age_s')::int, jv.total_timeout_s,
       CASE WHEN s.status = 'paused' THEN coalesce(v.from_at, v.created_at)
            ELSE least(coalesce(v.from_at, v.created_at), %(now)s) END,
       e.at, e.told_at, e.schedule_version
FROM {schema}.schedules_schedule s
JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
JOIN {schema}.schedules_job j ON j.id = s.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = j.id AND jv.version = j.version
LEFT JOIN LATERAL (
    SELECT least(coalesce(until_at, nominal_at), %(now)s) AS at, schedule_version,
           CASE WHEN until_at IS NULL THEN created_at ELSE finished_at END AS told_at
    FROM {schema}.executions_execution
    WHERE schedule_id = s.id AND trigger IN ('schedule', 'catch_up') AND nominal_at <= %(now)s
    ORDER BY nominal_at DESC LIMIT 1) e ON true
WHERE s.id = ANY(%(ids)s) AND (s.status = 'active' OR (s.status = 'paused' AND s.resume_at IS NOT NULL))
  AND s.deleted_at IS NULL AND j.paused_at IS NULL
"""

_LOCK_SCHEDULES = "SELECT 1 FROM {schema}.schedules_schedule WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

_COMPLETE = """
UPDATE {schema}.schedules_schedule
SET status = 'completed', revision = revision + 1, updated_at = clock_timestamp()
WHERE id = %s AND (status = 'active' OR (status = 'paused' AND resume_at IS NOT NULL))
"""


def schedules(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Active schedules without due entry, or whose due entry left instants out."""
    ids = [row[0] for row in conn.execute(in_schema(_SCHEDULE_IDS, tenancy), [after, CHUNK])]
    return put_right(conn, tenancy, ids, dry_run=dry_run), ids[-1] if len(ids) == CHUNK else None


def put_right(conn: Conn, tenancy: Tenancy, ids: Sequence[UUID], *, dry_run: bool) -> list[Finding]:
    """Those of these schedules whose due entry is not where it should be; unless `dry_run` it is there afterwards."""
    suspects = [suspect.key for suspect in _suspects(conn, tenancy, ids)]
    findings = []
    if suspects and not dry_run:
        # Fire holds the entry's lock until it is complete, edits and resumes the row's: what is seen now is whole.
        entries.lock(conn, suspects)
        conn.execute(in_schema(_LOCK_SCHEDULES, tenancy), [suspects])
    flows = {} if dry_run else flows_of_schedules(conn, tenancy.schema, suspects)
    for suspect in _suspects(conn, tenancy, suspects):
        if suspect.expected is None:
            if not dry_run:
                conn.execute(in_schema(_COMPLETE, tenancy), [suspect.key])
            continue  # nothing was wrong: its last instant is over
        findings.append(Finding(suspect.check, tenancy.slug, suspect.key, suspect.detail))
        if not dry_run:
            entry = _entry_of(suspect, tenancy)
            flow = flows.get(entry.key, Flow(entry.job_id))
            entries.put(conn, entry._replace(**entries.keyed(flow)), now=suspect.expected)
    return findings


class _Suspect(NamedTuple):
    """A schedule whose due entry is not where its last disposition says; `expected` is None when it is completed."""

    key: UUID
    expected: datetime | None
    found: datetime | None
    ahead: bool  # nothing was left out; it waits for an instant that only a clock that was wrong can have chosen
    row: tuple[Any, ...]

    @property
    def check(self) -> CheckName:
        if self.found is None:
            return "schedule_without_due_entry"
        return "cursor_ahead" if self.ahead else "gap"

    @property
    def detail(self) -> str:
        at = f"{self.expected:%Y-%m-%dT%H:%M:%SZ}"
        if self.found is None:
            return f"due entry made again at {at}"
        return f"put back from {self.found:%Y-%m-%dT%H:%M:%SZ} to {at}"


def _suspects(conn: Conn, tenancy: Tenancy, ids: Sequence[UUID]) -> list[_Suspect]:
    if not ids:
        return []
    now = database_now(conn)
    rows = conn.execute(in_schema(_SCHEDULES, tenancy), {"ids": list(ids), "now": now}).fetchall()
    nominal = {key: at for key, (at, _) in entries.next_of(conn, ids).items()}
    rezoned = _zone_data_since(conn)
    suspects = []
    for row in rows:
        key, version, spec_text = row[:3]
        defined_at, last, told_at, last_version = row[-4:]
        try:
            spec = timing.spec_from_json(spec_text)
        except timing.TimingInvalid:
            continue
        known = last if last is not None and last_version == version else None
        expected = timing.next_after(spec, known if known is not None else defined_at)
        found = nominal.get(key)
        if found is not None and expected is not None and timing.is_look_again(spec, expected):
            continue  # the entry waits to look on; there is no occurrence that it could have passed
        if known is not None and told_at < rezoned and _is_zone_shift(spec, expected, found):
            continue  # its zone's clock is another one than when it ran last: see zonedata
        ahead = found is not None and expected is not None and found > expected > now
        if found is None or ahead or (expected is not None and known is not None and found > expected):
            suspects.append(_Suspect(key, expected, found, ahead, row))
    return suspects


def _is_zone_shift(spec: timing.Spec, expected: datetime | None, found: datetime | None) -> bool:
    """Whether other zone data may be why an entry stands later."""
    if expected is None or found is None or not follows_wall(spec):
        return False
    return timedelta() < found - expected <= ZONE_SHIFT_MAX


def _zone_data_since(conn: Conn) -> datetime:
    row = conn.execute("SELECT coalesce(newer_since, applied_at) FROM due_zonedata").fetchone()
    return row[0] if row is not None else datetime(1970, 1, 1, tzinfo=UTC)


def _entry_of(suspect: _Suspect, tenancy: Tenancy) -> Entry:
    (key, version, spec_text, own_payload, job_id, kind, queue, job_version, priority, timeout_s,
     limit) = suspect.row[:11]  # fmt: skip
    max_queue_age_s, own_max_queue_age_s, total_timeout_s = suspect.row[11:14]
    assert suspect.expected is not None
    due_at = timing.actual_at(timing.spec_from_json(spec_text), str(key), suspect.expected)
    pool = pool_of(kind, queue)
    return Entry(
        key, entries.shard_for(key), "schedule", tenancy.id, due_at, suspect.expected, version, spec_text, job_id,
        job_version, pool, queue or tenancy.queue(pool), priority, timeout_s, limit, own_payload,
        max_queue_age_s, own_max_queue_age_s, total_timeout_s,
    )  # fmt: skip
