"""iCalendar text (RFC 5545) to events: unfolded lines, properties with their parameters, values as moments. Pure."""

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, tzinfo

from apps.schedules.timing_zones import load_zone, zone_names

MAX_CHARS = 512 * 1024
MAX_EVENTS = 2_000
_VALUE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_PARAMETER = re.compile(r';([A-Za-z-]+)=("[^"]*"|[^;:"]*)')


class IcalFault(ValueError):
    """What can't be read, in words for its owner."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, or a wall time with its zone: None when it floats. Times are of the file, not of the schedule."""

    wall: datetime  # naive; midnight for a date
    is_day: bool
    zone: str | None

    def in_zone_of(self, other: "Moment", title: str) -> "Moment":
        """The same instant in the other's zone. IcalFault when a zone's name is not known."""
        if self.is_day or self.zone == other.zone or self.zone is None or other.zone is None:
            return self
        here, there = (_zone(name, title) for name in (self.zone, other.zone))
        wall = self.wall.replace(tzinfo=here).astimezone(there).replace(tzinfo=None)
        return Moment(wall, False, other.zone)


@dataclass(slots=True)
class Event:
    """A VEVENT's properties by name; each is a list, since some may come several times."""

    properties: dict[str, list[tuple[dict[str, str], str]]] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        found = self.properties.get(name)
        return found[0][1] if found else None

    def texts(self, name: str) -> list[str]:
        return [value for _, value in self.properties.get(name, [])]

    def parameters(self, name: str) -> dict[str, str]:
        return self.properties[name][0][0]

    def moments(self, name: str) -> list[Moment]:
        """All values of a property, also several on one line. IcalFault."""
        return [
            _moment(each, parameters, self.title)
            for parameters, value in self.properties.get(name, [])
            for each in value.split(",")
        ]

    @property
    def title(self) -> str:
        return (self.text("SUMMARY") or self.text("UID") or "an event")[:60]


def read_events(text: str) -> list[Event]:
    """All events of one file. IcalFault for what is no whole calendar."""
    if len(text) > MAX_CHARS:
        raise IcalFault(f"has {len(text):,} characters; {MAX_CHARS:,} are allowed.")
    events: list[Event] = []
    open_parts: list[str] = []
    calendars = 0
    for line in text.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "").split("\n"):
        name, parameters, value = _property(line)
        if name == "BEGIN":
            part = value.upper()
            if not open_parts and part != "VCALENDAR":
                raise IcalFault(f"has a {part[:20]} outside of a calendar.")
            open_parts.append(part)
            if open_parts == ["VCALENDAR", "VEVENT"]:
                events.append(Event())
                if len(events) > MAX_EVENTS:
                    raise IcalFault(f"has more than {MAX_EVENTS:,} events.")
        elif name == "END":
            if not open_parts or open_parts.pop() != value.upper():
                raise IcalFault(f"has an END:{value[:20]} without its beginning.")
            calendars += not open_parts
        elif open_parts == ["VCALENDAR", "VEVENT"] and name:
            events[-1].properties.setdefault(name, []).append((parameters, value))
    if open_parts:
        raise IcalFault(f"ends inside of a {open_parts[-1][:20]}; it is not whole.")
    if not calendars:
        raise IcalFault("is no iCalendar text: BEGIN:VCALENDAR is missing.")
    if not events:
        raise IcalFault("has no VEVENT.")
    return events


def _property(line: str) -> tuple[str, dict[str, str], str]:
    """Name in capitals, parameters, value. A colon inside of a quoted parameter is no end of it."""
    match = re.match(r"[A-Za-z0-9-]+", line.strip())
    if not match:
        return "", {}, ""
    line, at, parameters = line.strip(), match.end(), {}
    while found := _PARAMETER.match(line, at):
        parameters[found[1].upper()] = found[2].strip('"')
        at = found.end()
    return match[0].upper(), parameters, line[at + 1 :].strip() if line[at : at + 1] == ":" else ""


def _moment(text: str, parameters: dict[str, str], title: str) -> Moment:
    match = _VALUE.fullmatch(text.strip().upper())
    try:
        if not match:
            raise ValueError
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        wall = datetime.combine(date(year, month, day), time(hour, minute, second))
        if not 1970 <= wall.year <= 2499:
            raise ValueError
    except ValueError:
        raise IcalFault(f"{title!r} has a date that can't be read: {text[:30]!r}.") from None
    return Moment(wall, match[4] is None, "UTC" if match[7] else parameters.get("TZID"))


def until_of(text: str, start: Moment, title: str) -> date:
    """The last day on which an instance that begins when `start` does may begin, for an RRULE's UNTIL. IcalFault."""
    until = _moment(text, {}, title)
    if until.is_day or start.is_day:
        return until.wall.date()
    wall = until.in_zone_of(start, title).wall
    return wall.date() if start.wall.time() <= wall.time() else date.fromordinal(wall.toordinal() - 1)


def _zone(name: str, title: str) -> tzinfo:
    if name == "UTC":
        return UTC
    if name not in zone_names():
        raise IcalFault(
            f"{title!r} is in the zone {name[:40]!r}, which is no IANA zone, and needs a conversion from it."
        )
    return load_zone(name)
