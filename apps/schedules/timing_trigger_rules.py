"""The trigger kinds of the local calendar: `{"every": {"months": 1}}` and `{"rrule": "..."}` with what belongs to them.

`rrule` may be one RRULE, or lines of iCalendar text: DTSTART, RRULE, RDATE, EXDATE, each with a TZID or in UTC.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apps.schedules.recurrence_parse import MAX_CHARS, Parts, count_fault, parse_rrule
from apps.schedules.timing_build import wall_instant
from apps.schedules.timing_triggers import EVERY_UNITS, Every, Recurrence, Trigger, instant_text
from apps.schedules.timing_zones import load_zone
from kernel.errors import Faults

ELAPSED_S = {"seconds": 1, "minutes": 60, "hours": 3600}
EVERY_MAX = {"days": 3_660, "weeks": 530, "months": 120, "years": 10}
MAX_EVERY_S = 10 * 366 * 86_400
MAX_EXTRA = 500  # RDATEs or EXDATEs of one rule
MAX_LINES = 50
_DURATION = re.compile(r"(?=\d)(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?", re.I)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
Read = Callable[[Any, str, str, Faults], datetime | None]


@dataclass(slots=True)
class RuleForm:
    """What could be read without the zone."""

    kind: str
    unit: str = ""
    number: int = 0
    parts: Parts | None = None
    anchor: Any = None
    rdate: list[Any] = field(default_factory=list)
    exdate: list[Any] = field(default_factory=list)
    zone: str | None = None

    def build(
        self, *, zone: str, start_at: datetime | None, start_written: Any, now: datetime, faults: Faults, read: Read
    ) -> Trigger | None:
        """The trigger in its zone; None when it has faults. Without an anchor it begins at start_at, or else now."""
        name = "anchor" if self.kind == "every" else "dtstart"
        given = start_at or now
        if self.anchor is not None:
            found = read(self.anchor, f"/trigger/{name}", zone, faults)
            if found is None:
                return None
            given = found
        local = given.astimezone(load_zone(zone)).replace(microsecond=0)
        written = self.anchor if self.anchor is not None else start_written if start_at is not None else None
        wall = _as_written(written) or local.replace(tzinfo=None, fold=0)
        if self.kind == "every":
            return Every(self.unit, self.number, wall.isoformat())
        if self.parts is None:
            return None
        rdate = [
            at
            for at in (self._extra(each, "rdate", number, zone, faults, read) for number, each in enumerate(self.rdate))
            if at
        ]
        exdate = [
            at
            for at in (
                self._extra(each, "exdate", number, zone, faults, read) for number, each in enumerate(self.exdate)
            )
            if at
        ]
        rdate = [at for each in rdate for at in ([each] if "T" in each else self._on_date(each, wall, zone))]
        if len(rdate) > MAX_EXTRA:
            detail = f"names {len(rdate):,} times, as each date has those of the rule; {MAX_EXTRA} are allowed."
            faults.add("/trigger/rdate", "too_many", detail)
        # Only in the second pass of a wall time does the wall time alone say too little.
        first = wall if wall_instant(wall, zone) == given.replace(microsecond=0) or local.fold == 0 else local
        return Recurrence(self.parts.text(), first.isoformat(), tuple(sorted(set(rdate))), tuple(sorted(set(exdate))))

    def _on_date(self, day: str, wall: datetime, zone: str) -> list[str]:
        """A date alone is that day at all of the rule's times; at DTSTART's when it runs more often than daily."""
        assert self.parts is not None
        own = wall.hour * 3600 + wall.minute * 60 + wall.second
        times = (own,) if self.parts.sub_daily else self.parts.rule(wall).times()
        begins = datetime.fromisoformat(day)
        return [instant_text(wall_instant(begins + timedelta(seconds=second), zone)) for second in times]

    def _extra(self, value: Any, name: str, number: int, zone: str, faults: Faults, read: Read) -> str | None:
        if isinstance(value, str) and _DATE.fullmatch(value.strip()):
            try:
                return datetime.fromisoformat(value.strip()).date().isoformat()
            except ValueError:
                faults.add(f"/trigger/{name}/{number}", "format", f"{value!r} is not a date.")
                return None
        found = read(value, f"/trigger/{name}/{number}", zone, faults)
        return None if found is None else instant_text(found)


def read_every(given: Mapping[str, Any], faults: Faults) -> RuleForm | int | None:
    """A calendar interval; or seconds of an elapsed one, for `{"hours": 2}` and "90s"; None with faults."""
    value, pointer = given["every"], "/trigger/every"
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip().removeprefix("@every").strip())
        if match is None:
            faults.add(
                pointer, "format", 'must look like "90s", "5m" or "1h30m", or be an object such as {"months": 1}.'
            )
            return None
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return _elapsed(hours * 3600 + minutes * 60 + seconds, pointer, faults)
    units = (*EVERY_UNITS, *ELAPSED_S)
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in units:
        faults.add(pointer, "type", f'must name one unit of {", ".join(units)}, such as {{"months": 1}}.')
        return None
    [(unit, number)] = value.items()
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        faults.add(f"{pointer}/{unit}", "type", "must be a whole number from 1 on.")
        return None
    if unit in ELAPSED_S:
        return _elapsed(number * ELAPSED_S[unit], f"{pointer}/{unit}", faults)
    if number > EVERY_MAX[unit]:
        faults.add(f"{pointer}/{unit}", "range", f"must be at most {EVERY_MAX[unit]:,} {unit} (ten years).")
        return None
    return RuleForm("every", unit=unit, number=number, anchor=given.get("anchor"))


def read_rrule(given: Mapping[str, Any], faults: Faults) -> RuleForm | None:
    """A recurrence rule; None with faults."""
    text = given["rrule"]
    if not isinstance(text, str) or not text.strip():
        faults.add("/trigger/rrule", "type", "must be a text such as FREQ=MONTHLY;BYDAY=-1FR.")
        return None
    form = RuleForm("rrule", anchor=given.get("dtstart"))
    for name, into in (("rdate", form.rdate), ("exdate", form.exdate)):
        extra = given.get(name)
        if extra is not None and (isinstance(extra, str) or not isinstance(extra, Sequence)):
            faults.add(f"/trigger/{name}", "type", "must be a list of times or dates.")
        else:
            into += extra or []
    rules = (
        _read_lines(text, form, faults)
        if "\n" in text.strip() or text.strip().upper().startswith("DTSTART")
        else [text]
    )
    if rules is None:
        return None
    if len(rules) != 1:
        detail = "must hold exactly one RRULE; several rules are several schedules."
        faults.add("/trigger/rrule", "rules", detail)
        return None
    for name, into in (("rdate", form.rdate), ("exdate", form.exdate)):
        if len(into) > MAX_EXTRA:
            faults.add(f"/trigger/{name}", "too_many", f"has {len(into):,} entries; {MAX_EXTRA} are allowed.")
            return None
    form.parts = parse_rrule(rules[0], lambda code, detail: faults.add("/trigger/rrule", code, detail))
    if form.parts is not None and (too_many := count_fault(form.parts)) is not None:
        faults.add("/trigger/rrule", "range", too_many)
    return form if form.parts is not None else None


def _read_lines(text: str, form: RuleForm, faults: Faults) -> list[str] | None:
    """Lines of iCalendar text into the form; the RRULEs among them. None with faults."""
    lines = [line.strip() for line in text.replace("\r\n ", "").replace("\n ", "").splitlines() if line.strip()]
    if len(lines) > MAX_LINES or len(text) > MAX_LINES * MAX_CHARS:
        faults.add("/trigger/rrule", "too_long", f"at most {MAX_LINES} lines.")
        return None
    rules: list[str] = []
    for line in lines:
        head, colon, value = line.partition(":")
        name = head.upper().split(";")[0]
        zone = next((one.partition("=")[2] for one in head.split(";")[1:] if one.upper().startswith("TZID=")), None)
        if name == "RRULE" and colon:
            rules.append(value)
        elif name in ("DTSTART", "RDATE", "EXDATE") and colon:
            values = [_plain(one, name != "DTSTART") for one in value.split(",")]
            if None in values or (name == "DTSTART" and len(values) != 1):
                faults.add("/trigger/rrule", "format", f"{name} must look like 20260101T090000 or 20260101T090000Z.")
                return None
            if zone is not None:
                if form.zone not in (None, zone):
                    faults.add("/trigger/rrule", "zones", "all lines share one TZID.")
                    return None
                form.zone = zone
            if name == "DTSTART":
                form.anchor = values[0]
            else:
                (form.rdate if name == "RDATE" else form.exdate).extend(values)
        else:
            hint = " (EXRULE is not offered; name the instants in EXDATE)" if name == "EXRULE" else ""
            faults.add("/trigger/rrule", "line", f"{line[:30]!r} is not DTSTART, RRULE, RDATE or EXDATE{hint}.")
            return None
    return rules


def _plain(text: str, or_date: bool) -> str | None:
    """20260101T090000Z as ISO 8601; a date stays a date where one is allowed, else it is midnight."""
    match = _COMPACT.fullmatch(text.strip().upper())
    if not match:
        return None
    day = f"{match[1]}-{match[2]}-{match[3]}"
    if match[4] is None:
        return day if or_date else f"{day}T00:00:00"
    return f"{day}T{match[4]}:{match[5]}:{match[6]}{match[7]}"


def _as_written(value: Any) -> datetime | None:
    """A wall time keeps its clock, also where the clock skips it on that one day; None for what has an offset."""
    at = value
    if isinstance(value, str):
        at = datetime.fromisoformat(value.strip().upper())
    return at.replace(microsecond=0) if isinstance(at, datetime) and at.tzinfo is None else None


def _elapsed(seconds: int, pointer: str, faults: Faults) -> int | None:
    if 1 <= seconds <= MAX_EVERY_S:
        return seconds
    faults.add(pointer, "range", f"an interval is from 1 to {MAX_EVERY_S} seconds.")
    return None
