"""The flags of a preview against a walk over the minutes that says by itself what is special about each of them."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apps.schedules.timing import Spec, TimingInvalid, load_zone
from apps.schedules.timing_preview import left_out, preview
from tests.schedules.test_timing_bounds import made
from tests.schedules.test_timing_walk import moments
from tests.schedules.walk import MINUTE, Field, Job, jobs, walk
from tests.schedules.walls import instants_of, wall_of

TICK = timedelta(microseconds=1)
GAPS, FOLDS = st.sampled_from(["run_after", "skip"]), st.sampled_from(["first", "last", "both"])
Flags = dict[datetime, list[str]]


def spec_of(job: Job, name: str, days: dict[str, Any] | None = None, **more: Any) -> Spec:
    try:
        return made({"trigger": {"cron": job.text}, "timezone": name, **more}, days)
    except TimingInvalid:
        assume(False)
        raise


def passes(at: datetime, zone: ZoneInfo) -> list[str]:
    """Which pass of a wall time that comes twice."""
    both = instants_of(wall_of(at, zone), zone, gap="skip", fold="both")
    return [] if len(both) < 2 else ["dst_fold_first" if at == both[0] else "dst_fold_second"]


def clock_flags(job: Job, zone: ZoneInfo, start: datetime, end: datetime, fold: str) -> tuple[Flags, Flags]:
    """What runs, with its flags; and of that, what only runs because the clock skipped its time."""
    plain = set(walk(job, zone, start, end, gap="skip", fold=fold))
    moved = [at for at in walk(job, zone, start, end, gap="run_after", fold=fold) if at not in plain]
    return (
        {at: passes(at, zone) for at in sorted(plain)},
        {at: ["dst_gap_moved", *passes(at, zone)] for at in moved},
    )


def shown(spec: Spec, start: datetime, end: datetime) -> Flags:
    found = preview(spec, after=start - TICK, until=end - TICK, count=20_000)
    return {each.nominal_at: each.flags for each in found}


def gone(spec: Spec, start: datetime, end: datetime) -> Flags:
    found = left_out(spec, after=start - TICK, until=end - TICK, limit=20_000)
    return {each.nominal_at: each.flags for each in found}


@settings(max_examples=60)
@given(jobs(), moments(), GAPS, FOLDS)
def test_what_the_clock_does(job: Job, moment: tuple[str, datetime], gap: str, fold: str) -> None:
    name, at = moment
    start, end = at - timedelta(days=1), at + timedelta(days=1)
    runs, moved = clock_flags(job, load_zone(name), start, end, fold)
    spec = spec_of(job, name, dst_gap=gap, dst_fold=fold)
    assert shown(spec, start, end) == (runs | moved if gap == "run_after" else runs)
    if len(runs) < 1_500:  # left_out looks at no more than 2,000
        assert gone(spec, start, end) == ({} if gap == "run_after" else {each: ["dst_gap_skipped"] for each in moved})


@st.composite
def narrowed(draw: st.DrawFn) -> tuple[Job, str, datetime, dict[str, Any], set[date]]:
    """A job with some runs a day, an instant mostly close to a change, a window, and days that are excluded."""
    job = draw(jobs())
    minutes = draw(st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True))
    hours = draw(st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True))
    month = Field("*", frozenset(range(1, 13)))
    job = Job(listed(minutes), listed(hours), job.day, month, job.weekday)
    name, at = draw(moments())
    low, high = sorted(draw(st.lists(st.integers(0, 1439), min_size=2, max_size=2, unique=True)))
    window = {"from": f"{low // 60:02}:{low % 60:02}", "to": f"{high // 60:02}:{high % 60:02}"}
    near = [at.date() + timedelta(days=number) for number in range(-2, 3)]
    return job, name, at, window, set(draw(st.lists(st.sampled_from(near), max_size=3)))


def listed(values: list[int]) -> Field:
    return Field(",".join(map(str, values)), frozenset(values))


def is_open(wall: datetime, window: dict[str, str]) -> bool:
    """Inclusive at both ends; the runs here are at whole minutes."""
    return window["from"] <= wall.strftime("%H:%M") <= window["to"]


def after_a_gap(at: datetime, zone: ZoneInfo) -> bool:
    return wall_of(at, zone) - wall_of(at - timedelta(minutes=1), zone) > timedelta(minutes=1)


@settings(max_examples=60)
@given(narrowed(), FOLDS)
def test_what_is_excluded_or_outside_of_the_windows(
    case: tuple[Job, str, datetime, dict[str, Any], set[date]], fold: str
) -> None:
    """Days first: what an excluded day has is told of the day, and not of the window."""
    job, name, at, window, days = case
    zone, start, end = load_zone(name), at - timedelta(days=1), at + timedelta(days=1)
    runs, moved = clock_flags(job, zone, start, end, fold)
    # A window's end may lie in the gap, too (tests/schedules/test_windows.py); what moves may meet what runs anyway.
    assume(not moved and not any(after_a_gap(each, zone) for each in runs))
    spec = spec_of(job, name, {"dates": sorted(map(str, days))}, windows=[window], dst_fold=fold)
    kept: Flags = {}
    lost: Flags = {}
    for each, flags in runs.items():
        wall = wall_of(each, zone)
        if wall.date() in days:
            lost[each] = ["excluded"]
        elif not is_open(wall, window):
            lost[each] = ["outside_window"]
        else:
            kept[each] = flags
    assert shown(spec, start, end) == kept
    assert gone(spec, start, end) == lost


@settings(max_examples=40)
@given(narrowed())
def test_what_is_moved_to_an_opening(case: tuple[Job, str, datetime, dict[str, Any], set[date]]) -> None:
    """Once, at the first minute that is open after something that was closed."""
    job, name, at, window, _ = case
    zone, start, end = load_zone(name), at - timedelta(days=1), at + timedelta(days=1)
    runs, moved = clock_flags(job, zone, start - timedelta(days=2), end, "first")
    assume(not moved)
    days = [at.date() + timedelta(days=number) for number in range(-4, 3)]
    ends = [datetime.combine(day, time.fromisoformat(window["to"])) for day in days]
    # A window whose end the clock skips opens for one more instant: tests/schedules/test_windows.py
    assume(all(instants_of(each, zone, gap="skip", fold="first") for each in ends))
    spec = spec_of(job, name, windows=[window], outside="next_opening")
    wanted: Flags = {}
    waiting = False
    now = start - timedelta(days=2)
    while now < end:
        opened = is_open(wall_of(now, zone), window)
        if opened and (now in runs or waiting):
            wanted[now] = runs.get(now, ["moved_to_opening"])
        waiting = (waiting or now in runs) and not opened
        now += MINUTE
    assert shown(spec, start, end) == {each: flags for each, flags in wanted.items() if each >= start}


@settings(max_examples=20)
@given(narrowed(), st.sampled_from([1, -1]), st.booleans())
def test_what_is_moved_from_an_excluded_day(
    case: tuple[Job, str, datetime, dict[str, Any], set[date]], step: int, clipped: bool
) -> None:
    """To the closest business day, at its own wall time; outside of the windows it is left out, and says both."""
    job, name, at, window, days = case
    zone, start, end = load_zone(name), at - timedelta(days=2), at + timedelta(days=2)
    runs, moved = clock_flags(job, zone, start - timedelta(days=6), end + timedelta(days=6), "first")
    assume(not moved)
    more: dict[str, Any] = {"windows": [window]} if clipped else {}
    on_excluded = "next_business_day" if step > 0 else "previous_business_day"
    spec = spec_of(job, name, {"dates": sorted(map(str, days))}, on_excluded=on_excluded, **more)
    wanted = {each: flags for each, flags in runs.items() if wall_of(each, zone).date() not in days}
    for wall in {wall_of(each, zone) for each in runs} - {wall_of(each, zone) for each in wanted}:
        target = wall.date()
        while target in days or target.weekday() > 4:
            target += timedelta(days=step)
        for each in instants_of(datetime.combine(target, wall.time()), zone, gap="run_after", fold="first"):
            if each not in wanted:
                landed = wall_of(each, zone) != datetime.combine(target, wall.time())
                wanted[each] = ["moved_from_excluded", *["dst_gap_moved"] * landed, *passes(each, zone)]
    inside = {each: flags for each, flags in sorted(wanted.items()) if start <= each < end}
    opened = {each for each in inside if not clipped or is_open(wall_of(each, zone), window)}
    assert shown(spec, start, end) == {each: flags for each, flags in inside.items() if each in opened}
    assert gone(spec, start, end) == {
        each: ["moved_from_excluded"] * ("moved_from_excluded" in flags) + ["outside_window"]
        for each, flags in inside.items()
        if each not in opened
    }


@settings(max_examples=100)
@given(jobs(), moments(), st.integers(1, 90_000), st.text(max_size=5))
def test_what_is_jittered(job: Job, moment: tuple[str, datetime], jitter_s: int, key: str) -> None:
    """Later by less than the jitter and than the next one is away; the flag says that it is later at all."""
    name, at = moment
    spec = spec_of(job, name, jitter_s=jitter_s)
    found = preview(spec, after=at, count=20, key=key)
    for one, other in pairwise(found):
        room = min(timedelta(seconds=jitter_s), other.nominal_at - one.nominal_at)
        assert one.at - one.nominal_at < room and one.at >= one.nominal_at
        assert ("jittered" in one.flags) == (one.at > one.nominal_at)
    again = preview(spec, after=at, count=20, key=key)
    assert again == found


BERLIN = {"timezone": "Europe/Berlin", "on_excluded": "next_business_day"}


@pytest.mark.parametrize(
    ("cron", "gap", "runs", "gone"),
    [
        # 28 March 2027 has no 02:30. What was moved there runs right after the gap, or not at all; and that is said.
        ("30 2 27 3 *", "run_after", ["2027-03-28T03:00:00+02:00"], []),
        ("30 2 27 3 *", "skip", [], ["2027-03-27T02:30:00+01:00"]),
        ("30 4 27 3 *", "skip", ["2027-03-28T04:30:00+02:00"], []),
        # Another run at the instant at which it would have landed does not hide it.
        (["30 2 27 3 *", "0 3 28 3 *"], "skip", ["2027-03-28T03:00:00+02:00"], ["2027-03-27T02:30:00+01:00"]),
        # A star in minute or hour is real time: it is never caught up.
        ("*/30 2 27 3 *", "run_after", [], ["2027-03-27T02:00:00+01:00", "2027-03-27T02:30:00+01:00"]),
    ],
)
def test_what_is_moved_into_a_gap(cron: str | list[str], gap: str, runs: list[str], gone: list[str]) -> None:
    spec = made({"trigger": {"cron": cron}, "dst_gap": gap, **BERLIN}, {"dates": ["2027-03-27"], "weekend": []})
    after, until = datetime(2027, 3, 26, tzinfo=UTC), datetime(2027, 3, 30, tzinfo=UTC)
    assert [each.nominal_local for each in preview(spec, after=after, until=until, count=9)] == runs
    missing = left_out(spec, after=after, until=until)
    assert [(each.nominal_local, each.flags) for each in missing] == [(each, ["dst_gap_skipped"]) for each in gone]
