"""A rule that is searched in vain, with extra and left-out instants: no instant is passed over, whichever way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.schedules import timing_steps
from apps.schedules.timing import next_after, spec_from_api
from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_sets import RecurrenceSet
from apps.schedules.timing_steps import Filters, StepCalendar
from tests.schedules.cases import utc

ZONE = "Europe/Berlin"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)  # the clock changes at the end of this month
END = BEGIN + timedelta(days=60)
JUMPS = 3  # a search gives up after so many, so that many do
HOURS = st.integers(0, 60 * 24 - 1).map(lambda hour: BEGIN + timedelta(hours=hour))
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


@settings(max_examples=100, derandomize=True, database=None)
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
        base = StepCalendar(step_h * 3600, int(BEGIN.timestamp()), filters, ZONE)
        made = RecurrenceSet(base, zone=ZONE, first=BEGIN, last=last, count=None, added=added, left_out=left_out)
        assert walked(made.next_after, BEGIN - timedelta(seconds=1), way=+1) == sorted(expected)
        assert walked(made.previous_before, END, way=-1) == sorted(expected - {END}, reverse=True)


def test_a_rule_that_has_ended_is_not_searched_on_for_years() -> None:
    """The hours of the rule are never those of its steps: a search gives up after years, past the end."""
    rule = {"rrule": "FREQ=HOURLY;INTERVAL=24;BYHOUR=5;UNTIL=20270101T000000Z", "dtstart": "2026-01-01T02:30:00"}
    spec = spec_from_api({"trigger": {**rule, "rdate": ["2026-02-01T02:30:00Z"]}}, now=utc("2026-01-01T00:00:00Z"))
    assert next_after(spec, utc("2026-01-05T00:00:00Z")) == utc("2026-02-01T02:30:00Z")
    assert next_after(spec, utc("2026-02-02T00:00:00Z")) is None
