"""cronsim and croniter as second opinions where the rules agree; docs/reference/cron-differences.md lists the rest."""

import re
from datetime import UTC, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apps.schedules.timing import Cron, Spec, TimingInvalid, load_zone, next_after, occurrences
from apps.schedules.timing_zones import EPOCH, zone_offsets
from tests.schedules.cases import utc
from tests.schedules.test_timing_walk import FROM_S, UNTIL_S, moments, whole_minute
from tests.schedules.walk import Job, jobs

ONE_VALUE_RANGE = re.compile(r"\b(\d+)-\1\b")


def spec_of(job: Job, zone: str) -> Spec:
    spec = Spec(Cron((job.text,)), zone)
    try:
        spec.calendar()
    except TimingInvalid:
        assume(False)
    return spec


def changes_at_whole_hours(zone: str, start: datetime, end: datetime) -> bool:
    """Every clock change in between is one or two hours, at a whole hour: cronsim errs at others (see the docs)."""
    offsets = zone_offsets(zone)
    first, last = (offsets.index(int((at - EPOCH).total_seconds())) for at in (start, end))
    return all(
        abs(offsets.jump(index)) in (3600, 7200) and (offsets.starts[index] + offsets.offsets[index]) % 3600 == 0
        for index in range(first + 1, last + 1)
    )


def has_midnight(zone: ZoneInfo, at: datetime) -> bool:
    """Whether the day of this instant begins at 00:00 there."""
    midnight = datetime.combine(at.astimezone(zone).date(), time(), tzinfo=zone)
    return midnight.astimezone(UTC).astimezone(zone).hour == 0


def test_a_day_that_begins_at_one_has_its_runs() -> None:
    """Found by comparing: cronsim goes from day to day by midnights, and this day has none."""
    spec = Spec(Cron(("* 1 1 * *",)), "Asia/Srednekolymsk")
    assert next_after(spec, utc("1981-03-31T12:59:00Z")) == utc("1981-03-31T13:00:00Z")


@settings(max_examples=300)
@given(job=jobs(), moment=moments())
def test_cronsim_agrees(job: Job, moment: tuple[str, datetime]) -> None:
    name, at = moment
    zone = load_zone(name)
    assume(not ONE_VALUE_RANGE.search(job.text))
    assume(at.astimezone(zone).fold == 0)  # inside a second pass cronsim answers with a past instant
    ours = list(occurrences(spec_of(job, name), after=at, limit=5))
    assume(len(ours) == 5 and changes_at_whole_hours(name, at - timedelta(days=1), ours[-1]))
    assume(all(has_midnight(zone, each) for each in ours))  # where a day begins at 01:00 cronsim leaves it out
    theirs = list(islice(CronSim(job.text, at.astimezone(zone)), 5))
    assume(all(each.astimezone(UTC).astimezone(zone).hour == each.hour for each in theirs))  # no time that was skipped
    assert [each.astimezone(UTC) for each in theirs] == ours


@settings(max_examples=200)
@given(job=jobs(), at=st.integers(FROM_S, UNTIL_S).map(whole_minute))
def test_croniter_agrees_in_utc(job: Job, at: datetime) -> None:
    assume(not ONE_VALUE_RANGE.search(job.text))
    assume(
        not re.search(r"(^|,)\d/", job.weekday.text)
    )  # n/step on weekdays ends with Saturday there, with Sunday here
    ours = list(occurrences(spec_of(job, "UTC"), after=at, limit=5))
    peer = croniter(job.text, at, implement_cron_bug=True, max_years_between_matches=60)
    assert [peer.get_next(datetime) for _ in range(5)] == ours


@pytest.mark.parametrize(
    ("text", "zone", "after", "ours", "cronsim"),
    [  # what docs/reference/cron-differences.md says about cronsim
        ("5-5/3 * * * *", "UTC", "2026-01-01T00:06:00Z", "2026-01-01T01:05:00Z", "2026-01-01T00:08:00Z"),
        ("* 0-11/7 * * *", "America/Caracas", "2007-12-09T07:01:00Z", "2007-12-09T11:30:00Z", "2007-12-09T12:00:00Z"),
        ("0 12 * * 5", "Pacific/Apia", "2011-12-24T00:00:00Z", "2012-01-05T22:00:00Z", "2011-12-30T10:00:00Z"),
        ("0 3 * * *", "Europe/Berlin", "2026-10-25T01:20:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:20:00Z", "2026-10-26T01:30:00Z", "2026-10-25T00:30:00Z"),
    ],
)
def test_known_differences_from_cronsim(text: str, zone: str, after: str, ours: str, cronsim: str) -> None:
    start = utc(after)
    assert next_after(Spec(Cron((text,)), zone), start) == utc(ours)
    assert next(CronSim(text, start.astimezone(load_zone(zone)))).astimezone(UTC) == utc(cronsim)


@pytest.mark.parametrize(
    ("text", "zone", "after", "ours", "theirs"),
    [  # and about croniter
        ("0 0 15 * */3", "UTC", "2024-12-31T23:59:00Z", "2025-01-15T00:00:00Z", "2025-01-01T00:00:00Z"),
        ("0 2 * * *", "Europe/Berlin", "2023-10-29T00:00:00Z", "2023-10-30T01:00:00Z", "2023-10-29T01:00:00Z"),
        ("*/30 2 * * *", "America/New_York", "2024-03-09T12:00:00Z", "2024-03-11T06:00:00Z", "2024-03-10T07:00:00Z"),
        ("0 0 * * 5/2", "UTC", "2026-07-04T12:00:00Z", "2026-07-05T00:00:00Z", "2026-07-10T00:00:00Z"),
        ("5-5 * * * *", "UTC", "2026-07-04T12:30:00Z", "2026-07-04T13:05:00Z", "2026-07-04T12:31:00Z"),
    ],
)
def test_known_differences_from_croniter(text: str, zone: str, after: str, ours: str, theirs: str) -> None:
    start = utc(after)
    assert next_after(Spec(Cron((text,)), zone), start) == utc(ours)
    assert croniter(text, start.astimezone(load_zone(zone))).get_next(datetime).astimezone(UTC) == utc(theirs)
