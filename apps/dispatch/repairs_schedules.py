"""Schedules whose due entry is missing or has left instants out: put back from the last disposition, not from now."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.dispatch.findings import CHUNK, Finding, Found, in_schema
from apps.due import entries
from apps.due.entries import Entry
from apps.schedules import timing
from apps.schedules.models import POOL_OF_KIND
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]

_SCHEDULE_IDS = """
SELECT id FROM {schema}.schedules_schedule
WHERE (status = 'active' OR (status = 'paused' AND resume_at IS NOT NULL)) AND deleted_at IS NULL AND id > %s
ORDER BY id LIMIT %s
"""

_SCHEDULES = """
SELECT s.id, s.version, v.spec, v.own_payload, j.id, j.kind, jv.version, jv.priority, jv.timeout_s, jv.max_concurrency,
       v.created_at, e.at, e.schedule_version
FROM {schema}.schedules_schedule s
JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
JOIN {schema}.schedules_job j ON j.id = s.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = j.id AND jv.version = j.version
LEFT JOIN LATERAL (
    SELECT coalesce(until_at, nominal_at) AS at, schedule_version FROM {schema}.executions_execution
    WHERE schedule_id = s.id AND trigger IN ('schedule', 'catch_up') ORDER BY nominal_at DESC LIMIT 1) e ON true
WHERE s.id = ANY(%s) AND (s.status = 'active' OR (s.status = 'paused' AND s.resume_at IS NOT NULL))
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
    suspects = [suspect.key for suspect in _suspects(conn, tenancy, ids)]
    findings = []
    if suspects and not dry_run:
        # Fire holds the entry's lock until it is complete, edits and resumes the row's: what is seen now is whole.
        entries.lock(conn, suspects)
        conn.execute(in_schema(_LOCK_SCHEDULES, tenancy), [suspects])
    for suspect in _suspects(conn, tenancy, suspects):
        if suspect.expected is None:
            if not dry_run:
                conn.execute(in_schema(_COMPLETE, tenancy), [suspect.key])
            continue  # nothing was wrong: its last instant is over
        at = f"{suspect.expected:%Y-%m-%dT%H:%M:%SZ}"
        check, detail = "schedule_without_due_entry", f"due entry made again at {at}"
        if suspect.found is not None:
            check, detail = "gap", f"put back from {suspect.found:%Y-%m-%dT%H:%M:%SZ} to {at}"
        findings.append(Finding(check, tenancy.slug, suspect.key, detail))
        if not dry_run:
            entries.put(conn, _entry_of(suspect, tenancy), now=suspect.expected)
    return findings, ids[-1] if len(ids) == CHUNK else None


class _Suspect(NamedTuple):
    """A schedule whose due entry is not where its last disposition says; `expected` is None when it is completed."""

    key: UUID
    expected: datetime | None
    found: datetime | None
    row: tuple[Any, ...]


def _suspects(conn: Conn, tenancy: Tenancy, ids: Sequence[UUID]) -> list[_Suspect]:
    if not ids:
        return []
    rows = conn.execute(in_schema(_SCHEDULES, tenancy), [list(ids)]).fetchall()
    nominal = {key: at for key, (at, _) in entries.next_of(conn, ids).items()}
    suspects = []
    for row in rows:
        key, version, spec_text = row[:3]
        defined_at, last, last_version = row[-3:]
        try:
            spec = timing.spec_from_json(spec_text)
        except timing.TimingInvalid:
            continue
        known = last if last is not None and last_version == version else None
        expected = timing.next_after(spec, known if known is not None else defined_at)
        found = nominal.get(key)
        if found is not None and expected is not None and timing.is_look_again(spec, expected):
            continue  # the entry waits to look on; there is no occurrence that it could have passed
        if found is None or (expected is not None and known is not None and found > expected):
            suspects.append(_Suspect(key, expected, found, row))
    return suspects


def _entry_of(suspect: _Suspect, tenancy: Tenancy) -> Entry:
    key, version, spec_text, own_payload, job_id, kind, job_version, priority, timeout_s, limit = suspect.row[:10]
    assert suspect.expected is not None
    due_at = timing.actual_at(timing.spec_from_json(spec_text), str(key), suspect.expected)
    pool = POOL_OF_KIND[kind]
    return Entry(
        key, entries.shard_for(key), "schedule", tenancy.id, due_at, suspect.expected, version, spec_text, job_id,
        job_version, pool, tenancy.queue(pool), priority, timeout_s, limit, own_payload,
    )  # fmt: skip
