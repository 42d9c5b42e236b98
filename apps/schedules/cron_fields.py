"""One field of a cron expression: text to bit mask, with the position of every fault and a suggestion.

A field is a comma list of `*`, `?`, `n`, `a-b`, each with an optional `/step`, and of the forms that only days have
(`L`, `LW`, `L-n`, `nW`; `d#n`, `dL`). `n/step` runs from n to the field's end, as in Vixie cron. `H` picks a value from
a hash of the schedule's key, so that it never changes for one schedule and spreads over many; it is written out here,
so that what is stored says when the schedule runs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from apps.schedules.cron_kinds import DAY, FIRST_YEAR, WEEKDAY, YEAR, FieldKind
from apps.schedules.cron_refusals import beyond, letters_hint, long_step, reversed_hint, syntax_hint


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is the 0-based offset of the fault in the text that was read."""

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


def parse_field(kind: FieldKind, text: str, key: str = "") -> Parsed:
    """Reads one field. `text` is upper-case ASCII without blanks; faults are told by their offset in it.

    The answer is shared between callers; nobody changes it.
    """
    return _read_field(kind, text, key if "H" in text else "")


@lru_cache(maxsize=4096)
def _read_field(kind: FieldKind, text: str, key: str) -> Parsed:
    parsed = Parsed()
    items, at = [], 0
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
        return refuse("syntax", syntax_hint(kind, item))
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
            return refuse("reversed", reversed_hint(kind, low, high, match))
        first, last, shown = low, high, str(low) if match["b"] is None else f"{low}-{high}"
        if match["b"] is None and step_text:
            last = kind.high
    if step_text and step > kind.high - kind.low:
        parsed.notes.append(long_step(kind, step, first))
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
        hint = beyond(kind, value)
        refuse("range", f"{text[:12]} is out of range, {kind.name} goes from {kind.low} to {kind.high}{hint}")
        return None
    if text in kind.names:
        value = kind.names[text]
        return 7 if kind is WEEKDAY and ends_range and value == 0 else value
    if kind is WEEKDAY and text == "L":
        refuse("syntax", "L needs its weekday: 5L is the last Friday of the month")
    elif kind.names and text != "R":
        known = ", ".join(name for name in kind.names if len(name) == 3)
        refuse("name", f"{text[:12]} is not a {kind.name} name; known are {known}")
    else:
        refuse("name", letters_hint(kind, text))
    return None


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
