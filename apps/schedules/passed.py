"""Occurrences that were due and not yet fired when their schedule was edited, paused or deleted: each is accounted for.

Their due entry goes, so that nothing fires by itself; a row says how many did not run, and why.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import psycopg

from apps.due.entries import Entry
from apps.executions import store as executions
from apps.schedules.timing import TimingInvalid, latest_between, spec_from_json
from apps.schedules.timing_runs import counted
from apps.usage import deltas
from apps.usage.figures import SKIPPED, Tally
from kernel.ids import occurrence_run_key, uuid7

Conn = psycopg.Connection[Any]
_MICROSECOND = timedelta(microseconds=1)


def pass_over(conn: Conn, schema: str, found: Iterable[Entry], *, now: datetime, reason: str, by: str) -> None:
    """Records what these locked entries of schedules owe up to `now`. Their rows are the caller's to remove."""
    tally, rows = Tally(), []
    for entry in found:
        if entry.nominal_at <= now:
            rows.append(_skipped(entry, now, reason, by[:80]))
            tally.add(entry.tenant_id, SKIPPED, rows[-1].occurrences)
    if rows:
        executions.skip(conn, schema, rows, now=now)
        deltas.add(conn, tally, now=now)


def _skipped(entry: Entry, now: datetime, reason: str, by: str) -> executions.Skipped:
    until, count = entry.nominal_at, 1
    try:
        spec, _ = counted(spec_from_json(entry.spec), nominal_at=entry.nominal_at, done=entry.runs_done)
        newest, count = latest_between(spec, after=entry.nominal_at - _MICROSECOND, until=now, limit=1)
        until = newest[-1] if newest else entry.nominal_at
    except TimingInvalid:  # it was put aside for that; what can be said is that this one did not run
        pass
    return executions.Skipped(
        uuid7(), occurrence_run_key(entry.key, entry.nominal_at), entry.job_id, entry.job_version, entry.key,
        entry.version, entry.priority, entry.nominal_at, until, max(1, count), reason, by,
    )  # fmt: skip
