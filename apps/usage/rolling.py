"""Summing up: what transactions noted (`deltas`) becomes rows of minutes, hours and days, and old rows go.

One process does it at a time, in transactions that are short: a note is taken away in the one that adds it to its sums,
so each counts once, whatever stops in between. Days, hours and minutes are changed together: none waits for another to
be over, and a late note finds its way.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg

from apps.usage import rolling_failures
from apps.usage.figures import COLUMNS, COUNTED, FIRED, HISTOGRAMS, SUBMITTED, start_of
from apps.usage.models import STEPS
from kernel.clock import monotonic_s

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
EVERY_S = 5.0  # most of the cost is by row and not by note: rarely is cheaper
BATCH = 500  # notes in one transaction
PRUNE_EVERY_S = 60.0
PRUNE_BATCH = 2_000
LOCK_TIMEOUT_MS = 1_000
KEPT = {60: timedelta(days=2), 3_600: timedelta(days=90), 86_400: timedelta(days=800)}
PLATFORM_KEPT = {**KEPT, 60: timedelta(days=8)}  # a minute is compared with the one a week ago
DAYS_KEPT = timedelta(days=32)
NOTICES_KEPT = timedelta(days=3)

PLATFORM = 0  # in the place of a tenant: all of them

Key = tuple[int, datetime, int]  # step in seconds, start, tenant

_TAKE = """
WITH found AS MATERIALIZED (SELECT id FROM usage_delta ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
DELETE FROM usage_delta d USING found f WHERE d.id = f.id RETURNING d.minute, d.counts, d.failures
"""

_ALL = [*COLUMNS.values(), *HISTOGRAMS.values()]
_TYPED = ", ".join(
    ["step_s int", "starts_at timestamptz", "tenant_id int"]
    + [f"{name} bigint" for name in COLUMNS.values()]
    + [f"{name} int[]" for name in HISTOGRAMS.values()]
)
_SUM = ", ".join(
    [f"{name} = r.{name} + excluded.{name}" for name in COLUMNS.values()]
    + [
        f"{name} = CASE WHEN excluded.{name} IS NULL THEN r.{name} WHEN r.{name} IS NULL THEN excluded.{name} ELSE"
        f" (SELECT array_agg(coalesce(u.a, 0) + coalesce(u.b, 0) ORDER BY u.i)"
        f" FROM unnest(r.{name}, excluded.{name}) WITH ORDINALITY AS u(a, b, i)) END"
        for name in HISTOGRAMS.values()
    ]
)
_ADD = f"""
INSERT INTO usage_rollup AS r (step_s, starts_at, tenant_id, {", ".join(_ALL)})
SELECT m.* FROM json_to_recordset(%s::json) AS m({_TYPED}) JOIN tenants_tenant t ON t.id = m.tenant_id
ORDER BY m.step_s, m.starts_at, m.tenant_id
ON CONFLICT (step_s, starts_at, tenant_id) DO UPDATE SET {_SUM}
"""

_ADD_PLATFORM = f"""
INSERT INTO usage_platformrollup AS r (step_s, starts_at, {", ".join(_ALL)})
SELECT {", ".join(["m.step_s", "m.starts_at", *(f"m.{name}" for name in _ALL)])}
FROM json_to_recordset(%s::json) AS m({_TYPED}) ORDER BY m.step_s, m.starts_at
ON CONFLICT (step_s, starts_at) DO UPDATE SET {_SUM}
"""

_COUNT = """
INSERT INTO usage_daycount AS d (tenant_id, day, runs)
SELECT m.tenant_id, m.day, m.runs FROM unnest(%s::int[], %s::date[], %s::bigint[]) AS m(tenant_id, day, runs)
JOIN tenants_tenant t ON t.id = m.tenant_id ORDER BY m.tenant_id, m.day
ON CONFLICT (tenant_id, day) DO UPDATE SET runs = greatest(0, d.runs + excluded.runs)
"""

_OLD_ROLLUPS = """
DELETE FROM usage_rollup WHERE (step_s, starts_at, tenant_id) IN (
    SELECT step_s, starts_at, tenant_id FROM usage_rollup WHERE step_s = %s AND starts_at < %s
    ORDER BY starts_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_OLD_PLATFORM = "DELETE FROM usage_platformrollup WHERE step_s = %s AND starts_at < %s"
_OLD_BACKLOGS = "DELETE FROM usage_backlog WHERE minute < %s"
_OLD_DAYS = "DELETE FROM usage_daycount WHERE day < %s"
_OLD_NOTICES = "DELETE FROM usage_notice WHERE day < %s"

# Tenants that are gone, found by jumping from one to the next in the index.
_GONE = """
WITH RECURSIVE known AS (
    (SELECT tenant_id FROM usage_rollup ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.tenant_id FROM usage_rollup r WHERE r.tenant_id > k.tenant_id ORDER BY r.tenant_id LIMIT 1)
    FROM known k WHERE k.tenant_id IS NOT NULL
), gone AS (
    SELECT k.tenant_id FROM known k LEFT JOIN tenants_tenant t ON t.id = k.tenant_id
    WHERE k.tenant_id IS NOT NULL AND t.id IS NULL LIMIT 1)
DELETE FROM usage_rollup WHERE (step_s, starts_at, tenant_id) IN (
    SELECT r.step_s, r.starts_at, r.tenant_id FROM usage_rollup r JOIN gone g ON g.tenant_id = r.tenant_id LIMIT %s)
"""


class Rolling:
    """A part of each reconcile pass. For one thread."""

    def __init__(self) -> None:
        self.full = False  # whether the last step left some
        self._roll_at = self._prune_at = float("-inf")

    def step(self, conn: Conn, *, now: datetime) -> dict[str, int]:
        """One bounded step when it is time for one; raises only when the connection is lost."""
        counts: dict[str, int] = {}
        if not self.full and monotonic_s() < self._roll_at:
            return counts
        try:
            counts["usage_noted"] = roll_up(conn)
            if monotonic_s() >= self._prune_at:
                counts["usage_forgotten"] = prune(conn, now=now)
                self._prune_at = monotonic_s() + PRUNE_EVERY_S
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("figures of usage could not be summed up, they are at the next step", exc_info=True)
        self.full = counts.get("usage_noted", 0) >= BATCH
        self._roll_at = monotonic_s() + EVERY_S
        return {name: count for name, count in counts.items() if count}


def roll_up(conn: Conn, *, limit: int = BATCH) -> int:
    """Adds up to `limit` notes to their minutes, hours and days, in one transaction; says how many."""
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        notes = conn.execute(_TAKE, [limit]).fetchall()
        sums = _sums([(minute, text) for minute, text, _ in notes])
        if sums:
            of_tenants = [_row(*item) for item in sums.items() if item[0][2] != PLATFORM]
            of_platform = [_row(*item) for item in sums.items() if item[0][2] == PLATFORM]
            conn.execute(_ADD, [orjson.dumps(of_tenants).decode()])
            conn.execute(_ADD_PLATFORM, [orjson.dumps(of_platform).decode()])
        rolling_failures.add(conn, [(minute, text) for minute, _, text in notes if text is not None])
        uncounted = []
        for (step_s, starts_at, tenant_id), of_row in sums.items():
            runs = of_row.get(FIRED, 0) + of_row.get(SUBMITTED, 0) - of_row.get(COUNTED, 0)
            if step_s == 86_400 and tenant_id != PLATFORM and runs:
                uncounted.append((tenant_id, starts_at.date(), runs))
        if uncounted:
            conn.execute(_COUNT, [list(column) for column in zip(*uncounted, strict=True)])
    return len(notes)


def prune(conn: Conn, *, now: datetime, limit: int = PRUNE_BATCH) -> int:
    """Removes up to `limit` rows of each kind that are old, or whose tenant is gone; says how many."""
    today = now.astimezone(UTC).date()
    gone = sum(conn.execute(_OLD_ROLLUPS, [step_s, now - kept, limit]).rowcount for step_s, kept in KEPT.items())
    for step_s, kept in PLATFORM_KEPT.items():
        gone += conn.execute(_OLD_PLATFORM, [step_s, now - kept]).rowcount
    gone += conn.execute(_OLD_BACKLOGS, [now - PLATFORM_KEPT[60]]).rowcount
    gone += rolling_failures.prune(conn, now=now)
    gone += conn.execute(_GONE, [limit]).rowcount
    gone += conn.execute(_OLD_DAYS, [today - DAYS_KEPT]).rowcount
    return gone + conn.execute(_OLD_NOTICES, [today - NOTICES_KEPT]).rowcount


def _sums(notes: Sequence[tuple[datetime, str]]) -> dict[Key, dict[int, int]]:
    minutes: dict[datetime, dict[tuple[int, int], int]] = defaultdict(dict)
    for minute, text in notes:
        of_minute = minutes[minute]
        for tenant_id, key, count in orjson.loads(text):
            at = (tenant_id, key)
            of_minute[at] = of_minute.get(at, 0) + count
    for of_minute in minutes.values():
        for (_, key), count in list(of_minute.items()):
            at = (PLATFORM, key)
            of_minute[at] = of_minute.get(at, 0) + count
    sums: dict[Key, dict[int, int]] = defaultdict(dict)
    for minute, of_minute in minutes.items():
        for step_s in STEPS:
            starts_at = start_of(minute, step_s)
            for (tenant_id, key), count in of_minute.items():
                of_row = sums[step_s, starts_at, tenant_id]
                of_row[key] = of_row.get(key, 0) + count
    return sums


def _row(key: Key, counts: dict[int, int]) -> dict[str, Any]:
    step_s, starts_at, tenant_id = key
    row: dict[str, Any] = {"step_s": step_s, "starts_at": starts_at, "tenant_id": tenant_id}
    row |= {name: counts.get(number, 0) for number, name in COLUMNS.items()}
    for base, name in HISTOGRAMS.items():
        buckets = {number - base: count for number, count in counts.items() if base <= number < base + 100}
        row[name] = [buckets.get(at, 0) for at in range(max(buckets) + 1)] if buckets else None
    return row
