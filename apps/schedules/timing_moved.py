"""Calendars that leave out or move what falls outside of windows or on excluded days.

Moving keeps the order of instants, so that each question ("the next one", "the one before", "how many") is put to the
trigger's own calendar first; two instants that are moved onto one are one. A search that had no luck for TRIES_MAX
tries raises `NotFoundYet`: it has not found that there is nothing.
"""

from datetime import datetime, timedelta
from typing import Any

from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_open import OpenTimes
from apps.schedules.timing_walls import next_before, runs_at, searched_on
from apps.schedules.timing_zones import EPOCH

TRIES_MAX = 1_000  # in vain, before a search says from where to go on
SEARCHING_TRIES_MAX = (
    300  # the same where each try is a search itself: for runs that are moved, or by steps and filters
)
TRIES_BACK = 5  # more of them on the way back, so that what was found is found from the other side as well
COUNTED_DAYS = 100  # what is not longer is counted by its open stretches
_BEGINNING = EPOCH - timedelta(days=25_567)  # 1900
_MICROSECOND = timedelta(microseconds=1)


class Clipped:
    """Only what is open; the rest is left out."""

    def __init__(self, base: Any, open_times: OpenTimes) -> None:
        self.base, self.open = base, open_times
        self.tries_max = SEARCHING_TRIES_MAX if getattr(base, "searches", False) else TRIES_MAX
        self.tries = 0  # all that were made so far: what looks at many instants keeps an eye on it

    def next_after(self, after: datetime) -> datetime | None:
        at = after
        for _ in range(self.tries_max):
            found = self.base.next_after(at)
            opening = None if found is None else self.open.opening(found)
            if opening is None or opening == found:
                return opening
            at = opening - _MICROSECOND
            self.tries += 1
        raise NotFoundYet(at)

    def previous_before(self, before: datetime) -> datetime | None:
        at = before
        for _ in range(self.tries_max + TRIES_BACK):
            found = self.base.previous_before(at)
            closing = None if found is None else self.open.last_open(found)
            if closing is None or closing == found:
                return closing
            at = closing + _MICROSECOND
            self.tries += 1
        raise NotFoundYet(at)

    def count(self, after: datetime, until: datetime) -> int:
        walked = walked_count(self, after, until)
        if walked is not None:
            return walked
        return sum(self.base.count(low - _MICROSECOND, high) for low, high in self.open.stretches(after, until))

    def flags(self, at: datetime) -> list[str]:
        return flags_of(self.base, at)


class ToOpening:
    """What is closed runs at the next opening, once."""

    def __init__(self, base: Any, open_times: OpenTimes) -> None:
        self.base, self.open = base, open_times

    @property
    def tries(self) -> int:
        return int(getattr(self.base, "tries", 0))

    def next_after(self, after: datetime) -> datetime | None:
        # What was closed before it runs after it: a search that gave up earlier goes on.
        at = searched_on(self.base, self.open.last_open(after) or _BEGINNING, after + _MICROSECOND)
        return None if at is None else self.open.opening(max(at, after + _MICROSECOND))

    def previous_before(self, before: datetime) -> datetime | None:
        at = self._source_before(before)
        moved = None if at is None else self.open.opening(at)
        if at is None or (moved is not None and moved < before):
            return moved
        since = self.open.last_open(at)
        at = None if since is None else self._source_before(since + _MICROSECOND)
        return None if at is None else self.open.opening(at)

    def _source_before(self, before: datetime) -> datetime | None:
        """The trigger's latest instant before. A search that gives up where it is closed goes on: what it has not seen
        of that stretch would run at an opening that it has passed."""
        at = before
        while True:
            try:
                found: datetime | None = self.base.previous_before(at)
                return found
            except NotFoundYet as error:
                at = error.searched_to
                opening = self.open.opening(at - _MICROSECOND)
                if opening is None or opening < at or opening >= before:
                    raise

    def count(self, after: datetime, until: datetime) -> int:
        walked = walked_count(self, after, until)
        if walked is not None:
            return walked
        total = 0
        for low, high in self.open.stretches(after, until):
            total += self.base.count(low - _MICROSECOND, high)
            if self.is_moved(low) and not runs_at(self.base, low):
                total += 1
        return total

    def is_moved(self, at: datetime) -> bool:
        """Whether something closed runs at this opening."""
        since = self.open.last_open(at - _MICROSECOND) or _BEGINNING
        if since == at - _MICROSECOND:
            return False
        return next_before(self.base, since, at) is not None

    def flags(self, at: datetime) -> list[str]:
        if runs_at(self.base, at):
            return flags_of(self.base, at)
        return ["moved_to_opening"]


def walked_count(calendar: Any, after: datetime, until: datetime) -> int | None:
    """How many instants lie in (after, until], one by one. None where there are many: then it is cheaper to count what
    each open stretch has, of which there is about one a day."""
    days = (until - after).days
    if days < COUNTED_DAYS:
        return None
    found, at, tries = 0, after, calendar.tries
    while found + calendar.tries - tries <= days // 4:
        try:
            following = calendar.next_after(at)
        except NotFoundYet as error:
            at = error.searched_to
            if at >= until:
                return found
            continue
        if following is None or following > until:
            return found
        found, at = found + 1, following
    return None


def flags_of(base: Any, at: datetime) -> list[str]:
    """What the trigger's own calendar says of an instant; intervals and instants say nothing."""
    found: list[str] = base.flags(at) if hasattr(base, "flags") else []
    return found
