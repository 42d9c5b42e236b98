"""Which slot of a PeriodicTask is due: pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from workers.beat_timing import Crontab, Unservable, When, newest_due, next_due

NOW = datetime(2026, 3, 30, 12, 0, 5, tzinfo=UTC)  # a Monday; Berlin went to summer time the day before
BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text + "+00:00")


def cron(*fields: str, zone: str = "UTC", since: datetime = BEFORE, **more: Any) -> When:
    minute, hour, day, month, weekday = fields
    return When(since=since, crontab=Crontab((minute, hour, day, month, weekday), zone), **more)


@pytest.mark.parametrize(
    ("fields", "zone", "newest", "following"),
    [
        (("*/15", "*", "*", "*", "*"), "UTC", "2026-03-30 12:00:00", "2026-03-30 12:15:00"),
        (("30", "2", "*", "*", "*"), "Europe/Berlin", "2026-03-30 00:30:00", "2026-03-31 00:30:00"),
        # Celery wants day of month and weekday to match, unlike cron: Friday the 13th.
        (("0", "9", "13", "*", "fri"), "Europe/Berlin", "2026-03-13 08:00:00", "2026-11-13 08:00:00"),
        (("*", "*", "29", "2", "mon"), "UTC", None, "2044-02-29 00:00:00"),
        (("0", "0", "*", "*", "sat-sun"), "UTC", "2026-03-29 00:00:00", "2026-04-04 00:00:00"),
        (("0", "0", "*", "*", "7"), "UTC", "2026-03-29 00:00:00", "2026-04-05 00:00:00"),
        (("0", "0", "1", "jan, jul", "*"), "UTC", None, "2026-07-01 00:00:00"),
        (("0", "0", "1", "*", "0-6"), "UTC", "2026-03-01 00:00:00", "2026-04-01 00:00:00"),
        (("5", "4", "*/2", "*", "mon"), "UTC", "2026-03-23 04:05:00", "2026-04-13 04:05:00"),
    ],
)
def test_crontab_fields_mean_what_they_mean_in_celery(
    fields: tuple[str, ...], zone: str, newest: str | None, following: str
) -> None:
    assert newest_due(cron(*fields, zone=zone), now=NOW) == (at(newest) if newest else None)
    assert next_due(cron(*fields, zone=zone), now=NOW) == at(following)


def test_clock_changes_follow_the_platforms_rules() -> None:
    """02:30 does not exist on 29 March in Berlin: the slot is the first instant after the gap. 02:30 on 25 October
    exists twice: the slot is in the first pass. A job that starts with * follows real time."""
    fixed = cron("30", "2", "*", "*", "*", zone="Europe/Berlin")
    assert newest_due(fixed, now=at("2026-03-29 01:00:00")) == at("2026-03-29 01:00:00")
    assert newest_due(fixed, now=at("2026-10-25 02:00:00")) == at("2026-10-25 00:30:00")
    real = cron("30", "*", "*", "*", "*", zone="Europe/Berlin")
    assert newest_due(real, now=at("2026-10-25 02:00:00")) == at("2026-10-25 01:30:00")


@pytest.mark.parametrize(
    "fields",
    [
        ("61", "*", "*", "*", "*"), ("x", "*", "*", "*", "*"), ("", "*", "*", "*", "*"), ("*/0", "*", "*", "*", "*"),
        ("0", "0", "31", "2", "*"), ("*", "*", "*", "*", "-"), ("*", "*", "0", "*", "*"), ("*", "*", "*", "*", "8"),
        ("@daily", "*", "*", "*", "*"), ("\u0661", "*", "*", "*", "L"),
    ],
)  # fmt: skip
def test_a_crontab_that_nobody_can_read_is_refused_with_a_reason(fields: tuple[str, ...]) -> None:
    with pytest.raises(Unservable, match=r"\w"):
        newest_due(cron(*fields), now=NOW)


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(Unservable, match="Mars"):
        newest_due(cron("*", "*", "*", "*", "*", zone="Mars/Olympus"), now=NOW)


def test_of_several_missed_slots_the_newest_counts() -> None:
    last = at("2026-03-25 02:00:00")
    assert newest_due(cron("0", "2", "*", "*", "*", last=last), now=NOW) == at("2026-03-30 02:00:00")
    assert newest_due(cron("0", "2", "*", "*", "*", last=at("2026-03-30 02:00:00")), now=NOW) is None


def test_slots_before_the_last_change_do_not_count() -> None:
    """Switched on again after a week, or moved to an hour that is over today: no debt."""
    assert newest_due(cron("0", "2", "*", "*", "*", since=at("2026-03-30 11:00:00")), now=NOW) is None


def test_an_interval_counts_from_its_last_slot() -> None:
    when = When(since=BEFORE, last=at("2026-03-30 11:00:07"), every=(10, "minutes"))
    assert newest_due(when, now=NOW) == at("2026-03-30 11:50:07")
    assert next_due(when, now=NOW) == at("2026-03-30 12:00:07")


def test_an_interval_of_broken_seconds_keeps_its_length() -> None:
    when = When(since=BEFORE, last=at("2026-03-30 12:00:02.500"), every=(2_500_000, "microseconds"))
    assert next_due(when, now=NOW) == at("2026-03-30 12:00:07.500")


def test_an_interval_without_slots_begins_one_interval_after_the_change() -> None:
    when = When(since=at("2026-03-30 11:59:00.250"), every=(2, "minutes"))
    assert newest_due(when, now=NOW) is None
    assert next_due(when, now=NOW) == at("2026-03-30 12:01:00")
    assert newest_due(when, now=NOW + timedelta(minutes=1)) == at("2026-03-30 12:01:00")


def test_an_interval_begins_at_its_start_time() -> None:
    start = at("2026-03-30 12:00:00")
    when = When(since=BEFORE, every=(3, "days"), start_at=start)
    assert newest_due(when, now=start - timedelta(seconds=1)) is None
    assert next_due(when, now=start - DAY) == start
    assert newest_due(when, now=NOW) == start
    assert next_due(when, now=NOW) == start + 3 * DAY


def test_a_crontab_begins_with_the_first_slot_from_its_start_time_on() -> None:
    when = cron("0", "*", "*", "*", "*", start_at=at("2026-03-30 12:00:00"))
    assert newest_due(when, now=NOW) == at("2026-03-30 12:00:00")
    late = cron("0", "*", "*", "*", "*", start_at=at("2026-03-30 12:00:01"))
    assert newest_due(late, now=NOW) is None


def test_a_clocked_task_has_one_slot_also_when_its_time_was_over_when_it_was_made() -> None:
    clocked = at("2026-03-30 11:00:00")
    assert newest_due(When(since=NOW, clocked_at=clocked), now=NOW) == clocked
    assert newest_due(When(since=NOW, clocked_at=clocked, last=clocked), now=NOW) is None
    assert newest_due(When(since=NOW, clocked_at=NOW + DAY), now=NOW) is None
    assert next_due(When(since=NOW, clocked_at=NOW + DAY), now=NOW) == NOW + DAY
    assert next_due(When(since=NOW, clocked_at=clocked), now=NOW) is None


def test_nothing_is_due_after_the_end() -> None:
    assert newest_due(cron("*", "*", "*", "*", "*", expires_at=NOW), now=NOW) is None
    assert next_due(cron("0", "13", "*", "*", "*", expires_at=at("2026-03-30 13:00:00")), now=NOW) is None
    assert newest_due(cron("0", "*", "*", "*", "*", expire_s=5), now=NOW) is None
    assert newest_due(cron("0", "*", "*", "*", "*", expire_s=6), now=NOW) == at("2026-03-30 12:00:00")


@pytest.mark.parametrize(
    "when",
    [
        When(since=BEFORE), When(since=BEFORE, solar=True), When(since=BEFORE, every=(0, "days")),
        When(since=BEFORE, every=(1, "fortnights")), When(since=BEFORE, every=(10**9, "days")),
    ],
)  # fmt: skip
def test_a_task_without_a_schedule_that_can_be_served_is_refused(when: When) -> None:
    with pytest.raises(Unservable):
        newest_due(when, now=NOW)


def test_what_is_next_becomes_what_is_due() -> None:
    """Walking a year from slot to slot meets the same instants as looking back from each of them."""
    for fields, zone in [(("*/20", "2,3", "*/3", "*", "*"), "Europe/Berlin"), (("7", "1", "1-14", "*", "1,3"), "UTC")]:
        now = BEFORE
        while now < BEFORE + 365 * DAY:
            slot = next_due(cron(*fields, zone=zone), now=now)
            assert slot is not None and slot > now
            assert newest_due(cron(*fields, zone=zone, last=now), now=slot) == slot
            assert newest_due(cron(*fields, zone=zone, last=now), now=slot - timedelta(seconds=1)) is None
            now = slot
