"""A spec in words, and what its owner may not expect of it."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from apps.schedules.cron_kinds import MONTH_NAMES, WEEKDAY_NAMES
from apps.schedules.cron_parse import parse_cron
from apps.schedules.recurrence_parse import STEP_S
from apps.schedules.timing_spec import Spec
from apps.schedules.timing_triggers import Cron, Every, Interval, Recurrence
from apps.schedules.timing_words_rules import every_words, limits_words, recurrence_words
from apps.schedules.timing_zones import MAX_S, load_zone, zone_offsets

_RECENT_S = 1_735_689_600  # 2025-01-01: a zone whose clock last changed before is not worth a note
_HASHED = re.compile(r"(?:^|[\s,])H(?![A-Z])")
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
_MISFIRES = {
    "skip": "missed runs are skipped",
    "fire_once": "of missed runs only the newest is made up for",
    "fire_latest_n": "the newest {max} missed runs are made up for",
    "fire_all": "missed runs are made up for, at most {max}",
}
_OVERLAPS = {
    "allow": "",
    "skip": "no run starts while an earlier one is alive",
    "buffer_one": "at most one run waits for the one before it",
    "buffer_all": "runs wait for one another, at most {max}",
    "cancel_running": "a new run stops the one before it",
    "replace_pending": "a new run takes the place of one that waits",
}


def describe(spec: Spec) -> str:
    """One sentence, such as "At 02:30 on Monday, Europe/Berlin; of missed runs only the newest is made up for."."""
    parts = [_trigger(spec)]
    if spec.start_at or spec.end_at:
        parts.append(
            " ".join(
                f"{word} {_local(spec, at)}" for word, at in (("from", spec.start_at), ("until", spec.end_at)) if at
            )
        )
    if spec.jitter_s:
        parts.append(f"spread over up to {spec.jitter_s} s")
    parts += limits_words(spec)
    parts.append(_MISFIRES[spec.misfire].format(max=spec.misfire_max))
    if spec.misfire_max_age_s is not None and spec.misfire != "skip":
        parts.append(f"none older than {_duration(spec.misfire_max_age_s)}")
    if spec.catch_up_per_s is not None:
        parts.append(f"{spec.catch_up_per_s:g} a second")
    parts.append(_OVERLAPS[spec.overlap].format(max=spec.overlap_max))
    sentence = "; ".join(part for part in parts if part)
    return sentence[0].upper() + sentence[1:] + "."


def notes(spec: Spec) -> list[str]:
    """What may surprise: steps that do not divide their field, day fields that are united, runs at clock changes."""
    if _counts_elapsed_time(spec):
        return ["an interval keeps elapsed time: its wall time moves when the clock changes"]
    if isinstance(spec.trigger, Every | Recurrence):
        return [_clock_note(spec)] if _changes_clocks(spec) and not _is_sub_daily(spec.trigger) else []
    if not isinstance(spec.trigger, Cron):
        return []
    found: dict[str, None] = {}
    for text in spec.trigger.exprs:
        parsed = parse_cron(text)
        found |= dict.fromkeys(parsed.notes)
        if parsed.expression and _changes_clocks(spec):
            found[
                _clock_note(spec)
                if parsed.expression.fixed
                else ("follows real time: it also runs in a repeated hour, and a skipped time is not made up for")
            ] = None
    return list(found)


def seed_notes(spec: Spec, trigger: Any) -> list[str]:
    """What a preview without the schedule's id can't show: `trigger` is as its owner wrote it."""
    written = trigger.get("cron") if isinstance(trigger, Mapping) else None
    texts = [written] if isinstance(written, str) else written if isinstance(written, list) else []
    picked = ["H"] * any(_HASHED.search(text.upper()) for text in texts) + ["jitter"] * bool(spec.jitter_s)
    if not picked:
        return []
    return [f"the schedule's id picks {' and '.join(picked)}: saved, it runs at other times within the same bounds"]


def _counts_elapsed_time(spec: Spec) -> bool:
    trigger = spec.trigger
    if isinstance(trigger, Interval):
        return trigger.every_s % 3600 == 0 and _changes_clocks(spec)
    return isinstance(trigger, Recurrence) and "FREQ=HOURLY" in trigger.rrule and _changes_clocks(spec)


def _is_sub_daily(trigger: Every | Recurrence) -> bool:
    return isinstance(trigger, Recurrence) and any(f"FREQ={each}" in trigger.rrule for each in STEP_S)


def _changes_clocks(spec: Spec) -> bool:
    offsets = zone_offsets(spec.zone)
    return offsets.end(offsets.index(_RECENT_S)) <= MAX_S


def _clock_note(spec: Spec) -> str:
    gap = {"run_after": "runs once right after", "skip": "does not run"}[spec.dst_gap]
    fold = {"first": "the first time", "last": "the second time", "both": "both times"}[spec.dst_fold]
    return f"when the clock skips its time it {gap}; when its time comes twice it runs {fold}"


def _local(spec: Spec, at: datetime) -> str:
    return at.astimezone(load_zone(spec.zone)).isoformat(sep=" ", timespec="minutes")


def _trigger(spec: Spec) -> str:
    trigger = spec.trigger
    if isinstance(trigger, Cron):
        return f"{'; and '.join(_expression(text) for text in trigger.exprs)}, {spec.zone}"
    if isinstance(trigger, Interval):
        return f"every {_duration(trigger.every_s)}, counted from {_local(spec, trigger.anchor)} ({spec.zone})"
    if isinstance(trigger, Every):
        return every_words(trigger, spec.zone)
    if isinstance(trigger, Recurrence):
        return recurrence_words(trigger, spec.zone)
    return f"once at {_local(spec, trigger.instant)} ({spec.zone})"


def _duration(seconds: int) -> str:
    for size, name in _UNITS:
        if seconds % size == 0:
            return name if seconds == size else f"{seconds // size} {name}s"
    raise AssertionError(seconds)


def _expression(text: str) -> str:
    fields = text.split()
    year = fields.pop() if len(fields) == 7 else "*"
    second = fields.pop(0) if len(fields) == 6 else "0"
    minute, hour, day, month, weekday = fields
    second, minute, hour = ("*" if field == "*/1" else field for field in (second, minute, hour))
    words = [_time(second, minute, hour), _days(day, weekday)]
    if month != "*":
        words.append("in " + _list(month, MONTH_NAMES, 1, "month"))
    if year != "*":
        words.append("in " + _list(year, (), 0, "year"))
    return " ".join(word for word in words if word)


def _time(second: str, minute: str, hour: str) -> str:
    if minute.isdigit() and second.isdigit() and _is_list(hour):
        tail = f":{int(second):02}" if int(second) else ""
        return "at " + _join([f"{int(each):02}:{int(minute):02}{tail}" for each in hour.split(",")])
    if second == "*":
        words = ["every second"]
    elif second.startswith("*/"):
        words = [f"every {second[2:]} seconds of the minute"]
    else:
        words = [] if second == "0" else ["at " + _numbered("second", second)]
    if minute == "*" and not words:
        words.append("every minute")
    elif minute.startswith("*/") and minute.count("/") == 1 and "," not in minute:
        step = int(minute[2:])
        words.append("at minute 0" if step > 59 else f"every {step} minutes{' of the hour' if 60 % step else ''}")
    elif minute != "*":
        words.append(("of " if words else "at ") + _numbered("minute", minute))
    if hour != "*":
        words.append("of " + _numbered("hour", hour))
    return " ".join(words)


def _days(day: str, weekday: str) -> str:
    open_day, open_weekday = day in ("*", "?"), weekday in ("*", "?")
    by_day = f"on {_numbered('day', day)} of the month"
    by_weekday = f"on {_list(weekday, WEEKDAY_NAMES, 0, 'weekday')}"
    if open_day:
        return "" if open_weekday else by_weekday
    if open_weekday:
        return by_day
    both = day[0] == "*" or weekday[0] == "*"
    return f"{by_day} if that is {by_weekday.removeprefix('on ')}" if both else f"{by_day} and also {by_weekday}"


def _is_list(field: str) -> bool:
    return all(part.isdigit() for part in field.split(","))


def _list(field: str, names: tuple[str, ...], base: int, unit: str) -> str:
    return _join([_item(part, names, base, unit) for part in field.split(",")])


def _item(part: str, names: tuple[str, ...], base: int, unit: str) -> str:
    def named(value: str) -> str:
        return names[(int(value) - base) % len(names)] if names else value

    if "#" in part:
        value, nth = part.split("#")
        return f"the {_ORDINALS[int(nth)]} {named(value)} of the month"
    if part in ("L", "LW"):
        return "the last day" if part == "L" else "the last weekday"
    if part.startswith("L-"):
        return f"the last day but {part[2:]}"
    if part.endswith("W"):
        return f"{part[:-1]} (or the nearest weekday)"
    if part.endswith("L"):
        return f"the last {named(part[:-1])} of the month"
    span, _, step = part.partition("/")
    low, _, high = span.partition("-")
    shown = f"{named(low)} to {named(high)}" if high else "" if span in ("*", "?") else named(low)
    if not step:
        return shown or f"any {unit}"
    return f"every {_nth(int(step))} {unit}" + (f" from {shown}" if shown else "")


def _numbered(unit: str, field: str) -> str:
    shown = _list(field, (), 0, unit)
    return shown if shown.startswith(("every ", "the ")) else f"{unit} {shown}"


def _nth(step: int) -> str:
    suffix = "th" if 10 < step % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
    return f"{step}{suffix}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
