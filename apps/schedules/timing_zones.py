"""Time zones from the pinned tzdata package: an allow-list of names, and each zone as constant-offset segments.

The system's zone data is never read: it differs between machines, and a schedule must mean the same on all of them.
`ZoneInfo` stays the truth about offsets; here its transitions are laid out as lists of integers, because the search for
the next occurrence needs the next clock change, which `ZoneInfo` does not tell.
"""

import struct
import threading
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
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


@cache
def load_zone(name: str) -> ZoneInfo:
    """The zone of this exact name; TimingInvalid, with the closest names, for any other."""
    return ZoneInfo.from_file(BytesIO(zone_file(name)), key=name)


@cache
def zone_offsets(name: str) -> "Offsets":
    """The zone as constant-offset segments; TimingInvalid like `load_zone`."""
    return Offsets(load_zone(name), zone_file(name))


def zone_file(name: str) -> bytes:
    """The zone's TZif file in the pinned tzdata package; TimingInvalid like `load_zone`."""
    if name not in zone_names():
        raise TimingInvalid.one("/timezone", "unknown_timezone", _unknown(name))
    return (files("tzdata") / "zoneinfo").joinpath(*name.split("/")).read_bytes()


class Offsets:
    """A zone's segments: segment `i` begins at `starts[i]` (epoch seconds) and is `offsets[i]` seconds east of UTC.

    The lists only grow, and only at their end, so that readers need no lock.
    """

    __slots__ = ("_edge", "_lock", "_sampled_to", "_zone", "offsets", "starts", "steady")

    def __init__(self, zone: ZoneInfo, data: bytes) -> None:
        changes, recurring = _read_tzif(data)
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
                low = self._sampled_to
                stop = min(low + _EXTEND_YEARS * 366 * DAY_S, MAX_S)
                while low < stop:
                    high = min(low + _SAMPLE_S, stop)
                    if self._offset_at(high) != self.offsets[-1]:
                        self._append(self._bisect(low, high))
                    low = high
                self._sampled_to = stop
                self._edge = self.starts[-1] if stop < MAX_S else MAX_S + DAY_S

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


def _read_tzif(data: bytes) -> tuple[list[int], bool]:
    """The 64-bit transition times of a TZif file (RFC 8536), and whether its rule goes on changing for ever."""
    _, _, is_ut, is_std, leaps, times, types, chars = _HEADER.unpack_from(data)
    at = _HEADER.size + times * 5 + types * 6 + chars + leaps * 8 + is_std + is_ut
    _, _, is_ut, is_std, leaps, times, types, chars = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    changes = list(struct.unpack_from(f">{times}q", data, at))
    footer = data[at + times * 9 + types * 6 + chars + leaps * 12 + is_std + is_ut :]
    return [change for change in changes if change >= MIN_S], b"," in footer
