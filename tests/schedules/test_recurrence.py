"""Recurrence rules: python-dateutil as second opinion, bounds, extra and left-out instants, what is refused."""

import itertools
import random
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from dateutil.rrule import rrulestr

from apps.schedules.timing import (
    Every,
    Interval,
    Recurrence,
    Spec,
    TimingInvalid,
    count_between,
    describe,
    load_zone,
    next_after,
    occurrences,
    previous_before,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from tests.schedules.cases import text, utc

NOW = utc("2026-01-05T10:00:00Z")
RULES = [
    "FREQ=DAILY", "FREQ=DAILY;INTERVAL=3", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29", "FREQ=DAILY;BYDAY=MO,FR;BYHOUR=8,17",
    "FREQ=DAILY;BYMONTHDAY=-1,15", "FREQ=WEEKLY", "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU", "FREQ=WEEKLY;BYMONTH=3;BYDAY=WE", "FREQ=MONTHLY",
    "FREQ=MONTHLY;BYMONTHDAY=31", "FREQ=MONTHLY;BYMONTHDAY=-3", "FREQ=MONTHLY;BYDAY=-1FR",
    "FREQ=MONTHLY;BYDAY=2MO,-1SU;INTERVAL=5", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=MONTHLY;BYDAY=MO,WE;BYHOUR=6,18;BYSETPOS=2,-2", "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "FREQ=YEARLY",
    "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8", "FREQ=YEARLY;BYDAY=20MO",
    "FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3,10", "FREQ=YEARLY;BYYEARDAY=1,100,-1", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO",
    "FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO,SU", "FREQ=YEARLY;BYWEEKNO=53,-1;BYDAY=TH,SA",
    "FREQ=YEARLY;BYMONTH=1;BYDAY=SU,MO", "FREQ=YEARLY;BYMONTHDAY=1", "FREQ=HOURLY;INTERVAL=7",
    "FREQ=HOURLY;BYDAY=MO;BYHOUR=9,10,11", "FREQ=MINUTELY;INTERVAL=45",
    "FREQ=MINUTELY;INTERVAL=20;BYMONTH=6;BYHOUR=0,23", "FREQ=SECONDLY;INTERVAL=90061;BYMONTHDAY=-1",
]  # fmt: skip
HOURS, MINUTES = ",".join(map(str, range(24))), ",".join(map(str, range(60)))
STARTS = ["2026-01-31T09:30:00", "2024-02-29T00:00:00", "2025-12-29T23:59:30"]


def rule(text: str, start: str = "2026-01-05T09:00:00", zone: str = "UTC", **more: Any) -> Spec:
    return spec_from_api(
        {"trigger": {"rrule": text, "dtstart": start, **more.pop("trigger", {})}, "timezone": zone, **more}, now=NOW
    )


def first(spec: Spec, count: int, *, after: datetime | None = None) -> list[datetime]:
    return list(occurrences(spec, after=after or utc("2000-01-01T00:00:00Z"), limit=count))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("text", RULES)
def test_as_dateutil_has_it(text: str, start: str) -> None:
    """The first of them, some later ones, what lies before them, and how many there are."""
    theirs = rrulestr(text, dtstart=datetime.fromisoformat(start))
    expected = [at.replace(tzinfo=NOW.tzinfo) for at in itertools.islice(theirs, 60) if at.year < 2200]
    spec = Spec(Recurrence(text, start))
    assert first(spec, len(expected)) == expected
    for number in random.Random(text).sample(range(1, len(expected)), 10):
        at = expected[number]
        assert previous_before(spec, at) == expected[number - 1]
        assert next_after(spec, at - timedelta(seconds=1)) == at
        assert count_between(spec, after=expected[0], until=at) == number


@pytest.mark.parametrize("text", RULES)
def test_far_from_its_start_it_costs_the_same(text: str) -> None:
    spec = Spec(Recurrence(text, "1970-01-31T09:30:00"), "America/New_York")
    begun = time.process_time()
    found = next_after(spec, utc("2140-05-05T00:00:00Z"))
    assert found is not None and previous_before(spec, found + timedelta(seconds=1)) == found
    assert time.process_time() - begun < 0.1


def test_count_until_extra_and_left_out() -> None:
    counted = rule(
        "FREQ=DAILY;COUNT=4", trigger={"exdate": ["2026-01-06", "2026-01-07T09:00:00Z"], "rdate": ["2026-02-01"]}
    )
    assert [text(at) for at in first(counted, 9)] == [
        "2026-01-05T09:00:00Z",
        "2026-01-08T09:00:00Z",
        "2026-02-01T09:00:00Z",
    ]
    assert count_between(counted, after=utc("2026-01-01T00:00:00Z"), until=utc("2027-01-01T00:00:00Z")) == 3
    ended = rule("FREQ=WEEKLY;UNTIL=20260119", zone="Asia/Tokyo")
    assert [text(at) for at in first(ended, 9)] == [
        "2026-01-05T00:00:00Z",
        "2026-01-12T00:00:00Z",
        "2026-01-19T00:00:00Z",
    ]
    exact = rule("FREQ=WEEKLY;UNTIL=20260119T090000Z")
    assert len(first(exact, 9)) == 3
    assert len(first(rule("FREQ=WEEKLY;UNTIL=20260119T085959Z"), 9)) == 2
    assert spec_from_json(spec_to_json(counted)) == counted


def test_icalendar_lines_are_a_trigger() -> None:
    zone = "TZID=Europe/Berlin"
    lines = f"DTSTART;{zone}:20260330T090000\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE;{zone}:20260331T090000"
    spec = spec_from_api({"trigger": {"rrule": lines}}, now=NOW)
    assert spec.zone == "Europe/Berlin"
    assert [text(at) for at in first(spec, 9)] == ["2026-03-30T07:00:00Z", "2026-04-01T07:00:00Z"]


def test_clock_changes_follow_the_rules_of_fixed_time_jobs() -> None:
    gap = rule("FREQ=DAILY", "2026-03-28T02:30:00", "Europe/Berlin")
    assert [text(at) for at in first(gap, 3)] == [
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:30:00Z",
    ]
    skipped = rule("FREQ=DAILY", "2026-03-28T02:30:00", "Europe/Berlin", dst_gap="skip")
    assert text(first(skipped, 2)[1]) == "2026-03-30T00:30:00Z"
    both = rule("FREQ=DAILY", "2026-10-24T02:30:00", "Europe/Berlin", dst_fold="both")
    assert [text(at) for at in first(both, 3)] == [
        "2026-10-24T00:30:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00Z",
    ]
    hourly = rule("FREQ=HOURLY;BYHOUR=1,2,3", "2026-10-25T00:00:00", "Europe/Berlin")
    assert len(first(hourly, 9, after=utc("2026-10-24T22:00:00Z"))[:4]) == 4  # 1, 2, 2 again, 3


@pytest.mark.parametrize(
    ("every", "anchor", "expected"),
    [
        ({"months": 1}, "2026-01-31T09:00", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]),
        ({"months": 3}, "2025-11-30T09:00", ["2026-02-28", "2026-05-30", "2026-08-30", "2026-11-30"]),
        ({"years": 1}, "2024-02-29T09:00", ["2026-02-28", "2027-02-28", "2028-02-29"]),
        ({"weeks": 2}, "2026-01-07T09:00", ["2026-01-07", "2026-01-21", "2026-02-04"]),
        ({"days": 10}, "2026-01-06T09:00", ["2026-01-06", "2026-01-16", "2026-01-26"]),
    ],
)
def test_calendar_intervals_keep_their_anchor_and_wall_time(every: Any, anchor: str, expected: list[str]) -> None:
    spec = spec_from_api({"trigger": {"every": every, "anchor": anchor}, "timezone": "America/New_York"}, now=NOW)
    found = first(spec, len(expected), after=NOW)
    shown = [at.astimezone(load_zone(spec.zone)).isoformat()[:16] for at in found]
    assert shown == [f"{day}T09:00" for day in expected]
    assert spec_from_json(spec_to_json(spec)) == spec and isinstance(spec.trigger, Every)
    assert describe(spec).startswith("Every ")


@pytest.mark.parametrize(
    ("every", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("@every 90s", 90), ({"hours": 2}, 7200), ({"seconds": 5}, 5), ({"minutes": 1}, 60)],
)
def test_elapsed_forms_are_intervals(every: Any, seconds: int) -> None:
    spec = spec_from_api({"trigger": {"every": every}}, now=NOW)
    assert spec.trigger == Interval(seconds, NOW)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("FREQ=FORTNIGHTLY", "freq"),
        ("INTERVAL=2", "freq"),
        ("FREQ=DAILY;INTERVAL=0", "range"),
        ("FREQ=DAILY;COUNT=0", "range"),
        ("FREQ=DAILY;COUNT=1000000000", "range"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "contradiction"),
        ("FREQ=DAILY;UNTIL=tomorrow", "until"),
        ("FREQ=WEEKLY;BYDAY=1MO", "contradiction"),
        ("FREQ=MONTHLY;BYDAY=XX", "weekday"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "range"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "range"),
        ("FREQ=DAILY;FREQ=DAILY", "repeated"),
        ("FREQ=DAILY;BYEASTER=1", "unknown_part"),
        ("FREQ=DAILY;", ""),
        ("FREQ=MINUTELY;BYSECOND=1,2", "unbounded"),
        ("FREQ=SECONDLY;BYMINUTE=5", "unbounded"),
        ("FREQ=HOURLY;BYDAY=MO;BYSETPOS=1", "unbounded"),
        ("FREQ=DAILY;BYHOUR=" + HOURS + ";BYMINUTE=" + MINUTES + ";BYSECOND=0,30", "unbounded"),
        ("FREQ=YEARLY;BYDAY=MO;BYHOUR=" + HOURS + ";BYMINUTE=0,15,30;BYSETPOS=1", "unbounded"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never"),
        ("FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6", "never"),
        ("X" * 10_000, "too_long"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31", "never"),
        ("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=31", "never"),
        ("FREQ=SECONDLY;INTERVAL=86400;BYHOUR=3", "never"),
    ],
)  # fmt: skip
def test_refused_quickly_with_a_way_out(text: str, code: str) -> None:
    begun = time.process_time()
    if not code:
        rule(text)
        return
    with pytest.raises(TimingInvalid) as caught:
        rule(text)
    assert time.process_time() - begun < 0.1
    assert code in {error.code for error in caught.value.errors}


@pytest.mark.parametrize(
    "trigger", [{"cron": "0 3 * * *"}, {"every_s": 600}, {"every": {"weeks": 1}}, {"rrule": "FREQ=DAILY"}]
)
def test_a_bounded_number_of_runs(trigger: Any) -> None:
    spec = spec_from_api({"trigger": trigger, "max_runs": 3}, now=NOW)
    found = first(spec, 10, after=NOW)
    assert len(found) == 3 and next_after(spec, found[-1]) is None
    assert previous_before(spec, found[-1] + timedelta(days=900)) == found[-1]
    assert count_between(spec, after=NOW, until=NOW + timedelta(days=900)) == 3
    assert spec_from_json(spec_to_json(spec)) == spec


@pytest.mark.parametrize("many", [65, 1000, 1_000_000])
@pytest.mark.parametrize("cron", ["* * * * *", "0 9 * * 1-5", "30 2 L * *"])
def test_many_runs_are_counted_not_walked(cron: str, many: int) -> None:
    spec = spec_from_api({"trigger": {"cron": cron}, "timezone": "Europe/Berlin", "max_runs": many}, now=NOW)
    begun = time.process_time()
    last = spec.last_at(by=utc("2499-12-31T00:00:00Z"))
    assert time.process_time() - begun < 0.2
    if many < 1_000_000 or cron == "* * * * *":
        assert last is not None and count_between(spec, after=NOW, until=last) == many


def test_an_extra_instant_is_found_behind_a_rule_that_is_searched_in_vain() -> None:
    """Steps of 15 hours from 02:30 never come at midnight: the search backward gives up, years before the extra one."""
    rule = {"rrule": "FREQ=HOURLY;INTERVAL=15;BYHOUR=0;BYMONTH=1;BYMONTHDAY=-1,1", "dtstart": "1999-05-31T02:30:00"}
    trigger = {**rule, "rdate": ["2026-03-01T02:30:00Z", "2026-02-01T02:30:00Z"]}
    spec = spec_from_api({"trigger": trigger}, now=NOW)
    first, second = utc("2026-02-01T02:30:00Z"), utc("2026-03-01T02:30:00Z")
    assert list(occurrences(spec, after=NOW, limit=5)) == [first, second]
    assert previous_before(spec, utc("2026-04-01T00:00:00Z")) == second
    assert previous_before(spec, second) == first
