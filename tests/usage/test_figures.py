"""Histograms: what falls where, what sums are, how good a percentile is."""

from __future__ import annotations

import random

import pytest

from apps.usage.figures import BOUNDS_S, Tally, bucket_of, merged, quantile_s
from apps.usage.notices import levels_crossed


def test_buckets_begin_after_their_lower_bound() -> None:
    assert bucket_of(-5) == bucket_of(0) == bucket_of(0.001) == 0
    assert bucket_of(0.0011) == 1
    assert [bucket_of(bound) for bound in BOUNDS_S] == list(range(len(BOUNDS_S)))
    assert bucket_of(10**9) == len(BOUNDS_S)
    assert 86_400 < BOUNDS_S[-1] < 2 * 86_400


def test_a_merged_percentile_is_near_the_true_one() -> None:
    rng = random.Random(7)
    parts = [[rng.lognormvariate(-2, 1.5) for _ in range(2_000)] for _ in range(5)]
    histograms = []
    for part in parts:
        counts = [0] * (len(BOUNDS_S) + 1)
        for one in part:
            counts[bucket_of(one)] += 1
        while not counts[-1]:
            counts.pop()
        histograms.append(counts)
    everything = sorted(one for part in parts for one in part)
    total = merged(histograms)
    assert sum(total) == len(everything)
    for share in (0.5, 0.9, 0.99):
        found = quantile_s(total, share)
        true = everything[int(share * len(everything)) - 1]
        assert found is not None and true / 1.42 <= found <= true * 1.42


def test_nothing_has_no_percentile() -> None:
    assert quantile_s(None, 0.5) is quantile_s([], 0.5) is quantile_s([0, 0], 0.5) is None
    assert merged([None, []]) == []
    assert merged([[1], None, [0, 2]]) == [1, 2]


def test_a_tally_adds_up() -> None:
    tally = Tally()
    tally.add(1, 2, 3)
    tally.add(1, 2)
    tally.add(1, 3, 0)
    assert tally.rows() == [(1, 2, 4)]


@pytest.mark.parametrize(
    ("limit", "before", "after", "levels"),
    [
        (10, 7, 8, [80]), (10, 8, 9, []), (10, 9, 10, [100]), (10, 0, 10, [80, 100]), (10, 10, 11, []),
        (3, 2, 3, [80, 100]), (1, 0, 1, [80, 100]), (0, 0, 1, []), (None, 0, 9, []), (10, 9, 7, []),
    ],
)  # fmt: skip
def test_levels_are_crossed_upwards(limit: int | None, before: int, after: int, levels: list[int]) -> None:
    assert levels_crossed(limit, before=before, after=after) == levels
