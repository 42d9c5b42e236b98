"""A named calendar as its owner writes it: dates, ranges, rules, weekdays; or the text of an iCalendar file. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from apps.schedules.exclusion import (
    MAX_DATES,
    MAX_RANGES,
    MAX_RULES,
    MAX_TEXT_CHARS,
    Exclusion,
    day_rule,
    exclusion_from_json,
    ranges_of,
    rule_of,
)
from apps.schedules.icalendar import IcalFault, read_ical
from apps.schedules.input_fields import Fields
from apps.schedules.recurrence import date_of, day_of
from apps.schedules.timing_windows_api import DAY_NAMES, read_days
from kernel.errors import Faults

FIELDS = ("name", "dates", "ranges", "rrules", "weekdays", "weekend", "ical")
READ_ONLY = ("id", "created_at", "updated_at", "used_by")
RULES_FROM = date(1970, 1, 1)
MAX_DAYS = 20_000
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class CalendarForm:
    """A complete, valid calendar. `days` is as the API shows it, `exclusion` the text that follows from it."""

    name: str
    days: dict[str, Any]
    exclusion: str


def read_calendar(data: object) -> CalendarForm:
    """Reads a complete calendar. Raises InvalidInput with all faults. `ical` adds to the other members."""
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(FIELDS, read_only=READ_ONLY)
    name = fields.name()
    days = [_date(each, f"/dates/{number}", faults) for number, each in enumerate(_list(fields, "dates", MAX_DATES))]
    ranges = [
        _range(each, f"/ranges/{number}", faults) for number, each in enumerate(_list(fields, "ranges", MAX_RANGES))
    ]
    rules = [_rule(each, f"/rrules/{number}", faults) for number, each in enumerate(_list(fields, "rrules", MAX_RULES))]
    given = fields.data.get
    weekdays = read_days(given("weekdays"), "/weekdays", faults) if given("weekdays") not in (None, []) else ()
    weekend = (
        (5, 6)
        if given("weekend") is None
        else ()
        if given("weekend") == []
        else read_days(given("weekend"), "/weekend", faults)
    )
    if given("ical") is not None:
        _read_ical(given("ical"), days, ranges, rules, faults)
    if len(set(weekdays) | set(weekend)) == 7:
        faults.add("/weekdays", "contradiction", "leave at least one weekday that is neither excluded nor a weekend.")
    faults.raise_if_any()
    every = {day for day in days if day is not None}
    for low, high in (each for each in ranges if each):
        every.update(range(low, high + 1))
        if len(every) > MAX_DAYS:
            faults.add("/ranges", "too_large", f"excludes more than {MAX_DAYS:,} days one by one; use rules.")
            break
    faults.raise_if_any()
    singles, runs = ranges_of(sorted(every))
    found = Exclusion(
        dates=singles, ranges=runs,
        rules=tuple(sorted({each for each in rules if each}, key=str)), weekdays=weekdays, weekend=weekend,
    )  # fmt: skip
    text = json.dumps(found.as_json(), sort_keys=True, separators=(",", ":"))
    if (
        len(text) > MAX_TEXT_CHARS
        or len(found.dates) > MAX_DATES
        or len(found.rules) > MAX_RULES
        or len(found.ranges) > MAX_RANGES
    ):
        detail = (
            f"is too large: {len(found.dates)} dates, {len(found.ranges)} ranges and {len(found.rules)} rules make "
            f"{len(text):,} characters, {MAX_TEXT_CHARS:,} are allowed; use ranges and rules, or drop past years."
        )
        faults.add("", "too_large", detail)
    faults.raise_if_any()
    return CalendarForm(name, shown(found), text)


def exclusion_of(text: str) -> Exclusion:
    """The days of a stored calendar."""
    return exclusion_from_json(json.loads(text))


def shown(found: Exclusion) -> dict[str, Any]:
    """The days as the API shows them, and takes them back."""
    return {
        "dates": [date_of(day).isoformat() for day in found.dates],
        "ranges": [{"from": date_of(low).isoformat(), "to": date_of(high).isoformat()} for low, high in found.ranges],
        "rrules": [_shown_rule(*each) for each in found.rules],
        "weekdays": [DAY_NAMES[day] for day in found.weekdays],
        "weekend": [DAY_NAMES[day] for day in found.weekend],
    }


def _shown_rule(text: str, first: int, last: int | None) -> dict[str, Any]:
    until = f";UNTIL={date_of(last):%Y%m%d}" if last is not None else ""
    return {"rrule": text + until, "from": date_of(first).isoformat()}


def _list(fields: Fields, name: str, most: int) -> list[Any]:
    value = fields.data.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        fields.faults.add(f"/{name}", "type", f"must be a list of at most {most:,}.")
        return []
    return value


def _date(value: Any, pointer: str, faults: Faults) -> int | None:
    try:
        if not isinstance(value, str) or not _DATE.fullmatch(value):
            raise ValueError
        found = datetime.fromisoformat(value).date()
        if not 1970 <= found.year <= 2499:
            raise ValueError
    except ValueError:
        faults.add(pointer, "format", "must be a date from 1970 to 2499, such as 2026-12-25.")
        return None
    return day_of(found)


def _range(value: Any, pointer: str, faults: Faults) -> tuple[int, int] | None:
    if not isinstance(value, Mapping) or set(value) != {"from", "to"}:
        faults.add(pointer, "type", 'must be an object such as {"from": "2026-12-24", "to": "2026-12-31"}.')
        return None
    low, high = (_date(value[name], f"{pointer}/{name}", faults) for name in ("from", "to"))
    if low is None or high is None:
        return None
    if high < low or high - low >= MAX_DAYS:  # ranges that meet are shown as one, and come back as that
        faults.add(pointer, "range", f"must not end before it begins, and have at most {MAX_DAYS:,} days.")
        return None
    return low, high


def _rule(value: Any, pointer: str, faults: Faults) -> tuple[str, int, int | None] | None:
    text, start = (value.get("rrule"), value.get("from")) if isinstance(value, Mapping) else (value, None)
    first = day_of(RULES_FROM) if start is None else _date(start, f"{pointer}/from", faults)
    if not isinstance(text, str) or (isinstance(value, Mapping) and not set(value) <= {"rrule", "from"}):
        faults.add(
            pointer, "type", 'must be an RRULE, or an object such as {"rrule": "FREQ=YEARLY", "from": "2026-05-01"}.'
        )
        return None
    parts, wrong = day_rule(text)
    for detail in wrong:
        faults.add(pointer, "rrule", detail)
    return None if parts is None or first is None else rule_of(parts, date_of(first))


def _read_ical(text: Any, days: list[Any], ranges: list[Any], rules: list[Any], faults: Faults) -> None:
    if not isinstance(text, str):
        faults.add("/ical", "type", "must be the text of an iCalendar file.")
        return
    try:
        found = read_ical(text)
    except IcalFault as error:
        faults.add("/ical", "ical", str(error))
        return
    days += found.days
    ranges += found.ranges
    rules += found.rules
