"""`decide`, rule by rule, and its one promise: each occurrence ends as exactly one fire or in exactly one skip."""

import time
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.schedules.policy import Decision, Fire, Skip, decide, first_due
from apps.schedules.timing import At, Cron, Interval, Spec, actual_at, count_between, next_after, occurrences
from apps.schedules.timing_spec import MISFIRE_MAX_HARD
from tests.schedules.cases import utc
from tests.schedules.timeline import first_created

KEY = "0198c0de-0000-7000-8000-000000000001"
NOON = utc("2026-01-05T12:00:00Z")
MINUTE = timedelta(minutes=1)
MISFIRES = ("skip", "fire_once", "fire_latest_n", "fire_all")


def minutely(**more: object) -> Spec:
    return Spec(Cron(("* * * * *",)), **more)  # type: ignore[arg-type]  # keywords of a test


def due(spec: Spec, nominal_at: datetime, now: datetime, live: int = 0) -> Decision:
    due_at = actual_at(spec, KEY, nominal_at)
    return decide(spec, key=KEY, nominal_at=nominal_at, due_at=due_at, now=now, live=live)


def nominals(decision: Decision) -> list[datetime]:
    return [fire.nominal_at for fire in decision.fires]


def test_on_time() -> None:
    assert due(minutely(), NOON, NOON + timedelta(milliseconds=3)) == Decision(
        (Fire(NOON, NOON, "schedule"),), (), NOON + MINUTE, NOON + MINUTE
    )


def test_not_due_yet_changes_nothing() -> None:
    assert due(minutely(), NOON, NOON - timedelta(seconds=1)) == Decision((), (), NOON, NOON)


def test_a_late_run_keeps_its_actual_instant_so_that_lateness_shows() -> None:
    [fire] = due(minutely(), NOON, NOON + timedelta(seconds=50)).fires
    assert fire == Fire(NOON, NOON, "schedule")


@pytest.mark.parametrize(
    ("misfire", "fires", "skips"),
    [
        ("skip", [], [(NOON, NOON + 4 * MINUTE, 5, "misfire_skipped")]),
        ("fire_once", [4], [(NOON, NOON + 3 * MINUTE, 4, "misfire_skipped")]),
        ("fire_latest_n", [2, 3, 4], [(NOON, NOON + MINUTE, 2, "misfire_skipped")]),
        ("fire_all", [2, 3, 4], [(NOON, NOON + MINUTE, 2, "misfire_capped")]),
    ],
)
def test_all_missed(misfire: str, fires: list[int], skips: list[tuple[datetime, datetime, int, str]]) -> None:
    """Five runs missed, none within its grace; at most three are made up for."""
    now = NOON + 4 * MINUTE + timedelta(seconds=30)
    decision = due(minutely(misfire=misfire, misfire_max=3, grace_s=10), NOON, now)
    assert decision.fires == tuple(Fire(NOON + number * MINUTE, now, "catch_up") for number in fires)
    assert decision.skips == tuple(Skip(*skip) for skip in skips)
    assert decision.next_nominal == NOON + 5 * MINUTE


@pytest.mark.parametrize(
    ("misfire", "fires", "skipped"),
    [("skip", [5], 5), ("fire_once", [5], 5), ("fire_latest_n", [2, 3, 4, 5], 2), ("fire_all", [3, 4, 5], 3)],
)
def test_the_newest_is_on_time(misfire: str, fires: list[int], skipped: int) -> None:
    """Five missed and one on time. The cap of fire_all counts it, fire_latest_n counts missed ones only."""
    decision = due(minutely(misfire=misfire, misfire_max=3), NOON, NOON + 5 * MINUTE + timedelta(seconds=30))
    assert nominals(decision) == [NOON + number * MINUTE for number in fires]
    assert [fire.trigger for fire in decision.fires] == ["catch_up"] * (len(fires) - 1) + ["schedule"]
    assert sum(skip.count for skip in decision.skips) == skipped


def test_grace_is_inclusive() -> None:
    strict = minutely(misfire="skip", grace_s=20)
    assert due(strict, NOON, NOON + timedelta(seconds=20)).fires
    assert not due(strict, NOON, NOON + timedelta(seconds=20, microseconds=1)).fires


@pytest.mark.parametrize(
    ("overlap", "live", "free"),
    [
        ("allow", 50, 3),
        ("skip", 0, 1),
        ("skip", 1, 0),
        ("skip", 2, 0),
        ("buffer_one", 0, 2),
        ("buffer_one", 1, 1),
        ("buffer_one", 2, 0),
    ],
)
def test_overlap(overlap: str, live: int, free: int) -> None:
    """Three runs on time at once: the oldest that find room start, the others are one skip row."""
    spec = Spec(Interval(1, NOON), overlap=overlap)
    decision = due(spec, NOON, NOON + timedelta(seconds=2.5), live)
    every = [NOON + timedelta(seconds=number) for number in range(3)]
    assert nominals(decision) == every[:free]
    rest = every[free:]
    assert decision.skips == ((Skip(rest[0], rest[-1], len(rest), "overlap_skipped"),) if rest else ())
    assert decision.next_nominal == NOON + timedelta(seconds=3)


def test_misfire_comes_before_overlap() -> None:
    decision = due(minutely(overlap="skip", grace_s=10), NOON, NOON + 4 * MINUTE + timedelta(seconds=30), live=1)
    assert not decision.fires
    assert [(skip.reason, skip.count) for skip in decision.skips] == [("misfire_skipped", 4), ("overlap_skipped", 1)]


def test_the_last_run_completes_the_schedule() -> None:
    ends = minutely(end_at=NOON + MINUTE)
    assert due(ends, NOON, NOON).next_nominal == NOON + MINUTE
    assert due(ends, NOON + MINUTE, NOON + MINUTE) == Decision(
        (Fire(NOON + MINUTE, NOON + MINUTE, "schedule"),), (), None, None
    )
    missed = due(ends, NOON, NOON + timedelta(hours=5))
    assert nominals(missed) == [NOON + MINUTE] and missed.next_nominal is None and missed.next_due is None


def test_a_one_off_that_was_missed() -> None:
    later = NOON + timedelta(hours=3)
    [fire] = due(Spec(At(NOON)), NOON, later).fires
    assert fire == Fire(NOON, later, "catch_up")
    assert due(Spec(At(NOON), misfire="skip"), NOON, later) == Decision(
        (), (Skip(NOON, NOON, 1, "misfire_skipped"),), None, None
    )


def test_with_jitter_the_newest_nominal_may_still_be_to_come() -> None:
    spec = minutely(jitter_s=60)
    at = next(at for at in occurrences(spec, after=NOON, limit=100) if (actual_at(spec, KEY, at) - at).seconds > 30)
    before = at - MINUTE
    decision = due(spec, before, at + timedelta(seconds=5))
    assert nominals(decision) == [before] and decision.next_nominal == at
    assert decision.next_due == actual_at(spec, KEY, at)


def test_more_on_time_runs_than_one_pass_may_make_are_not_lost() -> None:
    """A second-by-second schedule with an hour of grace, an hour late: served a thousand at a time."""
    spec = Spec(Interval(1, NOON), grace_s=3600)
    now, entry, seen = NOON + timedelta(minutes=59), (NOON, NOON), 0
    while entry[1] <= now:
        decision = decide(spec, key=KEY, nominal_at=entry[0], due_at=entry[1], now=now)
        assert 0 < len(decision.fires) <= MISFIRE_MAX_HARD and not decision.skips
        seen += len(decision.fires)
        assert decision.next_nominal and decision.next_due
        entry = (decision.next_nominal, decision.next_due)
    assert seen == 59 * 60 + 1


@pytest.mark.parametrize("misfire", MISFIRES)
@pytest.mark.parametrize("down", [timedelta(), timedelta(seconds=90), timedelta(days=1), timedelta(days=30)])
def test_downtime_of_a_schedule_that_runs_each_second(misfire: str, down: timedelta) -> None:
    spec = Spec(Interval(1, NOON), misfire=misfire)
    now = NOON + down
    started = time.process_time()
    decision = due(spec, NOON, now)
    assert time.process_time() - started < 0.1
    total = int(down.total_seconds()) + 1
    on_time = min(total, 61)
    assert sum(fire.trigger == "schedule" for fire in decision.fires) == on_time
    made_up = {"skip": 0, "fire_once": 0, "fire_latest_n": 100, "fire_all": 39}[misfire]
    assert sum(fire.trigger == "catch_up" for fire in decision.fires) == min(made_up, total - on_time)
    assert len(decision.fires) + sum(skip.count for skip in decision.skips) == total
    assert len(decision.skips) <= 1


TRIGGERS = [
    Cron(("* * * * *",)),
    Cron(("*/7 * * * *",)),
    Cron(("*/20 * * * * *",)),
    Cron(("0 */2 * * *", "30 1 * * *")),
    Interval(17, NOON),
    At(NOON),
]
STARTS = [NOON, *map(utc, ("2026-03-29T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-03T14:00:00Z"))]


@settings(max_examples=400)
@given(
    trigger=st.sampled_from(TRIGGERS),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    start=st.sampled_from(STARTS),
    late_s=st.integers(0, 30_000) | st.integers(0, 300),
    grace_s=st.sampled_from([0, 1, 60, 3600]),
    jitter_s=st.sampled_from([0, 1, 45, 5000]),
    misfire=st.sampled_from(MISFIRES),
    misfire_max=st.sampled_from([1, 2, 100, 1000]),
    overlap=st.sampled_from(["allow", "skip", "buffer_one"]),
    live=st.integers(0, 3),
    end_after_s=st.none() | st.integers(0, 20_000),
)
def test_each_occurrence_ends_in_exactly_one_way(
    trigger: Cron | Interval | At,
    zone: str,
    start: datetime,
    late_s: int,
    grace_s: int,
    jitter_s: int,
    misfire: str,
    misfire_max: int,
    overlap: str,
    live: int,
    end_after_s: int | None,
) -> None:
    end_at = None if end_after_s is None else start + timedelta(seconds=end_after_s)
    spec = Spec(
        trigger,
        zone,
        end_at=end_at,
        jitter_s=jitter_s,
        misfire=misfire,
        grace_s=grace_s,
        overlap=overlap,
        misfire_max=misfire_max,
    )
    entry = first_due(spec, key=KEY, after=start - timedelta(seconds=1))
    if entry is None:
        return
    nominal_at, due_at = entry
    now = due_at + timedelta(seconds=late_s)
    decision = decide(spec, key=KEY, nominal_at=nominal_at, due_at=due_at, now=now, live=live)
    before = nominal_at - timedelta(microseconds=1)
    last = (decision.next_nominal or now + timedelta(days=1)) - timedelta(microseconds=1)
    handled = list(occurrences(spec, after=before, until=last, limit=100_000))

    ends = {fire.nominal_at: 1 for fire in decision.fires}
    for skip in decision.skips:
        inside = [at for at in handled if skip.nominal_at <= at <= skip.until]
        assert len(inside) == skip.count and inside[0] == skip.nominal_at and inside[-1] == skip.until
        for at in inside:
            ends[at] = ends.get(at, 0) + 1
    assert ends == dict.fromkeys(handled, 1)

    assert nominals(decision) == sorted(set(nominals(decision)))
    assert len(decision.fires) <= 2 * MISFIRE_MAX_HARD
    for fire in decision.fires:
        actual = actual_at(spec, KEY, fire.nominal_at)
        assert actual <= now
        assert (fire.trigger == "schedule") == (now - actual <= timedelta(seconds=grace_s))
        assert fire.actual_at == (actual if fire.trigger == "schedule" else now)
    if misfire == "fire_once":
        assert sum(fire.trigger == "catch_up" for fire in decision.fires) <= 1
    if overlap != "allow":
        assert live + len(decision.fires) <= max({"skip": 1, "buffer_one": 2}[overlap], live)

    # The next entry is the first occurrence that is not due, with its own jitter.
    assert decision.next_nominal == next_after(spec, handled[-1])
    if decision.next_nominal is not None:
        assert decision.next_due == actual_at(spec, KEY, decision.next_nominal)
        if len(decision.fires) < MISFIRE_MAX_HARD:
            assert decision.next_due is not None and decision.next_due > now
    assert count_between(spec, after=before, until=last) == len(handled)


@pytest.mark.parametrize("late_s", [0, 0.4, 60])
def test_a_schedule_created_to_start_now_starts_now(late_s: float) -> None:
    """B10, B85: the request took a moment, or the sender's clock is a little off."""
    now = NOON + timedelta(seconds=late_s)
    daily = Spec(Interval(86_400, NOON), start_at=NOON)
    assert first_created(daily, now=now) == (NOON, NOON)
    assert first_created(Spec(At(NOON)), now=now) == (NOON, NOON)
    # An edit or a resume never fires by itself.
    assert first_due(daily, key=KEY, after=now) == (NOON + timedelta(days=1),) * 2
    assert first_due(Spec(At(NOON)), key=KEY, after=now) is None


def test_a_start_long_ago_is_not_made_up_for() -> None:
    daily = Spec(Interval(86_400, NOON), start_at=NOON)
    late = NOON + timedelta(minutes=2)
    assert first_created(daily, now=late) == (NOON + timedelta(days=1),) * 2
    noonish = Spec(Cron(("0 15 * * *",)), start_at=NOON)
    assert first_created(noonish, now=NOON) == (NOON + timedelta(hours=3),) * 2
