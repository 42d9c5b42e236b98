"""One look over a shard: its due entries are read in one snapshot, grouped by the database, and expanded bit by bit."""

from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg

from apps.due import forecast
from apps.due.forecast import Alike, Shard
from apps.schedules.forecasting import BINS, Expander, Pattern
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
PAGE = 500
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class ShardLook:
    """A shard that is being expanded. `changes` are those that its entries, as they were read, have already.

    It may take minutes: what changes in that time is added by `move`, as it is to what was known before.
    """

    def __init__(
        self, conn: Conn, shard: int, *, now: datetime, expander: Expander, tenants: Sequence[int]
    ) -> None:  # fmt: skip
        self.shard, self.expander, self.read_at = shard, expander, now
        with conn.transaction():
            conn.execute(SNAPSHOT)
            self.changes = frozenset(forecast.changes_of(conn, shard))
            self.rows = forecast.alike(conn, shard, until=expander.until, tenants=tenants)
        self.groups = 0  # that were expanded
        self.zones: set[str] = set()
        self._entries = 0
        self._bins = [0] * BINS
        self._page: list[tuple[Any, ...]] = []
        self._times: dict[int, tuple[Pattern, int]] = {}  # of this page's patterns; each is added to the bins once

    def go_on(self, *, for_s: float) -> bool:
        """Goes on for about so many seconds, at least by one group; whether all is done."""
        until = monotonic_s() + for_s
        while True:
            if not self._page:
                self._page = self.rows.fetch(PAGE)
                self._add_up()
            if not self._page:
                self.rows.close()
                return True
            self._add(Alike._make(self._page.pop()))
            if monotonic_s() >= until:
                return False

    def move(self, runs: Mapping[int, int], entries: int) -> None:
        """So many runs more by bin, and so many entries. What is taken off may still have to be expanded."""
        for index, count in runs.items():
            self._bins[index] += count
        self._entries += entries

    def found(self) -> Shard:
        """What is expected of the shard; nothing goes below none."""
        bins = array("q", (max(0, count) for count in self._bins)) if any(self._bins) else array("q")
        return Shard(self.shard, self.expander.starts_at, self.read_at, max(0, self._entries), bins)

    def _add(self, alike: Alike) -> None:
        pattern = self.expander.pattern(alike)
        self._times[id(pattern)] = pattern, self._times.get(id(pattern), (pattern, 0))[1] + alike.many
        if pattern.opens:
            for index, count in self.expander.of_opens(pattern, str(alike.key)):
                self._bins[index] += count * alike.many
        if zone := self.expander.zone(alike):
            self.zones.add(zone)
        self._entries += alike.many
        self.groups += 1

    def _add_up(self) -> None:
        for pattern, times in self._times.values():
            for index, count in pattern.bins:
                self._bins[index] += count * times
        self._times.clear()
