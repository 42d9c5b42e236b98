"""Delays between tries: positive, bounded, growing; and a retry policy's waits, which are made of them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.schedules.retry import DEFAULTS, MAX_DELAY_S, RETRY_AFTER_MAX_S, retry_from_api, retry_from_json
from kernel.backoff import MIN_DELAY_S, Jitter, delay_s, with_jitter
from kernel.errors import Faults
from tests.schedules.cases import case

seconds = st.floats(0, MAX_DELAY_S, allow_nan=False)
factors = st.floats(1, 100, allow_nan=False)
attempts = st.one_of(st.integers(1, 100), st.sampled_from([1_000, 10**6, 10**12]))


def test_the_case_of_the_overflow() -> None:
    """Case C22."""
    given_, expected = case("worker.jsonl", "C22")["input"], case("worker.jsonl", "C22")["expected"]
    found = [
        delay_s(attempt, base_s=given_["base_s"], factor=given_["factor"], max_s=given_["cap_s"])
        for attempt in given_["attempts"]
    ]
    assert found == expected["delay_s"]


@given(attempts, seconds, factors, seconds, st.booleans())
def test_a_delay_is_positive_and_never_above_its_bound(
    attempt: int, base_s: float, factor: float, max_s: float, fixed: bool
) -> None:
    found = delay_s(attempt, base_s=base_s, factor=factor, max_s=max_s, fixed=fixed)
    assert 0 < found <= max(max_s, MIN_DELAY_S)
    assert math.isfinite(found)


@given(st.integers(1, 200), seconds, factors, seconds)
def test_a_delay_never_shrinks_from_try_to_try(attempt: int, base_s: float, factor: float, max_s: float) -> None:
    first = delay_s(attempt, base_s=base_s, factor=factor, max_s=max_s)
    assert delay_s(attempt + 1, base_s=base_s, factor=factor, max_s=max_s) >= first * (1 - 1e-9)


@given(attempts, seconds, seconds)
def test_a_fixed_delay_is_the_same_each_time(attempt: int, base_s: float, max_s: float) -> None:
    first = delay_s(1, base_s=base_s, factor=2, max_s=max_s, fixed=True)
    assert delay_s(attempt, base_s=base_s, factor=2, max_s=max_s, fixed=True) == first


@given(st.floats(MIN_DELAY_S, MAX_DELAY_S), st.sampled_from(["none", "full", "equal"]), st.integers())
def test_jitter_only_shortens(delay: float, jitter: Jitter, seed: int) -> None:
    found = with_jitter(delay, jitter, random.Random(seed))
    assert MIN_DELAY_S <= found <= delay
    if jitter == "none":
        assert found == delay
    if jitter == "equal":
        assert found >= delay / 2


def test_full_jitter_spreads_evenly() -> None:
    found = sorted(with_jitter(100, "full", random.Random(n)) for n in range(1_000))
    assert found[0] < 2 and found[-1] > 98 and 45 < found[500] < 55


# --- the policy ---


policies = st.fixed_dictionaries(
    {
        "max_attempts": st.integers(1, 100), "backoff": st.sampled_from(["exponential", "fixed"]), "base_s": seconds,
        "factor": factors, "max_s": seconds, "jitter": st.sampled_from(["none", "full", "equal"]),
    }
)  # fmt: skip


@given(policies, st.integers(1, 100), st.one_of(st.none(), st.floats(0, 10**12)))
def test_a_policys_wait_is_bounded_and_what_is_asked_for_is_honoured(
    policy: dict[str, Any], failures: int, asked_s: float | None
) -> None:
    found = retry_from_json(policy).wait_s(failures, retry_after_s=asked_s)
    assert 0 < found <= max(policy["max_s"], MIN_DELAY_S, min(asked_s or 0, RETRY_AFTER_MAX_S))
    if asked_s is not None:
        assert found >= min(asked_s, RETRY_AFTER_MAX_S)


@given(policies)
def test_what_the_api_accepts_is_what_is_stored(policy: dict[str, Any]) -> None:
    faults = Faults()
    assert retry_from_api(policy, faults) == {**DEFAULTS, **policy}
    assert not faults.errors


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"max_attempts": 0}, {"/retry/max_attempts"}),
        ({"max_attempts": 101}, {"/retry/max_attempts"}),
        ({"max_attempts": 2.5}, {"/retry/max_attempts"}),
        ({"max_attempts": True}, {"/retry/max_attempts"}),
        ({"base_s": -1, "max_s": 10**9}, {"/retry/base_s", "/retry/max_s"}),
        ({"base_s": float("nan")}, {"/retry/base_s"}),
        ({"factor": 0.5}, {"/retry/factor"}),
        ({"factor": "2"}, {"/retry/factor"}),
        ({"backoff": "linear", "jitter": "some"}, {"/retry/backoff", "/retry/jitter"}),
        ({"jitter": []}, {"/retry/jitter"}),
        ({"retry_on": "failed"}, {"/retry/retry_on"}),
        ({"never_on": ["", 7]}, {"/retry/never_on"}),
        ({"never_on": ["x"] * 51}, {"/retry/never_on"}),
        ({"attempts": 3}, {"/retry/attempts"}),
        ([], {"/retry"}),
        ("often", {"/retry"}),
    ],
)
def test_what_can_not_be_a_policy_is_refused_with_pointers(body: Any, pointers: set[str]) -> None:
    faults = Faults()
    retry_from_api(body, faults)
    assert {error.pointer for error in faults.errors} == pointers
    assert all(error.detail for error in faults.errors)


@pytest.mark.parametrize(
    ("policy", "names", "again"),
    [
        ({}, {"failed", "http_500"}, True),
        ({"retry_on": ["http_5xx"]}, {"failed", "http_500", "http_5xx"}, True),
        ({"retry_on": ["http_5xx"]}, {"failed", "http_404", "http_4xx"}, False),
        ({"never_on": ["http_404"]}, {"failed", "http_404"}, False),
        ({"retry_on": ["failed"], "never_on": ["failed"]}, {"failed"}, False),
        ({"retry_on": ["lost"]}, set(), False),
    ],
)
def test_never_wins_and_nothing_named_means_everything(policy: dict[str, Any], names: set[str], again: bool) -> None:
    assert retry_from_json(policy).wants_retry(names) == again
