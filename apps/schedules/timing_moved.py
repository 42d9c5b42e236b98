"""Calendars that leave out or move what falls outside of windows or on excluded days.

Moving keeps the order of instants, so that each question ("the next one", "the one before", "how many") is put to the
trigger's own calendar first; two instants that are moved onto one are one.
"""

from datetime import datetime, timedelta
from typing import Any

from apps.schedules.exclusion import RUN_DAYS_MAX, Exclusion
from apps.schedules.recurrence import DAY_S
from apps.schedules.timing_open import OpenTimes
from apps.schedules.timing_walls import floor_s, instant, local_s, place
from apps.schedules.timing_zones import MAX_S, zone_offsets

TRIES_MAX = (
    2_000  # in vain, fewer where each costs more: a trigger that has nothing inside of its windows so often never runs
)
DAYS_IN_VAIN_MAX = 4_000  # that were closed between the tries
MOVED_MAX = 1_000  # instants that are moved onto one day; those farther away are left out
DAYS_REMEMBERED = 512
RUNS_A_DAY_MAX = 100  # of a schedule whose runs are moved from day to day
_MICROSECOND = timedelta(microseconds=1)


class Clipped:
    """Only what is open; the rest is left out."""

    counts_at_once = False

    def __init__(self, base: Any, open_times: OpenTimes) -> None:
        self.base, self.open = base, open_times
        self.tries = 0  # all that were made so far: what looks at many instants keeps an eye on it
        self._tries_max = TRIES_MAX // 5 if isinstance(base, ToBusinessDay) else TRIES_MAX

    def next_after(self, after: datetime) -> datetime | None:
        at: datetime | None = after
        closed = timedelta()
        for _ in range(self._tries_max):
            at = None if at is None else self.base.next_after(at)
            if at is None:
                return None
            opening = self.open.opening(at)
            if opening is None or opening == at:
                return opening
            self.tries += 1
            closed += opening - at
            if closed.days > DAYS_IN_VAIN_MAX:
                return None
            at = opening - _MICROSECOND
        return None

    def previous_before(self, before: datetime) -> datetime | None:
        at: datetime | None = before
        closed = timedelta()
        for _ in range(self._tries_max):
            at = None if at is None else self.base.previous_before(at)
            if at is None:
                return None
            closing = self.open.last_open(at)
            if closing is None or closing == at:
                return closing
            self.tries += 1
            closed += at - closing
            if closed.days > DAYS_IN_VAIN_MAX:
                return None
            at = closing + _MICROSECOND
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return sum(self.base.count(low - _MICROSECOND, high) for low, high in self.open.stretches(after, until))

    def flags(self, at: datetime) -> list[str]:
        return flags_of(self.base, at)


class ToOpening:
    """What is closed runs at the next opening, once."""

    counts_at_once = False

    def __init__(self, base: Any, open_times: OpenTimes) -> None:
        self.base, self.open = base, open_times

    @property
    def tries(self) -> int:
        return int(getattr(self.base, "tries", 0))

    def next_after(self, after: datetime) -> datetime | None:
        since = self.open.last_open(after)
        at = self.base.next_after(after if since is None else since)
        return None if at is None else self.open.opening(at)

    def previous_before(self, before: datetime) -> datetime | None:
        at = self.base.previous_before(before)
        moved = None if at is None else self.open.opening(at)
        if at is None or (moved is not None and moved < before):
            return moved
        since = self.open.last_open(at)
        at = None if since is None else self.base.previous_before(since + _MICROSECOND)
        return None if at is None else self.open.opening(at)

    def count(self, after: datetime, until: datetime) -> int:
        total = 0
        for low, high in self.open.stretches(after, until):
            total += self.base.count(low - _MICROSECOND, high)
            if self.base.next_after(low - _MICROSECOND) != low and self.is_moved(low):
                total += 1
        return total

    def is_moved(self, at: datetime) -> bool:
        """Whether something closed runs at this opening."""
        since = self.open.last_open(at - _MICROSECOND)
        if since is None or since == at - _MICROSECOND:
            return False
        earlier = self.base.next_after(since)
        return earlier is not None and earlier < at

    def flags(self, at: datetime) -> list[str]:
        if self.base.next_after(at - _MICROSECOND) == at:
            return flags_of(self.base, at)
        return ["moved_to_opening"]


class ToBusinessDay:
    """What falls on an excluded day runs on the closest business day after it (`step` 1) or before it (-1).

    The wall time stays. Days come one after the other; each collects its own instants and those that are moved to it.
    """

    counts_at_once = False

    def __init__(self, base: Any, exclusion: Exclusion, step: int, zone: str) -> None:
        self.base, self._exclusion, self._step = base, exclusion, step
        self._offsets = zone_offsets(zone)
        self._remembered: dict[int, list[datetime]] = {}
        self._targets: dict[int, int | None] = {}

    def next_after(self, after: datetime) -> datetime | None:
        day = self._day(after)
        for _ in range(TRIES_MAX):
            found = [at for at in self._on(day) if at > after]
            if found:
                return found[0]
            if self._step > 0 and not self._exclusion.is_business_day(day):
                day += 1  # on the way to the day that what was excluded is moved to
                continue
            following = self.base.next_after(self._start(day + 1) - _MICROSECOND)
            if following is None:
                return None
            day = self._jump(day, self._day(following))
        return None

    def previous_before(self, before: datetime) -> datetime | None:
        day = self._day(before)
        for _ in range(TRIES_MAX):
            found = [at for at in self._on(day) if at < before]
            if found:
                return found[-1]
            if self._step < 0 and not self._exclusion.is_business_day(day):
                day -= 1
                continue
            earlier = self.base.previous_before(self._start(day))
            if earlier is None:
                return None
            day = self._jump(day, self._day(earlier))
        return None

    def count(self, after: datetime, until: datetime) -> int:
        if after >= until:
            return 0
        days = range(self._day(after), self._day(until) + 1)
        return sum(after < at <= until for day in days for at in self._on(day))

    def flags(self, at: datetime) -> list[str]:
        if self.base.next_after(at - _MICROSECOND) == at:
            return flags_of(self.base, at)
        return ["moved_from_excluded"]

    def _jump(self, day: int, to: int) -> int:
        """Where to look next, when nothing lies between: at a day, or before it where days like it are moved to."""
        if self._exclusion.is_business_day(to):
            return to
        target = self._target(to)
        return target if target is not None and min(day, to) < target < max(day, to) else to

    def _target(self, day: int) -> int | None:
        """The business day that an excluded one is moved to; found once for a whole row of them."""
        if day not in self._targets:
            if len(self._targets) >= DAYS_REMEMBERED:
                self._targets.clear()
            row, at = [day], day + self._step
            while len(row) < RUN_DAYS_MAX and at not in self._targets and not self._exclusion.is_business_day(at):
                row.append(at)
                at += self._step
            if at in self._targets:
                target = self._targets[at]
            else:
                target = at if self._exclusion.is_business_day(at) else None
            self._targets.update(dict.fromkeys(row, target))
        return self._targets[day]

    def _on(self, day: int) -> list[datetime]:
        """Everything that runs on a day."""
        found = self._remembered.get(day)
        if found is None:
            if len(self._remembered) >= DAYS_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[day] = self._compute(day)
        return found

    def _compute(self, day: int) -> list[datetime]:
        if self._exclusion.excludes(day):
            return []
        found = set(self._base_on(day))
        if self._exclusion.is_business_day(day):
            walls: set[tuple[int, int]] = set()  # second of the day, microsecond
            source, moved = day - self._step, 0
            while not self._exclusion.is_business_day(source) and abs(source - day) < 400 and moved < MOVED_MAX:
                if self._exclusion.excludes(source):
                    on_source = self._base_on(source)
                    moved += len(on_source)
                    walls.update(
                        (local_s(self._offsets, floor_s(at)) - source * DAY_S, at.microsecond) for at in on_source
                    )
                source -= self._step
            for second, rest in walls:
                for at_s in place(self._offsets, day * DAY_S + second, True, "first"):
                    found.add(instant(at_s) + timedelta(microseconds=rest))
        return sorted(found)

    def _base_on(self, day: int) -> list[datetime]:
        end = self._start(day + 1)
        found: list[datetime] = []
        at = self.base.next_after(self._start(day) - _MICROSECOND)
        while at is not None and at < end:
            found.append(at)
            if len(found) > RUNS_A_DAY_MAX * 15:
                raise ValueError("runs too often to be moved from day to day")
            at = self.base.next_after(at)
        return found

    def _start(self, day: int) -> datetime:
        return (
            instant(place(self._offsets, day * DAY_S, True, "first")[0]) if self._has_midnight(day) else self._late(day)
        )

    def _has_midnight(self, day: int) -> bool:
        return bool(place(self._offsets, day * DAY_S, True, "first"))

    def _late(self, day: int) -> datetime:
        """A day that the zone left out altogether begins where the next one does; none begins after the last one."""
        return self._start(day + 1) if day * DAY_S < MAX_S else instant(MAX_S + 1)

    def _day(self, at: datetime) -> int:
        return local_s(self._offsets, floor_s(at)) // DAY_S


def flags_of(base: Any, at: datetime) -> list[str]:
    """What the trigger's own calendar says of an instant; intervals and instants say nothing."""
    found: list[str] = base.flags(at) if hasattr(base, "flags") else []
    return found
