"""When a breaker opens: failures in a rolling window. Time is an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.breaking import MAX_KEYS, FailureWindows

KEY = (1, "a.example:443")


def windows(failures: int = 3, window_s: float = 30) -> FailureWindows[tuple[int, str]]:
    return FailureWindows(failures=failures, window_s=window_s)


@pytest.mark.parametrize(
    ("calls", "opens"),
    [
        ("FFF", True),
        ("FF", False),
        ("SSSSFFF", True),  # what went well before the first failure is not counted
        ("FSFSF", True),
        ("FSSSFSF", False),  # less than half
        ("FSSSFSFF", True),
        ("SSSS", False),
    ],
)
def test_many_failures_open_it_when_they_are_half_of_the_calls(calls: str, opens: bool) -> None:
    seen = windows()
    found = [seen.saw(KEY, failed=call == "F", now_s=100 + n) for n, call in enumerate(calls)]
    assert (found[-1] > 0) == opens
    assert not any(found[:-1])


def test_old_failures_do_not_count() -> None:
    seen = windows()
    for now_s in (0, 20, 40, 60, 80):
        assert seen.saw(KEY, failed=True, now_s=now_s) == 0
    assert seen.saw(KEY, failed=True, now_s=81) == 3


def test_counting_starts_anew_after_opening() -> None:
    seen = windows()
    assert [seen.saw(KEY, failed=True, now_s=0) for _ in range(5)] == [0, 0, 3, 0, 0]


def test_destinations_are_apart_and_what_goes_well_is_not_remembered() -> None:
    seen = windows()
    for n in range(MAX_KEYS * 2):
        assert seen.saw((n, "x"), failed=False, now_s=0) == 0
    assert len(seen._counts) == 0
    for n in range(MAX_KEYS * 2):
        assert seen.saw((n, "x"), failed=True, now_s=0) == 0
    assert len(seen._counts) == MAX_KEYS


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=200), st.integers(1, 10))
def test_it_never_opens_for_less(calls: list[tuple[bool, float]], failures: int) -> None:
    seen, now_s = windows(failures), 0.0
    history: list[tuple[float, bool]] = []
    for failed, after_s in calls:
        now_s += after_s
        history.append((now_s, failed))
        opened = seen.saw(KEY, failed=failed, now_s=now_s)
        if opened:
            recent = [was for at, was in history if at > now_s - 30]
            assert failed and opened >= failures
            assert sum(recent) >= failures
            history.clear()
