"""Why a cron field is refused, in words, and what to write instead."""

import re

from apps.schedules.cron_kinds import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, YEAR, FieldKind

LW_HINT = "LW, the last weekday of the month, takes no offset; L-2 is the last day but two"


def beyond(kind: FieldKind, value: int) -> str:
    if kind is HOUR and value == 24:
        return "; for midnight write 0"
    if kind in (MINUTE, SECOND) and value == 60:
        return "; for the full minute or hour write 0"
    if kind in (DAY, MONTH) and value == 0:
        return "; the first is 1"
    return ""


def letters_hint(kind: FieldKind, text: str) -> str:
    if text == "R":
        return "R (a random value in Moodle) is not known here; write H, which is stable for each schedule"
    if kind is DAY and text == "W":
        return "W needs its day: 15W is the weekday nearest to the 15th, LW the last weekday of the month"
    if kind is DAY and text in ("LW", "WL"):
        return LW_HINT
    if text in ("L", "W", "LW"):
        return f"{text} is for the day fields only"
    return f"{text[:12]} is not a number"


def reversed_hint(kind: FieldKind, low: int, high: int, match: re.Match[str]) -> str:
    if kind is WEEKDAY and high == 0:
        return f"the range ends before it starts; Sunday at the end of a range is 7: write {low}-7"
    if kind is WEEKDAY and low == 7:
        return f"the range ends before it starts; Sunday at the start of a range is 0: write 0-{high}"
    if kind is YEAR:
        return "the range ends before it starts"
    if kind is WEEKDAY and not match["step"]:
        names = [name for name in kind.names if len(name) == 3]
        return f"the range ends before it starts; write the days: {','.join(names[low:] + names[: high + 1])}"
    upper = 6 if kind is WEEKDAY else kind.high
    step = f"/{match['step']}" if match["step"] else ""
    lower = f"{kind.low}-{high}{step}" if high > kind.low else f"{kind.low}"
    return f"the range ends before it starts; to go over the end write {low}-{upper}{step},{lower}"


def long_step(kind: FieldKind, step: int, first: int) -> str:
    return (
        f"step {step} is longer than the {kind.name} field, so only {kind.name} {first} matches; "
        f"for a run every {step} {kind.name}s use an interval"
    )


def syntax_hint(kind: FieldKind, item: str) -> str:
    if not item:
        return "there is an empty item between commas"
    if kind is WEEKDAY and re.fullmatch(r"L[0-7]?", item):
        return f"write {item[1:] or '6'}L for the last such weekday of the month"
    if kind is DAY and re.fullmatch(r"L-\d+W", item):
        return LW_HINT
    if "#" in item or "W" in item or (item.endswith("L") and kind is not WEEKDAY):
        return "L and W belong to the day-of-month field; d#n and dL to the day-of-week field"
    if re.fullmatch(r"(\*|\w+)-+\w*|-+\w+.*", item):
        return "a range is two numbers with a '-' between them"
    if "/" in item and not item.rsplit("/", 1)[1].isdigit():
        return "after '/' comes a whole number"
    return f"not understood; write numbers from {kind.low} to {kind.high}, '*', ranges a-b, steps /n, or lists of them"
