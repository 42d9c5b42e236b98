"""Time zones from the pinned tzdata package: an allow-list of names, and each zone as constant-offset segments.

The system's zone data is never read: it differs between machines, and a schedule must mean the same on all of them.
`ZoneInfo` stays the truth about offsets; here its transitions are laid out as lists of integers, because the search for
the next occurrence needs the next clock change, which `ZoneInfo` does not tell.
"""

import re
import struct
import threading
from bisect import bisect_right
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from io import BytesIO
from zoneinfo import ZoneInfo

from apps.schedules.timing_errors import TimingInvalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400
MIN_S = -62_135_510_400  # 0001-01-02T00:00:00Z: a local time stays representable in every zone
MAX_S = 16_725_225_599  # 2499-12-31T23:59:59Z: the calendar of cron schedules ends here
FIRST_S = MIN_S - 2 * DAY_S  # start of the first segment, before everything that is asked for

_NOT_A_PLACE = frozenset({"Factory"})
_EXTEND_YEARS = 10
_SAMPLE_S = 28 * DAY_S  # recurring rules change twice a year, months apart
_RULE = re.compile(r"M(\d{1,2})\.(\d)\.(\d)(?:/([+-]?)(\d{1,3})(?::(\d\d))?(?::(\d\d))?)?")
_HEADER = struct.Struct(">4sc15x6l")

# What people write instead of an IANA name. An abbreviation that several places share hints at the most likely one.
_HINTS = {
    "kst": "Asia/Seoul", "jst": "Asia/Tokyo", "ist": "Asia/Kolkata", "sgt": "Asia/Singapore", "hkt": "Asia/Hong_Kong",
    "aest": "Australia/Sydney", "aedt": "Australia/Sydney", "awst": "Australia/Perth", "nzst": "Pacific/Auckland",
    "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles", "pt": "America/Los_Angeles", "mdt": "America/Denver",
    "cst": "America/Chicago", "cdt": "America/Chicago", "edt": "America/New_York", "et": "America/New_York",
    "bst": "Europe/London", "cest": "Europe/Berlin", "eest": "Europe/Helsinki", "msk": "Europe/Moscow",
    "brt": "America/Sao_Paulo", "utc+0": "UTC", "z": "UTC", "local": "UTC", "localtime": "UTC",
    "hawaiian standard time": "Pacific/Honolulu", "pacific standard time": "America/Los_Angeles",
    "mountain standard time": "America/Denver", "central standard time": "America/Chicago",
    "eastern standard time": "America/New_York", "gmt standard time": "Europe/London",
    "w. europe standard time": "Europe/Berlin", "romance standard time": "Europe/Paris",
    "central europe standard time": "Europe/Budapest", "china standard time": "Asia/Shanghai",
    "tokyo standard time": "Asia/Tokyo", "india standard time": "Asia/Kolkata", "korea standard time": "Asia/Seoul",
    "aus eastern standard time": "Australia/Sydney", "e. south america standard time": "America/Sao_Paulo",
}  # fmt: skip


@cache
def zone_names() -> frozenset[str]:
    """The names that a schedule may use: all of the pinned tzdata package, with the old aliases."""
    text = (files("tzdata") / "zones").read_text(encoding="ascii")
    return frozenset(text.split()) - _NOT_A_PLACE


@cache  # lint: allow memory-has-a-bound: zones of tzdata; an error is not kept
def load_zone(name: str) -> ZoneInfo:
    """The zone of this exact name; TimingInvalid, with the closest names, for any other."""
    return ZoneInfo.from_file(BytesIO(zone_file(name)), key=name)


@cache  # lint: allow memory-has-a-bound: zones of tzdata; an error is not kept
def zone_offsets(name: str) -> "Offsets":
    """The zone as constant-offset segments; TimingInvalid like `load_zone`."""
    return Offsets(load_zone(name), zone_file(name))


def offsets_of(name: str, file: bytes) -> "Offsets":
    """The same from a TZif file of another version of the data."""
    return Offsets(ZoneInfo.from_file(BytesIO(file), key=name), file)


def zone_file(name: str) -> bytes:
    """The zone's TZif file in the pinned tzdata package; TimingInvalid like `load_zone`."""
    if name not in zone_names():
        raise TimingInvalid.one("/timezone", "unknown_timezone", _unknown(name))
    return (files("tzdata") / "zoneinfo").joinpath(*name.split("/")).read_bytes()


class Offsets:
    """A zone's segments: segment `i` begins at `starts[i]` (epoch seconds) and is `offsets[i]` seconds east of UTC.

    The lists only grow, and only at their end, so that readers need no lock.
    """

    __slots__ = ("_edge", "_lock", "_rules", "_sampled_to", "_zone", "offsets", "starts", "steady")

    def __init__(self, zone: ZoneInfo, data: bytes) -> None:
        changes, footer = _read_tzif(data)
        recurring, self._rules = "," in footer, _rules_of(footer)
        self._zone = zone
        self._lock = threading.Lock()
        self.starts, self.offsets = [FIRST_S], [self._offset_at(max(MIN_S, (changes[0] if changes else 0) - 1))]
        for change in changes:
            self._append(change)
        self._sampled_to = changes[-1] if changes else 0
        self._edge = self.starts[-1] if recurring else MAX_S + DAY_S
        self.steady = not recurring and len(self.starts) == 1  # the clock never changes

    def index(self, at_s: int) -> int:
        """Number of the segment that holds this instant. The segment after it is known too, if there is one."""
        if at_s >= self._edge:
            self._extend(at_s)
        return bisect_right(self.starts, at_s) - 1

    def end(self, index: int) -> int:
        """First second after the segment; past MAX_S when it never ends. For an index that `index` or a step gave."""
        if index + 1 == len(self.starts):
            if self._edge > MAX_S:
                return MAX_S + 1
            self._extend(self._edge)
            return self.end(index)
        return self.starts[index + 1]

    def jump(self, index: int) -> int:
        """By how many seconds the clock goes forward (gap) or back (negative: fold) where the segment begins."""
        return self.offsets[index] - self.offsets[index - 1] if index else 0

    def _offset_at(self, at_s: int) -> int:
        offset = (EPOCH + timedelta(seconds=at_s)).astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset.days * DAY_S + offset.seconds

    def _append(self, change: int) -> None:
        offset = self._offset_at(change)
        if offset != self.offsets[-1]:
            self.offsets.append(offset)
            self.starts.append(change)

    def _extend(self, at_s: int) -> None:
        """Adds the changes of the recurring rule until one lies after this instant."""
        with self._lock:
            while at_s >= self._edge <= MAX_S:
                stop = min(self._sampled_to + _EXTEND_YEARS * 366 * DAY_S, MAX_S)
                if not self._by_rules(stop):
                    self._by_sampling(stop)
                self._sampled_to = stop
                self._edge = self.starts[-1] if stop < MAX_S else MAX_S + DAY_S

    def _by_rules(self, stop: int) -> bool:
        """Adds the changes up to `stop` that the footer's rules name. False where `ZoneInfo` knows none there."""
        first, last = ((EPOCH + timedelta(seconds=at)).year for at in (self._sampled_to, stop))
        for year in range(first - 1, last + 2):
            for rule in self._rules:
                change = rule.wall_s(year) - self.offsets[-1]
                if not self._sampled_to < change <= stop:
                    continue
                if self._offset_at(change - 1) != self.offsets[-1] or self._offset_at(change) == self.offsets[-1]:
                    return False
                self._append(change)
        return bool(self._rules)

    def _by_sampling(self, stop: int) -> None:
        low = max(self._sampled_to, self.starts[-1])
        while low < stop:
            high = min(low + _SAMPLE_S, stop)
            if self._offset_at(high) != self.offsets[-1]:
                self._append(self._bisect(low, high))
            low = high

    def _bisect(self, low: int, high: int) -> int:
        before = self._offset_at(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset_at(middle) == before:
                low = middle
            else:
                high = middle
        return high


def _unknown(name: str) -> str:
    shown = name if len(name) <= 60 else name[:60] + "..."
    guess = _HINTS.get(name.strip().lower()) if len(name) <= 60 else None
    guesses = [guess] if guess else _closest(name.strip()[:60])
    hint = f"; did you mean {' or '.join(guesses)}?" if guesses else ", such as Europe/Berlin or UTC."
    windows = "Windows' name of a time zone and " if name.strip().lower().endswith(" standard time") else ""
    return f"{shown!r} is {windows}not an IANA time zone name{hint}"


def _closest(name: str) -> list[str]:
    by_lower = {known.lower(): known for known in zone_names()}
    wanted = name.lower().replace(" ", "_")
    if wanted in by_lower:
        return [by_lower[wanted]]
    place = wanted.rsplit("/", 1)[-1]
    same_place = sorted(known for lower, known in by_lower.items() if lower.rsplit("/", 1)[-1] == place)
    return same_place[:2] or [by_lower[lower] for lower in get_close_matches(wanted, by_lower, n=2, cutoff=0.75)]


@dataclass(frozen=True, slots=True)
class YearlyRule:
    """One change a year: this weekday (Sunday is 0) of a month, the `week`-th one or (5) the last, at this second."""

    month: int
    week: int
    weekday: int
    second: int

    def wall_s(self, year: int) -> int:
        """When it is, on the wall clock before it, in naive seconds."""
        first_weekday, length = monthrange(year, self.month)
        day = (self.weekday - 1 - first_weekday) % 7 + 7 * (self.week - 1)
        day -= 7 if day >= length else 0
        return (date(year, self.month, 1).toordinal() - EPOCH.toordinal() + day) * DAY_S + self.second


def _rules_of(footer: str) -> list[YearlyRule]:
    """The rules of a footer such as `CET-1CEST,M3.5.0,M10.5.0/3`, by month. None where it is written otherwise."""
    found = []
    for text in footer.split(",")[1:]:
        match = _RULE.fullmatch(text)
        if match is None:
            return []
        hour, minute, second = (int(match[part] or 0) for part in (5, 6, 7))
        at = (hour if match[5] else 2) * 3600 + minute * 60 + second
        found.append(YearlyRule(int(match[1]), int(match[2]), int(match[3]), -at if match[4] == "-" else at))
    return sorted(found, key=lambda rule: rule.month)


def _read_tzif(data: bytes) -> tuple[list[int], str]:
    """The 64-bit transition times of a TZif file (RFC 8536), and its footer: the rule for what comes after them."""
    _, _, is_ut, is_std, leaps, times, types, chars = _HEADER.unpack_from(data)
    at = _HEADER.size + times * 5 + types * 6 + chars + leaps * 8 + is_std + is_ut
    _, _, is_ut, is_std, leaps, times, types, chars = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    changes = list(struct.unpack_from(f">{times}q", data, at))
    footer = data[at + times * 9 + types * 6 + chars + leaps * 12 + is_std + is_ut :]
    return [change for change in changes if change >= MIN_S], footer.decode("ascii").strip()
