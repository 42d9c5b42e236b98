"""Days that come from an iCalendar file: zones, repetitions, what was moved or left out, and what is refused."""

import time
from datetime import date, timedelta

import pytest

from apps.schedules.calendar_input import exclusion_of, read_calendar
from apps.schedules.icalendar import MAX_INSTANCES, read_ical
from apps.schedules.icalendar_text import IcalFault
from apps.schedules.recurrence import day_of
from kernel.errors import InvalidInput

FIRST, LAST = date(2026, 12, 1), date(2026, 12, 12)


def ical(*events: str) -> str:
    """A calendar of events, each given by its lines."""
    parts = [f"BEGIN:VEVENT\nUID:{number}\n{event}\nEND:VEVENT\n" for number, event in enumerate(events)]
    return f"BEGIN:VCALENDAR\n{''.join(parts)}END:VCALENDAR\n"


def excluded(text: str) -> list[int]:
    """The days of December 2026 up to the twelfth that the file excludes."""
    found = exclusion_of(read_calendar({"name": "x", "weekend": [], "ical": text}).exclusion)
    return [day.day for n in range(12) if found.excludes(day_of(day := FIRST + timedelta(days=n)))]


@pytest.mark.parametrize(
    ("event", "days"),
    [
        ("DTSTART:20261203T080000Z", [3]),
        ("DTSTART;VALUE=DATE:20261203\nDURATION:P2D", [3, 4]),
        ("DTSTART;TZID=America/New_York:20261203T220000\nDURATION:PT3H", [3, 4]),
        ("DTSTART;TZID=America/New_York:20261203T220000\nDTEND:20261204T050000Z", [3]),  # midnight there
        ('DTSTART;X-NOTE="a:b;c";TZID=Europe/Berlin:20261203T080000', [3]),
    ],
)
def test_an_event_excludes_the_days_that_it_touches_in_its_own_zone(event: str, days: list[int]) -> None:
    assert excluded(ical(event)) == days


@pytest.mark.parametrize(
    ("event", "days"),
    [
        # UNTIL is an instant; which local day is the last depends on the event's zone and time of day.
        ("DTSTART;TZID=America/New_York:20261201T220000\nRRULE:FREQ=DAILY;UNTIL=20261204T030000Z", [1, 2, 3]),
        ("DTSTART;TZID=America/New_York:20261201T220000\nRRULE:FREQ=DAILY;UNTIL=20261204T025959Z", [1, 2]),
        ("DTSTART;TZID=Asia/Tokyo:20261201T080000\nRRULE:FREQ=DAILY;UNTIL=20261202T230000Z", [1, 2, 3]),
        ("DTSTART:20261201T080000Z\nRRULE:FREQ=DAILY;UNTIL=20261203T080000Z", [1, 2, 3]),
        ("DTSTART:20261201T080000Z\nRRULE:FREQ=DAILY;UNTIL=20261203T075959Z", [1, 2]),
        ("DTSTART;VALUE=DATE:20261201\nRRULE:FREQ=DAILY;UNTIL=20261203", [1, 2, 3]),
        ("DTSTART;VALUE=DATE:20261201\nRRULE:FREQ=DAILY;INTERVAL=2;COUNT=3", [1, 3, 5]),
    ],
)
def test_a_repetition_ends_in_the_events_own_zone(event: str, days: list[int]) -> None:
    assert excluded(ical(event)) == days


@pytest.mark.parametrize(
    ("lines", "days"),
    [
        ("RRULE:FREQ=DAILY;COUNT=4\nEXDATE:20261202T080000Z,20261203T080000Z", [1, 4]),
        ("RRULE:FREQ=DAILY;COUNT=4\nEXDATE;VALUE=DATE:20261202", [1, 3, 4]),
        ("RRULE:FREQ=DAILY;COUNT=3\nEXDATE:20261202T090000Z", [1, 2, 3]),  # no instance begins then
        ("RRULE:FREQ=DAILY;COUNT=3\nEXDATE;TZID=Asia/Tokyo:20261202T170000", [1, 3]),
        ("RRULE:FREQ=WEEKLY\nEXDATE:20261202T080000Z", [1, 8]),  # not one of its days, so it may go on for ever
        ("RDATE:20261205T080000Z,20261207T080000Z\nEXDATE:20261207T080000Z", [1, 5]),
        ("EXDATE:20261201T080000Z\nRDATE:20261205T080000Z", [5]),
        ("RRULE:FREQ=DAILY;COUNT=2\nRDATE:20261206T080000Z\nDURATION:PT24H", [1, 2, 3, 6, 7]),
    ],
)
def test_what_is_left_out_and_added(lines: str, days: list[int]) -> None:
    assert excluded(ical(f"DTSTART:20261201T080000Z\n{lines}")) == days


def moved(*changes: str) -> str:
    master = "BEGIN:VEVENT\nUID:a\nDTSTART;TZID=Asia/Tokyo:20261201T080000\nRRULE:FREQ=DAILY;COUNT=4\nEND:VEVENT\n"
    others = "".join(f"BEGIN:VEVENT\nUID:a\n{change}\nEND:VEVENT\n" for change in changes)
    return f"BEGIN:VCALENDAR\n{others}{master}END:VCALENDAR"


@pytest.mark.parametrize(
    ("change", "days"),
    [
        ("RECURRENCE-ID;TZID=Asia/Tokyo:20261202T080000\nDTSTART;TZID=Asia/Tokyo:20261209T080000", [1, 3, 4, 9]),
        ("RECURRENCE-ID:20261201T230000Z\nDTSTART;TZID=Asia/Tokyo:20261209T080000", [1, 3, 4, 9]),
        ("RECURRENCE-ID:20261201T230000Z\nSTATUS:CANCELLED\nDTSTART;TZID=Asia/Tokyo:20261202T080000", [1, 3, 4]),
    ],
)
def test_a_moved_instance_counts_where_it_was_moved_to(change: str, days: list[int]) -> None:
    assert excluded(moved(change)) == days


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ical("DTSTART:20261201T080000Z\nRRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY"), "EXRULE"),
        (ical("DTSTART:20261201T080000Z\nRRULE:FREQ=DAILY\nEXDATE:20261202T080000Z"), "for ever"),
        (ical("DTSTART:20261201T080000Z\nRDATE;VALUE=PERIOD:20261205T080000Z/PT1H"), "can't be read"),
        (ical("DTSTART;TZID=Customized Zone:20261201T080000\nRRULE:FREQ=DAILY;UNTIL=20261204T080000Z"), "no IANA zone"),
        (moved("RECURRENCE-ID;RANGE=THISANDFUTURE:20261201T230000Z\nDTSTART:20261209T080000Z"), "all after it"),
        (ical("DTSTART:20261201").replace("END:VCALENDAR\n", ""), "not whole"),
        (ical("DTSTART:20261201").replace("END:VEVENT\n", ""), "without its beginning"),
        ("BEGIN:VEVENT\nDTSTART:20261201\nEND:VEVENT", "outside of a calendar"),
        ("BEGIN:VCALENDAR\nEND:VCALENDAR", "no VEVENT"),
        ("", "BEGIN:VCALENDAR is missing"),
    ],
)
def test_what_can_not_be_kept_exactly_is_refused(text: str, says: str) -> None:
    with pytest.raises(IcalFault, match=says):
        read_ical(text)


def test_a_zone_that_is_not_known_matters_only_where_it_is_converted() -> None:
    assert excluded(ical("DTSTART;TZID=Customized Zone:20261203T080000\nDURATION:PT1H")) == [3]


@pytest.mark.parametrize("more", ["", "\nDURATION:P2D"])
def test_the_work_for_one_file_is_bounded(more: str) -> None:
    events = [
        f"DTSTART;VALUE=DATE:20{number % 60 + 10}0101\nRRULE:FREQ=WEEKLY;COUNT=900{more}" for number in range(1_500)
    ]
    began_s = time.process_time()
    with pytest.raises(InvalidInput) as caught:
        read_calendar({"name": "x", "ical": ical(*events)})
    assert time.process_time() - began_s < 5
    assert f"{MAX_INSTANCES:,}" in caught.value.errors[0].detail
