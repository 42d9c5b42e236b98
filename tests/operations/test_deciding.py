"""What a running operation does next, for whatever its items do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.operations.deciding import CHUNK, Standing, next_start, next_step

NOW = datetime(2027, 3, 1, 8, tzinfo=UTC)
LIMITS = {
    "max_in_flight": st.none() | st.integers(1, 60),
    "canary": st.none() | st.integers(1, 60),
    "stop_after_failures": st.none() | st.integers(1, 5),
    "rate_per_s": st.none() | st.floats(0.1, 1000),
}


@given(
    planned=st.integers(0, 300), seed=st.integers(0, 10_000), fails=st.sampled_from((0.0, 0.02, 0.5)),
    skips=st.sampled_from((0.0, 0.3, 1.0)),
    limits=st.fixed_dictionaries(LIMITS),
)  # fmt: skip
def test_every_operation_ends_and_keeps_its_limits(
    planned: int, seed: int, fails: float, skips: float, limits: dict
) -> None:  # fmt: skip
    random = Random(seed)
    one, now, held = Standing(planned, planned, 0, 0, **limits), NOW, False
    first, began = NOW, planned
    while True:
        step = next_step(one, now=now)
        one = one._replace(canary_passed=step.canary_passed)
        if step.verb == "hold":
            assert one.failed and not held and one.planned - one.pending - one.skipped <= (one.canary or 0)
            held, one = True, one._replace(canary_passed=True)  # somebody has looked and lets it go on
        elif step.verb == "stop":
            assert one.stop_after_failures is not None and one.failed >= one.stop_after_failures
            return
        elif step.verb == "complete":
            assert one.pending == one.running == 0
            break
        elif step.verb == "start":
            assert 1 <= step.room <= min(CHUNK, one.pending)
            started = random.randint(1, step.room)
            skipped = sum(random.random() < skips for _ in range(started))
            running = one.running + started - skipped
            one = one._replace(pending=one.pending - started, running=running, skipped=one.skipped + skipped)
            assert one.max_in_flight is None or one.running <= one.max_in_flight
            assert one.canary_passed or one.canary is None or one.planned - one.pending - one.skipped <= one.canary
            one = one._replace(next_at=next_start(one, started=started, now=now))
        elif step.at is not None:
            assert step.at > now
            now = step.at + timedelta(seconds=random.random())
        else:
            assert one.running, "nothing would wake it"
            ended = random.randint(1, one.running)
            failed = sum(random.random() < fails for _ in range(ended))
            one = one._replace(running=one.running - ended, failed=one.failed + failed)
            if one.max_in_flight is None and one.stop_after_failures is not None:
                assert one.failed <= one.stop_after_failures
    if one.rate_per_s is not None and began > 1:
        most = one.rate_per_s * (now - first).total_seconds() + max(1, one.rate_per_s * 0.25) + 1
        assert began <= most, "it was faster than its rate"


def test_a_rate_goes_in_small_steps() -> None:
    one = Standing(1000, 1000, 0, 0, rate_per_s=40.0)
    assert next_step(one, now=NOW).room == 10
    after = one._replace(pending=990, next_at=next_start(one, started=10, now=NOW))
    waits = next_step(after, now=NOW)
    assert (waits.verb, waits.at) == ("wait", NOW + timedelta(seconds=0.25))
    slow = Standing(5, 5, 0, 0, rate_per_s=0.1)
    assert next_step(slow, now=NOW).room == 1
    assert next_start(slow, started=1, now=NOW) == NOW + timedelta(seconds=10)


@pytest.mark.parametrize("rate", [0.5, 4.0, 10.0, 40.0])
def test_a_rate_is_reached_by_who_looks_twice_a_second(rate: float) -> None:
    one, now, started = Standing(10_000, 10_000, 0, 0, rate_per_s=rate), NOW, 0
    while now < NOW + timedelta(seconds=20):
        step = next_step(one, now=now)
        if step.verb == "start":
            started += step.room
            one = one._replace(pending=one.pending - step.room, next_at=next_start(one, started=step.room, now=now))
        now += timedelta(seconds=0.5)
    assert rate * 19 <= started <= rate * 20 + 1 + rate * 0.25


def test_what_was_skipped_is_no_canary() -> None:
    one = Standing(100, 98, 0, 0, skipped=2, canary=2)
    assert next_step(one, now=NOW)[:2] == ("start", 2) and not next_step(one, now=NOW).canary_passed
    assert next_step(one._replace(pending=96, skipped=3), now=NOW)[:2] == ("start", 1)
    assert next_step(one._replace(pending=0, skipped=100), now=NOW).verb == "complete"
