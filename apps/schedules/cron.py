"""One cron expression, compiled to bit masks, and the search for its dates and times in local time.

Times here are *naive seconds*: seconds since 1970-01-01T00:00:00 on the wall clock, without a zone. `timing_calendar`
puts zones and clock changes on top. The search looks at months and bits, never at single minutes, so that a rare
expression (29 February on a Monday) costs microseconds as well.

Day fields follow Debian cron: when day of month or day of week starts with `*` (also `*/2`), both must match;
otherwise either may.
"""

from datetime import date
from functools import lru_cache

from apps.schedules.cron_fields import Parsed
from apps.schedules.cron_kinds import FIRST_YEAR, LAST_YEAR

DAY_S = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
ALL_YEARS = (2 << (LAST_YEAR - FIRST_YEAR)) - 1
_WEEKLY = sum(1 << (7 * week) for week in range(6))  # a weekday mask times this repeats it over a month
_CACHED_MONTHS = 24


@lru_cache(maxsize=8192)
def month_shape(year: int, month: int) -> tuple[int, int, int]:
    """Weekday of the 1st (Sunday is 0), number of days, and the 1st as days since 1970."""
    first = date(year, month, 1).toordinal()
    after = date(year + month // 12, month % 12 + 1, 1).toordinal()
    return first % 7, after - first, first - EPOCH_ORDINAL


class Expression:
    """A compiled expression. `fixed` says that it is a fixed-time job in Debian's sense; `text` is normalised."""

    __slots__ = (
        "_all_days", "_both", "_days", "_first_time", "_hours", "_last_time", "_minutes", "_months", "_seconds",
        "_shapes", "_weekdays", "_years", "fixed", "text",
    )  # fmt: skip

    def __init__(self, fields: list[Parsed], *, has_seconds: bool) -> None:
        """Fields in the order second, minute, hour, day, month, weekday, year."""
        second, minute, hour, self._days, month, self._weekdays, year = fields
        shown = fields if year.mask != ALL_YEARS else fields[:6]
        self.text = " ".join(each.text for each in (shown if has_seconds else shown[1:]))
        self.fixed = not has_seconds and minute.text[0] != "*" and hour.text[0] != "*"
        self._seconds, self._minutes, self._hours = second.mask, minute.mask, hour.mask
        self._months, self._years = month.mask, year.mask
        self._both = self._days.text[0] in "*?" or self._weekdays.text[0] in "*?"
        self._all_days = self._days.text in ("*", "?") and self._weekdays.text in ("*", "?")
        self._first_time = _low(hour.mask) * 3600 + _low(minute.mask) * 60 + _low(second.mask)
        self._last_time = _high(hour.mask) * 3600 + _high(minute.mask) * 60 + _high(second.mask)
        self._shapes: dict[int, int] = {}

    def first(self, low: int, high: int) -> int | None:
        """The earliest match in [low, high), or None."""
        day, second = divmod(low, DAY_S)
        start = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = start.year, start.month, start.day
        days = self.days(year, month) >> number
        if days & 1:
            time = self._time_from(second)
            if time >= 0:
                found = day * DAY_S + time
                return found if found < high else None
        days >>= 1
        if days:
            found = (day + _low(days) + 1) * DAY_S + self._first_time
            return found if found < high else None
        end = date.fromordinal((high - 1) // DAY_S + EPOCH_ORDINAL)
        last_year, last_month = end.year, end.month
        while (year, month) < (last_year, last_month):
            month += 1
            if month == 13:
                year, month = year + 1, 1
            if days := self.days(year, month):
                found = (month_shape(year, month)[2] + _low(days) - 1) * DAY_S + self._first_time
                return found if found < high else None
        return None

    def last(self, low: int, high: int) -> int | None:
        """The latest match in [low, high), or None."""
        day, second = divmod(high - 1, DAY_S)
        start = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = start.year, start.month, start.day
        days = self.days(year, month) & ((2 << number) - 1)
        if days >> number:
            time = self._time_until(second)
            if time >= 0:
                found = day * DAY_S + time
                return found if found >= low else None
            days ^= 1 << number
        end = date.fromordinal(low // DAY_S + EPOCH_ORDINAL)
        first_year, first_month = end.year, end.month
        while not days:
            if (year, month) <= (first_year, first_month):
                return None
            month -= 1
            if month == 0:
                year, month = year - 1, 12
            days = self.days(year, month)
        found = (month_shape(year, month)[2] + _high(days) - 1) * DAY_S + self._last_time
        return found if found >= low else None

    def days(self, year: int, month: int) -> int:
        """The days of this month that match, as bits 1 to 31."""
        if not self._months >> month & 1:
            return 0
        key = year * 16 + month
        days = self._shapes.get(key)
        if days is None:
            if len(self._shapes) >= _CACHED_MONTHS:
                self._shapes.clear()
            days = self._shapes[key] = self._shape(year, month)
        return days

    def in_year(self, year: int) -> bool:
        """Whether the year field names this year."""
        return self._years == ALL_YEARS or bool(self._years >> (year - FIRST_YEAR) & 1)

    def times(self) -> int:
        """The seconds of a matching day, as 86,400 bits."""
        hour = _spread(self._seconds, self._minutes, 60)
        return _spread(hour, self._hours, 3600)

    def whole_minutes(self) -> bool:
        """Runs at one second of a minute only, so never twice within a minute."""
        return self._seconds.bit_count() == 1

    def _shape(self, year: int, month: int) -> int:
        if self._years != ALL_YEARS and (year < FIRST_YEAR or not self._years >> (year - FIRST_YEAR) & 1):
            return 0
        first, length, _ = month_shape(year, month)
        whole = (2 << length) - 2
        if self._all_days:
            return whole
        weekdays = _weekdays_of(self._weekdays, first, length)
        days = _days_of(self._days, first, length)
        return (days & weekdays if self._both else days | weekdays) & whole

    def _time_from(self, second: int) -> int:
        """The first time of day not before this one, or -1."""
        hour, rest = divmod(second, 3600)
        if self._hours >> hour & 1:
            minute, rest = divmod(rest, 60)
            if self._minutes >> minute & 1 and (seconds := self._seconds >> rest):
                return second + _low(seconds)
            if minutes := self._minutes >> (minute + 1):
                return (hour * 60 + minute + 1 + _low(minutes)) * 60 + self._first_time % 60
        if hours := self._hours >> (hour + 1):
            return (hour + 1 + _low(hours)) * 3600 + self._first_time % 3600
        return -1

    def _time_until(self, second: int) -> int:
        """The last time of day not after this one, or -1."""
        hour, rest = divmod(second, 3600)
        if self._hours >> hour & 1:
            minute, rest = divmod(rest, 60)
            if self._minutes >> minute & 1 and (seconds := self._seconds & ((2 << rest) - 1)):
                return second - rest + _high(seconds)
            if minutes := self._minutes & ((1 << minute) - 1):
                return (hour * 60 + _high(minutes)) * 60 + self._last_time % 60
        if hours := self._hours & ((1 << hour) - 1):
            return _high(hours) * 3600 + self._last_time % 3600
        return -1


def _days_of(parsed: Parsed, first: int, length: int) -> int:
    days = parsed.mask
    for offset in parsed.last_offsets:
        if offset < length:
            days |= 1 << (length - offset)
    if parsed.last_weekday:
        days |= 1 << _nearest_weekday(length, first, length)
    for day in parsed.nearest:
        if day <= length:
            days |= 1 << _nearest_weekday(day, first, length)
    return days


def _weekdays_of(parsed: Parsed, first: int, length: int) -> int:
    days = parsed.mask * _WEEKLY >> first << 1
    for weekday, nth in parsed.nth:
        days |= 1 << (1 + (weekday - first) % 7 + 7 * (nth - 1))
    if parsed.last_of:
        days |= (parsed.last_of * _WEEKLY >> first << 1) & ((2 << length) - (2 << (length - 7)))
    return days


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """Monday to Friday closest to this day without leaving the month (as Quartz has it)."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else 3
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _low(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _high(mask: int) -> int:
    return mask.bit_length() - 1


def _spread(pattern: int, places: int, width: int) -> int:
    result = 0
    while places:
        place = _low(places)
        result |= pattern << (place * width)
        places &= places - 1
    return result
