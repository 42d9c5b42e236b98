"""`Spec`: everything that decides when a schedule runs, as one hashable value and as canonical JSON text.

The due entry carries the text, so that firing reads no other table.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from apps.schedules.exclusion import Exclusion, exclusion_from_json
from apps.schedules.timing_build import calendar_of, limited, open_times
from apps.schedules.timing_business_days import MOVED_DAYS_MAX
from apps.schedules.timing_errors import NotFoundYet, TimingInvalid
from apps.schedules.timing_open import Window
from apps.schedules.timing_sets import nth_after
from apps.schedules.timing_triggers import Calendar, Trigger, instant_of, instant_text, trigger_from_json
from apps.schedules.timing_zones import load_zone

MISFIRE_MAX_HARD = 1000
BUFFER_MAX_HARD = 1000
CHOICES = {
    "misfire": ("skip", "fire_once", "fire_latest_n", "fire_all"),
    "misfire_order": ("oldest", "newest"),
    "overlap": ("allow", "skip", "buffer_one", "buffer_all", "cancel_running", "replace_pending"),
    "dst_gap": ("run_after", "skip"),
    "dst_fold": ("first", "last", "both"),
    "outside": ("skip", "next_opening"),
    "on_excluded": ("skip", "previous_business_day", "next_business_day"),
}
MAX_NUMBERS = {
    "jitter_s": 86_400, "grace_s": 7 * 86_400, "misfire_max": MISFIRE_MAX_HARD, "misfire_max_age_s": 10 * 366 * 86_400,
    "overlap_max": BUFFER_MAX_HARD, "catch_up_per_s": 1_000, "max_runs": 1_000_000,
}  # fmt: skip
LEAST_NUMBERS = {"misfire_max": 1, "misfire_max_age_s": 1, "overlap_max": 1, "max_runs": 1, "catch_up_per_s": 0.001}
SPECS_CACHED = 16_384
WALKED_MAX = 300
RDATES_MAX = 500  # extra instants may lie closer together than seconds
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that decides when. Instants are aware and UTC; the window is inclusive at both ends."""

    trigger: Trigger
    zone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter_s: int = 0
    misfire: str = "fire_once"
    grace_s: int = 60
    overlap: str = "allow"
    dst_gap: str = "run_after"
    dst_fold: str = "first"
    misfire_max: int = 100
    misfire_max_age_s: int | None = None
    misfire_order: str = "oldest"
    catch_up_per_s: float | None = None
    overlap_max: int = 10
    max_runs: int | None = None
    runs_used: int = 0  # of max_runs, by definitions before this one
    runs_from: datetime | None = None  # runs later than this count
    windows: tuple[Window, ...] = ()
    outside: str = "skip"
    exclusion: Exclusion | None = None
    on_excluded: str = "skip"
    _calendar: Any = field(default=None, init=False, repr=False, compare=False)
    _counted: Any = field(default=None, init=False, repr=False, compare=False)

    def calendar(self) -> Calendar:
        """The trigger's calendar; shared by all specs with the same trigger, zone and clock-change rules."""
        found: Calendar | None = self._calendar
        if found is None:
            gap, fold = self.dst_gap, self.dst_fold
            found = calendar_of(self.trigger, self.zone, gap, fold)
            if self.windows or self.exclusion is not None:
                found = limited(
                    found, self.zone, self.windows, self.outside, self.exclusion, self.on_excluded, gap, fold
                )
            object.__setattr__(self, "_calendar", found)
        return found

    def counted(self, *, before: datetime, used: int) -> "Spec":
        """The same, when `used` of its runs lie before this instant: what is left of max_runs counts from here on."""
        found = replace(self, runs_used=used, runs_from=before - _MICROSECOND)
        object.__setattr__(found, "_calendar", self.calendar())
        return found

    def last_at(self, *, by: datetime) -> datetime | None:
        """The last nominal instant that may be, as far as `by` has to know: the window's end, or the one that uses
        max_runs up when that is not after `by`. Counts no farther than up to `by`, and only when it could be so."""
        last = self._last_run(by)
        return self.end_at if last is None else last if self.end_at is None else min(last, self.end_at)

    def open_until(self, at: datetime) -> datetime | None:
        """When the window or the open day around this instant ends, both ends inclusive, if that is soon."""
        if not self.windows and self.exclusion is None:
            return None
        return open_times(self.windows, self.exclusion, self.zone, self.dst_gap).closing(at)

    def _last_run(self, by: datetime) -> datetime | None:
        if self.max_runs is None or self.runs_from is None:
            return None
        known, left = self._counted, self.max_runs - self.runs_used
        after = self.runs_from if self.start_at is None else max(self.runs_from, self.start_at - _MICROSECOND)
        if known is not None and known[1] is None:
            last: datetime = known[0]
            return last
        if left <= 0:
            return after
        if by <= after or self._at_most(after, by) < left:
            return None
        seen, done = known or (after, 0)
        if by <= seen:
            return None
        if left - done <= WALKED_MAX:
            return self._walk(seen, done, left, by)
        more = self.calendar().count(seen, by)
        if done + more < left:
            object.__setattr__(self, "_counted", (by, done + more))
            return None
        found = nth_after(self.calendar(), seen, left - done, until=by)
        object.__setattr__(self, "_counted", (found, None))
        return found

    def _walk(self, seen: datetime, done: int, left: int, by: datetime) -> datetime | None:
        """The last run, run by run: few may be years apart."""
        at: datetime | None = seen
        while done < left and at is not None:
            try:
                at = self.calendar().next_after(at)
            except NotFoundYet:
                return None
            if at is None or at > by:
                object.__setattr__(self, "_counted", (by, done))
                return None
            done += 1
        object.__setattr__(self, "_counted", (at, None))
        return at

    def _at_most(self, after: datetime, by: datetime) -> int:
        """More runs than that can't be in (after, by]; cheap where counting exactly may not be."""
        most = (by - after) // timedelta(seconds=1) + 1 + RDATES_MAX
        bare = calendar_of(self.trigger, self.zone, self.dst_gap, self.dst_fold)
        if most < (self.max_runs or 0) - self.runs_used or bare is self.calendar():
            return most
        # What was closed before is moved to one opening; what is excluded is moved by some days.
        moved = timedelta(days=MOVED_DAYS_MAX if self.on_excluded != "skip" else 0)
        return bare.count(after - moved, by + moved) + 1


def spec_to_json(spec: Spec) -> str:
    """Canonical text: sorted keys, no blanks. Equal specs give equal texts. New members only stand there when set."""
    data: dict[str, Any] = {
        "trigger": spec.trigger.as_json(),
        "zone": spec.zone,
        "start_at": spec.start_at and instant_text(spec.start_at),
        "end_at": spec.end_at and instant_text(spec.end_at),
        "jitter_s": spec.jitter_s,
        "misfire": spec.misfire,
        "grace_s": spec.grace_s,
        "overlap": spec.overlap,
        "dst_gap": spec.dst_gap,
        "dst_fold": spec.dst_fold,
        "misfire_max": spec.misfire_max,
    }
    data |= {name: getattr(spec, name) for name, default in _PLAIN.items() if getattr(spec, name) != default}
    if spec.runs_from is not None:
        data["runs_from"] = instant_text(spec.runs_from)
    if spec.windows:
        data["windows"] = [window.as_json() for window in spec.windows]
    if spec.exclusion is not None:
        data["exclusion"] = spec.exclusion.as_json()
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=SPECS_CACHED)
def spec_from_json(text: str) -> Spec:
    """The spec of a canonical text; TimingInvalid when it can't be understood, whatever is wrong with it."""
    try:
        data = json.loads(text)
        trigger = data.pop("trigger")
        start_at, end_at = (_instant_or_none(data.pop(name)) for name in ("start_at", "end_at"))
        exclusion = data.pop("exclusion", None)
        spec = Spec(
            trigger=trigger_from_json(trigger), start_at=start_at, end_at=end_at,
            runs_from=_instant_or_none(data.pop("runs_from", None)),
            windows=tuple(_window(*each) for each in data.pop("windows", ())),
            exclusion=None if exclusion is None else exclusion_from_json(exclusion),
            **data,
        )  # fmt: skip
        _check(spec)
        load_zone(spec.zone)
        spec.calendar()
    except TimingInvalid:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, OverflowError, RecursionError) as error:
        detail = f"the stored schedule can't be read: {type(error).__name__}: {error}"
        raise TimingInvalid.one("", "undecodable", detail[:300]) from error
    return spec


def _check(spec: Spec) -> None:
    for name, most in MAX_NUMBERS.items():
        number = getattr(spec, name)
        if number is None and name in _PLAIN:
            continue
        kinds = (int, float) if name == "catch_up_per_s" else (int,)
        least = LEAST_NUMBERS[name] if name == "catch_up_per_s" else 0
        if type(number) not in kinds or not least <= number <= most:
            raise ValueError(f"{name} is {number!r}")
    if type(spec.runs_used) is not int or spec.runs_used < 0:
        raise ValueError(f"runs_used is {spec.runs_used!r}")
    for name, known in CHOICES.items():
        if getattr(spec, name) not in known:
            raise ValueError(f"{name} is {getattr(spec, name)!r}")


def _instant_or_none(text: str | None) -> datetime | None:
    return None if text is None else instant_of(text)


def _window(from_s: int, until_s: int, days: list[int]) -> Window:
    if not all(type(each) is int for each in (from_s, until_s, *days)) or not 0 <= from_s < 86_400 >= until_s >= 0:
        raise ValueError("a window is wrong")
    return Window(from_s, until_s, tuple(days))


# Members with a default that stand in the text as they are.
_PLAIN = {
    "misfire_max_age_s": None, "misfire_order": "oldest", "catch_up_per_s": None, "overlap_max": 10, "max_runs": None,
    "runs_used": 0, "outside": "skip", "on_excluded": "skip",
}  # fmt: skip
