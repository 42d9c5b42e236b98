"""The database's clock went back: due entries that the wrong time had moved are put back, or they would stay silent.

How far the clock has been is kept in a row. When it is CURSOR_AHEAD behind that, this is told, and all due entries are
looked at through the due index, a chunk a pass: first what was to come next by the wrong time, which are the schedules
that run often. Each that waits for a later instant than its schedule says from now on goes back to that one. What the
wrong time fired has its execution, and the unique (schedule, nominal instant) refuses a second one; what it passed over
runs.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.findings import CHUNK, NOTHING
from apps.dispatch.repairs_schedules import put_right
from apps.due import entries
from apps.schedules import policy, timing
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
MARK_EVERY = timedelta(seconds=10)
SOON = timedelta(hours=1)  # after the time that the clock had reached
_END = datetime(9999, 1, 1, tzinfo=UTC)

_READ = """
SELECT clock_timestamp(), m.seen_at, m.ahead_until FROM (SELECT 1) o LEFT JOIN due_clockmark m ON true
"""
_SEEN = """
INSERT INTO due_clockmark (id, seen_at) VALUES (1, %s)
ON CONFLICT (id) DO UPDATE SET seen_at = greatest(due_clockmark.seen_at, excluded.seen_at)
"""
_WENT_BACK = """
UPDATE due_clockmark SET ahead_until = greatest(ahead_until, seen_at), seen_at = %s WHERE seen_at = %s RETURNING 1
"""
_DONE = "UPDATE due_clockmark SET ahead_until = NULL WHERE ahead_until = %s"


class _Part(NamedTuple):
    """What is still to be looked at of a shard: entries later than (due_at, key), up to `until`."""

    shard: int
    due_at: datetime
    key: UUID
    until: datetime


class ClockWatch:
    """One step a pass of reconcile. For one thread."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._ahead_until: datetime | None = None  # what the parts are of
        self.now = _END  # the database's time at the last step

    def step(self, conn: Conn, registry: Registry) -> dict[str, int]:
        """Counts: `clock_went_back`, `cursor_ahead` (entries that were put back), `clock_looked_at`."""
        row = conn.execute(_READ).fetchone()
        assert row is not None
        now, seen_at, ahead_until = row
        self.now = now
        counts: dict[str, int] = {}
        if seen_at is None or now >= seen_at + MARK_EVERY:
            conn.execute(_SEEN, [now])
        elif now < seen_at - policy.CURSOR_AHEAD and conn.execute(_WENT_BACK, [now, seen_at]).fetchone():
            log.error("the database's clock went back from %s to %s: looking at all due entries", seen_at, now)
            counts["clock_went_back"] = 1
            ahead_until = max(seen_at, ahead_until or seen_at)
        if ahead_until is not None:
            counts |= self._look(conn, registry, now, ahead_until)
        return counts

    @property
    def busy(self) -> bool:
        """Whether there is more to look at now."""
        return bool(self._parts)

    def _look(self, conn: Conn, registry: Registry, now: datetime, ahead_until: datetime) -> dict[str, int]:
        if self._ahead_until != ahead_until:
            self._ahead_until, self._parts = ahead_until, _parts(now, ahead_until)
        if not self._parts:  # a step that failed left nothing undone: its part is still there
            conn.execute(_DONE, [ahead_until])
            self._ahead_until = None
            return {}
        part = self._parts[-1]
        rows = entries.read_after(
            conn, part.shard, due_at=part.due_at, key=part.key, until=part.until, limit=CHUNK
        )  # fmt: skip
        counts = _put_back(conn, registry, [row for row in rows if _is_ahead(row, now)])
        self._parts.pop()
        if len(rows) == CHUNK:
            self._parts.append(part._replace(due_at=rows[-1].due_at, key=rows[-1].key))
        return {"clock_looked_at": len(rows), **counts}


def _parts(now: datetime, ahead_until: datetime) -> list[_Part]:
    """Last comes first: all shards up to a while after the time that the clock had reached, then all the rest."""
    first, soon = now + policy.CURSOR_AHEAD, ahead_until + SOON
    rest = [_Part(shard, soon, NOTHING, _END) for shard in range(settings.SHARDS)]
    return rest + [_Part(shard, first, NOTHING, soon) for shard in range(settings.SHARDS)]


def _is_ahead(entry: entries.Entry, now: datetime) -> bool:
    if entry.kind != "schedule":
        return False
    try:
        return policy.cursor_is_ahead(timing.spec_from_json(entry.spec), nominal_at=entry.nominal_at, now=now)
    except timing.TimingInvalid:
        return False


def _put_back(conn: Conn, registry: Registry, found: Sequence[entries.Entry]) -> dict[str, int]:
    """Those that are only paused until a time, or otherwise right, stay. A tenant that does not answer is left out."""
    by_tenant: dict[int, list[UUID]] = defaultdict(list)
    for entry in found:
        by_tenant[entry.tenant_id].append(entry.key)
    counts: Counter[str] = Counter()
    for tenant_id, keys in by_tenant.items():
        tenancy = registry.get(tenant_id)
        if tenancy is None:
            continue
        try:
            with conn.transaction():
                findings = put_right(conn, tenancy, keys, dry_run=False)
        except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable) as error:
            log.warning("tenant %s could not be looked at after the clock went back: %s", tenancy.slug, error)
            continue
        counts.update(finding.check for finding in findings)
        if findings:
            shown = "; ".join(f"{one.object_id} {one.detail}" for one in findings[:5])
            log.error("put %d due entries of %s back: %s", len(findings), tenancy.slug, shown)
    return dict(counts)
