"""What the rows of dispatchers and workers have in common: a process that renews its row until it is gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

COLUMNS = (
    "id, host, pid, version, started_at, expires_at, expires_at > clock_timestamp(), draining, drain_wanted, skew_ms"
)
# Late writes of one process that were refused, since its start: a worker's settlements of attempts that were over, and
# a dispatcher's fires of what had fired, which each of its loops tells.
REFUSED_OF_WORKER = "coalesce((stats->'settled'->>'stale')::bigint, 0)"
REFUSED_OF_DISPATCHER = """(
    SELECT coalesce(sum((loop.value->>'already_there')::bigint), 0)::bigint FROM jsonb_each(stats) loop
    WHERE jsonb_typeof(loop.value) = 'object')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process. `beat_at` is its last heartbeat."""

    id: UUID
    host: str
    pid: int
    version: str
    started_at: datetime
    beat_at: datetime
    live: bool
    draining: bool
    drain_wanted: bool
    skew_ms: int

    @property
    def skewed(self) -> bool:
        return abs(self.skew_ms) > settings.CLOCK_WARN_S * 1_000


def process_of(row: Sequence[Any], *, ttl_s: float) -> dict[str, Any]:
    """The fields of a process, from COLUMNS. Each heartbeat lets its row live for `ttl_s`."""
    id_, host, pid, version, started_at, expires_at, live, draining, drain_wanted, skew_ms = row
    return {
        "id": id_, "host": host, "pid": pid, "version": version, "started_at": started_at,
        "beat_at": max(expires_at - timedelta(seconds=ttl_s), started_at), "live": live, "draining": draining,
        "drain_wanted": drain_wanted, "skew_ms": skew_ms,
    }  # fmt: skip
