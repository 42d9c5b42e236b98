"""How often release looks, and who does not wait for room that others leave: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch.pace import (
    BUSY_WAIT_S,
    LOOK_REST,
    REFILL_SHARE,
    REFILL_WAIT_S,
    YIELD_AFTER_S,
    YIELD_BEFORE_S,
    YIELD_REST_S,
    Newcomers,
    Yielding,
    kept_for_newcomers,
    look_again_s,
    refills,
    waits_for_more,
)  # fmt: skip

COUNTS = st.integers(0, 5_000)


@given(free=COUNTS, before=COUNTS, capacity=COUNTS, since_s=st.floats(0, 1_000))
def test_looks_are_never_rarer_than_refills_nor_a_spin(free: int, before: int, capacity: int, since_s: float) -> None:
    found = look_again_s(free=free, free_before=before, capacity=capacity, since_release_s=since_s)
    assert BUSY_WAIT_S <= found <= REFILL_WAIT_S


def test_the_next_look_comes_when_there_is_enough_room() -> None:
    # 200 places a second, 80 in all: the twenty that are waited for are there 0.1 s after the release.
    found = look_again_s(free=8, free_before=0, capacity=80, since_release_s=0.04)
    assert abs(0.04 + found - 20 / 200) < 1e-9
    assert not waits_for_more(free=20, capacity=80, since_release_s=0.1)
    assert waits_for_more(free=int(80 * REFILL_SHARE) - 1, capacity=80, since_release_s=0.09)
    assert look_again_s(free=0, free_before=0, capacity=80, since_release_s=0.2) == 0.05, "long runs: rarer looks"


def test_newcomers_are_those_that_did_not_wait_before() -> None:
    newcomers = Newcomers()
    newcomers.passed([1, 2])
    assert newcomers.new == {1, 2}
    assert not newcomers.looked([1, 2], begun=10.0, ended=10.0)
    assert newcomers.looked([1, 2, 3], begun=10.0, ended=10.0)
    newcomers.passed([1, 3])
    assert newcomers.new == {3}
    assert not newcomers.looked([1], begun=10.0, ended=10.0)
    assert newcomers.looked([1, 3], begun=10.0, ended=10.0), "3 had nothing meanwhile"


def test_looks_for_newcomers_take_a_small_part_of_the_time() -> None:
    newcomers = Newcomers()
    newcomers.looked([1], begun=10.0, ended=10.02)
    assert newcomers.rests_s(10.02 + LOOK_REST * 0.02 - 0.001) == pytest.approx(0.001)
    assert newcomers.rests_s(10.02 + LOOK_REST * 0.02 + 0.001) == 0.0


@given(slots=st.integers(0, 10_000), prefetch=st.floats(1, 8))
def test_places_of_newcomers_are_a_part_of_what_may_wait_at_workers(slots: int, prefetch: float) -> None:
    capacity = int(slots * prefetch)
    kept = kept_for_newcomers(capacity=capacity, slots=slots)
    assert (kept == 0) == (capacity == slots)
    assert 3 * kept <= capacity - slots + 2


def test_a_refill_makes_way_for_what_is_due_and_not_for_ever() -> None:
    yielding = Yielding()
    assert yielding.wait_s(10.0) == 0.0, "nothing is due"
    yielding.due_at = 11.0
    assert yielding.wait_s(11.0 - YIELD_BEFORE_S - 0.001) == 0.0
    assert yielding.wait_s(10.99) == pytest.approx(0.01 + YIELD_AFTER_S)
    assert yielding.wait_s(11.0 + YIELD_AFTER_S) == 0.0, "fire takes longer: workers do not go without"
    yielding.due_at = 12.0  # fire is done
    assert yielding.wait_s(11.1) == 0.0


@given(st.lists(st.floats(0.0, 0.05), min_size=200, max_size=400))
def test_where_something_is_due_all_the_time_refills_go_on(gaps: list[float]) -> None:
    yielding, at, waited = Yielding(), 0.0, 0.0
    for gap in gaps:
        yielding.due_at = at + gap
        waited += min(yielding.wait_s(at), gap + 0.001)
        at += gap + 0.001
    most = (at / YIELD_REST_S + 1) * (YIELD_BEFORE_S + YIELD_AFTER_S + 0.06)
    assert waited <= most


def test_a_pass_that_comes_early_serves_newcomers_alone_unless_those_hold_something() -> None:
    assert refills(early=False, newcomers=[1], held={}), "its time has come"
    assert not refills(early=True, newcomers=[1, 2], held={2: 3})
    assert refills(early=True, newcomers=[2], held={2: 3}), "2 has no place kept for it"
