"""Runs that fall on excluded days are moved to business days: one question to the trigger for each row of such days."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from apps.schedules.exclusion import Exclusion
from apps.schedules.recurrence import DAY_S
from apps.schedules.timing_calendar import fold_flags
from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_moved import TRIES_MAX, Clipped, flags_of
from apps.schedules.timing_open import WHOLE_DAY, OpenTimes
from apps.schedules.timing_triggers import FIRST, LAST
from apps.schedules.timing_walls import floor_s, instant, local_s, place, runs_at, steady_offset, walls_of
from apps.schedules.timing_zones import MAX_S, zone_offsets

RUNS_A_DAY_MAX = 100  # of a schedule whose runs are moved from day to day
MOVED_DAYS_MAX = 400  # a run is moved no farther than that
MOVED_MAX = 1_000  # runs that are looked at for one day, from the closest day on
DAYS_REMEMBERED = 64
_MICROSECOND = timedelta(microseconds=1)
_NO_TIME = timedelta(0)


class ToBusinessDay:
    """What falls on an excluded day runs on the closest business day after it (`step` 1) or before it (-1).

    The wall time stays, and the clock-change rules are those of the day on which it runs.
    """

    searches = True

    def __init__(
        self, base: Any, exclusion: Exclusion, step: int, zone: str, dst_gap: str = "run_after", dst_fold: str = "first"
    ) -> None:
        self.base, self._exclusion, self._step = base, exclusion, step
        self._gap, self._fold = dst_gap == "run_after", dst_fold
        self._offsets = zone_offsets(zone)
        self._own = Clipped(base, OpenTimes(WHOLE_DAY, exclusion, zone, dst_gap))
        self._remembered: dict[int, dict[datetime, bool]] = {}
        self._own_known: dict[int, tuple[datetime, datetime | None, datetime | None]] = {}

    def next_after(self, after: datetime) -> datetime | None:
        return self._closest(after, +1)

    def previous_before(self, before: datetime) -> datetime | None:
        return self._closest(before, -1)

    def count(self, after: datetime, until: datetime) -> int:
        if after >= until:
            return 0
        total, last = self._own.count(after, until), self._day(until)
        with suppress(NotFoundYet):  # nothing more is moved to before the end
            for day in self._receivers(self._day(after), +1, last, past=until):
                if day > last:
                    break
                total += sum(after < at <= until and not self._is_own(at) for at in self._moved(day))
        return total

    def flags(self, at: datetime) -> list[str]:
        if self._is_own(at):
            return flags_of(self.base, at)
        landed = self._moved(self._day(at)).get(at, False)
        return ["moved_from_excluded", *(["dst_gap_moved"] if landed else []), *fold_flags(self._offsets, floor_s(at))]

    def _closest(self, at: datetime, way: int) -> datetime | None:
        """The closest instant after this one (`way` 1) or before it: of the trigger's own ones, and of the moved."""
        own, given_up = self._closest_own(at, way)
        bound = own or given_up
        stop = None if bound is None else self._day(bound)
        try:
            for day in self._receivers(self._day(at), way, stop, past=at):
                if stop is not None and (day - stop) * way > 0:
                    break
                moved = [each for each in self._moved(day) if (each > at if way > 0 else each < at)]
                if moved:
                    found = min(moved) if way > 0 else max(moved)
                    if bound is None or (found <= bound if way > 0 else found >= bound):
                        return found
                    break
        except NotFoundYet as error:
            if bound is None or (bound - error.searched_to) * way > _NO_TIME:
                raise
        if given_up is not None:
            raise NotFoundYet(given_up)
        return own

    def _closest_own(self, at: datetime, way: int) -> tuple[datetime | None, datetime | None]:
        """The closest of the trigger's own instants, or how far was searched for it. The newest answer is remembered,
        as it holds for all instants between: what is moved is asked for far more often."""
        if way in self._own_known:
            since, own, given_up = self._own_known[way]
            edge = own or given_up
            if since <= at < (edge or LAST) if way > 0 else since >= at > (edge or FIRST):
                return own, given_up
        own, given_up = None, None
        try:
            own = self._own.next_after(at) if way > 0 else self._own.previous_before(at)
        except NotFoundYet as error:
            given_up = error.searched_to
        self._own_known[way] = at, own, given_up
        return own, given_up

    def _is_own(self, at: datetime) -> bool:
        return runs_at(self.base, at) and not self._exclusion.excludes(self._day(at))

    def _receivers(self, day: int, way: int, stop: int | None, *, past: datetime) -> Iterator[int]:
        """Business days that runs are moved to, from this one on or (`way` -1) back, in order; some past `stop`.

        A search that gives up says so from some instant `past` this one on; before, it goes on.
        """
        source = self._first_source(day, way)
        while source is not None:
            run = self._run_on_excluded(source, way, stop, past)
            if run is None:
                return
            target = self._exclusion.business_day(run, self._step)
            if target is not None:
                yield target
                source = self._first_source(target + way, way)
            elif way == self._step:
                return  # no business day comes any more
            else:
                source = self._first_source(run, way)

    def _first_source(self, day: int, way: int) -> int | None:
        """The first day whose runs could be moved to this day or past it."""
        if way == self._step:
            before = self._exclusion.business_day(day, -way)
            farthest = day - way * MOVED_DAYS_MAX
            return farthest if before is None or (before - farthest) * way < 0 else before + way
        target: int | None = day
        if not self._exclusion.is_business_day(day):
            target = self._exclusion.business_day(day, way)
        return None if target is None else target + way

    def _run_on_excluded(self, day: int, way: int, stop: int | None, past: datetime) -> int | None:
        """The first excluded day from this one on (or back) on which the trigger has a run."""
        for _ in range(TRIES_MAX):
            excluded = self._exclusion.excluded(day, way)
            if excluded is None:
                return None
            start = self._start(excluded) - _MICROSECOND if way > 0 else self._start(excluded + 1)
            at = self._source(start, way, past)
            if at is None:
                return None
            run = self._day(at)
            if self._exclusion.excludes(run):
                return run
            nearest = run if way == self._step else self._exclusion.business_day(run, self._step)
            if stop is not None and nearest is not None and (nearest - stop) * way > 0:
                return None
            day = run + way
        raise NotFoundYet(self._start(day))

    def _source(self, at: datetime, way: int, past: datetime) -> datetime | None:
        """The trigger's closest instant. A search that gives up goes on, until nothing that it has not seen could be
        moved to what lies between `past` and where it says that it gave up."""
        while True:
            try:
                found: datetime | None = self.base.next_after(at) if way > 0 else self.base.previous_before(at)
                return found
            except NotFoundYet as error:
                at = bound = error.searched_to
                day = self._day(at)
                if way != self._step:  # what comes then is moved back, as far as the start of a business day
                    bound = self._start(day) - _MICROSECOND if way > 0 else self._start(day + 1)
                    if not self._exclusion.is_business_day(day):
                        continue
                if (bound - past) * way > _NO_TIME:
                    raise NotFoundYet(bound) from error

    def _moved(self, day: int) -> dict[datetime, bool]:
        """What is moved to a business day: the instants, and whether the clock had to move them out of a gap."""
        found = self._remembered.get(day)
        if found is None:
            if len(self._remembered) >= DAYS_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[day] = self._move(day)
        return found

    def _move(self, day: int) -> dict[datetime, bool]:
        clocks: dict[int, bool] = {}
        source, looked_at = day - self._step, 0
        while looked_at < MOVED_MAX and abs(source - day) <= MOVED_DAYS_MAX:
            if self._exclusion.excludes(source):
                walls = walls_of(self.base, source, self._offsets)
                looked_at += len(walls)
                for wall, fixed in walls:
                    clocks[wall % DAY_S] = clocks.get(wall % DAY_S, False) or fixed
            elif self._exclusion.is_business_day(source):
                break
            source -= self._step
        offset = steady_offset(self._offsets, day * DAY_S, (day + 1) * DAY_S)
        if offset is not None:
            return {instant(day * DAY_S + clock - offset): False for clock in clocks}
        found: dict[datetime, bool] = {}
        for clock, fixed in clocks.items():
            wall = day * DAY_S + clock
            for at in place(self._offsets, wall, self._gap and fixed, self._fold if fixed else "both"):
                found[instant(at)] = local_s(self._offsets, at) != wall
        return found

    def _start(self, day: int) -> datetime:
        """The first second of a day; of the next one where the zone left the day out, none after the last one."""
        found = place(self._offsets, day * DAY_S, True, "first")
        while not found and day * DAY_S < MAX_S:
            day += 1
            found = place(self._offsets, day * DAY_S, True, "first")
        return instant(found[0]) if found else instant(MAX_S + 1)

    def _day(self, at: datetime) -> int:
        return local_s(self._offsets, floor_s(at)) // DAY_S
