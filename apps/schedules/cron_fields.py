"""One field of a cron expression: text to bit mask, with the position of every fault and a suggestion.

A field is a comma list of `*`, `?`, `n`, `a-b`, each with an optional `/step`, and of the forms that only days have
(`L`, `LW`, `L-n`, `nW`; `d#n`, `dL`). `n/step` runs from n to the field's end, as in Vixie cron. `H` picks a value from
a hash of the schedule's key, so that it never changes for one schedule and spreads over many; it is written out here,
so that what is stored says when the schedule runs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTH_NAMES = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
               "November", "December")  # fmt: skip
WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
FIRST_YEAR, LAST_YEAR = 1970, 2199


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """What a field may hold. `hash_high` is the last value that `H` may pick: every month has 28 days."""

    name: str
    low: int
    high: int
    hash_high: int
    names: dict[str, int] = field(default_factory=dict)


SECOND = FieldKind("second", 0, 59, 59)
MINUTE = FieldKind("minute", 0, 59, 59)
HOUR = FieldKind("hour", 0, 23, 23)
DAY = FieldKind("day-of-month", 1, 31, 28)
MONTH = FieldKind("month", 1, 12, 12, {n[:size].upper(): i for i, n in enumerate(MONTH_NAMES, 1) for size in (3, 9)})
WEEKDAY = FieldKind("day-of-week", 0, 7, 6, {n[:size].upper(): i for i, n in enumerate(WEEKDAY_NAMES) for size in (3, 9)})
YEAR = FieldKind("year", FIRST_YEAR, LAST_YEAR, LAST_YEAR)


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is the 0-based offset of the fault in the expression."""

    at: int
    code: str
    detail: str


@dataclass(slots=True)
class Parsed:
    """A field's meaning. `mask` has a bit for each value (years count from FIRST_YEAR); the rest only days use."""

    text: str = ""
    mask: int = 0
    last_offsets: set[int] = field(default_factory=set)  # L is 0, L-3 is 3 days before the month's last
    last_weekday: bool = False
    nearest: set[int] = field(default_factory=set)
    nth: set[tuple[int, int]] = field(default_factory=set)
    last_of: int = 0  # weekdays of which the month's last one counts
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_ITEM = re.compile(
    r"(?P<base>\*|\?|(?P<a>[0-9]+|[A-Z]+)(?:-(?P<b>[0-9]+|[A-Z]+))?|(?P<hash>H(?:\((?P<ha>[0-9]+)-(?P<hb>[0-9]+)\))?))"
    r"(?:/(?P<step>[0-9]+))?"
)
_DAY_FORM = re.compile(r"(?P<l>L(?:-(?P<off>[0-9]+))?)|(?P<lw>LW|WL)|(?P<w>[0-9]+)W")
_WEEKDAY_FORM = re.compile(r"(?P<d>[0-9]+|[A-Z]+?)(?:#(?P<n>[0-9]+)|(?P<l>L))")


def parse_field(kind: FieldKind, text: str, at: int, key: str) -> Parsed:
    """Reads one field that begins at offset `at` of its expression. `text` is upper-case ASCII without blanks."""
    parsed = Parsed()
    items = []
    for item in text.split(","):
        items.append(_read(kind, item, at, key, parsed))
        at += len(item) + 1
    parsed.text = ",".join(items)
    return parsed


def hashed(key: str, kind: FieldKind, size: int) -> int:
    """A stable value below `size` for this schedule and field; the same in every process and release."""
    digest = blake2b(f"{kind.name}:{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % size


def _read(kind: FieldKind, item: str, at: int, key: str, parsed: Parsed) -> str:
    """Adds the meaning of one list item; returns its normalised text."""
    refuse = _Refusal(kind, item, at, parsed)
    if kind is DAY and (match := _DAY_FORM.fullmatch(item)):
        return _read_day_form(match, parsed, refuse)
    if kind is WEEKDAY and (match := _WEEKDAY_FORM.fullmatch(item)):
        return _read_weekday_form(match, parsed, refuse)
    match = _ITEM.fullmatch(item)
    if not match:
        return refuse("syntax", _syntax_hint(kind, item))
    step_text = match["step"]
    step = int(step_text) if step_text else 1
    if step < 1:
        return refuse("step", "a step of 0 never comes; write a step of 1 or more")
    if item[0] == "H" and (match["hash"] or match["a"] == "H"):
        return _read_hash(kind, match, step if step_text else 0, key, parsed, refuse)
    base = match["base"]
    if base == "*" or base == "?":
        if base == "?" and (kind not in (DAY, WEEKDAY) or step_text):
            return refuse("syntax", "'?' stands only for a whole day field; write '*'")
        first, last, shown = kind.low, kind.high, base
        if kind is WEEKDAY:
            last = 6
    else:
        low = _value(kind, match["a"], refuse)
        high = low if match["b"] is None else _value(kind, match["b"], refuse, ends_range=True)
        if low is None or high is None:
            return item
        if match["a"] == match["b"]:
            high = low  # SUN-SUN is one day
        if high < low:
            return refuse("reversed", _reversed_hint(kind, low, high, match))
        first, last, shown = low, high, str(low) if match["b"] is None else f"{low}-{high}"
        if match["b"] is None and step_text:
            last = kind.high
    if step_text and step > kind.high - kind.low:
        parsed.notes.append(_long_step(kind, step, first))
    parsed.mask |= _mask(kind, first, last, step)
    return f"{shown}/{step}" if step_text else shown


def _mask(kind: FieldKind, first: int, last: int, step: int) -> int:
    base = FIRST_YEAR if kind is YEAR else 0
    if step == 1:
        mask = (2 << (last - base)) - (1 << (first - base))
    else:
        mask = 0
        for value in range(first - base, last - base + 1, step):
            mask |= 1 << value
    if kind is WEEKDAY and mask & 128:
        mask = mask & 127 | 1
    return mask


class _Refusal:
    """Notes a fault of this item and gives its text back."""

    __slots__ = ("at", "item", "kind", "parsed")

    def __init__(self, kind: FieldKind, item: str, at: int, parsed: Parsed) -> None:
        self.kind, self.item, self.at, self.parsed = kind, item, at, parsed

    def __call__(self, code: str, detail: str) -> str:
        shown = self.item if len(self.item) <= 24 else self.item[:24] + "..."
        self.parsed.faults.append(Fault(self.at, code, f"{self.kind.name} field, '{shown}': {detail}"))
        return self.item


Refuse = Callable[[str, str], str]


def _value(kind: FieldKind, text: str, refuse: Refuse, *, ends_range: bool = False) -> int | None:
    if text.isdigit():
        value = int(text)
        if kind.low <= value <= kind.high:
            return value
        refuse("range", f"{text[:12]} is out of range, {kind.name} goes from {kind.low} to {kind.high}{_beyond(kind, value)}")
        return None
    if text in kind.names:
        value = kind.names[text]
        return 7 if kind is WEEKDAY and ends_range and value == 0 else value
    if kind is WEEKDAY and text == "L":
        refuse("syntax", "L needs its weekday: 5L is the last Friday of the month")
    elif kind.names:
        refuse("name", f"{text[:12]} is not a {kind.name} name; write {', '.join((MONTHS if kind is MONTH else WEEKDAYS)[:3])}, ...")
    else:
        refuse("name", _letters_hint(kind, text))
    return None


def _beyond(kind: FieldKind, value: int) -> str:
    if kind is HOUR and value == 24:
        return "; for midnight write 0"
    if kind in (MINUTE, SECOND) and value == 60:
        return "; for the full minute or hour write 0"
    if kind in (DAY, MONTH) and value == 0:
        return "; the first is 1"
    return ""


def _letters_hint(kind: FieldKind, text: str) -> str:
    if text == "R":
        return "R (a random value) is not known here; write H, which is stable for each schedule"
    if text in ("L", "W", "LW"):
        return f"{text} is for the day fields only"
    return f"{text[:12]} is not a number"


def _reversed_hint(kind: FieldKind, low: int, high: int, match: re.Match[str]) -> str:
    if kind is WEEKDAY and high == 0:
        return f"the range ends before it starts; Sunday at the end of a range is 7: write {low}-7"
    if kind is WEEKDAY and low == 7:
        return f"the range ends before it starts; Sunday at the start of a range is 0: write 0-{high}"
    if kind is YEAR:
        return "the range ends before it starts"
    upper = 6 if kind is WEEKDAY else kind.high
    step = f"/{match['step']}" if match["step"] else ""
    lower = f"{kind.low}-{high}" if high > kind.low else f"{kind.low}"
    return f"the range ends before it starts; to go over the end write {low}-{upper}{step},{lower}{step if '-' in lower else ''}"


def _long_step(kind: FieldKind, step: int, first: int) -> str:
    return (
        f"step {step} is longer than the {kind.name} field, so only {kind.name} {first} matches; "
        f"for a run every {step} {kind.name}s use an interval"
    )


def _syntax_hint(kind: FieldKind, item: str) -> str:
    if not item:
        return "there is an empty item between commas"
    if kind is WEEKDAY and re.fullmatch(r"L[0-7]?", item):
        return f"write {item[1:] or '6'}L for the last such weekday of the month"
    if "#" in item or "W" in item or (item.endswith("L") and kind is not WEEKDAY):
        return "L and W belong to the day-of-month field; d#n and dL to the day-of-week field"
    if re.fullmatch(r"(\*|\d+)-\d*|-\d+.*", item):
        return "a range is two numbers with a '-' between them"
    if "/" in item and not item.rsplit("/", 1)[1].isdigit():
        return "after '/' comes a whole number"
    return f"not understood; {kind.name} takes numbers from {kind.low} to {kind.high}, '*', ranges a-b, steps /n and lists"


def _read_hash(kind: FieldKind, match: re.Match[str], step: int, key: str, parsed: Parsed, refuse: Refuse) -> str:
    if match["b"] is not None:
        return refuse("syntax", "write H(a-b) for a hashed value between a and b")
    if kind is YEAR:
        return refuse("syntax", "H is not for years")
    first, last = kind.low, kind.hash_high
    if match["ha"] is not None:
        first, last = int(match["ha"]), int(match["hb"])
        if not kind.low <= first <= last <= kind.high:
            return refuse("range", f"H(a-b) needs a not above b, both from {kind.low} to {kind.high}")
    if step:
        if step > last - first:
            return refuse("step", f"step {step} is longer than the range {first} to {last}")
        first += hashed(key, kind, step)
        parsed.mask |= _mask(kind, first, last, step)
        return f"{first}-{last}/{step}"
    first += hashed(key, kind, last - first + 1)
    parsed.mask |= _mask(kind, first, first, 1)
    return str(first)


def _read_day_form(match: re.Match[str], parsed: Parsed, refuse: Refuse) -> str:
    if match["lw"]:
        parsed.last_weekday = True
        return "LW"
    if match["l"]:
        offset = int(match["off"] or 0)
        if offset > 30:
            return refuse("range", "a month has no day that far from its end; write L-1 to L-30")
        parsed.last_offsets.add(offset)
        return f"L-{offset}" if offset else "L"
    day = int(match["w"])
    if not 1 <= day <= 31:
        return refuse("range", f"{day} is out of range, day-of-month goes from 1 to 31")
    parsed.nearest.add(day)
    return f"{day}W"


def _read_weekday_form(match: re.Match[str], parsed: Parsed, refuse: Refuse) -> str:
    day = _value(WEEKDAY, match["d"], refuse)
    if day is None:
        return match[0]
    if match["l"]:
        parsed.last_of |= 1 << (day % 7)
        return f"{day}L"
    nth = int(match["n"])
    if not 1 <= nth <= 5:
        return refuse("range", f"a month has no such weekday number {nth}; write #1 to #5, or {day}L for the last")
    parsed.nth.add((day % 7, nth))
    return f"{day}#{nth}"
