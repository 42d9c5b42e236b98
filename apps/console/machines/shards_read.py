"""Who serves which slice, since when and why, what is due in it, and how the dispatchers are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from django.conf import settings

from apps.console.machines.process import COLUMNS, REFUSED_OF_DISPATCHER, REFUSED_OF_WORKER, ProcessRow, process_of
from apps.due.leases import WHY
from kernel.pools import POOL_NUMBER, RELEASED

Conn = psycopg.Connection[Any]
DUE_COUNTED = 150  # of each shard: 64 of them read about 10,000 index entries at most
DUE_SHOWN = 50
DISPATCHERS_MOST = 100
LOOPS_STUCK_MS = 5_000  # a loop that is so far behind loses its leases
SERVES = {"fire": "fires what is due", "release": "hands tickets to workers", "reconcile": "looks for what came apart",
          "seal": "seals the audit trail"}  # fmt: skip
_POOLS = {number: pool for pool, number in POOL_NUMBER.items()}

_LEASES = """
SELECT l.kind, l.shard, l.owner, d.host, d.pid,
       l.expires_at > clock_timestamp() AND d.expires_at > clock_timestamp() AND d.id IS NOT NULL, l.term,
       extract(epoch FROM l.expires_at - clock_timestamp())::float8, l.taken_at, l.taken_from, l.taken_why
FROM due_shardlease l LEFT JOIN due_dispatcher d ON d.id = l.owner
WHERE l.kind <> 'release' OR l.shard = ANY(%s)
ORDER BY array_position(ARRAY['fire', 'release', 'reconcile', 'seal'], l.kind::text), l.shard
"""

_DUE = """
SELECT s.shard, now.at, (
    SELECT min(due_at) FROM due_dueentry e WHERE e.shard = s.shard AND e.parked = ''),
  (SELECT count(*) FROM (
    SELECT 1 FROM due_dueentry e WHERE e.shard = s.shard AND e.parked = '' AND e.due_at <= now.at LIMIT %(most)s) d)
FROM generate_series(0, %(shards)s - 1) AS s(shard), (SELECT clock_timestamp()) AS now(at)
"""

_DISPATCHERS = f"""
SELECT {COLUMNS}, stats::text, {REFUSED_OF_DISPATCHER}, (
    SELECT count(*) FROM due_shardlease l WHERE l.owner = d.id AND l.expires_at > clock_timestamp())
FROM due_dispatcher d ORDER BY expires_at > clock_timestamp() DESC, started_at DESC LIMIT %s
"""

_STALE = f"SELECT coalesce(sum({REFUSED_OF_WORKER}), 0)::bigint FROM tickets_worker"

_OLDEST = """
SELECT key, tenant_id, kind, due_at, nominal_at, queue, extract(epoch FROM clock_timestamp() - due_at)::float8
FROM due_dueentry WHERE shard = %s AND parked = '' AND due_at <= statement_timestamp() ORDER BY due_at LIMIT %s
"""


class DueRow(NamedTuple):
    """An entry that is due."""

    key: UUID
    tenant_id: int
    kind: str
    due_at: datetime
    nominal_at: datetime
    queue: str
    late_s: float


class LeaseRow(NamedTuple):
    """One slice. `left_s` is until its lease runs out, negative since it has; `due_now` is counted to DUE_COUNTED."""

    kind: str
    shard: int
    owner: UUID | None
    host: str | None
    pid: int | None
    held: bool
    term: int
    left_s: float
    taken_at: datetime | None
    taken_from: UUID | None
    taken_why: str
    oldest_due_s: float | None = None
    due_now: int | None = None

    @property
    def name(self) -> str:
        """ "fire 12", "release http" """
        return f"{self.kind} {_POOLS.get(self.shard, self.shard) if self.kind == 'release' else self.shard}"

    @property
    def key(self) -> str:
        """In addresses."""
        return f"{self.kind}-{self.shard}"

    @property
    def target(self) -> str:
        """As verbs name it."""
        return f"{self.kind}/{self.shard}"

    @property
    def why(self) -> str:
        """Why it changed its holder last, in words; empty before it ever did."""
        if self.taken_at is None:
            return ""
        if not self.taken_why and self.term > 1:  # a dispatcher of the version before gave it up, or took it
            return "not told"
        return WHY.get(self.taken_why, self.taken_why)

    @property
    def more_due(self) -> bool:
        return self.due_now is not None and self.due_now >= DUE_COUNTED


class LoopRow(NamedTuple):
    """One loop of a dispatcher: how far it is behind, errors and counts since the start."""

    name: str
    lag_ms: int
    errors: int
    counts: list[tuple[str, int]]

    @property
    def lag_s(self) -> float:
        return self.lag_ms / 1_000

    @property
    def stuck(self) -> bool:
        return self.lag_ms >= LOOPS_STUCK_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherRow(ProcessRow):
    """One dispatcher."""

    leases: int
    loops: list[LoopRow]
    doubles: int  # occurrences that it was to fire and that were there already

    @property
    def behind(self) -> LoopRow | None:
        """The loop that is furthest behind."""
        return max(self.loops, key=lambda one: one.lag_ms, default=None)

    @property
    def errors(self) -> int:
        return sum(one.errors for one in self.loops)


class Shards(NamedTuple):
    """All of it at one moment. `stale` settlements were refused; the rows are as if they had never come."""

    now: datetime
    leases: list[LeaseRow]
    dispatchers: list[DispatcherRow]
    stale: int

    @property
    def unheld(self) -> list[LeaseRow]:
        return [one for one in self.leases if not one.held]

    @property
    def refused(self) -> int:
        """Writes of processes that had lost what they wrote to: settlements, and fires of what had fired."""
        return self.stale + self.doubles

    @property
    def doubles(self) -> int:
        return sum(one.doubles for one in self.dispatchers)


def shards_read(conn: Conn) -> Shards:
    """Four statements over shared tables."""
    due = {row[0]: row[1:] for row in conn.execute(_DUE, {"shards": settings.SHARDS, "most": DUE_COUNTED})}
    now: datetime = next(iter(due.values()))[0]
    leases = [_with_due(LeaseRow(*row), due) for row in conn.execute(_LEASES, [list(RELEASED)])]
    dispatchers = [_dispatcher(row) for row in conn.execute(_DISPATCHERS, [DISPATCHERS_MOST])]
    stale = conn.execute(_STALE).fetchone()
    return Shards(now, leases, dispatchers, stale[0] if stale else 0)


def due_of_shard(conn: Conn, shard: int, *, limit: int = DUE_SHOWN) -> list[DueRow]:
    """What of a shard is due, for the longest first."""
    return [DueRow(*row) for row in conn.execute(_OLDEST, [shard, limit])]


def loops_of(stats: Mapping[str, Any]) -> list[LoopRow]:
    """What a heartbeat tells of the loops, those that are behind first."""
    found = [
        LoopRow(
            name, int(told.get("lag_ms", 0)), int(told.get("errors", 0)),
            sorted((key, int(count)) for key, count in told.items() if key not in ("lag_ms", "errors")),
        )
        for name, told in stats.items()
        if isinstance(told, dict)
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-one.lag_ms, one.name))


def _with_due(one: LeaseRow, due: Mapping[int, tuple[datetime, datetime | None, int]]) -> LeaseRow:
    if one.kind != "fire" or one.shard not in due:
        return one
    now, oldest, count = due[one.shard]
    late_s = None if oldest is None or oldest > now else (now - oldest).total_seconds()
    return one._replace(oldest_due_s=late_s, due_now=count)


def _dispatcher(row: tuple[Any, ...]) -> DispatcherRow:
    *process, stats, doubles, leases = row
    told = process_of(process, ttl_s=settings.LEASE_TTL_S)
    return DispatcherRow(**told, leases=leases, loops=loops_of(orjson.loads(stats)), doubles=doubles)
