"""No legal schedule costs much to ask, no hostile one much to refuse: bounds in lines of Python, which do not waver.

A generous bound on CPU time stands beside it. The lines are those that run in the time code and in what it calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.schedules import timing_moved
from apps.schedules.calendar_input import exclusion_of, read_calendar
from apps.schedules.timing import (
    Spec,
    TimingInvalid,
    count_between,
    spec_from_api,
)
from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_preview import left_out, preview, preview_previous
from kernel.errors import InvalidInput
from tests.schedules.steps import counted

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
LINES_MAX = 500_000  # 25 to 50 ms here without tracing
CPU_MAX_S = 0.25  # five times what is promised: this machine may be busy or slow
WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
RULES = [
    f"FREQ=YEARLY;BYMONTH={m};BYDAY={n}{d}" for m in (1, 3, 5, 7) for n in (1, 2, 3) for d in ("MO", "TU", "WE", "TH")
]
MONTH_OUT = "FREQ=DAILY;BYMONTHDAY=" + ",".join(map(str, range(2, 32)))
YEAR_OUT = "FREQ=DAILY;BYMONTH=2,3,4,5,6,7,8,9,10,11,12"
SLOTS = [
    {"from": f"{hour:02}:{minute:02}", "to": f"{hour:02}:{minute + 1:02}"} for hour in range(10) for minute in (0, 30)
]
DAYS_500 = [(NOW + timedelta(days=number)).date().isoformat() for number in range(500)]
HOURS, MINUTES = ",".join(map(str, range(24))), ",".join(map(str, range(60)))


def made(data: dict[str, Any], days: dict[str, Any] | None) -> Spec:
    exclusion = None if days is None else exclusion_of(read_calendar({"name": "c", **days}).exclusion)
    calendar = {} if days is None else {"calendar": "c"}
    return spec_from_api(
        {**data, **calendar}, now=NOW, key="k", exclusion_of=lambda _: None if exclusion is None else ("1", exclusion)
    )


def cheap(work: Any, lines_max: int = LINES_MAX, cpu_max_s: float = CPU_MAX_S) -> Any:
    """The result; within the bounds of lines and, of several tries, of CPU time."""
    took = []
    result = None
    for _ in range(3):
        begun = time.process_time()
        result = work()
        took.append(time.process_time() - begun)
        if took[-1] < cpu_max_s:
            break
    again, lines = counted(work)
    assert again == result
    assert lines <= lines_max, f"{lines} lines"
    assert min(took) < cpu_max_s
    return result


def looked(search: Callable[[datetime], datetime | None], at: datetime) -> datetime | None:
    """What a search finds, or how far it has looked."""
    try:
        return search(at)
    except NotFoundYet as error:
        return error.searched_to


LEGAL: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "rare day": ({"trigger": {"cron": "0 12 29 2 *"}}, {"weekdays": WEEKDAYS[:5], "weekend": []}),
    "a window hit by half of the year": (
        {"trigger": {"every_s": 86_400, "anchor": "2026-01-05T13:00:00Z"}, "timezone": "Europe/Berlin",
         "windows": [{"from": "14:30", "to": "15:00"}]}, None),
    "a window hit by drifting": (
        {"trigger": {"every_s": 86_401, "anchor": "2026-01-05T13:00:00Z"},
         "windows": [{"from": "13:09:00", "to": "13:09:50"}]}, {"rrules": RULES}),
    "one day a year": ({"trigger": {"cron": "0 12 * * *"}}, {"rrules": [MONTH_OUT, YEAR_OUT]}),
    "moved by a month": (
        {"trigger": {"cron": "*/15 * * * *"}, "on_excluded": "next_business_day"}, {"rrules": [MONTH_OUT]}),
    "moved by a year": (
        {"trigger": {"cron": "*/15 * * * *"}, "on_excluded": "next_business_day"},
        {"rrules": [MONTH_OUT, YEAR_OUT, *RULES[:20]]}),
    "moved back by a year": (
        {"trigger": {"cron": "*/15 * * * *"}, "on_excluded": "previous_business_day"},
        {"rrules": [MONTH_OUT, YEAR_OUT, *RULES[:20]]}),
    "moved and in windows": (
        {"trigger": {"cron": [f"{n} {n} * * *" for n in range(20)]}, "on_excluded": "previous_business_day",
         "windows": SLOTS, "timezone": "Africa/Casablanca"}, {"weekdays": WEEKDAYS[:4], "rrules": RULES}),
    "each second at an opening": (
        {"trigger": {"cron": "* * * * * *"}, "windows": SLOTS, "outside": "next_opening"}, {"rrules": RULES}),
    "500 days left out of seconds": ({"trigger": {"rrule": "FREQ=SECONDLY", "exdate": DAYS_500}}, None),
    "500 days left out of minutes": (
        {"trigger": {"rrule": f"FREQ=DAILY;BYHOUR={HOURS};BYMINUTE={MINUTES}", "exdate": DAYS_500}}, None),
    "500 days more": ({"trigger": {"rrule": "FREQ=YEARLY", "rdate": DAYS_500}, "timezone": "America/New_York"}, None),
    "a long count": ({"trigger": {"rrule": "FREQ=DAILY;COUNT=5000"}, "timezone": "America/New_York"}, None),
    "20 expressions": ({"trigger": {"cron": [f"*/{n} * * * * *" for n in range(1, 21)]}}, None),
    "20 rare expressions": ({"trigger": {"cron": [f"{n} {n} 29 2 {n % 7}#1" for n in range(20)]}}, None),
    "a million runs in windows": (
        {"trigger": {"cron": "*/7 * * * *"}, "windows": SLOTS, "max_runs": 1_000_000}, None),
    "a million runs at openings": (
        {"trigger": {"cron": "0 9 * * *"}, "windows": SLOTS, "outside": "next_opening", "max_runs": 1_000_000},
        {"rrules": RULES}),
    "moved from Saturdays to times that are closed": (
        {"trigger": {"cron": ["0 9 L * *", "34-39/3 */3 */4 * 6"]}, "timezone": "America/Bahia", "dst_gap": "skip",
         "dst_fold": "both", "on_excluded": "previous_business_day",
         "windows": [{"from": "22:13", "to": "02:10", "days": ["fri", "sat", "thu", "mon"]},
                     {"from": "23:13", "to": "06:40", "days": ["tue"]}]},
        {"dates": ["2028-12-16"], "weekdays": ["fri", "sat"],
         "rrules": [f"FREQ=YEARLY;BYMONTH={each}" for each in (
             "1;BYDAY=3WE", "5;BYDAY=3TU", "1;BYDAY=1TU", "3;BYDAY=2WE", "7;BYDAY=2TH")]}),
    "every 289 months at an opening": (
        {"trigger": {"rrule": "FREQ=MONTHLY;INTERVAL=289;BYHOUR=7;BYMONTHDAY=-1,31", "dtstart": "1999-05-31T02:30:00",
                     "rdate": ["2030-01-01T06:30:00Z"]}, "timezone": "Europe/Gibraltar", "outside": "next_opening",
         "windows": [{"from": "00:01", "to": "03:59", "days": ["wed"]},
                     {"from": "02:56", "to": "05:17", "days": ["tue", "wed", "thu", "fri", "sat"]}]}, None),
    "every 33 years in windows": (
        {"trigger": {"rrule": "FREQ=YEARLY;INTERVAL=33;BYHOUR=7", "dtstart": "1999-05-31T02:30:00"},
         "timezone": "Asia/Urumqi", "outside": "next_opening",
         "windows": [{"from": "00:01", "to": "03:59", "days": ["wed"]}]}, None),
    "a million runs": ({"trigger": {"cron": "30 2 29 2 1"}, "max_runs": 1_000_000}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_legal_answers_at_once(name: str) -> None:
    data, days = LEGAL[name]
    spec = made(data, days)
    for at in (
        NOW,
        datetime(1970, 1, 1, 0, 39, 36, tzinfo=UTC),
        datetime(1999, 1, 1, tzinfo=UTC),
        datetime(2099, 6, 1, tzinfo=UTC),
    ):
        cheap(lambda at=at: looked(spec.calendar().next_after, at))
        cheap(lambda at=at: looked(spec.calendar().previous_before, at))
    for look in (
        lambda: preview(spec, after=NOW, count=100),
        lambda: preview_previous(spec, before=NOW, count=100),
        lambda: left_out(spec, after=NOW, until=NOW + timedelta(days=365)),
    ):
        cheap(look, 20 * LINES_MAX, 10 * CPU_MAX_S)


VIEWS = ("moved from Saturdays to times that are closed", "every 289 months at an opening", "every 33 years in windows")


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("year", [1970, 2026, 2099])
def test_what_runs_rarely_is_shown_and_counted_at_once(name: str, year: int) -> None:
    """A dozen runs over centuries, before and after, and their number: no day between them is looked at."""
    data, days = LEGAL[name]
    spec, at = made(data, days), datetime(year, 12, 31, tzinfo=UTC)

    def views() -> int:
        found = preview(spec, after=at, count=12)
        last = found[-1].nominal_at if found else at
        preview_previous(spec, before=last, count=12)
        assert count_between(spec, after=at, until=last) == len(found)
        return len(found)

    assert cheap(views, 4 * LINES_MAX, 2 * CPU_MAX_S) or year == 2099


@pytest.mark.parametrize("name", VIEWS)
def test_runs_are_counted_one_by_one_as_by_open_stretches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = made(*LEGAL[name])
    ranges = [(NOW + timedelta(days=100 * number), NOW + timedelta(days=500 * number)) for number in range(1, 8)]
    one_by_one = [count_between(spec, after=low, until=high) for low, high in ranges]
    monkeypatch.setattr(timing_moved, "COUNTED_DAYS", 1_000_000)
    assert one_by_one == [count_between(spec, after=low, until=high) for low, high in ranges]


HOSTILE: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    **{text[:20]: ({"trigger": {"cron": text}}, None) for text in (
        "0 0 1--100000000 * *", "x" * 10_000, "* " * 5_000, "1," * 5_000 + "1 * * * *", "0 0 31 2 *",
        "0 0 0 29 2 * 2100", "*/0 * * * *",
        "99999999999999999999 * * * *", "H(0-99999999999) * * * *", "0 0 0 1 1 * 1970",
    )},
    "never in the window": ({"trigger": {"cron": "17 12-23 * * *"}, "windows": SLOTS}, None),
    "never by elapsed time": (
        {"trigger": {"every_s": 86_400, "anchor": "2026-01-05T13:00:00Z"}, "windows": SLOTS}, None),
    "never on the days": (
        {"trigger": {"cron": "0 12 * * *"}, "windows": [{"from": "13:00", "to": "13:01"}]},
        {"rrules": [MONTH_OUT, YEAR_OUT]}),
    "no day": ({"trigger": {"cron": "0 12 * * *"}}, {"rrules": ["FREQ=DAILY"]}),
    "moved to closed times": (
        {"trigger": {"cron": "0 23 * * *"}, "on_excluded": "previous_business_day", "windows": SLOTS},
        {"weekdays": WEEKDAYS[:4], "rrules": RULES[:20]}),
    "never on a Thursday": (
        {"trigger": {"rrule": "FREQ=YEARLY;BYMONTH=5;BYDAY=1MO"}, "timezone": "America/Santiago", "max_runs": 1,
         "windows": [{"from": "10:00", "to": "11:00", "days": ["thu"]}]}, None),
    "no week": ({"trigger": {"rrule": "FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6"}}, None),
    "no date": ({"trigger": {"rrule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}}, None),
    "no hour": ({"trigger": {"rrule": "FREQ=HOURLY;INTERVAL=24;BYMONTH=2;BYHOUR=3"}}, None),
    "never by steps": ({"trigger": {"rrule": "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=3"}}, None),
    "too long a count": ({"trigger": {"rrule": "FREQ=DAILY;COUNT=100000"}}, None),
    "too many extra days": ({"trigger": {"rrule": "FREQ=DAILY", "rdate": DAYS_500 * 2}}, None),
    "a long rule": ({"trigger": {"rrule": "FREQ=DAILY;BYHOUR=" + "1," * 5_000 + "1"}}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused_at_once(name: str) -> None:
    data, days = HOSTILE[name]

    def refused() -> str:
        with pytest.raises((TimingInvalid, InvalidInput)) as caught:
            made(data, days)
        return str(caught.value)

    assert len(cheap(refused, 4 * LINES_MAX, 2 * CPU_MAX_S)) < 2_000
