"""A backfill as values: which occurrences a range has, how each stands, what a wish says, when it waits and ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.operations.backfill import segments
from apps.operations.backfill.forecast import STEP_S, Pace, expected_end, measured_end, uses
from apps.operations.backfill.recognising import Known, Record, latest, standing, wants
from apps.operations.backfill.segments import of_then
from apps.operations.backfill.wish import Wish, read_wish, wish_of
from apps.operations.backfill.within import Range, count, page
from apps.operations.backfill.yielding import NEXT_IS_NEAR, PRESSED, Live, holds
from apps.schedules.history import History, Stretch
from apps.schedules.input_fields import Fields
from apps.schedules.timing import Spec, occurrences, spec_from_api
from kernel.errors import Faults
from kernel.ids import uuid7s

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
HOURLY = {"cron": "0 * * * *"}
SCHEDULE = UUID(int=7)


def spec(trigger: dict[str, Any], zone: str = "Europe/Berlin", **more: Any) -> Spec:
    return spec_from_api({"trigger": trigger, "timezone": zone, **more}, now=NOW)


def days(month: int, first: int, last: int) -> Range:
    """Whole local days of 2026 in Berlin, the last one left out."""
    return Range(*(datetime(2026, month, day, tzinfo=BERLIN).astimezone(UTC) for day in (first, last)))


@pytest.mark.parametrize(("month", "runs"), [(3, 719), (10, 721), (7, 720)])
def test_thirty_days_hourly_are_counted_over_clock_changes(month: int, runs: int) -> None:
    hourly, within = spec(HOURLY), days(month, 1, 31)
    assert count(hourly, within) == runs
    whole = page(hourly, within, order="asc", after=None, size=1_000)
    assert (whole[0], whole[-1]) == (within.since, within.until - HOUR), "the first instant belongs to it, the last not"


TRIGGERS = st.sampled_from(
    [HOURLY, {"cron": "*/7 * * * *"}, {"cron": "30 2 * * *"}, {"every_s": 1_260, "anchor": "2026-01-01T00:00:00Z"},
     {"rrule": "FREQ=DAILY;BYHOUR=2,14", "dtstart": "2026-01-01T02:30:00"}, {"at": "2026-12-24T18:00:00Z"}]
)  # fmt: skip


@given(
    TRIGGERS, st.integers(0, 13 * 86_400), st.integers(1, 40 * 3_600), st.integers(1, 9),
    st.sampled_from(["asc", "desc"]),
)  # fmt: skip
def test_pages_in_either_order_are_the_range(
    trigger: dict[str, Any], begin_s: int, length_s: int, size: int, order: str
) -> None:
    since = datetime(2026, 3, 20, tzinfo=UTC) + begin_s * SECOND
    within, one = Range(since, since + length_s * SECOND), spec(trigger)
    whole = page(one, within, order="asc", after=None, size=10_000)
    assert len(whole) == count(one, within)
    assert all(within.since <= at < within.until for at in whole)
    found: list[datetime] = []
    while part := page(one, within, order=order, after=found[-1] if found else None, size=size):
        assert len(part) == min(size, len(whole) - len(found))
        found += part
    assert found == (list(whole) if order == "asc" else list(whole)[::-1])


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90), st.integers(1, 4)), max_size=5), st.integers(1, 7),
    st.sampled_from(["asc", "desc"]),
)  # fmt: skip
def test_each_instant_is_decided_by_the_version_of_its_time(
    stretches: list[tuple[int, int, int]], size: int, order: str
) -> None:
    """Versions of every so many hours, one after the other, some with a pause between, over four days."""
    begin, made, at = datetime(2026, 3, 27, tzinfo=UTC), [], datetime(2026, 3, 26, tzinfo=UTC)
    for number, (pause, length, hours) in enumerate(stretches, 1):
        after = at + pause * HOUR
        at = after + length * HOUR
        made.append(Stretch(number, spec({"every_s": hours * 3_600, "anchor": "2026-01-01T00:00:00Z"}), after, at))
    whole = Range(begin, begin + 4 * DAY)
    found = of_then(History(None, tuple(made)), whole)
    expected = [
        (at, one.version)
        for one in made
        for at in occurrences(one.spec or spec(HOURLY), after=one.after, until=one.until, limit=10_000)
        if whole.since <= at < whole.until
    ]
    seen: list[datetime] = []
    while part := segments.page(found, order=order, after=seen[-1] if seen else None, size=size):
        seen += part
    assert [(at, segments.version_at(found, at)) for at in seen] == (expected if order == "asc" else expected[::-1])
    assert segments.count(found) == len(expected)


def test_the_newest_record_of_an_occurrence_says_how_it_stands() -> None:
    at = [NOW - hour * HOUR for hour in range(6, 0, -1)]
    ids = uuid7s(7)
    found = latest(
        at,
        [
            Record(ids[3], at[1], None, "dead", 2),  # a later run of what a row for three had skipped
            Record(ids[0], at[0] - DAY, at[2], "skipped", 0),
            Record(ids[4], at[3], None, "ready", 0),
            Record(ids[1], at[3], None, "succeeded", 1),
            Record(ids[2], at[5] + SECOND, None, "succeeded", 1),  # of no occurrence that is asked about
            Record(ids[5], at[1], None, "cancelled", 0),  # taken back before it began
            Record(ids[6], at[4], None, "cancelled", 0),
        ],
    )
    expected = {at[0]: ids[0], at[1]: ids[3], at[2]: ids[0], at[3]: ids[4], at[4]: ids[6]}
    assert {key: one.id for key, one in found.items()} == expected


@pytest.mark.parametrize(
    ("state", "attempts", "how"),
    [
        ("succeeded", 1, "ran"), ("dead", 0, "failed"), ("dead", 3, "failed"), ("cancelled", 1, "failed"),
        ("expired", 1, "failed"), ("cancelled", 0, "missing"), ("expired", 0, "missing"), ("skipped", 0, "missing"),
        ("ready", 0, "alive"), ("scheduled", 0, "alive"), (None, 0, "missing"),
    ],
)  # fmt: skip
def test_how_an_occurrence_stands(state: str | None, attempts: int, how: str) -> None:
    known = Known(NOW - 90 * DAY, NOW - 30 * DAY, NOW - HOUR)
    record = None if state is None else Record(SCHEDULE, NOW - DAY, None, state, attempts)
    assert standing(NOW - DAY, record, known) == how
    assert standing(NOW - HOUR, record, known) == "due", "the dispatcher fires it"
    wanted = {only for only in ("missing", "failed", "all") if wants(only, standing(NOW - DAY, record, known))}
    assert wanted == {"missing": {"missing", "all"}, "failed": {"failed", "all"}, "ran": {"all"}, "alive": set()}[how]


def test_what_retention_may_have_removed_is_not_known() -> None:
    known = Known(NOW - 90 * DAY, NOW - 30 * DAY, None)
    assert standing(NOW - 60 * DAY, None, known) == "not_known"
    assert standing(NOW - 60 * DAY, Record(SCHEDULE, NOW - 60 * DAY, None, "dead", 1), known) == "failed"
    assert standing(NOW - 120 * DAY, None, known) == "missing", "before the schedule was made nothing ran"
    assert standing(NOW - 60 * DAY, None, known._replace(kept_from=None)) == "missing", "nothing was ever deleted"
    assert [only for only in ("missing", "failed", "all") if wants(only, "not_known")] == ["all"]


def read(data: Any, one: Spec, **more: Any) -> tuple[Wish | None, dict[str, str]]:
    fields = Fields(data, Faults())
    found = read_wish(fields, schedule_id=SCHEDULE, spec=one, now=NOW, **more)
    return found, {fault.pointer: fault.code for fault in fields.faults.errors}


def test_a_wish_is_read_in_the_zone_of_the_schedule() -> None:
    dates = {"from": "2026-03-01", "to": "2026-03-31"}
    wish, faults = read(dates, spec(HOURLY))
    assert wish is not None and not faults
    assert (wish.within, wish.order, wish.only, wish.overlap, wish.priority) == (
        days(3, 1, 31), "asc", "missing", "allow", 0,
    )  # fmt: skip
    assert wish_of(wish.as_params()) == wish
    wall, _ = read({"from": "2026-03-01T00:00:00", "to": "2026-03-30T22:00:00Z"}, spec(HOURLY))
    assert wall == wish
    serial, _ = read(dates, spec(HOURLY, overlap="skip"))
    assert serial is not None and serial.overlap == "buffer_all" and serial.serial


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        ({}, {"/from": "required", "/to": "required"}),
        ({"from": "yesterday", "to": 3}, {"/from": "format", "/to": "type"}),
        ({"from": "2026-03-02", "to": "2026-03-02"}, {"/to": "range"}),
        ({"from": "2026-11-01", "to": "2026-12-01"}, {"/to": "range"}),
        ({"from": "2026-01-01", "to": "2026-11-01", "order": "up", "only": 1, "overlap": "replace_pending"},
         {"/order": "choice", "/only": "choice", "/overlap": "choice"}),
        ({"from": "2026-01-01", "to": "2026-11-01", "overlap": "skip"}, {"/overlap": "contradiction"}),
        ({"from": "2026-01-01", "to": "2026-11-01", "priority": 10}, {"/priority": "range"}),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_wish_is_said_all_at_once(data: Any, faults: dict[str, str]) -> None:
    assert read(data, spec(HOURLY)) == (None, faults)


def test_a_range_has_a_bound_and_chained_runs_an_order() -> None:
    assert read({"from": "2020-01-01", "to": "2026-11-01"}, spec({"every_s": 10}))[1] == {"/from": "range"}
    week = {"from": "2026-11-01", "to": "2026-11-08", "order": "desc"}
    assert read(week, spec(HOURLY), chained=True)[1] == {"/order": "contradiction"}


def test_the_end_follows_from_places_rates_and_the_plan() -> None:
    run_s = 60 - STEP_S
    assert expected_end(100, Pace(run_s, 10), now=NOW) == NOW + 10 * 60 * SECOND
    assert expected_end(100, Pace(run_s, 10, per_s=0.1), now=NOW) == NOW + 1_000 * SECOND
    assert expected_end(100, Pace(None, 10), now=NOW) is None
    assert expected_end(0, Pace(None, 10), now=NOW) == NOW
    midnight = datetime(2026, 12, 1, tzinfo=UTC)
    assert expected_end(100, Pace(run_s, 10), now=NOW, per_day=(60, 40)) == midnight + DAY + 2 * 60 * SECOND
    assert expected_end(100, Pace(run_s, 10), now=NOW, per_day=(0, 0)) is None
    assert measured_end(30, done=10, since=NOW - HOUR, now=NOW) == NOW + 3 * HOUR
    assert measured_end(30, done=0, since=NOW - HOUR, now=NOW) is None
    day, live = uses(100, at_once=10, per_day=(60, 40), live=(500, 100))
    assert (day.room, day.adds, day.enough, live.room, live.adds, live.enough) == (20, 100, False, 400, 10, True)


@given(st.integers(0, 5_000), st.integers(1, 50), st.integers(1, 400), st.integers(0, 500))
def test_a_plan_never_makes_the_end_earlier(runs: int, at_once: int, limit: int, use: int) -> None:
    pace = Pace(5.0, at_once)
    free, bound = expected_end(runs, pace, now=NOW), expected_end(runs, pace, now=NOW, per_day=(limit, use))
    assert free is not None and bound is not None and bound >= free
    assert (bound - NOW) // DAY >= (runs - max(0, limit - use)) // limit - 1


def test_live_work_goes_first() -> None:
    calm = Live(pressed=False, next_due=NOW + 10 * SECOND, run_s=30.0)
    assert holds(calm, running=3, serial=False, now=NOW) == ""
    assert holds(calm, running=0, serial=True, now=NOW) == NEXT_IS_NEAR
    assert holds(calm, running=0, serial=True, now=NOW - 21 * SECOND) == ""
    assert holds(Live(False, NOW + 2 * SECOND, None), running=0, serial=True, now=NOW) == ""
    busy = Live(pressed=True, next_due=None, run_s=None)
    assert holds(busy, running=1, serial=False, now=NOW) == PRESSED
    assert holds(busy, running=0, serial=False, now=NOW) == "", "one at a time: nothing starves"
