"""One look over a shard: its due entries are read in one snapshot, grouped, and expanded a little at a time."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.due import forecast
from apps.due.forecast import Planned
from apps.schedules.forecasting import BINS, Expander
from apps.schedules.timing import TimingInvalid, spec_from_json
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
PAGE = 2_000
KEYS_SHOWN = 5  # of a tenant in a full minute
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@dataclass(slots=True)
class Members:
    """Entries that run at the same instants: how many, by tenant, and some of their keys."""

    first: Planned
    counts: dict[int, int] = field(default_factory=dict)
    keys: dict[int, list[UUID]] = field(default_factory=dict)

    def add(self, entry: Planned) -> None:
        tenant_id = entry.tenant_id
        self.counts[tenant_id] = self.counts.get(tenant_id, 0) + 1
        keys = self.keys.setdefault(tenant_id, [])
        if len(keys) < KEYS_SHOWN:
            keys.append(entry.key)


@dataclass(slots=True)
class Crowd:
    """Who is in the minutes that are watched: by bin and tenant the runs, and some schedules."""

    watched: Collection[int] = ()
    runs: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    keys: dict[tuple[int, int], list[UUID]] = field(default_factory=lambda: defaultdict(list))

    def add(self, index: int, members: Members, times: int) -> None:
        for tenant_id, count in members.counts.items():
            self.runs[index][tenant_id] += count * times
            kept = self.keys[index, tenant_id]
            kept.extend(members.keys[tenant_id][: KEYS_SHOWN - len(kept)])


@dataclass(slots=True)
class ShardLook:
    """A shard that is being expanded. `changes` are those that its entries, as they were read, have already."""

    shard: int
    read_at: datetime
    changes: list[int]
    entries: int = 0
    bins: list[int] = field(default_factory=lambda: [0] * BINS)
    zones: set[str] = field(default_factory=set)
    _alike: dict[tuple[str, datetime], Members] = field(default_factory=dict)
    _apart: list[Planned] = field(default_factory=list)

    def expand(self, expander: Expander, crowd: Crowd, *, for_s: float) -> bool:
        """Goes on for about so many seconds; whether all is done."""
        until = monotonic_s() + for_s
        for members in self._drained():
            pattern = expander.pattern(members.first)
            times = sum(members.counts.values())
            bins = self.bins
            for index, count in pattern.bins:
                bins[index] += count * times
            opens = list(expander.of_opens(pattern, str(members.first.key))) if pattern.opens else []
            for index, count in opens:
                bins[index] += count * times
            for index in crowd.watched:
                if runs := pattern.runs_in(index) + sum(count for at, count in opens if at == index):
                    crowd.add(index, members, runs)
            self._note_zone(members.first)
            if monotonic_s() >= until:
                return False
        return True

    def _drained(self) -> Iterator[Members]:
        while self._alike:
            yield self._alike.popitem()[1]
        while self._apart:
            entry = self._apart.pop()
            members = Members(entry)
            members.add(entry)
            yield members

    def _note_zone(self, entry: Planned) -> None:
        if entry.kind == "schedule":
            with suppress(TimingInvalid):
                self.zones.add(spec_from_json(entry.spec).zone)

    def take(self, entry: Planned) -> None:
        """One entry more. Only jitter and a number of runs make those apart that are written alike."""
        self.entries += 1
        if entry.kind != "schedule" or '"jitter_s":0,' not in entry.spec or '"max_runs"' in entry.spec:
            self._apart.append(entry)
            return
        at = (entry.spec, entry.nominal_at)
        members = self._alike.get(at)
        if members is None:
            members = self._alike[at] = Members(entry)
        members.add(entry)


def look(conn: Conn, shard: int, *, now: datetime, until: datetime, serves: Callable[[int], bool]) -> ShardLook:
    """Reads a shard's entries that are due before `until`, of tenants that are served, in one snapshot."""
    with conn.transaction():
        conn.execute(SNAPSHOT)
        found = ShardLook(shard, now, forecast.changes_of(conn, shard))
        for page in forecast.planned(conn, shard, until=until, size=PAGE):
            for entry in page:
                if serves(entry.tenant_id):
                    found.take(entry)
    return found
