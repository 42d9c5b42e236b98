"""Shares between the flows of one tenant: priority first, and nothing starves."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.dispatch.flowshare import FLOWS_MAX, FLOWS_REMEMBERED, FlowClaim, FlowShare, aged_priority, flows_in_turn

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def flow(number: int) -> UUID:
    return UUID(int=number)


def rank(priority: int, *, waited: timedelta = timedelta(0), now: datetime = NOW) -> datetime:
    """Of a ticket that became available so long ago."""
    return now - waited - priority * MINUTE


claims_of = st.dictionaries(st.integers(1, 20), st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=20)


@settings(max_examples=60)
@given(st.lists(st.tuples(claims_of, st.integers(0, 100)), min_size=1, max_size=5))
def test_nothing_is_given_that_is_not_wanted_and_nothing_is_left(
    passes: list[tuple[dict[int, tuple[int, int]], int]],
) -> None:
    share = FlowShare()
    for claims, grant in passes:
        flows = [FlowClaim(flow(n), wants, rank(priority)) for n, (wants, priority) in claims.items()]
        given_ = share.split(7, grant, flows, NOW)
        assert sum(given_.values()) == min(grant, sum(one.wants for one in flows))
        assert all(0 < count <= claims[one.int][0] for one, count in given_.items())


@settings(max_examples=30)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.integers(1, 9), st.integers(1, 7))
def test_nothing_starves_whatever_comes_before_it(priorities: list[int], step_s: int, grant: int) -> None:
    """Each flow's head waits at most so long as it takes to age to the highest priority, and then its turn."""
    share, now = FlowShare(), NOW
    since = dict.fromkeys(range(len(priorities)), NOW)
    longest = timedelta(0)
    for _ in range(1_000 // step_s):
        flows = [
            FlowClaim(flow(number), 1_000, rank(priority, waited=now - since[number], now=now))
            for number, priority in enumerate(priorities)
        ]
        for one in share.split(7, grant, flows, now):
            longest = max(longest, now - since[one.int])
            since[one.int] = now
        now += timedelta(seconds=step_s)
    longest = max(longest, *(now - at for at in since.values()))
    assert longest <= 9 * MINUTE + timedelta(seconds=step_s * (len(priorities) + 1))


def test_priority_comes_first_and_doubles_the_share_with_each_step() -> None:
    share, got = FlowShare(), Counter[UUID]()
    flows = [FlowClaim(flow(number), 1_000, rank(priority)) for number, priority in enumerate((0, 1, 2, 9))]
    assert share.split(7, 64, flows, NOW) == {flow(3): 64}, "what is urgent does not wait for what is not"
    for _ in range(200):
        got.update(share.split(7, 20, flows[:3], NOW))
    assert [round(got[flow(number)] / 4_000, 2) for number in range(3)] == [0.14, 0.29, 0.57]


def test_flows_of_one_priority_take_turns_the_longest_waiting_first() -> None:
    share = FlowShare()
    flows = [FlowClaim(flow(number), 1_000, rank(5, waited=timedelta(milliseconds=number))) for number in range(4)]
    order = [one for _ in range(8) for one in share.split(7, 1, flows, NOW)]
    assert [one.int for one in order] == [3, 2, 1, 0, 3, 2, 1, 0]


def test_a_large_flow_does_not_hold_up_one_that_appears() -> None:
    share = FlowShare()
    old = FlowClaim(flow(1), 100_000, rank(5))
    for _ in range(100):
        share.split(7, 10, [old, FlowClaim(flow(2), 1, rank(5))], NOW)
    assert share.split(7, 2, [old, FlowClaim(flow(3), 5, rank(5))], NOW) == {flow(1): 1, flow(3): 1}


def test_silence_is_not_saved_up() -> None:
    share = FlowShare()
    two = [FlowClaim(flow(number), 1_000, rank(5)) for number in (1, 2)]
    share.split(7, 2, two, NOW)
    for _ in range(100):
        share.split(7, 10, [two[0], FlowClaim(flow(3), 1_000, rank(5))], NOW)
    given_ = share.split(7, 20, two, NOW)
    assert abs(given_[flow(1)] - given_[flow(2)]) <= 1


def test_priorities_age_a_step_a_minute_up_to_the_highest() -> None:
    assert aged_priority(rank(5), NOW) == 5
    assert aged_priority(rank(5, waited=2 * MINUTE), NOW) == 7
    assert aged_priority(rank(5, waited=60 * MINUTE), NOW) == 9
    assert aged_priority(rank(0, waited=-MINUTE), NOW) == 0


def test_flows_are_looked_at_in_turn() -> None:
    flows = [flow(number) for number in range(FLOWS_MAX + 10)]
    first = flows_in_turn(flows, None)
    assert first == flows[:FLOWS_MAX]
    assert flows_in_turn(flows, first[-1]) == [*flows[FLOWS_MAX:], *flows[: FLOWS_MAX - 10]]
    assert flows_in_turn(flows, flows[-1]) == first


def test_memory_is_bounded() -> None:
    share = FlowShare()
    for tenant in range(400):
        share.split(tenant, 10, [FlowClaim(flow(number), 5, rank(5)) for number in range(100)], NOW)
    assert sum(len(one.virtual) for one in share.tenants.values()) <= FLOWS_REMEMBERED
    for _ in range(3):
        share.split(1_000, 10, [FlowClaim(flow(number), 5, rank(5)) for number in range(2)], NOW)
    assert 1_000 in share.tenants and len(share.tenants[1_000].virtual) <= 2
