"""Days that a named calendar excludes, as a value that a spec carries: dates, ranges, weekdays and rules.

Whole days of the schedule's zone. `weekend` are weekdays that are no business days: nothing is moved onto them. They
are not excluded by that; a calendar that excludes them says so in `weekdays`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any

from apps.schedules.recurrence import RuleDays, date_of, day_of, weekday_of
from apps.schedules.recurrence_parse import Parts, parse_rrule

MAX_DATES, MAX_RANGES, MAX_RULES, MAX_TEXT_CHARS = 1_000, 200, 50, 16_384
RUN_DAYS_MAX = 400  # no business day is looked for farther away
_RULES_CACHED = 4_096
_DAYS_REMEMBERED = 8_192


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Immutable, hashable. Days are numbers (see `recurrence`), ranges inclusive; a rule is (text, first day)."""

    dates: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    rules: tuple[tuple[str, int, int | None], ...] = ()  # RRULE of days, its first day, and its last one
    weekdays: tuple[int, ...] = ()
    weekend: tuple[int, ...] = (5, 6)
    _days: Any = field(default=None, init=False, repr=False, compare=False)
    _years: dict[int, frozenset[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _seen: dict[int, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def excludes(self, day: int) -> bool:
        """Whether nothing runs on this day."""
        found = self._seen.get(day)
        if found is None:
            if len(self._seen) >= _DAYS_REMEMBERED:
                self._seen.clear()
            found = self._seen[day] = self._excludes(day)
        return found

    def _excludes(self, day: int) -> bool:
        days = self._days
        if days is None:
            days = frozenset(self.dates)
            object.__setattr__(self, "_days", days)
        return (
            day in days
            or weekday_of(day) in self.weekdays
            or any(low <= day <= high for low, high in self.ranges)
            or any(
                (last is None or day <= last) and bool(_rule(text, first).times(day))
                for text, first, last in self.rules
                if not _is_coarse(text)
            )
            or (any(_is_coarse(text) for text, _, _ in self.rules) and day in self._by_rules(date_of(day).year))
        )

    def _by_rules(self, year: int) -> frozenset[int]:
        """The days of a year that the rules of months and years name."""
        found = self._years.get(year)
        if found is None:
            start, end = day_of(date(year, 1, 1)), day_of(date(year, 12, 31))
            found = self._years[year] = frozenset(
                day
                for text, first, last in self.rules
                if _is_coarse(text)
                for day, _ in _rule(text, first).between(start, end if last is None else min(end, last))
            )
        return found

    def is_business_day(self, day: int) -> bool:
        """Whether something may be moved onto this day."""
        return weekday_of(day) not in self.weekend and not self.excludes(day)

    def business_day(self, day: int, step: int) -> int | None:
        """The closest business day after (`step` 1) or before (-1) this one."""
        for _ in range(RUN_DAYS_MAX):
            day += step
            if self.is_business_day(day):
                return day
        return None

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


@lru_cache(maxsize=_RULES_CACHED)
def _rule(text: str, first: int) -> RuleDays:
    parts, faults = day_rule(text)
    if parts is None:
        raise ValueError(faults[0])
    return RuleDays(parts.rule(midnight(date_of(first))))


def _is_coarse(text: str) -> bool:
    return text.startswith(("FREQ=MONTHLY", "FREQ=YEARLY"))


def _day(value: Any) -> int:
    if type(value) is not int or not -800_000 < value < 200_000:
        raise ValueError(f"{value!r} is no day")
    return value
