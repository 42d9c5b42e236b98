"""The search against a walk over the minutes of real wall clocks, around the clock changes of all zones."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from apps.schedules.timing import (
    Cron,
    Spec,
    TimingInvalid,
    count_between,
    latest_between,
    load_zone,
    next_after,
    occurrences,
    previous_before,
    spec_from_api,
    zone_names,
)
from apps.schedules.timing_zones import EPOCH, zone_offsets
from tests.schedules.walk import Field, Job, jobs, walk

NAMES = sorted(zone_names())
INTERESTING = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Santiago",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "America/Caracas",
    "Asia/Pyongyang",
    "Pacific/Chatham",
    "Europe/Dublin",
    "UTC",
]
FROM_S, UNTIL_S = 94_694_400, 4_102_444_800  # 1973 (whole-minute offsets only from then on) to 2100
DAYS = timedelta(days=2)


def whole_minute(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds - seconds % 60)


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and an instant, mostly close to a change of its clock."""
    name = draw(st.one_of(st.sampled_from(INTERESTING), st.sampled_from(NAMES)))
    at_s = draw(st.integers(FROM_S, UNTIL_S))
    offsets = zone_offsets(name)
    end = offsets.end(offsets.index(at_s))
    if draw(st.integers(0, 9)) and FROM_S < end < UNTIL_S:
        at_s = end + draw(st.integers(-90_000, 90_000))
    return name, whole_minute(at_s)


def berlin(minute: str, hour: str) -> Job:
    every = Field("*", frozenset(range(32)))
    return Job(Field(minute, frozenset({int(minute)})), Field(hour, frozenset({int(hour)})), every, every, every)


@settings(max_examples=400)
@given(
    job=jobs(),
    moment=moments(),
    gap=st.sampled_from(["run_after", "skip"]),
    fold=st.sampled_from(["first", "last", "both"]),
)
@example(
    job=berlin("30", "2"), moment=("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)), gap="run_after", fold="first"
)
@example(
    job=berlin("30", "2"), moment=("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)), gap="run_after", fold="last"
)
@example(
    job=berlin("0", "12"),
    moment=("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    gap="run_after",
    fold="first",
)
def test_equals_a_walk_over_the_minutes(job: Job, moment: tuple[str, datetime], gap: str, fold: str) -> None:
    name, at = moment
    start, end = at - DAYS, at + DAYS
    spec = Spec(Cron((job.text,)), name, dst_gap=gap, dst_fold=fold)
    try:
        spec.calendar()
    except TimingInvalid as error:
        assume("never runs" not in str(error))
        raise
    wanted = walk(job, load_zone(name), start, end, gap=gap, fold=fold)
    before = start - timedelta(microseconds=1)
    last = end - timedelta(microseconds=1)
    assert list(occurrences(spec, after=before, until=last, limit=100_000)) == wanted
    assert count_between(spec, after=before, until=last) == len(wanted)
    newest = latest_between(spec, after=before, until=last, limit=50)
    assert newest == (wanted[-50:], len(wanted))
    # At a few single points, memo included.
    for point in (start, at, at + timedelta(seconds=59.5), last):
        after, found = [each for each in wanted if each > point], next_after(spec, point)
        assert found == after[0] if after else found is None or found >= end
        earlier, back = [each for each in wanted if each < point], previous_before(spec, point)
        assert back == earlier[-1] if earlier else back is None or back < start


@settings(max_examples=100)
@given(parts=st.lists(jobs(), min_size=2, max_size=4), moment=moments())
def test_several_expressions_are_united(parts: list[Job], moment: tuple[str, datetime]) -> None:
    name, at = moment
    start, end = at - DAYS / 2, at + DAYS / 2
    spec = Spec(Cron(tuple(dict.fromkeys(job.text for job in parts))), name)
    try:
        spec.calendar()
    except TimingInvalid:
        assume(False)
    wanted = sorted(
        {at for job in parts for at in walk(job, load_zone(name), start, end, gap="run_after", fold="first")}
    )
    before, last = start - timedelta(microseconds=1), end - timedelta(microseconds=1)
    assert list(occurrences(spec, after=before, until=last, limit=100_000)) == wanted
    assert count_between(spec, after=before, until=last) == len(wanted)


@settings(max_examples=60)
@given(job=jobs(), second=st.sampled_from(["*/20", "7", "0,59", "30-32"]), moment=moments())
def test_six_fields_follow_real_time(job: Job, second: str, moment: tuple[str, datetime]) -> None:
    name, at = moment
    start, end = at - timedelta(hours=6), at + timedelta(hours=6)
    try:
        spec = spec_from_api({"trigger": {"cron": f"{second} {job.text}"}, "timezone": name}, now=start)
    except TimingInvalid as error:
        assume("never" not in str(error))
        raise
    seconds = {"*/20": (0, 20, 40), "7": (7,), "0,59": (0, 59), "30-32": (30, 31, 32)}[second]
    real = Job(Field("*", job.minute.values), job.hour, job.day, job.month, job.weekday)
    minutes = walk(real, load_zone(name), start, end, gap="skip", fold="both")
    wanted = [minute + timedelta(seconds=each) for minute in minutes for each in seconds]
    last = end - timedelta(microseconds=1)
    assert list(occurrences(spec, after=start - timedelta(microseconds=1), until=last, limit=100_000)) == wanted


@pytest.mark.parametrize("name", [*INTERESTING, "America/Nuuk", "Asia/Gaza", "America/Havana", "Africa/Cairo"])
@pytest.mark.parametrize("text", ["30 2 * * *", "*/30 * * * *", "0 0 * * *", "15 1-3 * * *"])
def test_a_whole_year_forwards_backwards_and_counted(name: str, text: str) -> None:
    """Forwards, backwards and counted, a year gives one and the same set; it strictly increases."""
    spec = Spec(Cron((text,)), name)
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    forwards = list(occurrences(spec, after=start, until=end, limit=100_000))
    assert all(one < other for one, other in pairwise(forwards))
    backwards, total = latest_between(spec, after=start, until=end, limit=100_000)
    assert backwards == forwards and total == len(forwards) == count_between(spec, after=start, until=end)
