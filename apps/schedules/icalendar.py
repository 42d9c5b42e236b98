"""Days of an iCalendar file (RFC 5545): DTSTART, DTEND or DURATION, RRULE, RDATE and EXDATE of its VEVENTs.

Each event makes whole days: those that it touches in its own zone. An instance that was moved (RECURRENCE-ID) counts
where it was moved to; cancelled events and instances count for nothing. What can't be kept exactly is refused with the
event's name, never guessed. Pure and bounded.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from apps.schedules.exclusion import day_rule, midnight, rule_of
from apps.schedules.icalendar_text import Event, IcalFault, Moment, read_events, until_of
from apps.schedules.recurrence import RuleDays, day_of
from apps.schedules.recurrence_parse import Parts

MAX_EVENT_DAYS = 732
MAX_INSTANCES = 20_000  # of rules with a COUNT, and of those that are written out; in all events together
_DURATION = re.compile(r"\+?P(?:(\d{1,3})W|(?:(\d{1,3})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,5})M)?(?:(\d{1,5})S)?)?)")
_UNTIL = re.compile(r"UNTIL=([^;]*)")


@dataclass(slots=True)
class IcalDays:
    """What a file excludes, as `Exclusion` holds it."""

    days: list[int] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    rules: list[tuple[str, int, int | None]] = field(default_factory=list)
    instances: int = 0

    def count(self, instances: int, title: str) -> None:
        """Work for so many instances more. IcalFault beyond the bound."""
        self.instances += instances
        if self.instances > MAX_INSTANCES:
            raise IcalFault(f"repeats too often: {title!r} exceeds {MAX_INSTANCES:,} repetitions in all; use UNTIL.")


def read_ical(text: str) -> IcalDays:
    """The days of all events. IcalFault."""
    events = read_events(text)
    moved: dict[str, list[Moment]] = defaultdict(list)  # by UID: the instances that other events stand for
    for event in events:
        if event.text("RECURRENCE-ID"):
            if "RANGE" in event.parameters("RECURRENCE-ID"):
                raise IcalFault(f"{event.title!r} moves an instance and all after it; make it an event of its own.")
            moved[event.text("UID") or ""] += event.moments("RECURRENCE-ID")
    found = IcalDays()
    for event in events:
        if (event.text("STATUS") or "").upper() != "CANCELLED":
            own = [] if event.text("RECURRENCE-ID") else moved[event.text("UID") or ""]
            _add(event, own, found)
    return found


def _add(event: Event, moved: list[Moment], found: IcalDays) -> None:
    title = event.title
    if not event.text("DTSTART"):
        raise IcalFault(f"{title!r} has no DTSTART.")
    if event.texts("EXRULE"):
        raise IcalFault(f"{title!r} has an EXRULE, which RFC 5545 abolished; use EXDATE.")
    start = event.moments("DTSTART")[0]
    first = day_of(start.wall.date())
    more = day_of(_last_day(event, start)) - first
    if not 0 <= more <= MAX_EVENT_DAYS:
        raise IcalFault(f"{title!r} ends before it begins, or lasts more than two years.")
    left_out = [each.in_zone_of(start, title) for each in [*event.moments("EXDATE"), *moved]]
    dates = [each.in_zone_of(start, title) for each in event.moments("RDATE")]
    if event.texts("RRULE"):
        _add_rule(event, start, more, left_out, found)
    else:
        dates.append(start)
    for each in dates:
        if not any(_is_same(each, other) for other in left_out):
            _add_days(day_of(each.wall.date()), more, found)


def _add_days(first: int, more: int, found: IcalDays) -> None:
    if more:
        found.ranges.append((first, first + more))
    else:
        found.days.append(first)


def _add_rule(event: Event, start: Moment, more: int, left_out: list[Moment], found: IcalDays) -> None:
    title, rules = event.title, event.texts("RRULE")
    if len(rules) > 1:
        raise IcalFault(f"{title!r} has several RRULEs; make it several events.")
    parts, faults = day_rule(_with_last_day(rules[0], start, title))
    if parts is None:
        raise IcalFault(f"{title!r}: {faults[0]}")
    found.count(parts.count or 0, title)
    text, first, last = rule_of(parts, start.wall.date())
    days_left_out = {day_of(each.wall.date()) for each in left_out if each.is_day or _is_at_time_of(each, start)}
    days_left_out &= _instances(parts, start.wall.date(), days_left_out)
    if not days_left_out and not more:
        found.rules.append((text, first, last))
        return
    # Several days, or days left out: written out, as far as that is few enough.
    if last is None:
        raise IcalFault(f"{title!r} repeats for ever and has several days or an EXDATE; give its RRULE an UNTIL.")
    days = RuleDays(parts.rule(midnight(start.wall.date())))
    day = days.day_from(first)
    while day is not None and day <= last:
        found.count(1 + more, title)
        if day not in days_left_out:
            _add_days(day, more, found)
        day = days.day_from(day + 1)


def _with_last_day(rule: str, start: Moment, title: str) -> str:
    """An RRULE whose UNTIL is the last day on which an instance begins: a time of day and a zone count in there."""
    match = _UNTIL.search(rule.upper())
    if not match:
        return rule
    return f"{rule[: match.start(1)]}{until_of(match[1], start, title):%Y%m%d}{rule[match.end(1) :]}"


def _instances(parts: Parts, start: date, days: set[int]) -> set[int]:
    """Those of `days` that the rule names: leaving out another costs nothing."""
    rule = RuleDays(parts.rule(midnight(start)))
    return {day for day in days if day >= day_of(start) and rule.times(day)}


def _is_same(one: Moment, other: Moment) -> bool:
    return one.wall.date() == other.wall.date() and (other.is_day or one.is_day or _is_at_time_of(other, one))


def _is_at_time_of(one: Moment, start: Moment) -> bool:
    return start.is_day or one.wall.time() == start.wall.time()


def _last_day(event: Event, start: Moment) -> date:
    """The last day that the event touches; its end is exclusive."""
    wall = start.wall
    if event.text("DTEND"):
        end = event.moments("DTEND")[0].in_zone_of(start, event.title)
        if end.wall <= wall:
            return wall.date() if end.wall == wall else end.wall.date() - timedelta(days=1)
        return (end.wall - (timedelta(days=1) if end.is_day else timedelta(seconds=1))).date()
    if text := event.text("DURATION"):
        match = _DURATION.fullmatch(text.upper())
        if not match:
            raise IcalFault(f"{event.title!r} has a DURATION that can't be read.")
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return _end_of(wall, length)
    return wall.date()


def _end_of(wall: datetime, length: timedelta) -> date:
    return (wall + max(length - timedelta(seconds=1), timedelta())).date()
