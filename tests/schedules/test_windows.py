"""Daily windows and excluded days: brute force over every minute, moves, what is left out, iCalendar import."""

import random
import time
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cache, partial
from typing import Any

import pytest

from apps.schedules.calendar_input import exclusion_of, read_calendar
from apps.schedules.exclusion import Exclusion
from apps.schedules.recurrence import day_of, weekday_of
from apps.schedules.timing import (
    Spec,
    TimingInvalid,
    count_between,
    latest_between,
    load_zone,
    next_after,
    occurrences,
    previous_before,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from apps.schedules.timing_moved import flags_of
from apps.schedules.timing_preview import left_out, preview
from kernel.errors import InvalidInput
from tests.schedules.cases import text, utc

NOW = utc("2026-03-01T00:00:00Z")
END = utc("2026-04-20T00:00:00Z")
ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"]
HOLIDAYS = Exclusion(
    dates=tuple(day_of(date.fromisoformat(day)) for day in ("2026-03-06", "2026-03-09", "2026-04-03", "2026-04-06"))
)
WEEKDAYS_ONLY = Exclusion(dates=HOLIDAYS.dates, weekdays=(5, 6))
OFFICE = [{"from": "08:00", "to": "18:00", "days": ["mon", "tue", "wed", "thu", "fri"]}]
NIGHT = [{"from": "22:00", "to": "02:30"}, {"from": "12:00", "to": "12:30", "days": ["sun"]}]
# The first one is open until the evening after, when the second one has closed already.
OVERLAP = [{"from": "20:00", "to": "19:00"}, {"from": "01:00", "to": "02:30"}]
TRIGGERS = [{"cron": "17 * * * *"}, {"cron": "30 2,9 * * *"}, {"every_s": 3600}, {"rrule": "FREQ=DAILY;BYHOUR=2,16"}]


def made(trigger: Any, exclusion: Exclusion | None = None, **more: Any) -> Spec:
    calendar = {} if exclusion is None else {"calendar": "holidays"}
    return spec_from_api(
        {"trigger": trigger, **calendar, **more},
        now=NOW,
        exclusion_of=lambda _: None if exclusion is None else ("1", exclusion),
    )


def is_open(windows: list[dict[str, Any]], wall: datetime) -> bool:
    """Written anew from the docs: the minute is inside of a window, which may begin on the day before."""
    for window in windows:
        days = [
            ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(day) for day in window.get("days", ())
        ] or range(7)
        clock = f"{wall:%H:%M}"
        low, high = window["from"], window["to"]
        if low <= high:
            if low <= clock <= high and wall.weekday() in days:
                return True
        elif (clock >= low and wall.weekday() in days) or (clock <= high and (wall.weekday() - 1) % 7 in days):
            return True
    return False


def is_open_at(windows: list[dict[str, Any]], at: datetime, zone: str) -> bool:
    """The same of an instant: a window whose end the clock skips closes with the first instant after the gap."""
    wall = at.astimezone(load_zone(zone)).replace(tzinfo=None)
    skipped = (at - timedelta(minutes=1)).astimezone(load_zone(zone)).replace(tzinfo=None) + timedelta(minutes=1)
    while skipped < wall:
        if any(window["to"] == f"{skipped:%H:%M}" and is_open([window], skipped) for window in windows):
            return True
        skipped += timedelta(minutes=1)
    return is_open(windows, wall)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("trigger", TRIGGERS, ids=str)
@pytest.mark.parametrize("windows", [OFFICE, NIGHT, OVERLAP], ids=["office", "night", "overlap"])
@pytest.mark.parametrize("outside", ["skip", "next_opening"])
def test_windows_are_what_brute_force_finds(zone: str, trigger: Any, windows: Any, outside: str) -> None:
    start, end = utc("2026-03-26T00:00:00Z"), utc("2026-04-08T00:00:00Z")
    spec = made(trigger, timezone=zone, windows=windows, outside=outside)
    bare = replace(spec, windows=(), outside="skip")
    opened = cache(partial(is_open_at, windows, zone=zone))  # many wait for the same opening
    expected = set()
    for at in occurrences(bare, after=start, until=end + timedelta(days=8), limit=10_000):
        moved = at
        while not opened(moved):
            if outside == "skip":
                break
            moved = (moved + timedelta(minutes=1)).replace(second=0)
        else:
            expected.add(moved)
    wanted = sorted(at for at in expected if at <= end)
    # What was closed before the start runs at the first opening after it.
    found = list(occurrences(spec, after=start, until=end, limit=10_000))
    carried = [at for at in found if at not in expected]
    assert len(carried) <= 1 and (not carried or carried == found[:1])
    assert [at for at in found if at not in carried] == wanted
    agree(spec, found, start, end)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("trigger", [*TRIGGERS, {"cron": "0 9 5-10 * *"}], ids=str)
@pytest.mark.parametrize("exclusion", [HOLIDAYS, WEEKDAYS_ONLY], ids=["holidays", "weekdays"])
@pytest.mark.parametrize("moves", ["skip", "next_business_day", "previous_business_day"])
def test_excluded_days_are_what_brute_force_finds(zone: str, trigger: Any, exclusion: Exclusion, moves: str) -> None:
    spec = made(trigger, exclusion, timezone=zone, on_excluded=moves)
    bare = replace(spec, exclusion=None, on_excluded="skip")
    expected = set()
    for at in occurrences(bare, after=NOW - timedelta(days=9), until=END + timedelta(days=9), limit=20_000):
        wall = at.astimezone(load_zone(zone))
        day = day_of(wall.date())
        if not exclusion.excludes(day):
            expected.add(at)
        elif moves != "skip":
            step = 1 if moves == "next_business_day" else -1
            while exclusion.excludes(day) or weekday_of(day) in (5, 6):
                day += step
            clock = wall.time()
            if "dst_gap_moved" in flags_of(bare.calendar(), at):  # it is the trigger's time that is kept
                clock = clock.replace(hour=2, minute=30 if "cron" in trigger else 0)
            kept = datetime.combine(date(1970, 1, 1) + timedelta(days=day), clock)
            local = kept.replace(tzinfo=load_zone(zone))
            expected.add(datetime.fromtimestamp(local.timestamp(), NOW.tzinfo))
    found = list(occurrences(spec, after=NOW, until=END, limit=20_000))
    assert found == sorted(at for at in expected if NOW < at <= END)
    agree(spec, found, NOW, END)


def agree(spec: Spec, found: list[datetime], start: datetime, end: datetime) -> None:
    """Next, previous, latest and count say the same of a spec; its text brings it back."""
    assert found == sorted(set(found))
    pick = random.Random(len(found))
    for index in sorted(pick.sample(range(1, len(found)), min(25, len(found) - 1))):
        before, at = found[index - 1], found[index]
        for inside in (before, before + (at - before) / 2, at - timedelta(microseconds=1)):
            assert next_after(spec, inside) == at
        for inside in (at, before + (at - before) / 2, before + timedelta(microseconds=1)):
            assert previous_before(spec, inside) == before
    assert count_between(spec, after=start, until=end) == len(found)
    middle = found[len(found) // 2]
    assert count_between(spec, after=middle, until=end) == len(found) - len(found) // 2 - 1
    assert latest_between(spec, after=start, until=end, limit=3) == (found[-3:], len(found))
    assert spec_from_json(spec_to_json(spec)) == spec


def test_the_end_of_a_window_is_inclusive_and_2400_is_the_next_day() -> None:
    spec = made({"every_s": 1}, windows=[{"from": "09:00", "to": "09:00:02"}, {"from": "23:59:58", "to": "24:00"}])
    assert [text(at)[11:19] for at in occurrences(spec, after=NOW, limit=6)] == [
        "09:00:00", "09:00:01", "09:00:02", "23:59:58", "23:59:59", "09:00:00",
    ]  # fmt: skip


def test_windows_and_calendar_together_open_on_business_days_only() -> None:
    spec = made({"cron": "0 20 * * *"}, WEEKDAYS_ONLY, windows=OFFICE, outside="next_opening")
    shown = preview(spec, after=utc("2026-03-04T00:00:00Z"), count=3)
    # Thursday evening; Friday and Monday are excluded.
    assert [text(one.at) for one in shown] == ["2026-03-04T08:00:00Z", "2026-03-05T08:00:00Z", "2026-03-10T08:00:00Z"]
    assert {flag for one in shown for flag in one.flags} == {"moved_to_opening"}


@pytest.mark.parametrize("outside", ["skip", "next_opening"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_window_past_midnight_does_not_reach_into_an_excluded_day(zone: str, outside: str) -> None:
    # Friday and Monday are excluded; in Berlin the clock changes in the night to the second one.
    closed = Exclusion(dates=tuple(day_of(date(2026, 3, day)) for day in (6, 29)))
    spec = made({"cron": "30 1,23 * * *"}, closed, timezone=zone, windows=NIGHT[:1], outside=outside, jitter_s=7200)
    for start, days in (("2026-03-05", (5, 7, 8)), ("2026-03-28", (28, 30, 31))):
        after = utc(f"{start}T12:00:00Z")
        shown = preview(spec, after=after, count=4)
        assert [one.nominal_local[8:16] for one in shown] == [
            f"{days[0]:02}T23:30", f"{days[1]:02}T{'22:00' if outside == 'next_opening' else '23:30'}",
            *([f"{days[1]:02}T23:30"] if outside == "next_opening" else []), f"{days[2]:02}T01:30",
            *([f"{days[2]:02}T23:30"] if outside == "skip" else []),
        ]  # fmt: skip
        assert shown[0].at.astimezone(load_zone(zone)).day == days[0], "nor does its jitter"
        ends = shown[-1].nominal_at
        left = {one.nominal_at for one in left_out(spec, after=after, until=ends)}
        assert left and not left & {one.nominal_at for one in shown}
        agree(spec, list(occurrences(spec, after=after, until=ends + timedelta(days=9), limit=99)), after,
              ends + timedelta(days=9))  # fmt: skip


def test_preview_says_what_was_moved_and_what_is_left_out() -> None:
    moved = made({"cron": "0 9 6 * *"}, HOLIDAYS, on_excluded="next_business_day")
    [one] = preview(moved, after=NOW, count=1)
    assert (text(one.at), one.flags) == ("2026-03-10T09:00:00Z", ["moved_from_excluded"])
    assert one.words == ["moved here from a day that the calendar excludes"]
    skipped = made({"cron": "0 9,23 * * *"}, HOLIDAYS, windows=OFFICE)
    found = left_out(skipped, after=utc("2026-03-05T00:00:00Z"), until=utc("2026-03-07T00:00:00Z"))
    assert [(text(one.nominal_at), one.flags) for one in found] == [
        ("2026-03-05T23:00:00Z", ["outside_window"]), ("2026-03-06T09:00:00Z", ["excluded"]),
        ("2026-03-06T23:00:00Z", ["excluded"]),
    ]  # fmt: skip
    both = made({"cron": "0 9,23 6 * *"}, HOLIDAYS, windows=OFFICE, on_excluded="next_business_day")
    found = left_out(both, after=utc("2026-03-05T12:00:00Z"), until=utc("2026-03-10T23:30:00Z"))
    assert [(text(one.nominal_at)[:10], one.flags) for one in found if "moved_from_excluded" in one.flags] == [
        ("2026-03-10", ["moved_from_excluded", "outside_window"]),
    ]  # fmt: skip
    gap = made({"cron": "30 2 * * *"}, timezone="Europe/Berlin", dst_gap="skip")
    [none] = left_out(gap, after=utc("2026-03-28T12:00:00Z"), until=utc("2026-03-30T12:00:00Z"))
    assert none.flags == ["dst_gap_skipped"]


@pytest.mark.parametrize(
    ("more", "pointers"),
    [
        ({"windows": []}, {"/windows"}),
        ({"windows": [{"from": "8", "to": "18:00"}]}, {"/windows/0/from"}),
        ({"windows": [{"from": "08:00", "to": "25:00"}]}, {"/windows/0/to"}),
        ({"windows": [{"from": "08:00", "to": "08:00"}]}, {"/windows/0"}),
        ({"windows": [{"from": "08:00", "to": "09:00", "days": ["someday"]}]}, {"/windows/0/days/0"}),
        ({"windows": [{"from": "08:00", "to": "09:00", "days": ["monkey"]}]}, {"/windows/0/days/0"}),
        ({"windows": [{"from": "٠٨:00", "to": "09:00"}]}, {"/windows/0/from"}),
        ({"windows": [{"from": "8", "to": "18:00"}], "outside": "next_opening"}, {"/windows/0/from"}),
        ({"windows": [{"from": "08:00", "to": "09:00", "zone": "UTC"}]}, {"/windows/0"}),
        ({"windows": [{"from": "08:00", "to": "09:00"}]}, {"/trigger/cron"}),  # 03:00 never falls inside
        ({"outside": "next_opening"}, {"/outside"}),
        ({"on_excluded": "next_business_day"}, {"/on_excluded"}),
        ({"calendar": "nowhere"}, {"/calendar"}),
    ],
)
def test_refused(more: Any, pointers: set[str]) -> None:
    with pytest.raises(TimingInvalid) as caught:
        spec_from_api({"trigger": {"cron": "0 3 * * *"}, **more}, now=NOW)
    assert {error.pointer for error in caught.value.errors} == pointers


def test_moving_ends_with_the_last_day_that_is_known() -> None:
    last = utc("2499-12-31T00:00:00Z")
    spec = made({"cron": "0 9 * * *"}, HOLIDAYS, on_excluded="next_business_day", timezone="America/New_York")
    assert list(occurrences(spec, after=last, until=None, limit=5)) == [utc("2499-12-31T14:00:00Z")]
    ends = made({"rrule": "FREQ=DAILY;COUNT=70"}, HOLIDAYS, on_excluded="next_business_day", max_runs=100)
    # The first one is not after NOW, and the four that are moved fall on others.
    assert len(list(occurrences(ends, after=NOW, until=None, limit=200))) == 65


def test_moving_what_runs_all_the_time_is_refused() -> None:
    with pytest.raises(TimingInvalid, match="at most 100 runs a day"):
        made({"cron": "* * * * *"}, HOLIDAYS, on_excluded="next_business_day")


@pytest.mark.parametrize(
    "trigger",
    [
        {"cron": "* * * * * *"},
        {"every_s": 1},
        {"cron": "0 3 29 2 *"},
        {"every": {"months": 1}, "anchor": "2026-02-01T03:00"},
    ],
    ids=str,
)
def test_a_next_time_is_quick_whatever_is_combined(trigger: Any) -> None:
    spec = made(
        trigger,
        WEEKDAYS_ONLY,
        windows=[{"from": "02:00", "to": "04:00", "days": ["sun", "mon"]}],
        timezone="Europe/Berlin",
    )
    begun = time.process_time()
    found = next_after(spec, utc("2026-03-07T00:00:00Z"))
    took = time.process_time() - begun
    assert took < 0.05 and (found is None or next_after(spec, found - timedelta(microseconds=1)) == found)


ICAL = """BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VEVENT
SUMMARY:Shutdown
DTSTART;VALUE=DATE:20261224
DTEND;VALUE=DATE:20270102
END:VEVENT
BEGIN:VEVENT
SUMMARY:Labour Day
DTSTART;VALUE=DATE:20200501
RRULE:FREQ=YEARLY
BEGIN:VALARM
TRIGGER:-PT15M
END:VALARM
END:VEVENT
BEGIN:VEVENT
SUMMARY:Thanksgiving of
  some years
DTSTART;TZID=America/New_York:20261126T090000
DTEND;TZID=America/New_York:20261126T170000
RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;COUNT=2
EXDATE;TZID=America/New_York:20271125T090000
END:VEVENT
BEGIN:VEVENT
SUMMARY:Never mind
STATUS:CANCELLED
DTSTART;VALUE=DATE:20260310
END:VEVENT
END:VCALENDAR
"""


def test_an_icalendar_file_becomes_days() -> None:
    form = read_calendar({"name": "holidays", "ical": ICAL.replace("\n", "\r\n"), "dates": ["2026-03-02"]})
    found = exclusion_of(form.exclusion)
    days = {name: found.excludes(day_of(date.fromisoformat(name))) for name in (
        "2026-03-02", "2026-12-23", "2026-12-24", "2027-01-01", "2027-01-02", "2026-05-01", "2031-05-01", "2019-05-01",
        "2026-11-26", "2027-11-25", "2028-11-23", "2026-03-10",
    )}  # fmt: skip
    assert [name for name, excluded in days.items() if excluded] == [
        "2026-03-02", "2026-12-24", "2027-01-01", "2026-05-01", "2031-05-01", "2026-11-26",
    ]  # fmt: skip
    assert exclusion_of(read_calendar({"name": "again", **form.days}).exclusion) == found


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"ical": "hello"}, "/ical"),
        ({"ical": "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101\n"}, "/ical"),
        ({"ical": ICAL.replace("20200501\nRRULE:FREQ=YEARLY", "20200501\nDTEND:20200503\nRRULE:FREQ=YEARLY")}, "/ical"),
        ({"ical": ICAL.replace("FREQ=YEARLY\nBEGIN", "FREQ=SECONDLY\nBEGIN")}, "/ical"),
        ({"ical": "x" * 600_000}, "/ical"),
        ({"dates": ["2026-02-30"]}, "/dates/0"),
        ({"dates": ["2026-W01-1"]}, "/dates/0"),
        ({"dates": "2026-02-20"}, "/dates"),
        ({"ranges": [{"from": "2026-02-20", "to": "2026-02-19"}]}, "/ranges/0"),
        ({"ranges": [{"from": "2026-02-20"}]}, "/ranges/0"),
        ({"rrules": ["FREQ=HOURLY"]}, "/rrules/0"),
        ({"rrules": [{"rrule": "FREQ=DAILY", "until": 1}]}, "/rrules/0"),
        ({"weekdays": ["mon", "tue", "wed", "thu", "fri"]}, "/weekdays"),
        ({"weekdays": ["holiday"]}, "/weekdays/0"),
    ],
)
def test_a_calendar_that_can_not_be_is_refused(body: Any, pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_calendar({"name": "x", **body})
    assert pointer in {error.pointer for error in caught.value.errors}
