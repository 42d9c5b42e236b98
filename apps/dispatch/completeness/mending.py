"""What becomes of missing occurrences: the policies of their version decide, as after downtime. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

from apps.dispatch.completeness.comparing import Gap
from apps.schedules.policy import REPLACING, Fire, Skip, left_out, made_up_for, ordered, overlap
from apps.schedules.timing import Spec, count_between, latest_between, next_after

_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class Mended:
    """What is to be written for one version's gaps: runs in the order in which they start, and rows of the others."""

    version: int
    spec: Spec
    fires: list[Fire] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)


def passed_over(gaps: Sequence[Gap], reason: str) -> list[Mended]:
    """Nothing of it runs, for this reason."""
    return [Mended(gap.version, gap.spec, skips=[_skip(gap, reason)]) for gap in gaps]


def mended(gaps: Sequence[Gap], *, now: datetime, live: int, ran_since: bool) -> list[Mended]:
    """What the policies say to gaps, given oldest first, of a schedule with `live` runs.

    `ran_since`: a later occurrence has run, so that there is nothing to make up for where one run is enough.
    """
    found = []
    for _, same in groupby(reversed(gaps), key=lambda gap: (gap.version, gap.spec)):
        one = _version([*same], now, live, ran_since)
        live += len(one.fires)
        ran_since = ran_since or bool(one.fires)
        found.append(one)
    return found[::-1]


def _version(newest_first: Sequence[Gap], now: datetime, live: int, ran_since: bool) -> Mended:
    spec = newest_first[0].spec
    # What ran since is no part of this debt: it takes none of the places that fire_all has.
    keep = made_up_for(spec, on_time=int(ran_since and spec.misfire != "fire_all"))
    one, fires = Mended(newest_first[0].version, spec), []
    for gap in newest_first:
        old, young = _by_age(gap, now)
        if old is not None:
            one.skips.append(_skip(old, "misfire_too_old"))
        if young is None:
            continue
        kept, _ = latest_between(
            spec, after=young.first - _MICROSECOND, until=young.last, limit=min(keep, young.count)
        )  # fmt: skip
        keep -= len(kept)
        fires += [Fire(at, now, "catch_up") for at in reversed(kept)]
        if len(kept) < young.count:
            last = _before(spec, young, kept[0]) if kept else young.last
            one.skips.append(Skip(young.first, last, young.count - len(kept), left_out(spec)))
    _beside(one, spec, fires[::-1], now, live, ran_since)
    one.skips.sort(key=lambda skip: skip.nominal_at)
    return one


def _beside(one: Mended, spec: Spec, fires: list[Fire], now: datetime, live: int, ran_since: bool) -> None:
    """What the overlap policy lets start. A run that came later is not replaced by one that is older."""
    if spec.overlap in REPLACING:
        starts = 0 if live or ran_since else min(1, len(fires))
        kept, dropped, reason = fires[len(fires) - starts :], fires[: len(fires) - starts], "replaced"
    else:
        starts = overlap(spec.overlap, new=len(fires), live=live, buffer=spec.overlap_max).starts
        kept, dropped, reason = fires[:starts], fires[starts:], "overlap_skipped"
    one.fires += ordered(spec, kept, now)
    one.skips += [Skip(fire.nominal_at, fire.nominal_at, 1, reason) for fire in dropped]


def _by_age(gap: Gap, now: datetime) -> tuple[Gap | None, Gap | None]:
    """The part that is too old to be made up for, and the rest."""
    spec = gap.spec
    if spec.misfire_max_age_s is None or spec.misfire == "skip":
        return None, gap
    oldest = now - timedelta(seconds=spec.misfire_max_age_s)
    if gap.first >= oldest:
        return None, gap
    if gap.last < oldest:
        return gap, None
    old = count_between(spec, after=gap.first - _MICROSECOND, until=oldest - _MICROSECOND)
    first = next_after(spec, oldest - _MICROSECOND)
    assert first is not None  # the gap's last one is not earlier
    return Gap(gap.version, spec, gap.first, _before(spec, gap, first), old), Gap(
        gap.version, spec, first, gap.last, gap.count - old
    )


def _before(spec: Spec, gap: Gap, at: datetime) -> datetime:
    """The gap's last occurrence before one that is not its first."""
    newest, _ = latest_between(spec, after=gap.first - _MICROSECOND, until=at - _MICROSECOND, limit=1)
    return newest[-1]


def _skip(gap: Gap, reason: str) -> Skip:
    return Skip(gap.first, gap.last, gap.count, reason)
