"""A second reader of cron texts: plain sets and the days of a month, one wall minute after the other, and no search.

It shares no code with `apps/schedules/cron*.py`, knows nothing of faults and takes its time.
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.schedules.walk import walk

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
ALIASES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
STRETCH = timedelta(hours=6)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Reading:
    """Fields as sets; `second` is None for the five-field form. Implements `walk.Walked`."""

    second: frozenset[int] | None
    minute: frozenset[int]
    hour: frozenset[int]
    month: frozenset[int]
    day_text: str
    weekday_text: str
    fixed: bool

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minute and wall.hour in self.hour and self.on(wall.date())

    def on(self, day: date) -> bool:
        if day.month not in self.month:
            return False
        days, weekdays = _day(self.day_text, day), _weekday(self.weekday_text, day)
        either = self.day_text[0] not in "*?" and self.weekday_text[0] not in "*?"
        return (days or weekdays) if either else (days and weekdays)


def read(text: str) -> Reading:
    """Five, six or seven fields; of years only `*`."""
    words = ALIASES.get(text.strip(), text).lower().split()
    if len(words) == 7:
        assert words.pop() == "*"
    second = _values(words.pop(0), 0, 59) if len(words) == 6 else None
    minute, hour, day, month, weekday = words
    fixed = second is None and minute[0] != "*" and hour[0] != "*"
    return Reading(
        second, _values(minute, 0, 59), _values(hour, 0, 23), _values(month, 1, 12, MONTHS, 1), day, weekday, fixed
    )


def runs(reading: Reading, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants later than `after`, found by walking; only stretches of days that match at all are walked."""
    start = after.replace(second=0, microsecond=0)
    while True:
        end = start + STRETCH
        first, last = ((at + step).astimezone(zone).date() for at, step in ((start, -MINUTE), (end, MINUTE)))
        if any(reading.on(first + timedelta(days=number)) for number in range((last - first).days + 1)):
            for at in walk(reading, zone, start, end, gap="run_after", fold="first"):
                for second in sorted(reading.second or {0}):
                    if (found := at + timedelta(seconds=second)) > after:
                        yield found
        start = end


def _values(text: str, low: int, high: int, names: list[str] | None = None, first: int = 0) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        begin, _, end = body.partition("-")
        if begin in ("*", "?"):
            span = range(low, high + 1)
        else:
            start = _number(begin, names, first)
            span = range(start, 1 + (_number(end, names, first) if end else high if step else start))
        found.update(span[:: int(step or 1)])
    return frozenset(found)


def _number(text: str, names: list[str] | None, first: int) -> int:
    return int(text) if text.isdigit() or names is None else names.index(text[:3]) + first


def _day(text: str, day: date) -> bool:
    length = monthrange(day.year, day.month)[1]
    for part in text.split(","):
        if part == "l":
            hit = day.day == length
        else:
            hit = day.day in _values(part, 1, 31)
        if hit:
            return True
    return False


def _weekday(text: str, day: date) -> bool:
    number = day.isoweekday() % 7
    for part in text.split(","):
        if part.endswith("l"):
            last = day.day + 7 > monthrange(day.year, day.month)[1]
            hit = last and number == _number(part[:-1], WEEKDAYS, 0) % 7
        else:
            begin, _, end = part.partition("-")
            if end[:3] == "sun":
                part = f"{begin}-7"
            top = 6 if begin[0] in "*?" else 7
            hit = number in {each % 7 for each in _values(part, 0, top, WEEKDAYS)}
        if hit:
            return True
    return False
