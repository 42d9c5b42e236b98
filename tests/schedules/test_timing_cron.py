"""Cron's field forms: what each means, and how each fault is told."""

import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.schedules.cron_parse import MAX_LENGTH, compile_cron, described, parse_cron
from apps.schedules.timing import Cron, Spec, TimingInvalid, next_after, occurrences, spec_from_api
from tests.schedules.cases import utc

START = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)


def days(expression: str, count: int, *, start: datetime = START) -> list[str]:
    return [f"{at:%Y-%m-%d}" for at in occurrences(Spec(Cron((expression,))), after=start, limit=count)]


def fault(expression: str) -> str:
    parsed = parse_cron(expression)
    assert parsed.expression is None
    return described(expression, parsed.faults[0])


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
        ("0 0 L-3 * *", ["2026-01-28", "2026-02-25", "2026-03-28"]),
        ("0 0 1,L * *", ["2026-01-01", "2026-01-31", "2026-02-01"]),
        ("0 0 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29"]),
        ("0 0 1W * *", ["2026-01-01", "2026-02-02", "2026-03-02", "2026-04-01"]),  # the 1st a Sunday: Monday the 2nd
        ("0 0 15W 8 *", ["2026-08-14", "2027-08-16"]),
        ("0 0 31W 5 *", ["2026-05-29", "2027-05-31"]),  # Sunday the 31st: back to Friday, never into June
        ("0 0 31W * *", ["2026-01-30", "2026-03-31", "2026-05-29", "2026-07-31"]),  # months without a 31st have none
        ("0 0 15W,L 2 *", ["2026-02-16", "2026-02-28"]),
        ("0 0 * * MON#1", ["2026-01-05", "2026-02-02", "2026-03-02"]),
        ("0 0 * * 5#5", ["2026-01-30", "2026-05-29", "2026-07-31"]),
        ("0 0 * * 0#1,7#3", ["2026-01-04", "2026-01-18", "2026-02-01"]),
        ("0 0 * * FRIL", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("0 0 * * 7L", ["2026-01-25", "2026-02-22"]),
        ("0 0 * JAN-MAR,dec sun", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * friday-SUNDAY", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"]),
        ("0 0 ? * 3", ["2026-01-07", "2026-01-14"]),
        ("0 0 13 * ?", ["2026-01-13", "2026-02-13"]),
        ("0 0 13 * 5", ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]),  # either
        ("0 0 */2 * 5", ["2026-01-09", "2026-01-23", "2026-02-13"]),  # both: the field starts with a star
        ("0 0 1-7 * */7", ["2026-01-04", "2026-02-01"]),  # the first Sunday
        ("0 0 0 1 1 * 2030", ["2030-01-01"]),
        ("0 0 0 29 2 * 2028-2040/4", ["2028-02-29", "2032-02-29", "2036-02-29", "2040-02-29"]),
        ("0 0 29 2 */7", ["2032-02-29", "2060-02-29"]),  # a Sunday and leap day, every 28 years
    ],
)
def test_days(expression: str, wanted: list[str]) -> None:
    assert days(expression, len(wanted)) == wanted


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("60 0 * * *", "position 1 of '60 0 * * *': minute field, '60': 60 is out of range"),
        ("0 0 1,32 * *", "position 7 of"),
        ("0 0 * * 5#6", "#1 to #5, or 5L"),
        ("0 0 * * L", "5L is the last Friday"),
        ("0 0 * * L5", "write 5L"),
        ("0 0 32W * *", "day-of-month goes from 1 to 31"),
        ("0 0 L-31 * *", "L-1 to L-30"),
        ("0 L * * *", "L is for the day fields only"),
        ("0 0 5L * *", "dL to the day-of-week field"),
        ("0 0 FRI * *", "FRI is not a number"),
        ("0 0 * XYZ *", "known are JAN, FEB"),
        ("0 ? * * *", "write '*'"),
        ("0 0 * * ?/2", "write '*'"),
        ("0 22-6/2 * * *", "write 22-23/2,0-6/2"),
        ("0 0 * * 6-0", "write 6-7"),
        ("0 0 * * 7-2", "write 0-2"),
        ("0 0 * * fri-mon", "write the days: FRI,SAT,SUN,MON"),
        ("0 0 1--100000000 * *", "a range is two numbers"),
        ("0 0 1,,2 * *", "empty item"),
        ("0 0 5/ * *", "after '/' comes a whole number"),
        ("0 0 -1 * *", "a range is two numbers"),
        ("0 1.5 * * *", "not understood"),
        ("R 3 * * *", "write H"),
        ("H/60 * * * *", "longer than the range"),
        ("H(30-10) * * * *", "a not above b"),
        ("H-5 * * * *", "write H(a-b)"),
        ("0 0 * * * * 1969", "year goes from 1970 to 2199"),
        ("0 0 * * * * H", "not for years"),
        ("0 0 0 29 2 * 2027", "month 2 of year 2027 has no day 29"),
        ("0 0 31 2 */2", "never runs"),
        ("0 0 1 * *\n0 0 2 * *", "several expressions are a list"),
        ("0 0 * * * *\x00", "U+0000"),
        ("@reboot", "no machine that starts"),
        ("@once", "'at'"),
        ("@fortnightly", "known are @annually"),
        ("@daily 5", "nothing may follow @daily"),
        ("@every 1.5h", "@every 5m"),
        ("rate(5 minutes)", "every_s 300"),
        ("cron(0 18 ? * MON-FRI *)", "write '0 18 ? * MON-FRI'"),
        ("cron(0 18 ? * 2-6 *)", "write '0 18 ? * MON-FRI'"),
        ("cron(0 8 ? * 2#1 2027)", "write '0 0 8 ? * MON#1 2027'"),
        ("0 18 ? * 1,6L *", "write '0 18 ? * SUN,FRIL'"),
        ("cron(0 18 1 1 ? 2027)", "write '0 0 18 1 1 ? 2027'"),
        ("0 18 ? * MON-FRI *", "write '0 18 ? * MON-FRI'"),
        ("0 6 * * * Europe/Paris", "timezone 'Europe/Paris'"),
        ("USING CRON 0 9 * * * Asia/Seoul", "timezone 'Asia/Seoul'"),
        ("0 5 * * * root", "write '0 5 * * *'"),
        ("# 0 5 * * *", "write '0 5 * * *'"),
        ("crontab(hour=10, minute=0)", "write '0 10 * * *'"),
        ("minute=R hour=3", "write 'H 3 * * *'"),
        ("OnCalendar=Mon *-*-* 02:30:00", "write '30 2 * * MON'"),
        ("OnCalendar=hourly", "write '@hourly'"),
        ("every 5 minutes", "every_s 300"),
        ("every Monday at 0:25 UTC", "write '25 0 * * MON'"),
        ("'*/5 * * * *'", "write the expression alone: '*/5 * * * *'"),
        ('schedule: "0 3 * * 1"', "write the expression alone: '0 3 * * 1'"),
        ("PT5M", "ISO 8601 duration"),
        ("FREQ=DAILY;COUNT=3", "RRULE"),
    ],
)
def test_faults_have_a_place_and_a_way_out(expression: str, part: str) -> None:
    told = fault(expression)
    assert part in told
    assert told.startswith("position ") and len(told) < 400


def test_all_faults_are_told_at_once() -> None:
    parsed = parse_cron("60 24 0 13 8")
    assert [(each.at, each.code) for each in parsed.faults] == [
        (0, "range"),
        (3, "range"),
        (6, "range"),
        (8, "range"),
        (11, "range"),
    ]


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("00  09 * *\t mon-fri ", "0 9 * * 1-5"),
        ("@DAILY", "0 0 * * *"),
        ("0 0 ? jan SUN", "0 0 ? 1 0"),
        ("0 0 1w,lw * fri#2", "0 0 1W,LW * 5#2"),
        ("0 0 0 1 1 ? *", "0 0 0 1 1 ?"),
        ("0 0 * * 0 ", "0 0 * * 0"),
        ("0 0 * * sat-sun", "0 0 * * 6-7"),
    ],
)
def test_normalised(written: str, normal: str) -> None:
    parsed = parse_cron(written)
    assert parsed.expression is not None and parsed.expression.text == normal
    assert compile_cron(normal).text == normal


def test_hash_is_stable_and_spreads() -> None:
    """H gives one schedule one value for ever, and many schedules all values alike."""
    keys = [f"schedule-{number}" for number in range(6000)]
    specs = [spec_from_api({"trigger": {"cron": "H H * * *"}}, now=START, key=key) for key in keys]
    assert specs[:50] == [spec_from_api({"trigger": {"cron": "H H * * *"}}, now=START, key=key) for key in keys[:50]]
    minutes = Counter(spec.trigger.as_json()["cron"][0].split()[0] for spec in specs)
    hours = Counter(spec.trigger.as_json()["cron"][0].split()[1] for spec in specs)
    assert len(minutes) == 60 and max(minutes.values()) < 2 * min(minutes.values())
    assert len(hours) == 24
    # Fixed once and for all: a change here would move every schedule that uses H.
    assert _text("H H(2-5) H * H", "schedule-1") == _text("h h(2-5) h * h", "schedule-1") == "47 2 22 * 6"
    assert _text("H/15 * * * *", "schedule-1") == "2-59/15 * * * *"


@settings(max_examples=200)
@given(key=st.text(max_size=40), step=st.integers(1, 59))
def test_hash_stays_in_its_range(key: str, step: int) -> None:
    first, rest = _text(f"H/{step} * * * *", key).split()[0].split("-")
    assert 0 <= int(first) < step and rest == f"59/{step}"
    assert 1 <= int(_text("0 0 H * *", key).split()[2]) <= 28
    assert 9 <= int(_text("0 H(9-17) * * *", key).split()[1]) <= 17


def _text(expression: str, key: str) -> str:
    parsed = parse_cron(expression, key=key)
    assert parsed.expression is not None, parsed.faults
    return parsed.expression.text


HOSTILE = [
    "0 0 1--100000000 * *",
    "1" * 10_000,
    "0 0" + " 0" * 10_000,
    ",".join(["1"] * 20_000) + " * * * *",
    "*/" + "9" * 250,
    "0 0 31 2 *",
    "0 0 0 29 2 1#5 2100-2199",
    "0 0 31 */2,4,6,9,11 */6",
    "٣" * 5_000,
    "H(" * 100,
    "((((((((((" * 25,
    "0 0 " + "1-31/2," * 30 + "1 * *",
    "@" * 256,
    "every " * 40,
    "\x00" * 256,
    "0 0 * * " + "MON#5," * 35 + "1",
    "crontab(" + "a=1," * 60 + ")",
    "CRON_TZ=" + "x" * 240,
    "# " + "1 " * 100,
]


@pytest.mark.parametrize("expression", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_cheap(expression: str) -> None:
    took = []
    for _ in range(2):  # the second time shows that it is not a cache that helps
        started = time.process_time()
        try:
            spec_from_api({"trigger": {"cron": expression}}, now=START)
        except TimingInvalid as error:
            assert len(str(error)) < 20_000
        took.append(time.process_time() - started)
    assert min(took) < 0.050


def test_a_long_list_of_expressions_is_refused() -> None:
    started = time.process_time()
    with pytest.raises(TimingInvalid, match="20000 expressions; at most 20"):
        spec_from_api({"trigger": {"cron": ["* * * * *"] * 20_000}}, now=START)
    assert time.process_time() - started < 0.050


@settings(max_examples=500)
@given(st.text(alphabet=st.sampled_from("0123456789*/-,?#LWH()@ \tMONJAN=ü\n'\""), max_size=MAX_LENGTH + 10))
def test_any_text_is_read_or_refused(expression: str) -> None:
    """Nothing but TimingInvalid comes out, and what is accepted has a next run."""
    try:
        spec = spec_from_api({"trigger": {"cron": expression}}, now=START)
    except TimingInvalid as error:
        assert error.errors
        return
    assert next_after(spec, START) is not None


def test_leap_days_are_found_across_centuries() -> None:
    assert days("0 0 29 2 *", 3, start=utc("2096-03-01T00:00:00Z")) == ["2104-02-29", "2108-02-29", "2112-02-29"]
    assert days("0 0 29 2 */7", 1, start=utc("2090-01-01T00:00:00Z")) == [
        next(f"{year}-02-29" for year in range(2104, 2200, 4) if date(year, 2, 29).isoweekday() == 7)
    ]
