"""Where a schedule's runs fall on what is expected of the whole platform, and what would be quieter. Pure.

What others do is only told as a proportion to the usual minute: one tenant does not learn another's numbers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from apps.schedules.cron_parse import compile_cron
from apps.schedules.timing import Cron, Spec, actual_at, occurrences

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
RUNS_LOOKED_AT = 100  # of one schedule, the next ones
NOTICED = 10  # runs; a minute with fewer is never a full one
BUSY, CROWDED = 2.0, 4.0  # times the usual minute
JITTERS_S = (60, 300, 900, 1_800, 3_600)
BETTER = 0.5  # what is suggested has at most this part of the runs beside it
_PLAIN_MINUTE = re.compile(r"[0-5]?[0-9]")
_MICROSECOND = timedelta(microseconds=1)


class Minutes:
    """Expected runs of all tenants by minute, for a day."""

    def __init__(self, runs: Sequence[tuple[datetime, int]]) -> None:
        self._runs = dict(runs)
        self.usual = sum(self._runs.values()) / len(self._runs) if self._runs else 0.0

    def at(self, instant: datetime) -> int:
        return self._runs.get(minute_of(instant), 0)

    def knows(self, instant: datetime) -> bool:
        return minute_of(instant) in self._runs

    def times_usual(self, runs: float) -> float:
        return round(runs / self.usual, 1) if self.usual else 0.0


class Quieter(NamedTuple):
    """The same schedule with other members, and how full its fullest minute would be then."""

    changes: dict[str, Any]
    at: datetime
    times_usual: float


class Hint(NamedTuple):
    """The fullest of the minutes in which a schedule runs within a day, other schedules included."""

    at: datetime
    level: str  # calm, busy or crowded
    times_usual: float
    quieter: Quieter | None
    jitter: Quieter | None


def hint(spec: Spec, *, key: str, minutes: Minutes, after: datetime) -> Hint | None:
    """None when it does not run in the time that is known. `minutes` may have its own runs already, or not yet."""
    runs = _runs(spec, key, minutes, after)
    if not runs:
        return None
    at = max(runs, key=lambda one: (minutes.at(one), -one.timestamp()))
    most = max(minutes.at(at), Counter(map(minute_of, runs))[minute_of(at)])
    level = _level(most, minutes)
    quieter = jitter = None
    if level != "calm":
        quieter = _other_minute(spec, key, minutes, after, most)
        jitter = _with_jitter(spec, minutes, runs, most)
    return Hint(minute_of(at), level, minutes.times_usual(most), quieter, jitter)


def minute_of(at: datetime) -> datetime:
    """The minute that an instant is in."""
    return at.replace(second=0, microsecond=0)


def quietest(minutes: Minutes, around: datetime, *, within: int = 30, number: int = 3) -> list[datetime]:
    """The minutes with the fewest runs up to `within` before and after one; of equal ones the closest."""
    near = [around + step * MINUTE for step in range(-within, within + 1) if step]
    return sorted((at for at in near if minutes.knows(at)), key=lambda at: (minutes.at(at), abs(at - around)))[:number]


def nominals_in(spec: Spec, key: str, minute: datetime, *, first: datetime) -> list[datetime]:
    """The nominal instants, from `first` on, of what runs in a minute."""
    after = max(first, minute - timedelta(seconds=spec.jitter_s)) - _MICROSECOND
    found = occurrences(spec, after=after, until=minute + MINUTE - _MICROSECOND, limit=RUNS_LOOKED_AT)
    return [at for at in found if minute <= actual_at(spec, key, at) < minute + MINUTE]


def spread(runs: Iterable[tuple[Spec, str, datetime]], jitter_s: int) -> Counter[datetime]:
    """When these nominal runs (of a spec and its key) would be with so much jitter, by minute."""
    return Counter(minute_of(actual_at(replace(spec, jitter_s=jitter_s), key, at)) for spec, key, at in runs)


def shifted(runs: Mapping[datetime, int], *, minutes: Minutes) -> list[tuple[datetime, int]]:
    """The minutes with these runs more (or fewer), in order; never fewer than none."""
    return [(at, max(0, minutes.at(at) + more)) for at, more in sorted(runs.items())]


def _runs(spec: Spec, key: str, minutes: Minutes, after: datetime) -> list[datetime]:
    nominal = occurrences(spec, after=after, until=after + DAY, limit=RUNS_LOOKED_AT)
    return [at for at in (actual_at(spec, key, one) for one in nominal) if minutes.knows(at)]


def _level(runs: int, minutes: Minutes) -> str:
    if runs < NOTICED or not minutes.usual:
        return "calm"
    times = runs / minutes.usual
    return "crowded" if times >= CROWDED else "busy" if times >= BUSY else "calm"


def _other_minute(spec: Spec, key: str, minutes: Minutes, after: datetime, most: int) -> Quieter | None:
    """The quietest minute of the same hour for a cron expression with one minute; tried, not reckoned."""
    trigger = spec.trigger
    if not isinstance(trigger, Cron) or len(trigger.exprs) != 1:
        return None
    minute, *rest = trigger.exprs[0].split()
    if len(rest) != 4 or not _PLAIN_MINUTE.fullmatch(minute):
        return None
    now, best = int(minute), None
    runs = occurrences(spec, after=after, until=after + DAY, limit=RUNS_LOOKED_AT)
    hours = [at - now * MINUTE for at in runs]
    for other in sorted(set(range(60)) - {now}, key=lambda other: (abs(other - now), other)):
        moved = [at + other * MINUTE for at in hours if minutes.knows(at + other * MINUTE)]
        fullest = max((minutes.at(at) for at in moved), default=None)
        if fullest is not None and (best is None or fullest < best[0]):
            best = (fullest, other)
    if best is None or best[0] > most * BETTER:
        return None
    text = compile_cron(" ".join((str(best[1]), *rest))).text
    there = _runs(replace(spec, trigger=Cron((text,))), key, minutes, after)
    fullest_at = max(there, key=minutes.at, default=None)
    if fullest_at is None or minutes.at(fullest_at) + 1 > most * BETTER:
        return None
    changes = {"trigger": {"cron": text}}
    return Quieter(changes, minute_of(fullest_at), minutes.times_usual(minutes.at(fullest_at) + 1))


def _with_jitter(spec: Spec, minutes: Minutes, runs: Sequence[datetime], most: int) -> Quieter | None:
    """The least jitter after which its runs are, on average, in minutes half as full. Less than its shortest gap."""
    gap_s = min(((later - one).total_seconds() for one, later in pairwise(runs)), default=DAY.total_seconds())
    at = max(runs, key=minutes.at)
    for jitter_s in JITTERS_S:
        if jitter_s <= spec.jitter_s or jitter_s > gap_s / 2:
            continue
        over = [minutes.at(at + step * MINUTE) for step in range(-(-jitter_s // 60))]
        average = sum(over) / len(over)
        if average <= most * BETTER:
            return Quieter({"jitter_s": jitter_s}, minute_of(at), minutes.times_usual(average))
    return None
