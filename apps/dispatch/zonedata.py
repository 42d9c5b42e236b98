"""Time zone data changes: which due entries were computed with other data, and what becomes of them.

What fires is computed with the data of the process that fires; only instants that stand in the due-time index already
may be out of date. An entry that is due by now stays: it is served as it was promised. Instants move only where the
rules of a zone changed between now and the entry.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version as installed_version
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.due import entries
from apps.schedules import timing
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
CHUNK = 500
_MICROSECOND = timedelta(microseconds=1)

_CHUNK = """
SELECT key FROM due_dueentry WHERE kind = 'schedule' AND key > %s AND parked = '' ORDER BY key LIMIT %s
"""
_STORE = """
INSERT INTO due_zonedata (id, version, applied_at) VALUES (1, %s, %s)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, applied_at = excluded.applied_at
"""
_AUDIT = """
INSERT INTO audit_auditevent
    (at, tenant_id, actor, action, object_type, object_id, allowed, before, after, reason, request_id)
VALUES (%s, %s, 'system', 'schedule.tzdata', 'schedule', %s, true, %s, %s, %s, '')
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


def installed() -> str:
    """The version of the pinned tzdata package."""
    return installed_version("tzdata")


def stored(conn: Conn) -> str | None:
    """The version that the due entries were computed with; None before it was ever stored."""
    row = conn.execute("SELECT version FROM due_zonedata").fetchone()
    return None if row is None else str(row[0])


def check(conn: Conn, *, now: datetime) -> None:
    """For a dispatcher's start: says when the data has changed; the first one of an installation stores its version."""
    found = stored(conn)
    if found is None:
        conn.execute(_STORE, [installed(), now])
    elif found != installed():
        log.warning(
            "time zone data is %s, due entries were computed with %s: run manage.py tzdata_report", installed(), found
        )


def report(conn: Conn, registry: Registry, *, now: datetime, dry_run: bool) -> Iterator[Moved]:
    """Recomputes all due entries, a chunk a transaction, and stores the version at the end. `dry_run` only reports."""
    was, last = stored(conn), UUID(int=0)
    while True:
        with conn.transaction():
            keys = [row[0] for row in conn.execute(_CHUNK, [last, CHUNK])]
            found = _chunk(conn, registry, keys, now, was, dry_run)
        yield from found
        if len(keys) < CHUNK:
            break
        last = keys[-1]
    if not dry_run:
        conn.execute(_STORE, [installed(), now])


def _chunk(
    conn: Conn, registry: Registry, keys: list[UUID], now: datetime, was: str | None, dry_run: bool
) -> list[Moved]:  # fmt: skip
    waiting = [entry for entry in entries.lock(conn, keys) if entry.nominal_at > now]
    resumes = _resumes(conn, registry, waiting, now)
    found = []
    for entry in waiting:
        tenancy = registry.get(entry.tenant_id)
        try:
            spec = timing.spec_from_json(entry.spec)
        except timing.TimingInvalid:
            continue  # firing puts it aside with its reason
        begins = resumes.get(entry.key, now)
        if spec.max_runs is not None and entry.runs_done is not None:  # so many are done, whatever the zone says now
            spec = spec.counted(before=begins + _MICROSECOND, used=spec.runs_used + entry.runs_done)
        nominal = timing.next_after(spec, begins)
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
        before, after = (
            None if at is None else f'{{"next_at": "{at:%Y-%m-%dT%H:%M:%SZ}"}}' for at in (entry.nominal_at, nominal)
        )
        reason = f"time zone data {was or 'unknown'} -> {installed()}"
        conn.execute(_AUDIT, [now, entry.tenant_id, str(entry.key), before, after, reason])
    return found


def _resumes(
    conn: Conn, registry: Registry, waiting: list[entries.Entry], now: datetime
) -> dict[UUID, datetime]:  # fmt: skip
    """Schedules that are paused until a time: their entries begin there."""
    found: dict[UUID, datetime] = {}
    for tenant_id in sorted({entry.tenant_id for entry in waiting}):
        tenancy = registry.get(tenant_id)
        if tenancy is None:
            continue
        keys = [entry.key for entry in waiting if entry.tenant_id == tenant_id]
        found |= dict(conn.execute(sql.SQL(_RESUMES).format(sql.Identifier(tenancy.schema)), [keys, now]).fetchall())
    return found
