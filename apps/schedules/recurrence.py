"""Recurrence rules (RFC 5545) of days: which local days a rule names, by arithmetic on periods. Pure.

Days are counted from 1970-01-01 in the schedule's own calendar, without any clock. A rule is looked at period by period
(a year, month, week or day that INTERVAL keeps) and remembered year by year, so that the cost is that of the years
looked at, wherever DTSTART lies. Rules more often than daily are in `timing_steps`.
"""

from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

DAY_S = 86_400
REMEMBERED = 128
LAST_YEAR = 2499
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date(1, 1, 3) - _EPOCH).days, (date(LAST_YEAR, 12, 31) - _EPOCH).days
_EPOCH_WEEKDAY = 3  # Thursday; Monday is 0

Times = tuple[int, ...]
Picked = list[tuple[int, Times]]


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
    """The days of a rule, with the times on each. Years are looked at as bits, one a day, so that a search that finds
    nothing for centuries costs little: it never gives up before the last year that is known."""

    def __init__(self, rule: Rule, *, before_start: bool = False) -> None:
        self._rule = rule
        self._times = rule.times()
        self._first = _FIRST_DAY if before_start else rule.start_day
        self._base = _period(rule, rule.start_day)
        self._periods: dict[object, Picked] = {}
        self._years: dict[int, int] = {}
        self._filters: dict[tuple[int, int], int] = {}
        # BYSETPOS of a day chooses among its times: the same ones each day.
        self._of_day = self._picked([0])[0][1] if rule.setpos and rule.freq == "DAILY" and self._picked([0]) else None

    def day_from(self, day: int) -> int | None:
        """The first day that has times, from this one on."""
        day = max(day, self._first)
        if day > _LAST_DAY:
            return None
        year = date_of(day).year
        bits = self.year(year) >> (day - first_of(year)) << (day - first_of(year))
        while not bits:
            year += 1
            if year > LAST_YEAR:
                return None
            bits = self.year(year)
        return first_of(year) + (bits & -bits).bit_length() - 1

    def day_to(self, day: int) -> int | None:
        """The last day that has times, up to this one."""
        day = min(day, _LAST_DAY)
        if day < self._first:
            return None
        year, first_year = date_of(day).year, date_of(self._first).year
        bits = self.year(year) & ((2 << (day - first_of(year))) - 1)
        while not bits:
            year -= 1
            if year < first_year:
                return None
            bits = self.year(year)
        return first_of(year) + bits.bit_length() - 1

    def times(self, day: int) -> Times:
        """The seconds of this day at which it runs; empty when the rule does not name it."""
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return ()
        year = date_of(day).year
        if not self.year(year) >> (day - first_of(year)) & 1:
            return ()
        if not self._rule.setpos:
            return self._times
        if self._of_day is not None:
            return self._of_day
        period = _period(self._rule, day)
        start = _start_of(self._rule, period)
        return next(times for offset, times in self._days(period) if start + offset == day)

    def total(self, first: int, last: int) -> int:
        """How many times there are on all days from `first` to `last`, on the wall clock."""
        first, last = max(first, self._first), min(last, _LAST_DAY)
        total = 0
        for year in range(date_of(first).year, date_of(last).year + 1) if first <= last else ():
            start = first_of(year)
            bits = self.year(year) & ((2 << min(last - start, 366)) - 1)
            bits = bits >> max(first - start, 0) << max(first - start, 0)
            if not self._rule.setpos or self._of_day is not None:
                total += bits.bit_count() * len(self._times if self._of_day is None else self._of_day)
                continue
            while bits:
                low = bits & -bits
                total += len(self.times(start + low.bit_length() - 1))
                bits ^= low
        return total

    def year(self, year: int) -> int:
        """The days of a year that have times, as bits; bit 0 is 1 January."""
        found = self._years.get(year)
        if found is None:
            found = self._year(year)
            over = self._first - first_of(year)
            if over > 0:
                found = found >> over << over
            if len(self._years) >= REMEMBERED:
                self._years.clear()
            self._years[year] = found
        return found

    def _year(self, year: int) -> int:
        rule, start, length = self._rule, first_of(year), days_of(year)
        if rule.freq == "DAILY":
            if rule.setpos and self._of_day is None:
                return 0
            return self._filter(year) & _comb(rule.interval, (self._base - start) % rule.interval, 1)
        if rule.freq == "WEEKLY" and not rule.setpos:
            weeks = rule.interval * 7
            phase = (_start_of(rule, self._base) - start) % weeks
            return self._filter(year) & _comb(weeks, phase, 7)
        bits = 0
        period, last = _period(rule, max(start, _FIRST_DAY)), _period(rule, min(start + length - 1, _LAST_DAY))
        for each in range(period + (self._base - period) % rule.interval, last + 1, rule.interval):
            shift = _start_of(rule, each) - start
            for offset, _ in self._days(each):
                if 0 <= shift + offset < length:
                    bits |= 1 << (shift + offset)
        return bits

    def _filter(self, year: int) -> int:
        """The days that month, day of month and weekday allow: the same in all years of one shape."""
        start, length = first_of(year), days_of(year)
        shape = (weekday_of(start), length)
        bits = self._filters.get(shape)
        if bits is None:
            bits = sum(1 << offset for offset in range(length) if _fits(self._rule, start + offset))
            self._filters[shape] = bits
        return bits

    def _days(self, period: int) -> Picked:
        """The days of a period with their times, counted from its start. Periods of one shape have the same ones."""
        shape = _shape(self._rule, period)
        found = self._periods.get(shape)
        if found is None:
            start = _start_of(self._rule, period)
            days = sorted(day - start for day in set(_expand(self._rule, period)))
            found = self._picked(days) if self._rule.setpos else [(day, self._times) for day in days]
            if len(self._periods) >= REMEMBERED:
                self._periods.clear()
            self._periods[shape] = found
        return found

    def _picked(self, days: list[int]) -> Picked:
        """BYSETPOS: of all instants of the period those at these places, counted from either end."""
        each, total = len(self._times), len(days) * len(self._times)
        places = {place - 1 if place > 0 else total + place for place in self._rule.setpos}
        by_day: dict[int, list[int]] = {}
        for place in sorted(place for place in places if 0 <= place < total):
            by_day.setdefault(days[place // each], []).append(self._times[place % each])
        return [(day, tuple(times)) for day, times in by_day.items()]


@lru_cache(maxsize=4_096)
def first_of(year: int) -> int:
    """The number of 1 January."""
    return day_of(date(year, 1, 1))


def days_of(year: int) -> int:
    """How many days a year has."""
    return 366 if isleap(year) else 365


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


def _shape(rule: Rule, period: int) -> object:
    """What the days of a period depend on, apart from where it lies."""
    start = _start_of(rule, period)
    if not _FIRST_DAY <= start <= _LAST_DAY or (rule.freq == "WEEKLY" and rule.months):
        return period
    if rule.freq == "WEEKLY":
        return "week"
    if rule.freq == "MONTHLY":
        year, month = period // 12, period % 12 + 1
        return month, monthrange(year, month)[1], weekday_of(start)
    return days_of(period), days_of(period - 1) if period > 1 else 0, weekday_of(start)


@lru_cache(maxsize=1_024)
def _comb(every: int, phase: int, width: int) -> int:
    """Bits of a year: `width` of them set from `phase` on, each `every` bits, also where the phase lies before it."""
    bits = 0
    for start in range(phase - every, 366, every):
        tooth = (1 << width) - 1
        bits |= tooth << start if start >= 0 else tooth >> -start if -start < width else 0
    return bits


def _expand(rule: Rule, period: int) -> Iterator[int]:
    first = _start_of(rule, period)
    if not _FIRST_DAY <= first <= _LAST_DAY:
        return iter(())
    if rule.freq in ("DAILY", "WEEKLY"):
        return (day for day in range(first, first + (1 if rule.freq == "DAILY" else 7)) if _fits(rule, day))
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
        spans = [(day_of(date(year, month, 1)), monthrange(year, month)[1]) for month in rule.months]
        found = {day for start, size in spans for day in range(start, start + size)}
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
