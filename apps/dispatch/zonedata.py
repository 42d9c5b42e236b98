"""Time zone data changes: which due entries were computed with other data, and what becomes of them.

What fires is computed with the data of the process that fires; only instants that stand in the due-time index already
may be out of date. An entry that is due by now stays: it is served as it was promised. The others go on from the wall
time, by the old rules, of their schedule's last disposition: so no wall time runs twice, and an instant that moves to
before now is due at once. The rules are stored with the version; what was disposed of since a process with the new data
was first seen is not converted.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.audit.services import Entry, record_by_system
from apps.dispatch.zonerules import Change, change_of, installed, right_of, rules_text
from apps.due import entries
from apps.schedules import timing
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
CHUNK = 500

_CHUNK = """
SELECT key FROM due_dueentry WHERE kind = 'schedule' AND key > %s AND parked = '' ORDER BY key LIMIT %s
"""
_STORE = """
INSERT INTO due_zonedata (id, version, applied_at, rules) VALUES (1, %s, %s, %s::jsonb)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, applied_at = excluded.applied_at, rules = excluded.rules,
       newer = NULL, newer_since = NULL
"""
_STORE_CHANGES = """
INSERT INTO due_zonechange (zone, at, file) SELECT zone, %s, file FROM unnest(%s::text[], %s::bytea[]) AS m(zone, file)
ON CONFLICT DO NOTHING
"""
_STORE_RULES = "UPDATE due_zonedata SET rules = %s::jsonb WHERE version = %s AND rules IS NULL"
_SEEN = "UPDATE due_zonedata SET newer = %s, newer_since = %s WHERE newer IS DISTINCT FROM %s"
_LAST = """
SELECT s.id, coalesce(e.told_at, v.created_at), e.at FROM {}.schedules_schedule s
JOIN {}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
LEFT JOIN LATERAL (
    SELECT coalesce(until_at, nominal_at) AS at,
           CASE WHEN until_at IS NULL THEN created_at ELSE finished_at END AS told_at
    FROM {}.executions_execution
    WHERE schedule_id = s.id AND schedule_version = s.version AND trigger IN ('schedule', 'catch_up')
      AND nominal_at <= %s
    ORDER BY nominal_at DESC LIMIT 1) e ON true
WHERE s.id = ANY(%s)
"""
_RESUMES = "SELECT id, resume_at FROM {}.schedules_schedule WHERE id = ANY(%s) AND resume_at > %s"


@dataclass(frozen=True, slots=True)
class Moved:
    """One due entry whose instant is another one with the installed data; `after` None: nothing is left to run."""

    tenant: str
    schedule_id: UUID
    zone: str
    before: datetime
    after: datetime | None


def stored(conn: Conn) -> str | None:
    """The version that the due entries were computed with; None before it was ever stored."""
    row = conn.execute("SELECT version FROM due_zonedata").fetchone()
    return None if row is None else str(row[0])


def check(conn: Conn, *, now: datetime) -> None:
    """For a dispatcher's start: says when the data has changed; the first one of an installation stores its version."""
    row = conn.execute("SELECT version, rules IS NULL FROM due_zonedata").fetchone()
    if row is None:
        conn.execute(_STORE, [installed(), now, rules_text()])
    elif row[0] != installed():
        conn.execute(_SEEN, [installed(), now, installed()])
        log.warning(
            "time zone data is %s, due entries were computed with %s: run manage.py tzdata_report", installed(), row[0]
        )
    elif row[1]:
        conn.execute(_STORE_RULES, [rules_text(), installed()])


def report(conn: Conn, registry: Registry, *, now: datetime, dry_run: bool) -> Iterator[Moved]:
    """Recomputes all due entries, a chunk a transaction, and stores the version at the end. `dry_run` only reports."""
    change, last = change_of(conn, now), UUID(int=0)
    while True:
        with conn.transaction():
            keys = [row[0] for row in conn.execute(_CHUNK, [last, CHUNK])]
            found = _chunk(conn, registry, keys, now, change, dry_run)
        yield from found
        if len(keys) < CHUNK:
            break
        last = keys[-1]
    if not dry_run:
        with conn.transaction():
            old = change.old_files()
            conn.execute(_STORE_CHANGES, [now, list(old), list(old.values())])
            conn.execute(_STORE, [installed(), now, rules_text()])


def _chunk(
    conn: Conn, registry: Registry, keys: list[UUID], now: datetime, change: Change, dry_run: bool
) -> list[Moved]:  # fmt: skip
    waiting = [entry for entry in entries.lock(conn, keys) if entry.nominal_at > now]
    specs = {entry.key: spec for entry in waiting if (spec := _spec(entry)) and change.concerns(spec.zone)}
    concerned = [entry for entry in waiting if entry.key in specs]
    resumes, lasts = _resumes(conn, registry, concerned, now), _lasts(conn, registry, concerned, now)
    found = []
    for entry in concerned:
        tenancy, spec = registry.get(entry.tenant_id), specs[entry.key]
        if entry.key in resumes:
            nominal = timing.next_after(spec, resumes[entry.key])
        else:
            nominal = right_of(spec, entry.nominal_at, *lasts.get(entry.key, (now, None)), change)
        due = None if nominal is None else timing.actual_at(spec, str(entry.key), nominal)
        if tenancy is None or (nominal == entry.nominal_at and due == entry.due_at):
            continue
        found.append(Moved(tenancy.slug, entry.key, spec.zone, entry.nominal_at, nominal))
        if dry_run:
            continue
        if nominal is None or due is None:
            entries.remove(conn, [entry.key])
        else:
            entries.put(conn, entry._replace(nominal_at=nominal, due_at=due), now=now)
        told = Entry(
            "schedule.tzdata", "schedule", entry.key, before=_next_at(entry.nominal_at), after=_next_at(nominal),
            reason=f"time zone data {change.version or 'unknown'} -> {installed()}",
        )  # fmt: skip
        record_by_system(conn, told, tenant_id=entry.tenant_id, now=now)
    return found


def _next_at(at: datetime | None) -> dict[str, str] | None:
    return None if at is None else {"next_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}


def _spec(entry: entries.Entry) -> timing.Spec | None:
    try:
        return timing.spec_from_json(entry.spec)
    except timing.TimingInvalid:
        return None  # firing puts it aside with its reason


def _lasts(
    conn: Conn, registry: Registry, waiting: list[entries.Entry], now: datetime
) -> dict[UUID, tuple[datetime, datetime | None]]:  # fmt: skip
    """When their newest occurrence was disposed of, and its nominal instant."""
    found: dict[UUID, tuple[datetime, datetime | None]] = {}
    for schema, keys in _by_schema(registry, waiting):
        rows = conn.execute(sql.SQL(_LAST).format(*[sql.Identifier(schema)] * 3), [now, keys])
        found |= {key: (told_at, at) for key, told_at, at in rows}
    return found


def _resumes(
    conn: Conn, registry: Registry, waiting: list[entries.Entry], now: datetime
) -> dict[UUID, datetime]:  # fmt: skip
    """Schedules that are paused until a time: their entries begin there."""
    found: dict[UUID, datetime] = {}
    for schema, keys in _by_schema(registry, waiting):
        found |= dict(conn.execute(sql.SQL(_RESUMES).format(sql.Identifier(schema)), [keys, now]).fetchall())
    return found


def _by_schema(registry: Registry, waiting: list[entries.Entry]) -> Iterator[tuple[str, list[UUID]]]:
    for tenant_id in sorted({entry.tenant_id for entry in waiting}):
        tenancy = registry.get(tenant_id)
        if tenancy is not None:
            yield tenancy.schema, [entry.key for entry in waiting if entry.tenant_id == tenant_id]
