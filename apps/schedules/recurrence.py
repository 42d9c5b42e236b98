"""Recurrence rules (RFC 5545) of days: which local days a rule names, by arithmetic on periods. Pure.

Days are counted from 1970-01-01 in the schedule's own calendar, without any clock. A rule is looked at period by period
(a year, month, week or day that INTERVAL keeps), so that the cost is that of the periods looked at, wherever DTSTART
lies. Rules more often than daily are in `timing_steps`.
"""

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

DAY_S = 86_400
PERIODS_MAX = 4_000  # looked at in vain: a rule that has nothing for so long has nothing (29 February: 8 years of days)
YEARS_MAX = 120  # the same for years, which cost more; weekdays of dates come back after 28 of them, or 40
REMEMBERED = 256
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date(1, 1, 3) - _EPOCH).days, (date(2499, 12, 31) - _EPOCH).days
_EPOCH_WEEKDAY = 3  # Thursday; Monday is 0

Times = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One RRULE with everything that DTSTART implies written out. Weekdays: Monday is 0; `nth` 0 is every one."""

    freq: str
    interval: int
    start_day: int
    hours: Times = ()
    minutes: Times = ()
    seconds: Times = ()
    months: Times = ()
    weeks: Times = ()
    yeardays: Times = ()
    monthdays: Times = ()
    weekdays: tuple[tuple[int, int], ...] = ()  # (nth, weekday)
    setpos: Times = ()
    week_start: int = 0

    def times(self) -> Times:
        """The seconds of a day at which it runs."""
        found = (h * 3600 + m * 60 + s for h in self.hours for m in self.minutes for s in self.seconds)
        return tuple(sorted(found))


class RuleDays:
    """The days of a rule, with the times on each."""

    def __init__(self, rule: Rule, *, before_start: bool = False) -> None:
        self._rule = rule
        self._times = rule.times()
        self._first = _FIRST_DAY if before_start else rule.start_day
        self._base = _period(rule, rule.start_day)
        self._periods_max = YEARS_MAX if rule.freq == "YEARLY" else PERIODS_MAX
        self._remembered: dict[int, list[tuple[int, Times]]] = {}

    def day_from(self, day: int) -> int | None:
        """The first day that has times, from this one on."""
        day = max(day, self._first)
        if day > _LAST_DAY:
            return None
        period = self._aligned(_period(self._rule, day))
        for _ in range(self._periods_max):
            days = self._days(period)
            index = bisect_left(days, (day,))
            if index < len(days):
                return days[index][0]
            period += self._rule.interval
            if _start_of(self._rule, period) > _LAST_DAY:
                return None
        return None

    def day_to(self, day: int) -> int | None:
        """The last day that has times, up to this one."""
        day = min(day, _LAST_DAY)
        if day < self._first:
            return None
        period = self._aligned(_period(self._rule, day), up=False)
        for _ in range(self._periods_max):
            days = self._days(period)
            index = bisect_right(days, (day, (DAY_S,)))
            if index:
                found = days[index - 1][0]
                return found if found >= self._first else None
            period -= self._rule.interval
            if _start_of(self._rule, period + self._rule.interval) <= self._first:
                return None
        return None

    def times(self, day: int) -> Times:
        """The seconds of this day at which it runs; empty when the rule does not name it."""
        period = _period(self._rule, day)
        if day < self._first or (period - self._base) % self._rule.interval:
            return ()
        days = self._days(period)
        index = bisect_left(days, (day,))
        return days[index][1] if index < len(days) and days[index][0] == day else ()

    def total(self, first: int, last: int) -> int:
        """How many times there are on the days from `first` to `last`, both inclusive."""
        rule, first, last = self._rule, max(first, self._first), min(last, _LAST_DAY)
        if first > last:
            return 0
        if rule.freq == "DAILY" and not (rule.months or rule.monthdays or rule.weekdays or rule.setpos):
            steps = (last - self._base) // rule.interval - (first - 1 - self._base) // rule.interval
            return steps * len(self._times)
        return sum(len(times) for _, times in self.between(first, last))

    def between(self, first: int, last: int) -> Iterator[tuple[int, Times]]:
        """The days from `first` to `last`, both inclusive, with their times."""
        rule, first, last = self._rule, max(first, self._first), min(last, _LAST_DAY)
        for period in range(self._aligned(_period(rule, first)), _period(rule, last) + 1, rule.interval):
            yield from (each for each in self._days(period) if first <= each[0] <= last)

    def _aligned(self, period: int, *, up: bool = True) -> int:
        over = (period - self._base) % self._rule.interval
        return period if not over else period - over + (self._rule.interval if up else 0)

    def _days(self, period: int) -> list[tuple[int, Times]]:
        found = self._remembered.get(period)
        if found is None:
            days = sorted(set(_expand(self._rule, period)))
            found = self._picked(days) if self._rule.setpos else [(day, self._times) for day in days]
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[period] = found
        return found

    def _picked(self, days: list[int]) -> list[tuple[int, Times]]:
        """BYSETPOS: of all instants of the period those at these places, counted from either end."""
        each, total = len(self._times), len(days) * len(self._times)
        places = {place - 1 if place > 0 else total + place for place in self._rule.setpos}
        by_day: dict[int, list[int]] = {}
        for place in sorted(place for place in places if 0 <= place < total):
            by_day.setdefault(days[place // each], []).append(self._times[place % each])
        return [(day, tuple(times)) for day, times in by_day.items()]


def day_of(at: date) -> int:
    """The number of a date."""
    return (at - _EPOCH).days


def date_of(day: int) -> date:
    """The date of a number."""
    return _EPOCH + timedelta(days=day)


def weekday_of(day: int) -> int:
    """Monday is 0."""
    return (day + _EPOCH_WEEKDAY) % 7


def _period(rule: Rule, day: int) -> int:
    if rule.freq == "DAILY":
        return day
    if rule.freq == "WEEKLY":
        return (day + _EPOCH_WEEKDAY - rule.week_start) // 7
    at = date_of(day)
    return at.year if rule.freq == "YEARLY" else at.year * 12 + at.month - 1


def _start_of(rule: Rule, period: int) -> int:
    if rule.freq == "DAILY":
        return period
    if rule.freq == "WEEKLY":
        return period * 7 - _EPOCH_WEEKDAY + rule.week_start
    year = period if rule.freq == "YEARLY" else period // 12
    if year < 1:
        return _FIRST_DAY
    if year > 2600:
        return _LAST_DAY + 1
    return day_of(date(year, 1 if rule.freq == "YEARLY" else period % 12 + 1, 1))


def _expand(rule: Rule, period: int) -> Iterator[int]:
    first = _start_of(rule, period)
    if not _FIRST_DAY <= first <= _LAST_DAY:
        return iter(())
    if rule.freq == "DAILY":
        return (day for day in (first,) if _fits(rule, day))
    if rule.freq == "WEEKLY":
        wanted = {weekday for _, weekday in rule.weekdays}
        return (day for day in range(first, first + 7) if weekday_of(day) in wanted and _in_month(rule, day))
    if rule.freq == "MONTHLY":
        return iter(_month(rule, period // 12, period % 12 + 1))
    return iter(_year(rule, period))


def _fits(rule: Rule, day: int) -> bool:
    if not _in_month(rule, day) or (rule.weekdays and weekday_of(day) not in {each for _, each in rule.weekdays}):
        return False
    return not rule.monthdays or day in _monthdays(rule, date_of(day).year, date_of(day).month)


def _in_month(rule: Rule, day: int) -> bool:
    return not rule.months or date_of(day).month in rule.months


def _month(rule: Rule, year: int, month: int) -> set[int]:
    if rule.months and month not in rule.months:
        return set()
    first, length = day_of(date(year, month, 1)), monthrange(year, month)[1]
    found = set(range(first, first + length))
    if rule.monthdays:
        found &= _monthdays(rule, year, month)
    if rule.weekdays:
        found &= _weekdays(rule, first, length)
    return found


def _year(rule: Rule, year: int) -> set[int]:
    first, length = day_of(date(year, 1, 1)), 366 if monthrange(year, 2)[1] == 29 else 365
    found = set(range(first, first + length))
    if rule.months:
        found = {day for day in found if date_of(day).month in rule.months}
    if rule.weeks:
        found &= _weeks(rule, year)
    if rule.yeardays:
        found &= {first + (number - 1 if number > 0 else length + number) for number in rule.yeardays}
    if rule.monthdays:
        found &= {day for month in rule.months or range(1, 13) for day in _monthdays(rule, year, month)}
    if rule.weekdays:
        if rule.months and any(nth for nth, _ in rule.weekdays):  # an ordinal counts inside of each month then
            spans = [(day_of(date(year, month, 1)), monthrange(year, month)[1]) for month in rule.months]
        else:
            spans = [(first, length)]
        wanted: set[int] = set()
        for start, size in spans:
            wanted |= _weekdays(rule, start, size)
        found &= wanted
    return found


def _monthdays(rule: Rule, year: int, month: int) -> set[int]:
    first, length = day_of(date(year, month, 1)), monthrange(year, month)[1]
    numbers = (number if number > 0 else length + 1 + number for number in rule.monthdays)
    return {first + number - 1 for number in numbers if 1 <= number <= length}


def _weekdays(rule: Rule, first: int, length: int) -> set[int]:
    found: set[int] = set()
    for nth, weekday in rule.weekdays:
        days = range(first + (weekday - weekday_of(first)) % 7, first + length, 7)
        if nth == 0:
            found |= set(days)
        elif 0 < abs(nth) <= len(days):
            found.add(days[nth - 1 if nth > 0 else nth])
    return found


def _weeks(rule: Rule, year: int) -> set[int]:
    """Days of the year in weeks of these numbers; week 1 is the first with four days in the year."""

    def week_one(of: int) -> int:
        first = day_of(date(of, 1, 1))
        offset = (weekday_of(first) - rule.week_start) % 7
        return first - offset if offset <= 3 else first + 7 - offset

    start, following = week_one(year), week_one(year + 1)
    count = (following - start) // 7
    found: set[int] = set()
    for number in rule.weeks:
        place = number - 1 if number > 0 else count + number
        if 0 <= place < count:
            found |= set(range(start + place * 7, start + place * 7 + 7))
    # A week belongs to one year; its days in the year before or after it count there, as python-dateutil has it.
    before = week_one(year - 1) if year > 1 else start
    count_before = (start - before) // 7
    for number in rule.weeks:
        if number in (1,) and following < day_of(date(year + 1, 1, 1)):
            found |= set(range(following, following + 7))
        if (number if number > 0 else count_before + 1 + number) == count_before:
            found |= set(range(start - 7, start))
    return found
