"""Keeping the forecast: changes within seconds, every shard anew now and then, and never much of the time.

The shard whose look is the oldest comes next; its row says how old, so whoever takes over goes on there. What changes
while a shard is looked at is added to what was known of it before and to what is being found.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.forecast.crowd import CrowdLook
from apps.dispatch.forecast.looking import ShardLook
from apps.dispatch.forecast.pacing import EVERY_S, FIRST_SHARE, LEAST_SHARE, MOST_SHARE, Pace
from apps.dispatch.forecast.summing import clock_changes, fullest, summed, whole_hour, with_runs
from apps.dispatch.keeper import Keeper
from apps.due import forecast
from apps.due.forecast import HOUR, MINUTE, WEEK_HOURS, Change, Planned, Shard, Total
from apps.schedules.forecasting import BINS, SLACK_HOURS, Expander
from kernel.clock import monotonic_s
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
LEASE_KIND = "reconcile"
BEGIN_S = 3.0  # after the lease was taken: what is due goes first
STEP_S = 0.25  # of work at a time, so that a stop and what is due do not wait for it
REST_MAX_S = 60.0
LOOK_EVERY = timedelta(minutes=30)  # at a shard: what nobody said comes in
CROWD_EVERY, CROWD_SOON = timedelta(minutes=30), timedelta(minutes=5)  # soon: another minute is the fullest one now
TOTAL_EVERY = timedelta(minutes=1)  # at least: it says that somebody keeps it
SHARDS_EVERY = timedelta(seconds=5)  # while shards come in
CHANGES = 1_000
UNTOLD_SHARE = 0.01  # of the entries: when tenants with so many begin or end to be served, no shard is as it was


class ForecastService:
    """Runs where the reconcile lease is held. One thread, one connection."""

    name = "forecast"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._pace = Pace(0.0, 0.0)
        self._shards: dict[int, Shard] | None = None
        self._total: Total | None = None
        self._look: ShardLook | CrowdLook | None = None
        self._expander: Expander | None = None
        self._zones: dict[int, set[str]] = {}  # by shard, of those that were looked at here
        self._crowd_at: datetime | None = None  # when somebody looked last who is in the fullest minutes
        self._by_tenant: Counter[int] = Counter()  # entries, of those that were looked at then
        self._served: frozenset[int] | None = None
        self._untold_since: datetime | None = None  # older looks are not what is expected now
        self._differs = False  # whether something is not in the total yet

    def run_once(self) -> Pass:
        began = monotonic_s()
        if not self._keeper.held(LEASE_KIND):
            self._forget()
            self._pace = Pace(began + BEGIN_S, began + BEGIN_S)
            return Pass(wait_s=EVERY_S)
        if (wait_s := self._pace.wait_s(began)) > 0:
            return Pass(wait_s=wait_s)
        try:
            conn = self._line.get()
            self._registry.refresh()
            now, changed = forecast.news(conn)
            counts = self.step(conn, now, looks=began >= self._pace.looks_at, changed=changed)
        except Exception:  # what is known here may not be what is written
            self._forget()
            raise
        return Pass(counts, wait_s=self._pace.wait_s(monotonic_s()))

    def close(self) -> None:
        self._line.close()

    def step(self, conn: Conn, now: datetime, *, looks: bool = True, changed: bool = True) -> dict[str, int]:
        """A little of what there is to do: changes first, if there may be any, then, with `looks`, a part of a look."""
        if self._look is not None and self._look.rows.conn is not conn:
            self._forget()
        if self._shards is None:
            self._shards = {
                one.shard: one
                for one in forecast.read_shards(conn)
                if one.shard < settings.SHARDS and len(one.runs) in (0, BINS)  # another version may have other bins
            }
            self._total = forecast.read(conn)
        self._notice_served(now)
        began = monotonic_s()
        counts = {"changes": self._add_changes(conn, now) if changed else 0, "expanded": 0, "shards": 0, "crowds": 0}
        added = monotonic_s()
        if looks:
            self._go_on(conn, now, counts)
        looked = monotonic_s()
        self._tell(conn, now, added=counts["changes"] > 0)
        ended = monotonic_s()
        self._pace.changed(ended, added - began + ended - looked)
        return counts

    def _forget(self) -> None:
        if self._look is not None:
            self._look.rows.close()
        self._shards = self._total = self._look = None
        self._differs = False

    def _notice_served(self, now: datetime) -> None:
        """No change tells that a tenant is suspended, or no longer."""
        served = frozenset(one.id for one in self._registry.by_id.values() if one.active)
        if self._served is not None and served != self._served:
            moved = sum(self._by_tenant[tenant_id] for tenant_id in served ^ self._served)
            if moved > self._by_tenant.total() * UNTOLD_SHARE:
                self._untold_since = now
        self._served = served

    def _go_on(self, conn: Conn, now: datetime, counts: dict[str, int]) -> None:
        """Looks on for STEP_S, or a little more."""
        began, least = monotonic_s(), self._least_share(now)
        while (left_s := began + STEP_S - monotonic_s()) > 0:
            look = self._look = self._look or self._next_look(conn, now)
            if look is None:
                break
            before = look.groups
            whole = look.go_on(for_s=left_s)
            counts["expanded"] += look.groups - before
            if not whole:
                break
            self._look = None
            if isinstance(look, ShardLook):
                self._write_shard(conn, look)
                counts["shards"] += 1
            else:
                self._keep_crowd(look, now)
                counts["crowds"] += 1
            self._differs = True
        ended, whole_ones = monotonic_s(), counts["shards"] + counts["crowds"]
        if not whole_ones and self._look is None:
            self._pace.nothing(ended)
        else:
            self._pace.looked(ended, ended - began, whole=whole_ones, shards=settings.SHARDS, least=least)

    def _next_look(self, conn: Conn, now: datetime) -> ShardLook | CrowdLook | None:
        assert self._served is not None
        shard = self._next_shard(now)
        watched = [] if shard is not None else self._next_crowd(now)
        if shard is None and not watched:
            return None
        expander = self._expander
        if expander is None or expander.starts_at != whole_hour(now):
            expander = self._expander = Expander(whole_hour(now), now)
        expander.look_from(now)
        if shard is not None:
            return ShardLook(conn, shard, now=now, expander=expander, tenants=sorted(self._served))
        assert self._total is not None
        return CrowdLook(
            conn, watched=[(at - expander.starts_at) // MINUTE for at in watched], expander=expander,
            entries=self._total.entries, tenants=self._served,
        )  # fmt: skip

    def _least_share(self, now: datetime) -> float:
        """More while something is not known, or known to be wrong."""
        assert self._shards is not None
        if any(not self._reaches(number, now) for number in range(settings.SHARDS)):
            return FIRST_SHARE
        since = self._untold_since
        wrong = since is not None and any(one.made_at < since for one in self._shards.values())
        return MOST_SHARE if wrong else LEAST_SHARE

    def _reaches(self, number: int, now: datetime) -> bool:
        """Whether a shard is known for a day and a week from now on."""
        shard = (self._shards or {}).get(number)
        return shard is not None and 0 <= (whole_hour(now) - shard.starts_at) // HOUR <= SLACK_HOURS

    def _next_shard(self, now: datetime) -> int | None:
        """One that is not known; else the oldest one, when it is time. One from the future is the clock's mistake."""
        assert self._shards is not None
        for number in range(settings.SHARDS):
            if not self._reaches(number, now):
                return number
        made = {number: self._shards[number].made_at for number in range(settings.SHARDS)}
        oldest = min(made, key=lambda number: made[number])
        if made[oldest] <= now - LOOK_EVERY or (self._untold_since is not None and made[oldest] < self._untold_since):
            return oldest
        return next((number for number, at in made.items() if at > now), None)

    def _next_crowd(self, now: datetime) -> list[datetime]:
        """The minutes of which it is time to say who is in them."""
        total = self._total
        if total is None or total.shards < settings.SHARDS or self._differs:
            return []
        if self._crowd_at is not None:
            seen = {one["at"] for one in total.peaks}
            soon = any(at not in seen for at in fullest(total, now, 1))
            if timedelta() <= now - self._crowd_at < (CROWD_SOON if soon else CROWD_EVERY):
                return []
        return fullest(total, now)

    def _write_shard(self, conn: Conn, done: ShardLook) -> None:
        assert self._shards is not None
        shard = done.found()
        with conn.transaction():
            forecast.write_shard(conn, shard)
            forecast.drop_changes(conn, list(done.changes))
        self._shards[done.shard], self._zones[done.shard] = shard, done.zones

    def _keep_crowd(self, done: CrowdLook, now: datetime) -> None:
        assert self._total is not None
        self._total = self._total._replace(peaks=done.peaks())
        self._by_tenant, self._crowd_at = done.by_tenant, now

    def _add_changes(self, conn: Conn, now: datetime) -> int:
        """What the entries that changed ran before is taken off, and what they run now is put on."""
        assert self._shards is not None
        look = self._look if isinstance(self._look, ShardLook) else None
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            changed = forecast.take_changes(conn, limit=CHANGES)
            after = {entry.key: entry for entry in forecast.planned_of(conn, list(changed))}
            found = {}
            for number, moved in _by_shard(changed, after).items():
                shard = self._shards.get(number)
                if shard is not None:  # else the look that comes to it reads them
                    runs, entries = self._runs_of(moved, Expander(shard.starts_at, now))
                    found[number] = with_runs(shard, runs, entries)
                    forecast.write_shard(conn, found[number])
        self._shards |= found
        if look is not None:
            later = {key: [one for one in some if one.id not in look.changes] for key, some in changed.items()}
            moved = _by_shard(later, after).get(look.shard, [])
            look.move(*self._runs_of(moved, Expander(look.expander.starts_at, now)))
        return len(changed)

    def _runs_of(self, moved: Iterable[tuple[Planned, int]], expander: Expander) -> tuple[Counter[int], int]:
        """The runs of some entries by bin, each taken so many times, and how many entries these are."""
        runs, entries = Counter[int](), 0
        for entry, times in moved:
            if entry.due_at < expander.until and self._serves(entry.tenant_id):
                entries += times
                for index, count in expander.runs(entry):
                    runs[index] += times * count
        return runs, entries

    def _tell(self, conn: Conn, now: datetime, *, added: bool) -> None:
        """Writes the total when it is another one, not too often; else that it still holds."""
        self._differs = self._differs or added
        total = self._total
        age = TOTAL_EVERY if total is None else now - total.made_at
        if timedelta() <= age < TOTAL_EVERY:
            if not self._differs:
                return
            all_in = self._look is None and self._next_shard(now) is None
            if not (added or age >= SHARDS_EVERY or all_in):
                return
        if total is not None and not self._differs and total.starts_at == whole_hour(now):
            self._total = total._replace(made_at=now)
            if forecast.still(conn, self._total):
                return
        self._write_total(conn, now)

    def _write_total(self, conn: Conn, now: datetime) -> None:
        assert self._shards is not None
        before = self._total
        zones = set[str]().union(*self._zones.values())
        if before is not None and len(self._zones) < settings.SHARDS:
            zones |= {one["zone"] for one in before.clock_changes}
        total = summed(
            self._shards.values(), now=now, peaks=before.peaks if before else [],
            clock_changes=clock_changes(zones, starts_at=now, until=now + WEEK_HOURS * HOUR),
        )  # fmt: skip
        self._differs = False
        if total is not None:
            forecast.write(conn, total)
            self._total = total

    def _serves(self, tenant_id: int) -> bool:
        return self._served is not None and tenant_id in self._served


def _by_shard(
    changed: Mapping[UUID, list[Change]], after: Mapping[UUID, Planned]
) -> dict[int, list[tuple[Planned, int]]]:  # fmt: skip
    """By shard what to take off and what to put on: of each key what was before the first change, and what is now."""
    found: dict[int, list[tuple[Planned, int]]] = defaultdict(list)
    for key, changes in changed.items():
        if changes:
            pair = (changes[0].was, -1), (after.get(key), 1)
            found[changes[0].shard] += [(one, times) for one, times in pair if one is not None]
    return found
