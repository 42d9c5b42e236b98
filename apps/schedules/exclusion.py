"""Days that a named calendar excludes, as a value that a spec carries: dates, ranges, weekdays and rules.

Whole days of the schedule's zone. `weekend` are weekdays that are no business days: nothing is moved onto them. They
are not excluded by that; a calendar that excludes them says so in `weekdays`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any

from apps.schedules.recurrence import LAST_YEAR, RuleDays, date_of, day_of, days_of, first_of, weekday_of
from apps.schedules.recurrence_parse import Parts, parse_rrule

MAX_DATES, MAX_RANGES, MAX_RULES, MAX_TEXT_CHARS = 1_000, 200, 50, 16_384
FIRST_YEAR, YEARS_REMEMBERED = 1900, 128
EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
_RULES_CACHED = 4_096
EXCLUDED, BUSINESS = 2, 3  # places in what `_around` gives


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Immutable, hashable. Days are numbers (see `recurrence`), ranges inclusive; a rule is (text, first day)."""

    dates: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    rules: tuple[tuple[str, int, int | None], ...] = ()  # RRULE of days, its first day, and its last one
    weekdays: tuple[int, ...] = ()
    weekend: tuple[int, ...] = (5, 6)
    _years: Any = field(default=None, init=False, repr=False, compare=False)
    _answers: Any = field(default=None, init=False, repr=False, compare=False)
    _latest: tuple[int, int, int, int] = field(default=(0, 0, 0, 0), init=False, repr=False, compare=False)

    def excludes(self, day: int) -> bool:
        """Whether nothing runs on this day."""
        known = self._around(day)
        return bool(known[EXCLUDED] >> (day - known[0]) & 1)

    def is_business_day(self, day: int) -> bool:
        """Whether something may be moved onto this day."""
        known = self._around(day)
        return bool(known[BUSINESS] >> (day - known[0]) & 1) if known[0] != known[1] else self._is_workday(day)

    def business_day(self, day: int, step: int) -> int | None:
        """The closest business day after (`step` 1) or before (-1) this one."""
        return self._nearest(BUSINESS, day + step, step)

    def included(self, day: int, step: int, weekdays: tuple[int, ...] = EVERY_DAY) -> int | None:
        """The first day of these weekdays that is not excluded, from this one on (`step` 1) or up to it (-1)."""
        return self._search(weekdays, day, step, lambda year: _weekdays(year, weekdays) & ~self._of(year)[0])

    def excluded(self, day: int, step: int) -> int | None:
        """The first day that is excluded, from this one on (`step` 1) or up to it (-1)."""
        return self._nearest(EXCLUDED, day, step)

    def _is_workday(self, day: int) -> bool:
        return weekday_of(day) not in self.weekend

    def _around(self, day: int) -> tuple[int, int, int, int]:
        """The year of a day: its first day, the one after its last, and its excluded and its business days as bits.

        The newest one is remembered. It is empty for days before and after all calendars.
        """
        latest = self._latest
        if latest[0] <= day < latest[1]:
            return latest
        year = _year_of(day)
        if year is None:
            return day, day, 0, 0
        latest = first_of(year), first_of(year + 1), *self._of(year)
        object.__setattr__(self, "_latest", latest)
        return latest

    def _nearest(self, what: int, day: int, step: int) -> int | None:
        """In this day's year, or else farther away."""
        known = self._around(day)
        place = day - known[0]
        bits = known[what] >> place if step > 0 else known[what] & ((2 << place) - 1)
        if bits:
            return day + (bits & -bits).bit_length() - 1 if step > 0 else known[0] + bits.bit_length() - 1
        return self._search(what, day, step, lambda year: self._of(year)[what - EXCLUDED])

    def _search(self, what: object, day: int, step: int, bits_of: Callable[[int], int]) -> int | None:
        """Year by year up to the last one that is known: nothing is found only where there is nothing.

        The newest answer is remembered, as it holds for all days between.
        """
        if self._answers is None:
            object.__setattr__(self, "_answers", {})
        since, known = self._answers.get((what, step), (None, None))
        if since is not None and (day - since) * step >= 0 and (known is None or (known - day) * step >= 0):
            return int(known) if known is not None else None
        found = self._look(day, step, bits_of)
        self._answers[what, step] = day, found
        return found

    def _look(self, day: int, step: int, bits_of: Callable[[int], int]) -> int | None:
        year = _year_of(max(day, first_of(FIRST_YEAR)) if step > 0 else min(day, first_of(LAST_YEAR + 1) - 1))
        if year is None:
            return None
        day = max(day, first_of(year)) if step > 0 else min(day, first_of(year + 1) - 1)
        place = day - first_of(year)
        bits = bits_of(year) >> place << place if step > 0 else bits_of(year) & ((2 << place) - 1)
        while not bits:
            year += step
            if not FIRST_YEAR <= year <= LAST_YEAR:
                return None
            bits = bits_of(year)
        return first_of(year) + ((bits & -bits).bit_length() if step > 0 else bits.bit_length()) - 1

    def _of(self, year: int) -> tuple[int, int]:
        """The excluded days of a year and its business days, as bits; bit 0 is 1 January."""
        years = self._years
        if years is not None and year in years:
            known: tuple[int, int] = years[year]
            return known
        if years is None:
            years = {}
            object.__setattr__(self, "_years", years)
        elif len(years) >= YEARS_REMEMBERED:
            years.clear()
        excluded = self._excluded(year)
        found = years[year] = excluded, _whole(year) & ~(excluded | _weekdays(year, self.weekend))
        return found

    def _excluded(self, year: int) -> int:
        start, whole = first_of(year), _whole(year)
        end = start + whole.bit_length()
        bits = _weekdays(year, self.weekdays)
        for day in self.dates:
            if start <= day < end:
                bits |= 1 << (day - start)
        for low, high in self.ranges:
            if low < end and high >= start:
                bits |= (2 << (min(high, end - 1) - start)) - (1 << max(low - start, 0))
        for text, first, last in self.rules:
            if first < end and (last is None or last >= start):
                named = _rule(text, first).year(year)
                bits |= named if last is None else named & ((2 << (last - start)) - 1)
        return bits & whole

    def as_json(self) -> dict[str, Any]:
        """For the spec's text; what is empty is left out."""
        found: dict[str, Any] = {
            "dates": list(self.dates),
            "ranges": [list(each) for each in self.ranges],
            "rules": [list(each) for each in self.rules],
            "weekdays": list(self.weekdays),
        }
        return {**{name: value for name, value in found.items() if value}, "weekend": list(self.weekend)}


def exclusion_from_json(data: Mapping[str, Any]) -> Exclusion:
    """The value of a spec's text. ValueError, TypeError or KeyError when it is not one."""
    found = Exclusion(
        dates=tuple(map(_day, data.get("dates", ()))),
        ranges=tuple((_day(low), _day(high)) for low, high in data.get("ranges", ())),
        rules=tuple(
            (str(text), _day(first), last if last is None else _day(last))
            for text, first, last in data.get("rules", ())
        ),
        weekdays=tuple(map(_day, data.get("weekdays", ()))),
        weekend=tuple(map(_day, data["weekend"])),
    )
    for text, first, _ in found.rules:
        _rule(text, first)
    return found


def day_rule(text: str) -> tuple[Parts | None, list[str]]:
    """A rule of whole days; None with what is wrong with it."""
    faults: list[str] = []
    parts = parse_rrule(text, lambda _, detail: faults.append(detail))
    if parts is not None and (parts.sub_daily or parts.lists.keys() & {"BYHOUR", "BYMINUTE", "BYSECOND"}):
        faults.append("a calendar is of whole days; leave hours, minutes and seconds out.")
    if parts is not None and parts.count is not None and parts.count > MAX_DATES:
        faults.append(f"COUNT is at most {MAX_DATES:,} here; use UNTIL.")
    return (None if faults else parts), faults


def midnight(day: date) -> datetime:
    """The wall time at which a day begins."""
    return datetime.combine(day, time())


def rule_of(parts: Parts, first: date) -> tuple[str, int, int | None]:
    """A rule as `Exclusion` holds it: UNTIL and COUNT become its last day."""
    start, last = day_of(first), None
    if parts.until is not None:
        last = day_of(date(int(parts.until[:4]), int(parts.until[4:6]), int(parts.until[6:8])))
    days = RuleDays(parts.rule(midnight(first)))
    if parts.count is not None:
        day: int | None = start - 1
        for _ in range(parts.count):
            found = days.day_from((day if day is not None else 0) + 1)
            if found is None:
                break
            day = found
        last = day
    bare = Parts(parts.freq, parts.interval, None, None, dict(parts.lists), parts.weekdays, parts.week_start)
    return bare.text(), start, last


def ranges_of(days: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Single days and runs of three or more, sorted, without doubles."""
    singles: list[int] = []
    runs: list[tuple[int, int]] = []
    row: list[int] = []
    for day in [*sorted(set(days)), None]:
        if row and (day is None or day != row[-1] + 1):
            if len(row) > 2:
                runs.append((row[0], row[-1]))
            else:
                singles += row
            row = []
        if day is not None:
            row.append(day)
    return tuple(singles), tuple(runs)


def _year_of(day: int) -> int | None:
    """The year of a day; None for days before and after all calendars."""
    return date_of(day).year if first_of(FIRST_YEAR) <= day < first_of(LAST_YEAR + 1) else None


@lru_cache(maxsize=1_024)
def _whole(year: int) -> int:
    return (1 << days_of(year)) - 1


def _weekdays(year: int, weekdays: tuple[int, ...]) -> int:
    return _weekdays_from(weekday_of(first_of(year)), days_of(year), weekdays) if weekdays else 0


@lru_cache(maxsize=4_096)
def _weekdays_from(first: int, length: int, weekdays: tuple[int, ...]) -> int:
    return sum(1 << offset for offset in range(length) if (first + offset) % 7 in weekdays)


@lru_cache(maxsize=_RULES_CACHED)
def _rule(text: str, first: int) -> RuleDays:
    parts, faults = day_rule(text)
    if parts is None:
        raise ValueError(faults[0])
    return RuleDays(parts.rule(midnight(date_of(first))))


def _day(value: Any) -> int:
    if type(value) is not int or not -800_000 < value < 200_000:
        raise ValueError(f"{value!r} is no day")
    return value
