"""Live work before catch-up before backfill, and yet all of them go on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.dispatch.lanes import LOWER, Lanes
from apps.tickets.values import BACKFILL, CATCH_UP, LANES, LIVE


def taken(lanes: Lanes, wants: list[int], *, total: int, slots: int, held: list[int]) -> list[int]:
    """One pass in which each lane takes all that it wants and may have."""
    lanes.open(total=total, slots=slots, waits=[count > 0 for count in wants], held=held)
    took = []
    for lane in LANES:
        count = min(wants[lane], lanes.room(lane))
        lanes.took(lane, count)
        took.append(count)
    lanes.close()
    return took


counts = st.lists(st.integers(0, 300), min_size=3, max_size=3)


@settings(max_examples=60)
@given(st.lists(st.tuples(counts, st.integers(-3, 300), counts), min_size=1, max_size=6), st.integers(1, 400))
def test_a_pass_gives_no_more_than_there_is_and_leaves_nothing_that_a_lane_could_use(
    passes: list[tuple[list[int], int, list[int]]], slots: int
) -> None:
    lanes = Lanes()
    for wants, total, held in passes:
        took = taken(lanes, wants, total=total, slots=slots, held=held)
        assert all(0 <= count <= most for count, most in zip(took, wants, strict=True))
        assert sum(took) <= max(0, total)
        lower = sum(took[lane] for lane in LOWER)
        holds = sum(held[lane] for lane in LOWER)
        assert lower == 0 or lower + holds <= max(1, slots * 0.75)
        # What was kept for a lower lane that did not use it is free in the next pass.
        if sum(took) + 2 + total // 16 < total:
            assert took[LIVE] == wants[LIVE]
            assert lower + holds >= max(1, int(slots * 0.75)) - 2 - total // 16 or took == wants


@settings(max_examples=40)
@given(st.integers(1, 64), st.booleans(), st.booleans())
def test_lower_lanes_get_a_sixteenth_when_live_work_never_ends(total: int, catch_up: bool, backfill: bool) -> None:
    lanes, got = Lanes(), [0, 0, 0]
    wants = [10**6, 10**6 * catch_up, 10**6 * backfill]
    for _ in range(200):
        got = [a + b for a, b in zip(got, taken(lanes, wants, total=total, slots=1_000, held=[0, 0, 0]), strict=True)]
    waiting = [lane for lane in LOWER if wants[lane]]
    assert sum(got) == 200 * total
    for lane in LOWER:
        expected = 200 * total / 16 / len(waiting) if lane in waiting else 0
        assert abs(got[lane] - expected) <= max(1, total / 16 + 1)


def test_catch_up_goes_before_backfill() -> None:
    assert taken(Lanes(), [10, 100, 100], total=100, slots=1_000, held=[0, 0, 0]) == [10, 87, 3]


def test_some_slots_stay_free_of_lower_lanes() -> None:
    assert taken(Lanes(), [0, 0, 500], total=100, slots=100, held=[0, 0, 0]) == [0, 0, 75]
    assert taken(Lanes(), [0, 500, 500], total=60, slots=100, held=[0, 30, 40]) == [0, 4, 1]
    assert taken(Lanes(), [0, 0, 5], total=1, slots=1, held=[0, 0, 0]) == [0, 0, 1], "a pool of one slot"


def test_backfill_goes_on_when_catch_up_fills_the_lower_lanes() -> None:
    """Freed slots of the lower lanes are shared too."""
    lanes, got = Lanes(), [0, 0, 0]
    for _ in range(400):
        took = taken(lanes, [10**6, 10**6, 10**6], total=4, slots=100, held=[0, 74, 0])
        got = [a + b for a, b in zip(got, took, strict=True)]
    assert got[BACKFILL] >= 40 and got[CATCH_UP] >= 40


def test_what_a_lane_could_not_use_is_not_owed_later() -> None:
    lanes = Lanes()
    for _ in range(50):
        lanes.open(total=160, slots=1_000, waits=[True, True, False], held=[0, 0, 0])
        assert lanes.room(LIVE) == 150
        lanes.took(LIVE, 150)
        lanes.close()
    assert taken(lanes, [500, 500, 0], total=160, slots=1_000, held=[0, 0, 0]) == [150, 10, 0]


def test_lower_lanes_that_held_all_they_may_are_not_owed_for_it() -> None:
    lanes = Lanes()
    for _ in range(100):
        assert taken(lanes, [500, 500, 0], total=20, slots=100, held=[0, 75, 0]) == [20, 0, 0]
    assert taken(lanes, [500, 500, 0], total=20, slots=100, held=[0, 40, 0]) == [18, 2, 0]
