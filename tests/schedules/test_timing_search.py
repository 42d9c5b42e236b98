"""What next, previous, latest, count, jitter and preview promise for any spec."""

import copy
import pickle
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.schedules import timing
from apps.schedules.timing import (
    At,
    Cron,
    Interval,
    Spec,
    actual_at,
    count_between,
    describe,
    latest_between,
    next_after,
    notes,
    occurrences,
    previous_before,
)
from apps.schedules.timing_preview import preview
from tests.schedules.cases import text, utc

START = utc("2026-01-05T10:00:00Z")
TICK = timedelta(microseconds=1)


def spec(trigger: str | int, zone: str = "UTC", **more: object) -> Spec:
    kind = Cron((trigger,)) if isinstance(trigger, str) else Interval(trigger, START)
    return Spec(kind, zone, **more)  # type: ignore[arg-type]  # keywords of a test


@pytest.mark.parametrize(
    "any_spec",
    [
        spec("*/10 * * * *"),
        spec("*/10 * * * *", start_at=START, end_at=START + timedelta(hours=1)),
        spec(600, start_at=START, end_at=START + timedelta(hours=1)),
        spec(600, start_at=START + TICK, end_at=START + timedelta(hours=1) - TICK),
        Spec(At(START + timedelta(minutes=10))),
        Spec(At(START), start_at=START, end_at=START),
        Spec(Interval(600, START + timedelta(milliseconds=1500)), end_at=START + timedelta(hours=2)),
    ],
    ids=range(7),
)
def test_the_four_views_agree(any_spec: Spec) -> None:
    low, high = START - timedelta(hours=1), START + timedelta(hours=3)
    every = list(occurrences(any_spec, after=low, until=high, limit=1000))
    assert every == sorted(set(every)) and every
    assert all((any_spec.start_at or low) <= at <= (any_spec.end_at or high) for at in every)
    for point in [low, high, *(at + shift for at in every for shift in (-TICK, timedelta(), TICK))]:
        if point > high:
            continue
        later = [at for at in every if at > point]
        following = next_after(any_spec, point)
        assert following == later[0] if later else following is None or following > high
        earlier = [at for at in every if at < point]
        before = previous_before(any_spec, point)
        assert before == earlier[-1] if earlier else before is None or before <= low
        assert count_between(any_spec, after=point, until=high) == len(later)
        assert latest_between(any_spec, after=point, until=high, limit=3) == (later[-3:], len(later))
    assert count_between(any_spec, after=high, until=low) == 0


def test_the_window_is_inclusive_to_the_microsecond() -> None:
    at = utc("2026-01-05T11:00:00Z")
    for start, end, runs in ((at, at, 1), (at + TICK, None, 0), (None, at - TICK, 0), (at - TICK, at + TICK, 1)):
        bounded = spec("0 11 5 1 *", start_at=start, end_at=end)
        assert len(list(occurrences(bounded, after=START, until=at + timedelta(days=1), limit=9))) == runs


def test_union_counts_each_instant_once() -> None:
    united = Spec(Cron(("0 * * * *", "0 0 * * *", "*/30 9-17 * * 1-5")), "America/New_York")
    low, high = utc("2026-01-01T00:00:00Z"), utc("2027-01-01T00:00:00Z")
    every = list(occurrences(united, after=low, until=high, limit=100_000))
    assert len(every) == len(set(every)) == count_between(united, after=low, until=high)


@pytest.mark.parametrize(
    ("any_spec", "total"),
    [
        (spec("* * * * *"), 91_514_880),
        (spec("* * * * * *"), 91_514_880 * 60),
        (spec("* * * * *", "America/New_York"), 91_514_880),
        (spec("30 2 * * *", "Europe/Berlin"), 63_552),
        (Spec(Cron(("*/5 * * * *", "0 3 * * 1", "59 23 L * *")), "Europe/Berlin"), None),
        (spec(1), 91_514_880 * 60),
    ],
    ids=range(6),
)
def test_centuries_of_catch_up_cost_little(any_spec: Spec, total: int | None) -> None:
    """174 years of missed runs: the newest thousand and the exact count, without walking there."""
    low, high = utc("2026-01-01T00:00:00Z"), utc("2200-01-01T00:00:00Z")
    latest_between(any_spec, after=low, until=high, limit=1)  # lays out the zone to 2200 once
    took = []
    for _ in range(3):
        started = time.process_time()
        newest, count = latest_between(any_spec, after=low, until=high, limit=1000)
        took.append(time.process_time() - started)
    assert len(newest) == 1000 and newest == sorted(newest) and newest[-1] <= high
    assert total is None or count == total
    assert min(took) < 0.050


@pytest.mark.parametrize("expression", ["0 0 29 2 */7", "0 0 0 29 2 */7 2096-2199", "0 0 31W 12 *", "0 0 * 2 MON#5"])
def test_rare_expressions_are_found_at_once(expression: str) -> None:
    rare = spec(expression, "America/New_York")
    next_after(rare, utc("2190-01-01T00:00:00Z"))
    took = []
    for year in (2030, 2070, 2097):
        started = time.process_time()
        found = rare.calendar().next_after(datetime(year, 3, 1, tzinfo=UTC))
        assert found is not None
        assert rare.calendar().previous_before(found + TICK) == found
        took.append(time.process_time() - started)
    assert max(took) < 0.050


def test_the_calendar_ends() -> None:
    assert next_after(spec("0 0 1 1 *"), utc("2499-06-01T00:00:00Z")) is None
    assert next_after(spec("0 0 0 1 1 * 2030"), utc("2030-06-01T00:00:00Z")) is None
    assert previous_before(spec("0 0 0 1 1 * 2030"), utc("2030-01-01T00:00:00Z")) is None
    far = datetime.max.replace(tzinfo=UTC)
    assert next_after(spec("* * * * *"), far) is None and next_after(spec(60), far) is None
    assert previous_before(spec(60), datetime.min.replace(tzinfo=UTC)) is None


def test_answers_do_not_depend_on_the_zone_of_the_question() -> None:
    berlin = spec("30 2 * * *", "Europe/Berlin")
    at = utc("2026-10-25T00:10:00Z")
    assert next_after(berlin, at.astimezone(timing.load_zone("Asia/Tokyo"))) == next_after(berlin, at)
    assert next_after(berlin, at.astimezone(timing.load_zone("Europe/Berlin"))) == next_after(berlin, at)


def test_a_used_spec_can_be_copied_and_pickled() -> None:
    used = spec("30 2 * * *", "Europe/Berlin")
    following = next_after(used, START)
    for twin in (pickle.loads(pickle.dumps(used)), copy.deepcopy(used), replace(used)):
        assert twin == used and hash(twin) == hash(used) and next_after(twin, START) == following
    assert asdict(used)["zone"] == "Europe/Berlin"


def test_the_memo_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MEMO_SIZE", 10)
    monkeypatch.setattr(timing, "_young", {})
    monkeypatch.setattr(timing, "_old", {})
    every = spec("* * * * *")
    for minute in range(100):
        at = START + timedelta(minutes=minute)
        assert next_after(every, at) == next_after(every, at) == at + timedelta(minutes=1)
        assert len(timing._young) + len(timing._old) <= 20


@settings(max_examples=200)
@given(jitter=st.integers(0, 90), key=st.text(max_size=20), minute=st.integers(0, 2000))
def test_jitter_is_bounded_and_repeatable(jitter: int, key: str, minute: int) -> None:
    every = spec("*/2 * * * *", jitter_s=jitter)
    nominal = next_after(every, START + timedelta(minutes=minute))
    assert nominal is not None
    delay = (actual_at(every, key, nominal) - nominal).total_seconds()
    assert 0 <= delay < max(1, min(jitter, 120)) and delay == int(delay)
    assert actual_at(every, key, nominal) == nominal + timedelta(seconds=delay)


def test_jitter_keeps_the_order_and_spreads() -> None:
    every = spec("*/5 * * * * *", jitter_s=3600)
    nominals = list(occurrences(every, after=START, limit=500))
    actual = [actual_at(every, "k", at) for at in nominals]
    assert actual == sorted(actual)
    delays = [
        (actual_at(spec("0 * * * *", jitter_s=60), f"key-{number}", START) - START).seconds for number in range(3000)
    ]
    assert set(delays) == set(range(60))


def test_preview_tells_what_the_clock_does() -> None:
    shown = preview(spec("30 2 * * *", "Europe/Berlin"), after=utc("2026-03-28T00:00:00Z"), count=2)
    assert [(each.nominal_local, text(each.at), each.flags) for each in shown] == [
        ("2026-03-28T02:30:00+01:00", "2026-03-28T01:30:00Z", []),
        ("2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00Z", ["dst_gap_moved"]),
    ]
    both = preview(spec("30 2 * * *", "Europe/Berlin", dst_fold="both"), after=utc("2026-10-24T12:00:00Z"), count=2)
    assert [(each.nominal_local, each.flags) for each in both] == [
        ("2026-10-25T02:30:00+02:00", ["dst_fold_first"]),
        ("2026-10-25T02:30:00+01:00", ["dst_fold_second"]),
    ]
    [merged] = preview(spec("0 2,3 * * *", "America/New_York"), after=utc("2024-03-10T06:00:00Z"), count=1)
    assert merged.flags == []  # 03:00 is a time of its own, 02:00 only coincides with it
    [hourly] = preview(spec(3600, "Europe/Berlin"), after=utc("2026-10-25T00:30:00Z"), count=1)
    assert hourly.flags == ["dst_fold_second"]
    [late] = preview(spec("0 12 * * *", jitter_s=600), after=START, count=1, key="a")
    assert late.flags == ["jittered"] and late.at > utc(late.nominal_local)


@pytest.mark.parametrize(
    ("any_spec", "words"),
    [
        (spec("* * * * *"), "Every minute, UTC"),
        (spec("*/5 * * * *"), "Every 5 minutes, UTC"),
        (spec("*/1 */1 * * *"), "Every minute, UTC"),
        (spec("*/7 * * * *"), "Every 7 minutes of the hour"),
        (spec("30 2 * * 1-5", "Europe/Berlin"), "At 02:30 on Monday to Friday, Europe/Berlin"),
        (spec("0 9,17 1,15 * *"), "At 09:00 and 17:00 on day 1 and 15 of the month"),
        (spec("0 0 1 */3 *"), "At 00:00 on day 1 of the month in every 3rd month"),
        (spec("0 0 13 * 5"), "on day 13 of the month and also on Friday"),
        (spec("0 0 */2 * 5"), "on every 2nd day of the month if that is Friday"),
        (spec("15 10 L 2 *"), "At 10:15 on the last day of the month in February"),
        (spec("15 10 31,L * *"), "on day 31 and the last day of the month"),
        (spec("15 10 LW * *"), "on the last weekday of the month"),
        (spec("15 10 15W * 1#2"), "on day 15 (or the nearest weekday) of the month and also on the second Monday"),
        (spec("10 30 2 * * *"), "At 02:30:10"),
        (spec("* * * * * *"), "Every second"),
        (spec("*/10 */5 8-18 * * *"), "Every 10 seconds of the minute every 5 minutes of hour 8 to 18"),
        (spec("0 0 0 1 1 * 2030-2032"), "At 00:00 on day 1 of the month in January in 2030 to 2032"),
        (spec(86_400), "Every day, counted from 2026-01-05 10:00+00:00 (UTC)"),
        (spec(5400), "Every 90 minutes"),
        (Spec(At(START), "Asia/Tokyo"), "Once at 2026-01-05 19:00+09:00 (Asia/Tokyo)"),
        (Spec(Cron(("0 3 * * *", "0 5 * * 0"))), "At 03:00; and at 05:00 on Sunday"),
        (
            spec("0 3 * * *", start_at=START, jitter_s=30, misfire="fire_all"),
            "from 2026-01-05 10:00+00:00; spread over up to",
        ),
        (spec("0 3 * * *", overlap="skip", misfire="skip"), "missed runs are skipped; no run starts while"),
    ],
)
def test_in_words(any_spec: Spec, words: str) -> None:
    assert words in describe(any_spec)


@pytest.mark.parametrize(
    ("any_spec", "note"),
    [
        (spec("*/90 * * * *"), "use an interval"),
        (spec("0 9 1-31 * 1"), "either matches"),
        (
            spec("30 2 * * *", "Europe/Berlin"),
            "when the clock skips its time it runs once right after; when its time comes twice it runs the first time",
        ),
        (
            spec("30 2 * * *", "Europe/Berlin", dst_gap="skip", dst_fold="both"),
            "when the clock skips its time it does not run; when its time comes twice it runs both times",
        ),
        (spec("*/5 * * * *", "Europe/Berlin"), "follows real time"),
        (spec(86_400, "Europe/Berlin"), "keeps elapsed time"),
    ],
)
def test_notes_warn_of_surprises(any_spec: Spec, note: str) -> None:
    assert any(note in each for each in notes(any_spec))


def test_nothing_to_note() -> None:
    assert notes(spec("30 2 * * *", "Asia/Tokyo")) == notes(spec(60)) == notes(Spec(At(START))) == []
