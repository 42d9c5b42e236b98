"""How much of the time the forecast takes: a clock that is driven for hours, and work that only moves it."""

from __future__ import annotations

from collections.abc import Iterator

from apps.dispatch.forecast.pacing import CYCLE_S, EVERY_S, FIRST_SHARE, LEAST_SHARE, NOTHING_S, Pace, share_of

SHARDS = 64


def driven(
    pace: Pace, *, hours: float, shard_s: float, step_s: float = 0.25, least: float = LEAST_SHARE
) -> Iterator[str]:
    """What is done until so much time has passed: a step of work, or a look for changes that finds none."""
    now, left = 0.0, shard_s
    while now < hours * 3_600:
        now += pace.wait_s(now)
        looks = now >= pace.looks_at
        if looks:
            took = min(step_s, left)
            left -= took
            now += took
            pace.looked(now, took, whole=int(left <= 0), shards=SHARDS, least=least)
            left = left if left > 0 else shard_s
        pace.changed(now, 0.001)
        yield "step" if looks else "look"
        assert pace.changes_at - now <= EVERY_S + 1e-6


def test_a_shard_takes_a_small_share_of_the_time_and_changes_wait_for_none() -> None:
    for shard_s in (0.01, 0.25, 3.0, 9.4):
        done = list(driven(Pace(0.0, 0.0), hours=10, shard_s=shard_s))
        worked = done.count("step") * min(0.25, shard_s)
        assert 0.001 < worked / 36_000 <= share_of(shard_s, shards=SHARDS) * 1.05 < 1 / 200, shard_s
        assert len(done) >= 36_000 / (EVERY_S + 0.3)
    first = list(driven(Pace(0.0, 0.0), hours=1, shard_s=9.4, least=FIRST_SHARE))
    assert 0.15 < first.count("step") * 0.25 / 3_600 <= 0.21


def test_what_costs_more_gets_more_so_that_all_shards_are_looked_at_in_time() -> None:
    assert share_of(1.0, shards=SHARDS) == LEAST_SHARE and share_of(1_000.0, shards=SHARDS) == 1 / 20
    shard_s = 40.0
    share = share_of(shard_s, shards=SHARDS)
    assert LEAST_SHARE < share < 1 / 20 and SHARDS * shard_s / share <= CYCLE_S
    done = list(driven(Pace(0.0, 0.0), hours=40, shard_s=shard_s))
    assert done.count("step") * 0.25 / (40 * 3_600) <= share * 1.1
    pace = Pace(0.0, 0.0)
    pace.nothing(5.0)
    assert pace.wait_s(5.0) == 0 and pace.looks_at == 5.0 + NOTHING_S
