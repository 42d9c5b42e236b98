"""The `trigger` member of a schedule: `{"cron": "..." or [...]}`, `{"every_s", "anchor"}` or `{"at"}`.

Calendar intervals and recurrence rules are read in `timing_trigger_rules`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from apps.schedules.cron_parse import described, parse_cron
from apps.schedules.timing_build import wall_instant
from apps.schedules.timing_trigger_rules import RuleForm, read_every, read_rrule
from apps.schedules.timing_triggers import At, Cron, Interval, Trigger
from kernel.errors import Faults

KINDS = ("cron", "every_s", "at", "every", "rrule")
MAX_EXPRESSIONS = 20
MAX_EVERY_S = 10 * 366 * 86_400
_MEMBERS = {
    "cron": {"cron"}, "every_s": {"every_s", "anchor"}, "at": {"at"}, "every": {"every", "anchor"},
    "rrule": {"rrule", "dtstart", "rdate", "exdate"},
}  # fmt: skip
_EVERY = re.compile(r"@every[ \t]+(?=\d)(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?[ \t]*", re.I)
_HAS_HOUR = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_MAX_INSTANT_LENGTH = 64
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2499, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class TriggerForm:
    """What could be read without zone and window. `zone` is that of a CRON_TZ= prefix."""

    pointer: str = "/trigger"
    exprs: tuple[str, ...] = ()
    every_s: int = 0
    anchor: Any = None
    at: Any = None
    zone: str | None = None
    rule: RuleForm | None = None

    def build(
        self, *, zone: str, start_at: datetime | None, now: datetime, faults: Faults, start_written: Any = None
    ) -> Trigger | None:
        """The trigger in its zone; None when it has faults. `start_written` is start_at as it was given."""
        if self.exprs:
            return Cron(self.exprs)
        if self.every_s:
            anchor = start_at or now.astimezone(UTC).replace(microsecond=0)
            if self.anchor is not None:
                given = read_instant(self.anchor, "/trigger/anchor", zone, faults)
                return Interval(self.every_s, given) if given else None
            return Interval(self.every_s, anchor)
        if self.rule is not None:
            return self.rule.build(
                zone=zone, start_at=start_at, start_written=start_written, now=now, faults=faults, read=read_instant
            )
        if self.at is not None:
            instant = read_instant(self.at, "/trigger/at", zone, faults)
            return At(instant) if instant else None
        return None


def read_trigger(given: Any, faults: Faults, *, key: str) -> TriggerForm:
    """Reads the member and notes all of its faults."""
    form = TriggerForm()
    if not isinstance(given, Mapping):
        shown = '{"cron": "0 3 * * *"}, {"every_s": 300} or {"at": "2026-03-01T08:00:00Z"}'
        faults.add("/trigger", "type", f"must be an object such as {shown}.")
        return form
    kinds = [kind for kind in KINDS if given.get(kind) is not None]
    if len(kinds) != 1:
        found = f"has {' and '.join(kinds)}" if kinds else "has none of them"
        faults.add("/trigger", "kind", f"must have exactly one of {', '.join(KINDS)}, but {found}.")
        return form
    kind = kinds[0]
    for name in list(given)[:20]:
        if name not in _MEMBERS[kind] and given[name] is not None:
            pointer = str(name)[:60].replace("~", "~0").replace("/", "~1")
            faults.add(f"/trigger/{pointer}", "unknown_field", f"does not belong to a {kind} trigger.")
    form.pointer = f"/trigger/{kind}"
    if kind == "cron":
        _read_cron(given["cron"], form, faults, key)
    elif kind == "every_s":
        form.every_s, form.anchor = _read_every(given["every_s"], faults), given.get("anchor")
    elif kind == "every":
        read = read_every(given, faults)
        if isinstance(read, int):  # a text or hours: elapsed time
            form.every_s, form.anchor = read, given.get("anchor")
        else:
            form.rule = read
    elif kind == "rrule":
        form.rule = read_rrule(given, faults)
        form.zone = form.rule.zone if form.rule else None
    else:
        form.at = given["at"]
    return form


def read_instant(value: Any, pointer: str, zone: str, faults: Faults) -> datetime | None:
    """An RFC 3339 text, or one without offset as wall time in the schedule's zone: the first instant after a gap, the
    first pass of a fold. Aware datetimes pass through."""
    if isinstance(value, datetime):
        at = value
    elif not isinstance(value, str) or len(value) > _MAX_INSTANT_LENGTH or not value.isascii():
        faults.add(pointer, "type", "must be a time such as 2026-03-01T08:00:00Z.")
        return None
    else:
        text = value.strip().upper()
        try:
            if not _HAS_HOUR.match(text):
                raise ValueError
            at = datetime.fromisoformat(text)
        except ValueError:
            faults.add(pointer, "format", f"{value!r} is not a time with date and hour, such as 2026-03-01T08:00:00Z.")
            return None
    try:
        at = (at if at.tzinfo else wall_instant(at, zone)).astimezone(UTC)
    except OverflowError:
        at = _LATEST
    if not _EARLIEST <= at < _LATEST:
        faults.add(pointer, "range", f"must be between {_EARLIEST.year} and {_LATEST.year}.")
        return None
    return at


def instant_asked(text: str) -> tuple[datetime | None, str]:
    """The time that somebody typed into a form (UTC without an offset), or why it is none; nothing for none."""
    faults = Faults()
    found = read_instant(text, "/at", "UTC", faults) if text else None
    return (None, f"The time {faults.errors[0].detail}") if faults.errors else (found, "")


def _read_every(value: Any, faults: Faults) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        faults.add("/trigger/every_s", "type", "must be a whole number of seconds.")
    elif not 1 <= value <= MAX_EVERY_S:
        faults.add("/trigger/every_s", "range", f"must be from 1 to {MAX_EVERY_S} seconds (ten years).")
    else:
        return value
    return 0


def _read_cron(given: Any, form: TriggerForm, faults: Faults, key: str) -> None:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not texts:
        faults.add("/trigger/cron", "type", "must be an expression or a list of expressions.")
        return
    if len(texts) > MAX_EXPRESSIONS:
        faults.add("/trigger/cron", "too_many", f"{len(texts)} expressions; at most {MAX_EXPRESSIONS} are allowed.")
        return
    exprs: dict[str, None] = {}
    zones: set[str | None] = set()
    for number, text in enumerate(texts):
        pointer = "/trigger/cron" if isinstance(given, str) else f"/trigger/cron/{number}"
        if not isinstance(text, str):
            faults.add(pointer, "type", "must be a text.")
            continue
        text = text.strip(" \t\r\n")
        if _read_every_alias(text, pointer, len(texts), form, faults):
            continue
        parsed = parse_cron(text, key=key)
        for fault in parsed.faults:
            faults.add(pointer, fault.code, described(text, fault))
        zones.add(parsed.zone)
        if parsed.expression:
            exprs[parsed.expression.text] = None
    if len(zones) > 1:
        faults.add("/trigger/cron", "zones", "all expressions of a schedule share one zone; give it as timezone.")
    form.zone = next((zone for zone in zones if zone is not None), None)
    form.exprs = tuple(exprs)


def _read_every_alias(text: str, pointer: str, count: int, form: TriggerForm, faults: Faults) -> bool:
    """`@every 90s` is an interval in cron's clothes. It can't be united with expressions."""
    match = _EVERY.fullmatch(text)
    if not match:
        return False
    if count > 1:
        faults.add(pointer, "alias", "an interval can't be united with expressions; make it a schedule of its own.")
        return True
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    every_s = hours * 3600 + minutes * 60 + seconds
    if 1 <= every_s <= MAX_EVERY_S:
        form.every_s = every_s
    else:
        faults.add(pointer, "range", f"an interval is from 1 to {MAX_EVERY_S} seconds.")
    return True
