"""What processes have counted since they started of what went wrong and was put right, as their heartbeats tell it.

A process is its host and pid. Of several rows of one the newest counts: its counters begin anew, as a counter may.
The row of one that was killed stays for an hour, that of one that ended in order goes at once.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg

from apps.dispatch.findings import REPAIRS

Conn = psycopg.Connection[Any]
RECONCILE, RELEASE = "reconcile", "release"  # how the loops are called that count; there is a release of each pool
GAPS = ("gap", "incomplete")

_DISPATCHERS = """
SELECT DISTINCT ON (host, pid) host || ':' || pid, stats FROM due_dispatcher ORDER BY host, pid, started_at DESC
"""
_WORKERS = """
SELECT DISTINCT ON (host, pid) host || ':' || pid, stats->'settled' FROM tickets_worker
ORDER BY host, pid, started_at DESC
"""


class OfDispatcher(NamedTuple):
    """Since it started. `repairs` are by check; `gaps` counts a schedule at each look that finds one in it."""

    lost: int
    released_again: int
    repairs: Mapping[str, int]
    gaps: int


class Counted(NamedTuple):
    """By process. `stale`: settlements that came too late and changed nothing."""

    dispatchers: Mapping[str, OfDispatcher] = {}
    stale: Mapping[str, int] = {}


def read(conn: Conn) -> Counted:
    """Two short statements."""
    stats: dict[str, dict[str, Any]] = dict(conn.execute(_DISPATCHERS).fetchall())
    stale: Counter[str] = Counter()
    for process, loops in stats.items():
        stale[process] += loops.get(RECONCILE, {}).get("lost_stale", 0)
    for process, settled in conn.execute(_WORKERS):
        stale[process] += (settled or {}).get("stale", 0)
    return Counted({process: of_dispatcher(loops) for process, loops in stats.items()}, stale)


def of_dispatcher(loops: Mapping[str, Mapping[str, int]]) -> OfDispatcher:
    """From the totals of its loops, by name."""
    reconcile = loops.get(RECONCILE, {})
    again = [done.get("released_again", 0) for name, done in loops.items() if name.split()[0] == RELEASE]
    return OfDispatcher(
        lost=reconcile.get("lost", 0), released_again=sum(again),
        repairs={check: reconcile.get(check, 0) for check in REPAIRS},
        gaps=sum(reconcile.get(check, 0) for check in GAPS),
    )  # fmt: skip
