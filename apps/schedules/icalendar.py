"""Days of an iCalendar file (RFC 5545): DTSTART, DTEND or DURATION, RRULE and EXDATE of its VEVENTs. Pure and bounded.

Each event makes whole days: those that it touches in its own zone. Cancelled events count for nothing. What can't be
kept exactly is refused with the event's name, never guessed.
"""

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta

from apps.schedules.exclusion import MAX_DATES, day_rule, midnight, rule_of
from apps.schedules.recurrence import RuleDays, day_of

MAX_CHARS = 512 * 1024
MAX_EVENTS = 2_000
MAX_EVENT_DAYS = 732
_VALUE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)Z?)?")
_DURATION = re.compile(r"\+?P(?:(\d{1,3})W|(?:(\d{1,3})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,5})M)?(?:(\d{1,5})S)?)?)")


class IcalFault(ValueError):
    """What can't be read, in words for its owner."""


@dataclass(slots=True)
class IcalDays:
    """What a file excludes, as `Exclusion` holds it."""

    days: list[int] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    rules: list[tuple[str, int, int | None]] = field(default_factory=list)


def read_ical(text: str) -> IcalDays:
    """The days of all events. IcalFault."""
    if len(text) > MAX_CHARS:
        raise IcalFault(f"has {len(text):,} characters; {MAX_CHARS:,} are allowed.")
    if "BEGIN:VCALENDAR" not in text.upper():
        raise IcalFault("is no iCalendar text: BEGIN:VCALENDAR is missing.")
    found, depth, events = IcalDays(), 0, 0
    event: dict[str, list[str]] | None = None
    for line in text.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "").split("\n"):
        head, _, value = line.partition(":")
        name = head.partition(";")[0].strip().upper()
        upper = value.strip().upper()
        if name == "BEGIN" and event is not None:
            depth += 1  # an alarm or the like inside of the event
        elif name == "BEGIN" and upper == "VEVENT":
            event, events = {}, events + 1
            if events > MAX_EVENTS:
                raise IcalFault(f"has more than {MAX_EVENTS:,} events.")
        elif name == "END" and event is not None:
            if depth:
                depth -= 1
            else:
                _add(event, found)
                event = None
        elif event is not None and not depth and name:
            event.setdefault(name, []).append(value.strip())
    if event is not None:
        raise IcalFault("ends inside of an event.")
    if not events:
        raise IcalFault("has no VEVENT.")
    return found


def _add(event: dict[str, list[str]], found: IcalDays) -> None:
    title = (event.get("SUMMARY") or event.get("UID") or ["an event"])[0][:60]
    if (event.get("STATUS") or [""])[0].upper() == "CANCELLED":
        return
    if not event.get("DTSTART"):
        raise IcalFault(f"{title!r} has no DTSTART.")
    start, start_is_day = _moment(event["DTSTART"][0], title)
    last = _last_day(event, start, start_is_day, title)
    first_day, last_day = day_of(start.date()), day_of(last)
    if last_day < first_day or last_day - first_day > MAX_EVENT_DAYS:
        raise IcalFault(f"{title!r} ends before it begins, or lasts more than two years.")
    for extra in (each for line in event.get("RDATE", []) for each in line.split(",")):
        shift = day_of(_moment(extra, title)[0].date()) - first_day
        found.ranges.append((first_day + shift, last_day + shift))
    if not event.get("RRULE"):
        if last_day > first_day:
            found.ranges.append((first_day, last_day))
        else:
            found.days.append(first_day)
        return
    _add_rule(event, start.date(), last_day - first_day, title, found)


def _add_rule(event: dict[str, list[str]], start: date, more: int, title: str, found: IcalDays) -> None:
    if len(event["RRULE"]) > 1:
        raise IcalFault(f"{title!r} has several RRULEs; make it several events.")
    parts, faults = day_rule(event["RRULE"][0])
    if parts is None:
        raise IcalFault(f"{title!r}: {faults[0]}")
    left_out = {day_of(_moment(one, title)[0].date()) for line in event.get("EXDATE", []) for one in line.split(",")}
    text, first, last = rule_of(parts, start)
    if not left_out and not more:
        found.rules.append((text, first, last))
        return
    # Several days, or days left out: written out, as far as that is few enough.
    if last is None:
        raise IcalFault(f"{title!r} repeats for ever and has several days or an EXDATE; give its RRULE an UNTIL.")
    days = RuleDays(parts.rule(midnight(start)))
    day = days.day_from(first)
    begun = 0
    while day is not None and day <= last:
        begun += 1
        if begun > MAX_DATES:
            raise IcalFault(f"{title!r} repeats more than {MAX_DATES:,} times.")
        if day not in left_out:
            found.ranges.append((day, day + more))
        day = days.day_from(day + 1)


def _last_day(event: dict[str, list[str]], start: datetime, start_is_day: bool, title: str) -> date:
    """The last day that the event touches; its end is exclusive."""
    if event.get("DTEND"):
        end, is_day = _moment(event["DTEND"][0], title)
        if end <= start:
            return start.date() if end == start else end.date() - timedelta(days=1)
        return (end - timedelta(days=1) if is_day else end - timedelta(seconds=1)).date()
    if event.get("DURATION"):
        match = _DURATION.fullmatch(event["DURATION"][0].upper())
        if not match:
            raise IcalFault(f"{title!r} has a DURATION that can't be read.")
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return (start + max(length - timedelta(seconds=1), timedelta())).date()
    return start.date()


def _moment(text: str, title: str) -> tuple[datetime, bool]:
    match = _VALUE.fullmatch(text.strip().upper())
    try:
        if not match:
            raise ValueError
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
        at = datetime.combine(date(year, month, day), time(hour, minute, second))
        if not 1970 <= at.year <= 2499:
            raise ValueError
    except ValueError:
        raise IcalFault(f"{title!r} has a date that can't be read: {text[:30]!r}.") from None
    return at, match[4] is None
