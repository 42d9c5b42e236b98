"""How often release looks, and who does not wait for room that others leave: pure."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch.pace import (
    BUSY_WAIT_S,
    LOOK_REST,
    LOOKS_AHEAD_S,
    NEW_AGAIN_S,
    REFILL_SHARE,
    REFILL_WAIT_S,
    YIELD_AFTER_S,
    YIELD_BEFORE_S,
    YIELD_REST_S,
    Newcomers,
    Yielding,
    kept_for_newcomers,
    look_again_s,
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
    newcomers.passed([1, 2], held={}, at=10.0)
    assert newcomers.new == {1, 2}
    assert not newcomers.looked([1, 2], held={}, begun=10.0, ended=10.0)
    assert newcomers.looked([1, 2, 3], held={}, begun=10.0, ended=10.0)
    newcomers.passed([1, 3], held={}, at=10.0)
    assert newcomers.new == {3}
    assert not newcomers.looked([1], held={}, begun=10.0, ended=10.0)
    assert newcomers.looked([1, 3], held={}, begun=10.0, ended=10.0), "3 had nothing meanwhile"


def test_who_waits_and_gets_nothing_is_new_again_whoever_else_comes() -> None:
    """A step of a workflow after another, of a few tenants, would take each place as it becomes free."""
    newcomers, again, held = Newcomers(), Counter[int](), {2: 1}
    for number in range(1_000):  # half a minute and a little
        at, waits = 10.0 + number / 32, [1, 2, 100 + number]  # 1 holds nothing, 2 has something
        came = newcomers.looked([1, 2], held=held, begun=at, ended=at)
        newcomers.passed(waits, held=held, at=at)
        again.update(newcomers.new & {1, 2})
        assert came == bool(newcomers.new & {1, 2}) and 100 + number in newcomers.new
    assert again == {1: 1_000 / 32 // NEW_AGAIN_S + 1, 2: 1}
    newcomers.passed([2], held={}, at=at + 0.1)
    assert newcomers.new == set(), "it held something just now"
    newcomers.passed([2], held={}, at=at + 0.1 + NEW_AGAIN_S)
    assert newcomers.new == {2} and newcomers.go_alone(early=True, held={1: 1}, others=True)
    assert not newcomers.go_alone(early=False, held={1: 1}, others=True), "a refill serves it, too"


def test_a_look_for_newcomers_does_not_wait_for_the_last_one() -> None:
    newcomers = Newcomers()
    newcomers.looked([1], held={}, begun=10.0, ended=10.02)
    assert newcomers.rests_s(10.02) == 0.0
    newcomers.looked([1], held={}, begun=11.0, ended=11.0 + 2 * LOOKS_AHEAD_S / LOOK_REST)
    assert newcomers.rests_s(11.0 + 2 * LOOKS_AHEAD_S / LOOK_REST) == pytest.approx(LOOKS_AHEAD_S), "unless it was long"


@given(looks=st.lists(st.tuples(st.floats(0.0, 0.3), st.floats(0.0001, 0.1)), min_size=1, max_size=100))
def test_looks_for_newcomers_take_a_small_part_of_the_time(looks: list[tuple[float, float]]) -> None:
    newcomers, begun, at, looked_s = Newcomers(), 10.0, 10.0, 0.0
    for gap, took in looks:
        at += gap + newcomers.rests_s(at + gap)
        assert newcomers.rests_s(at + 1e-9) == 0.0
        newcomers.looked([1], held={}, begun=at, ended=at + took)
        at, looked_s = at + took, looked_s + took
    longest = max(took for _, took in looks)
    assert looked_s <= (at - begun + LOOKS_AHEAD_S) / LOOK_REST + longest + 1e-6


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
    newcomers = Newcomers()
    newcomers.passed([1, 2], held={}, at=10.0)
    assert newcomers.go_alone(early=True, held={2: 3}, others=False)
    assert not newcomers.go_alone(early=False, held={2: 3}, others=False), "there is nobody else to serve"
    newcomers.passed([1, 2, 3], held={}, at=10.0)
    assert newcomers.new == {3} and not newcomers.go_alone(early=True, held={3: 1}, others=True), "no place is kept"
    newcomers.passed([1, 2, 3, 4], held={}, at=10.0)
    newcomers.may_go({1: 5, 2: 5, 3: 5, 4: 0})
    assert not newcomers.go_alone(early=True, held={}, others=True), "what holds it back is no other tenant"


def test_newcomers_go_before_a_refill_and_put_it_off_once() -> None:
    newcomers = Newcomers()
    alone = []
    for one in range(10):  # somebody new comes before each pass
        newcomers.passed([100, one], held={100: 5}, at=10.0)
        alone.append(newcomers.go_alone(early=False, held={100: 5}, others=True))
    assert alone == [True, False] * 5
