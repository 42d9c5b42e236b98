"""Intervals and rules in every zone from 1970 to 2100, against dateutil's wall times and plain arithmetic.

Daily and longer: dateutil says the wall times, `walls` their instants. Hourly and shorter: steps of UTC, of which the
local time decides which count. docs/reference/cron-differences.md lists where dateutil itself answers otherwise.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from dateutil.relativedelta import relativedelta
from dateutil.rrule import rrulestr
from dateutil.tz import gettz
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.schedules.timing import (
    Every,
    Interval,
    Recurrence,
    Spec,
    count_between,
    load_zone,
    occurrences,
    previous_before,
    zone_names,
)
from apps.schedules.timing_zones import EPOCH, zone_offsets
from tests.schedules.cases import text, utc
from tests.schedules.test_timing_walk import INTERESTING
from tests.schedules.walls import instants_of, wall_of

NAMES = sorted(zone_names())
UNTIL_S = 4_102_444_800  # 2100
TICK = timedelta(microseconds=1)
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
GAPS, FOLDS = st.sampled_from(["run_after", "skip"]), st.sampled_from(["first", "last", "both"])


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, datetime, datetime]:
    """A zone, an instant that is mostly one of its changes, and a wall time (whole seconds) close to it."""
    name = draw(st.one_of(st.sampled_from(INTERESTING), st.sampled_from(NAMES)))
    at_s = draw(st.integers(90_000, UNTIL_S))
    offsets = zone_offsets(name)
    end = offsets.end(offsets.index(at_s))
    if draw(st.integers(0, 5)) and end < UNTIL_S:
        at_s = end
    at = EPOCH + timedelta(seconds=at_s)
    wall = wall_of(at - timedelta(seconds=1), load_zone(name)) + timedelta(seconds=1)
    return name, at, wall + timedelta(minutes=draw(st.integers(-150, 150)), seconds=draw(st.sampled_from([0, 0, 7])))


def agrees(spec: Spec, wanted: list[datetime], low: datetime, high: datetime) -> None:
    """Forwards, backwards and counted, in [low, high]."""
    assert list(occurrences(spec, after=low - TICK, until=high, limit=100_000)) == wanted
    assert count_between(spec, after=low - TICK, until=high) == len(wanted)
    before, found = high + TICK, []
    for _ in wanted[-5:]:
        before = previous_before(spec, before) or high
        found.append(before)
    assert found == wanted[:-6:-1]


@settings(max_examples=200)
@given(changes(), st.integers(1, 40_000_000), st.integers(-50, 50))
def test_elapsed_intervals_are_arithmetic(change: tuple[str, datetime, datetime], every_s: int, steps: int) -> None:
    """Whatever the clocks do: the anchor plus whole steps."""
    name, at, _ = change
    every = timedelta(seconds=every_s)
    anchor = at + steps * every + timedelta(seconds=every_s // 3)
    wanted = [each for number in range(-80, 81) if abs((each := anchor + number * every) - at) <= 20 * every]
    agrees(Spec(Interval(every_s, anchor), name), wanted, at - 20 * every, at + 20 * every)


@settings(max_examples=300)
@given(
    changes(), st.sampled_from(["days", "weeks", "months", "years"]), st.integers(1, 7), st.integers(-9, 9), GAPS, FOLDS
)
def test_calendar_intervals_keep_their_wall_time(
    change: tuple[str, datetime, datetime], unit: str, number: int, steps: int, gap: str, fold: str
) -> None:
    name, at, wall = change
    every = relativedelta(**{unit: number})
    anchor = wall + steps * every
    spec = Spec(Every(unit, number, anchor.isoformat()), name, dst_gap=gap, dst_fold=fold)
    span = timedelta(days={"days": 3, "weeks": 21, "months": 95, "years": 1100}[unit] * number)
    low, high = max(at - span, EPOCH + timedelta(days=2)), at + span
    walls = {anchor + step * every for step in range(-25, 26)}
    found = {each for one in walls for each in instants_of(one, load_zone(name), gap=gap, fold=fold)}
    agrees(spec, sorted(each for each in found if low <= each <= high), low, high)


@st.composite
def rules(draw: st.DrawFn) -> str:
    freq = draw(st.sampled_from(["DAILY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.integers(1, 4))}"]
    if draw(st.booleans()):
        ordinal = "" if freq in ("DAILY", "WEEKLY") else draw(st.sampled_from(["", "1", "-1", "2"]))
        parts.append(
            "BYDAY=" + ",".join(ordinal + day for day in draw(st.lists(st.sampled_from(DAYS), min_size=1, unique=True)))
        )
    elif freq != "WEEKLY" and draw(st.booleans()):
        parts.append(f"BYMONTHDAY={draw(st.integers(1, 31))},{draw(st.integers(-3, -1))}")
    if not draw(st.integers(0, 3)):
        parts.append(f"BYMONTH={draw(st.integers(1, 12))},{draw(st.integers(1, 12))}")
    if not draw(st.integers(0, 3)):
        parts.append("BYHOUR=0,1,2,3,12")
    return ";".join(parts)


@settings(max_examples=400)
@given(changes(), rules(), st.integers(0, 800), GAPS, FOLDS)
def test_daily_and_longer_rules_are_dateutils_wall_times(
    change: tuple[str, datetime, datetime], rule: str, days: int, gap: str, fold: str
) -> None:
    name, at, wall = change
    zone, start = load_zone(name), max(wall - timedelta(days=days), datetime(1970, 1, 3))  # noqa: DTZ001  a wall time
    spec = Spec(Recurrence(rule, start.isoformat()), name, dst_gap=gap, dst_fold=fold)
    span = timedelta(days=40 if "DAILY" in rule else 400)
    low, high = max(at - span, EPOCH + timedelta(days=5)), at + span
    walls = rrulestr(rule, dtstart=start).between(
        wall_of(low, zone) - timedelta(days=2), wall_of(high, zone) + timedelta(days=2), inc=True
    )
    found = {each for one in walls for each in instants_of(one, zone, gap=gap, fold=fold)}
    agrees(spec, sorted(each for each in found if low <= each <= high), low, high)


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, str]:
    """A rule of hours, minutes or seconds, and what of it looks at the local time."""
    freq, most = draw(st.sampled_from([("HOURLY", 30), ("MINUTELY", 3000), ("SECONDLY", 100_000)]))
    filters = []
    if draw(st.booleans()):
        filters.append("BYDAY=" + ",".join(draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=6, unique=True))))
    if draw(st.booleans()):
        filters.append("BYHOUR=0,1,2,3,4,13")
    if not draw(st.integers(0, 3)):
        filters.append("BYMONTHDAY=1,15,28,-1")
    return f"FREQ={freq};INTERVAL={draw(st.integers(max(1, most // 40), most))}", ";".join(filters)


@settings(max_examples=200)
@given(changes(), steps(), st.integers(0, 40))
def test_hourly_and_shorter_rules_are_steps_of_utc(
    change: tuple[str, datetime, datetime], step: tuple[str, str], days: int
) -> None:
    name, at, _ = change
    zone = load_zone(name)
    first = max(at - timedelta(days=days, minutes=17), EPOCH + timedelta(days=2))
    wall = wall_of(first, zone)
    [first] = instants_of(wall, zone, gap="run_after", fold="first")
    rule, filters = step
    spec = Spec(Recurrence(";".join(filter(None, step)), wall.isoformat()), name)
    low, high = at - timedelta(days=2), at + timedelta(days=2)
    plain = rrulestr(rule, dtstart=first).between(low, high, inc=True)
    wanted = [each for each in plain if _counts(wall_of(each, zone), filters)]
    agrees(spec, wanted, low, high)


def _counts(wall: datetime, filters: str) -> bool:
    given_ = dict(each.split("=") for each in filters.split(";") if each)
    last = (wall.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    return (
        ("BYDAY" not in given_ or DAYS[wall.weekday()] in given_["BYDAY"].split(","))
        and ("BYHOUR" not in given_ or wall.hour in (0, 1, 2, 3, 4, 13))
        and ("BYMONTHDAY" not in given_ or wall.day in (1, 15, 28, last.day))
    )


@pytest.mark.parametrize(
    ("rule", "start", "more", "ours", "theirs"),
    [  # what docs/reference/cron-differences.md says about dateutil, with an aware start in Berlin
        ("FREQ=DAILY", "2026-03-28T02:30:00", {},
         ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
         ["2026-03-28T01:30:00Z", "2026-03-29T00:30:00Z", "2026-03-30T00:30:00Z"]),
        ("FREQ=HOURLY", "2026-03-29T01:00:00", {},
         ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"],
         ["2026-03-29T00:00:00Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"]),
        ("FREQ=HOURLY", "2026-10-25T01:00:00", {},
         ["2026-10-24T23:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"],
         ["2026-10-24T23:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"]),
        ("FREQ=DAILY;COUNT=2", "2026-03-28T02:30:00", {"dst_gap": "skip"},
         ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"], ["2026-03-28T01:30:00Z", "2026-03-29T00:30:00Z"]),
        ("FREQ=DAILY;COUNT=2", "2026-10-25T02:30:00", {"dst_fold": "both"},
         ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"], ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ],
)  # fmt: skip
def test_known_differences_from_dateutil(
    rule: str, start: str, more: dict[str, Any], ours: list[str], theirs: list[str]
) -> None:
    wall = datetime.fromisoformat(start)
    spec = Spec(Recurrence(rule, start), "Europe/Berlin", **more)
    assert [text(at) for at in occurrences(spec, after=utc("2026-01-01T00:00:00Z"), limit=3)] == ours
    found = islice(rrulestr(rule, dtstart=wall.replace(tzinfo=gettz("Europe/Berlin"))), 3)
    assert [text(at.astimezone(UTC)) for at in found] == theirs
