"""RRULE text (RFC 5545) to parts, every fault with a way out. What would need unbounded work is refused here."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime

from apps.schedules.recurrence import Rule, day_of
from apps.schedules.timing_steps import Filters, days_for

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
STEP_S = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_CHARS = 512
MAX_COUNT = 100_000  # what was stored may have it; what is given now at most MAX_COUNT_GIVEN
MAX_COUNT_GIVEN = 10_000
MAX_DAYS_COUNTED = 2_000  # one by one, where COUNT meets the filters of a rule more often than daily
MAX_INTERVAL = 10_000
MAX_STEP_S = 10 * 366 * 86_400
MAX_TIMES = 1_440  # of one day: more is a matter for cron with a seconds field
MAX_PICKED = 20_000  # instants of a period that BYSETPOS chooses among
_WEEKDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"\d{8}(T\d{6}Z?)?")
_RANGES = {
    "BYSECOND": (0, 59), "BYMINUTE": (0, 59), "BYHOUR": (0, 23), "BYMONTH": (1, 12), "BYMONTHDAY": (1, 31),
    "BYYEARDAY": (1, 366), "BYWEEKNO": (1, 53), "BYSETPOS": (1, 366),
}  # fmt: skip
_SIGNED = {"BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS"}
_DAYS_OF_YEAR = {"YEARLY": 366, "MONTHLY": 31, "WEEKLY": 7, "DAILY": 1}
Note = Callable[[str, str], None]


@dataclass(slots=True)
class Parts:
    """An RRULE as it was written, checked."""

    freq: str = "DAILY"
    interval: int = 1
    count: int | None = None
    until: str | None = None
    lists: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weekdays: tuple[tuple[int, int], ...] = ()
    week_start: int = 0

    def text(self) -> str:
        """Canonical: equal rules give equal texts."""
        parts = [f"FREQ={self.freq}"]
        if self.interval > 1:
            parts.append(f"INTERVAL={self.interval}")
        if self.count is not None:
            parts.append(f"COUNT={self.count}")
        if self.until is not None:
            parts.append(f"UNTIL={self.until}")
        parts += [f"{name}={','.join(map(str, self.lists[name]))}" for name in _RANGES if name in self.lists]
        if self.weekdays:
            parts.append("BYDAY=" + ",".join(f"{nth or ''}{WEEKDAYS[day]}" for nth, day in self.weekdays))
        if self.week_start:
            parts.append(f"WKST={WEEKDAYS[self.week_start]}")
        return ";".join(parts)

    @property
    def sub_daily(self) -> bool:
        return self.freq in STEP_S

    def rule(self, start: datetime) -> Rule:
        """The rule of days from a naive wall time; what that implies is written out."""
        lists, weekdays = self.lists, self.weekdays
        months, monthdays = lists.get("BYMONTH", ()), lists.get("BYMONTHDAY", ())
        if not (lists.keys() & {"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY"}) and not weekdays:
            if self.freq == "YEARLY":
                months, monthdays = months or (start.month,), (start.day,)
            elif self.freq == "MONTHLY":
                monthdays = (start.day,)
            elif self.freq == "WEEKLY":
                weekdays = ((0, start.weekday()),)
        return Rule(
            freq=self.freq, interval=self.interval, start_day=day_of(start.date()),
            hours=lists.get("BYHOUR", (start.hour,)), minutes=lists.get("BYMINUTE", (start.minute,)),
            seconds=lists.get("BYSECOND", (start.second,)), months=months, weeks=lists.get("BYWEEKNO", ()),
            yeardays=lists.get("BYYEARDAY", ()), monthdays=monthdays, weekdays=weekdays,
            setpos=lists.get("BYSETPOS", ()), week_start=self.week_start,
        )  # fmt: skip

    def filters(self) -> Filters:
        """What a rule more often than daily asks of the local time."""
        weekdays = tuple(day for _, day in self.weekdays)
        return Filters(
            self.lists.get("BYMONTH", ()), self.lists.get("BYMONTHDAY", ()), weekdays, self.lists.get("BYHOUR", ())
        )

    @property
    def step_s(self) -> int:
        return STEP_S[self.freq] * self.interval


def parse_rrule(text: str, note: Note) -> Parts | None:
    """Reads the value of an RRULE. `note(code, detail)` is told each fault; None when there is one."""
    faults: list[str] = []

    def fault(code: str, detail: str) -> None:
        faults.append(code)
        note(code, detail)

    if len(text) > MAX_CHARS or not text.isascii():
        fault("too_long", f"must be at most {MAX_CHARS} plain characters.")
        return None
    given: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").rstrip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            fault("part", f"{part[:40]!r} is not a part such as FREQ=DAILY.")
        elif name in given:
            fault("repeated", f"{name} is given twice.")
        else:
            given[name] = value
    parts = Parts()
    _read_frequency(parts, given, fault)
    for name in _RANGES:
        if name in given:
            _read_list(parts, name, given.pop(name), fault)
    if "BYDAY" in given:
        _read_weekdays(parts, given.pop("BYDAY"), fault)
    for name in list(given)[:10]:
        fault("unknown_part", f"{name[:20]!r} is no part of an RRULE that is known here.")
    if not faults:
        _check(parts, fault)
    return None if faults else parts


def count_fault(parts: Parts) -> str | None:
    """Why COUNT would take too long to count down; None when it does not."""
    if parts.count is None:
        return None
    if parts.count > MAX_COUNT_GIVEN:
        return f"COUNT must be a whole number from 1 to {MAX_COUNT_GIVEN:,}; give UNTIL, or max_runs beside the rule."
    if parts.sub_daily and days_for(parts.count, parts.step_s, parts.filters()) > MAX_DAYS_COUNTED:
        return (
            f"COUNT={parts.count} of such a rule would be counted day by day over more than {MAX_DAYS_COUNTED:,} days; "
            "give UNTIL, or max_runs beside the rule."
        )
    return None


def _read_frequency(parts: Parts, given: dict[str, str], fault: Note) -> None:
    parts.freq = given.pop("FREQ", "")
    if parts.freq not in FREQUENCIES:
        fault("freq", f"FREQ must be one of {', '.join(FREQUENCIES)}.")
    parts.interval = _number(given.pop("INTERVAL", "1"), "INTERVAL", 1, MAX_STEP_S, fault)
    if parts.freq in _DAYS_OF_YEAR and parts.interval > MAX_INTERVAL:
        fault("range", f"INTERVAL must be at most {MAX_INTERVAL}.")
    if "COUNT" in given:
        parts.count = _number(given.pop("COUNT"), "COUNT", 1, MAX_COUNT, fault)
    if "UNTIL" in given:
        parts.until = given.pop("UNTIL")
        if not _UNTIL.fullmatch(parts.until):
            fault("until", "UNTIL must look like 20261231 or 20261231T230000Z.")
        if parts.count is not None:
            fault("contradiction", "give COUNT or UNTIL, not both.")
    start = given.pop("WKST", "MO")
    if start in WEEKDAYS:
        parts.week_start = WEEKDAYS.index(start)
    else:
        fault("wkst", f"WKST must be one of {', '.join(WEEKDAYS)}.")


def _number(value: str, name: str, low: int, high: int, fault: Note) -> int:
    if value.isdigit() and len(value) <= 10 and low <= int(value) <= high:
        return int(value)
    fault("range", f"{name} must be a whole number from {low} to {high:,}.")
    return low


def _read_list(parts: Parts, name: str, value: str, fault: Note) -> None:
    low, high = _RANGES[name]
    found: set[int] = set()
    for item in value.split(","):
        digits = item[1:] if item[:1] in ("+", "-") and name in _SIGNED else item
        if not digits.isdigit() or len(digits) > 3 or not low <= int(digits) <= high:
            signed = " or the same with a minus" if name in _SIGNED else ""
            fault("range", f"{name} has {item[:12]!r}; values are from {low} to {high}{signed}.")
            return
        found.add(-int(digits) if item[0] == "-" else int(digits))
    parts.lists[name] = tuple(sorted(found))


def _read_weekdays(parts: Parts, value: str, fault: Note) -> None:
    found: set[tuple[int, int]] = set()
    for item in value.split(","):
        match = _WEEKDAY.fullmatch(item)
        nth = int(match[1] or 0) if match else 0
        if not match or abs(nth) > 53 or (match[1] and not nth):
            fault("weekday", f"BYDAY has {item[:12]!r}; values look like MO, 1MO or -1FR.")
            return
        found.add((nth, WEEKDAYS.index(match[2])))
    parts.weekdays = tuple(sorted(found))


def _check(parts: Parts, fault: Note) -> None:
    """What RFC 5545 does not allow together, and what would cost too much."""
    freq, lists = parts.freq, parts.lists
    if any(nth for nth, _ in parts.weekdays) and (freq not in ("MONTHLY", "YEARLY") or "BYWEEKNO" in lists):
        fault("contradiction", "a number before a weekday (1MO) belongs to FREQ=MONTHLY or YEARLY, without BYWEEKNO.")
    if freq != "YEARLY" and lists.keys() & {"BYWEEKNO", "BYYEARDAY"}:
        fault("contradiction", "BYWEEKNO and BYYEARDAY belong to FREQ=YEARLY.")
    if freq == "WEEKLY" and "BYMONTHDAY" in lists:
        fault("contradiction", "BYMONTHDAY does not go with FREQ=WEEKLY; use FREQ=DAILY with BYDAY and BYMONTHDAY.")
    if "BYSETPOS" in lists and len(lists) + bool(parts.weekdays) < 2:
        fault("contradiction", "BYSETPOS chooses among what another BY part gives; there is none.")
    if parts.sub_daily:
        if parts.step_s > MAX_STEP_S:
            fault("range", "INTERVAL is longer than ten years.")
        if lists.keys() & {"BYSETPOS", "BYMINUTE", "BYSECOND"}:
            hint = "write it as cron, which has a minute and a seconds field, such as '0,30 9-17 * * MON-FRI'"
            fault("unbounded", f"BYMINUTE, BYSECOND and BYSETPOS are not offered for FREQ={freq}; {hint}.")
        return
    times = 1
    for name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        times *= len(lists.get(name, (0,)))
    if times > MAX_TIMES:
        fault("unbounded", f"runs {times:,} times a day; from {MAX_TIMES:,} on write it as cron with a seconds field.")
    elif "BYSETPOS" in lists and times * _DAYS_OF_YEAR[freq] > MAX_PICKED:
        fault("unbounded", "BYSETPOS would choose among too many instants; leave BYMINUTE or BYSECOND out.")


def implied_last_day(unit: str, start: date) -> dict[str, tuple[int, ...]]:
    """The BY parts of "every month (or year) on this day; where a month is shorter, on its last day"."""
    if unit == "months":
        days = tuple(range(28, start.day + 1)) if start.day > 28 else (start.day,)
        return {"BYMONTHDAY": days, "BYSETPOS": (-1,)}
    if (start.month, start.day) == (2, 29):
        return {"BYMONTH": (2,), "BYMONTHDAY": (28, 29), "BYSETPOS": (-1,)}
    return {"BYMONTH": (start.month,), "BYMONTHDAY": (start.day,)}
