"""A rule that is searched in vain, with extra and left-out instants: no instant is passed over, whichever way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.schedules import timing_steps
from apps.schedules.exclusion import Exclusion
from apps.schedules.recurrence import day_of
from apps.schedules.timing import next_after, spec_from_api
from apps.schedules.timing_business_days import ToBusinessDay
from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_moved import Clipped, ToOpening
from apps.schedules.timing_open import OpenTimes, Window
from apps.schedules.timing_sets import RecurrenceSet
from apps.schedules.timing_steps import Filters, StepCalendar
from tests.schedules.cases import utc

ZONE = "Europe/Berlin"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)  # the clock changes at the end of this month
END = BEGIN + timedelta(days=60)
JUMPS = 3  # a search gives up after so many, so that many do
HOURS = st.integers(0, 60 * 24 - 1).map(lambda hour: BEGIN + timedelta(hours=hour))
WINDOWS = [(Window(0, 86_400),), (Window(8 * 3600, 9 * 3600),), (Window(22 * 3600, 3 * 3600, (0, 3)),)]
FILTERS = st.builds(
    Filters,
    monthdays=st.lists(st.sampled_from([1, 2, 15, 28, -1]), max_size=2, unique=True).map(tuple),
    weekdays=st.lists(st.integers(0, 6), max_size=2, unique=True).map(tuple),
    hours=st.lists(st.integers(0, 23), max_size=3, unique=True).map(tuple),
)


def walked(ask: Callable[[datetime], datetime | None], at: datetime, *, way: int) -> list[datetime]:
    """All instants from here on, or back, within the two months: a search that gave up goes on from where it says."""
    found: list[datetime] = []
    while BEGIN - timedelta(days=1) <= at <= END:
        try:
            following = ask(at)
        except NotFoundYet as error:
            assert (error.searched_to - at) * way > timedelta(0), "it gets on"
            at = error.searched_to
            continue
        if following is None:
            break
        assert (following - at) * way > timedelta(0)
        found.append(following)
        at = following
    return [one for one in found if BEGIN <= one <= END]


def fits(at: datetime, filters: Filters) -> bool:
    local = at.astimezone(ZoneInfo(ZONE))
    last = (local.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    days = {day if day > 0 else last.day + 1 + day for day in filters.monthdays}
    return (
        (not days or local.day in days)
        and (not filters.weekdays or local.weekday() in filters.weekdays)
        and (not filters.hours or local.hour in filters.hours)
    )


def rare(step_h: int, filters: Filters, *, last: datetime | None = None, **more: Any) -> RecurrenceSet:
    base = StepCalendar(step_h * 3600, int(BEGIN.timestamp()), filters, ZONE)
    return RecurrenceSet(base, zone=ZONE, first=BEGIN, last=last, count=None, **more)


@settings(max_examples=80, derandomize=True, database=None)
@given(
    step_h=st.integers(1, 31), filters=FILTERS, last=st.none() | HOURS,
    added=st.lists(HOURS, max_size=4), left_out=st.lists(HOURS, max_size=3),
)  # fmt: skip
def test_every_instant_is_found_both_ways(
    step_h: int, filters: Filters, last: datetime | None, added: list[datetime], left_out: list[datetime]
) -> None:
    step = timedelta(hours=step_h)
    rule = [BEGIN + step * number for number in range(60 * 24 // step_h + 1)]
    expected = {at for at in rule if at <= END and (last is None or at <= last) and fits(at, filters)}
    expected = {at for at in expected | set(added) if at not in left_out}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing_steps, "JUMPS_MAX", JUMPS)
        made = rare(step_h, filters, last=last, added=added, left_out=left_out)
        assert walked(made.next_after, BEGIN - timedelta(seconds=1), way=+1) == sorted(expected)
        assert walked(made.previous_before, END, way=-1) == sorted(expected - {END}, reverse=True)


@settings(max_examples=60, derandomize=True, database=None)
@given(
    kind=st.sampled_from(["left out", "next opening", "business day after", "business day before"]),
    step_h=st.integers(1, 31), filters=FILTERS, added=st.lists(HOURS, max_size=4),
    closed=st.lists(st.integers(0, 59), max_size=25, unique=True), windows=st.sampled_from(WINDOWS),
)  # fmt: skip
def test_what_is_moved_is_found_both_ways(
    kind: str, step_h: int, filters: Filters, added: list[datetime], closed: list[int], windows: tuple[Window, ...]
) -> None:
    """Searches that give up change nothing of what runs, where closed times leave out or move what they find."""

    def found() -> tuple[list[datetime], list[datetime], int]:
        exclusion = Exclusion(dates=tuple(sorted(day_of(BEGIN.date()) + day for day in closed)))
        made, open_times = rare(step_h, filters, added=added), OpenTimes(windows, exclusion, ZONE)
        calendar: Any = Clipped(made, open_times)
        if kind == "next opening":
            calendar = ToOpening(made, open_times)
        elif kind.startswith("business"):
            calendar = ToBusinessDay(made, exclusion, +1 if kind.endswith("after") else -1, ZONE)
        before = BEGIN - timedelta(seconds=1)
        forward, back = walked(calendar.next_after, before, way=+1), walked(calendar.previous_before, END, way=-1)
        return forward, back, calendar.count(before, END)

    expected = found()
    forward, back, count = expected
    assert [at for at in forward if at < END] == back[::-1] and len(forward) == count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing_steps, "JUMPS_MAX", JUMPS)
        assert found() == expected


def test_a_rule_that_has_ended_is_not_searched_on_for_years() -> None:
    """The hours of the rule are never those of its steps: a search gives up after years, past the end."""
    rule = {"rrule": "FREQ=HOURLY;INTERVAL=24;BYHOUR=5;UNTIL=20270101T000000Z", "dtstart": "2026-01-01T02:30:00"}
    spec = spec_from_api({"trigger": {**rule, "rdate": ["2026-02-01T02:30:00Z"]}}, now=utc("2026-01-01T00:00:00Z"))
    assert next_after(spec, utc("2026-01-05T00:00:00Z")) == utc("2026-02-01T02:30:00Z")
    assert next_after(spec, utc("2026-02-02T00:00:00Z")) is None
