"""Gaps among the newest dispositions of a schedule: an occurrence that nothing is written of, though later ones are.

Only counted, in one statement for many schedules: what the version in force says against what its newest rows stand
for. Where the numbers differ the schedule is looked at in full (see `completeness`). It is told and not repaired here:
what is missing may be old, and whether it is still to run is for a person or `manage.py completeness --repair` to say.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.dispatch.completeness.checking import hot_completeness_of
from apps.dispatch.findings import Finding, Found
from apps.schedules import timing
from tenants.registry import Tenancy
from tenants.statements import run_in
from tenants.work import database_now

Conn = psycopg.Connection[Any]
CHUNK = 200
ROWS = 50  # newest ones of a schedule
LOOKS_BACK = timedelta(hours=20)  # less than a day: older ones may be in files already
_MICROSECOND = timedelta(microseconds=1)

_NEWEST = f"""
SELECT s.id, v.spec, v.from_at, d.nominal_at, e.begins, e.ends, e.counts
FROM (SELECT id, version FROM {{schema}}.schedules_schedule
      WHERE status = 'active' AND deleted_at IS NULL AND id > $1 ORDER BY id LIMIT {CHUNK}) s
JOIN {{schema}}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
LEFT JOIN due_dueentry d ON d.key = s.id AND d.parked = ''
LEFT JOIN LATERAL (
    SELECT array_agg(n.nominal_at) AS begins, array_agg(coalesce(n.until_at, n.nominal_at)) AS ends,
           array_agg(n.count) AS counts
    FROM (SELECT nominal_at, until_at, count FROM {{schema}}.executions_execution
          WHERE schedule_id = s.id AND trigger IN ('schedule', 'catch_up')
            AND nominal_at > v.from_at AND nominal_at < d.nominal_at
          ORDER BY nominal_at DESC LIMIT {ROWS}) n) e ON true
ORDER BY s.id
"""


class _Newest(NamedTuple):
    """A schedule's version and due entry, and its newest rows before that, newest first."""

    id: UUID
    spec: str
    from_at: datetime | None
    due: datetime | None
    begins: list[datetime] | None
    ends: list[datetime] | None
    counts: list[int] | None


def gaps(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Active schedules with a gap among their newest dispositions."""
    now = database_now(conn)
    rows = [_Newest._make(row) for row in run_in(conn, _NEWEST, tenancy.schema, [after])]
    findings = []
    for row in rows:
        begins = _differs_from(row, now - LOOKS_BACK)
        if begins is None or row.due is None:
            continue
        found = hot_completeness_of(conn, tenancy.schema, row.id, since=begins, until=row.due, now=now).found
        if found.gaps:
            first = f"{found.gaps[0].first:%Y-%m-%dT%H:%M:%SZ}"
            detail = f"{found.missing} occurrences have no disposition, the first at {first}"
            findings.append(Finding("incomplete", tenancy.slug, row.id, detail))
    return findings, rows[-1].id if len(rows) == CHUNK else None


def _differs_from(row: _Newest, oldest: datetime) -> datetime | None:
    """From when on the newest rows stand for another number of occurrences than there were; None where they agree."""
    if row.due is None or row.from_at is None:
        return None
    try:
        spec = timing.spec_from_json(row.spec)
    except timing.TimingInvalid:
        return None
    written, begins = 0, max(row.from_at + _MICROSECOND, oldest)
    newest = list(zip(row.begins or (), row.ends or (), row.counts or (), strict=True))
    kept = [one for one in newest if one[1] >= oldest]
    if kept:
        written, first = sum(one[2] for one in kept), kept[-1][0]
        begins = first if len(kept) == ROWS else min(begins, first)
    expected = timing.count_between(spec, after=begins - _MICROSECOND, until=row.due - _MICROSECOND)
    return begins if expected != written else None
