"""What one grant may and must do, over any claims; `test_shares` says what comes of many."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.dispatch.fairness import SHARED_PART, Claim, FairShare
from apps.dispatch.slottime import REMEMBERED

QUEUES = ("a", "b", "c", "nobody listens")
GROUPS = ("", "gpu")
limits = st.tuples(st.integers(0, 40), st.none() | st.integers(0, 40)).filter(
    lambda both: both[1] is None or both[0] <= both[1]
)
claim = st.builds(
    lambda weight, wants, held, both, queue, group: Claim(weight, wants, held, both[0], both[1], queue, group),
    st.integers(1, 50), st.integers(0, 200), st.integers(0, 40), limits, st.sampled_from(QUEUES),
    st.sampled_from(GROUPS),
)  # fmt: skip
claims_of = st.dictionaries(st.integers(1, 12), claim, max_size=12)
rooms = st.fixed_dictionaries({queue: st.integers(-5, 200) for queue in QUEUES[:3]})
totals = st.fixed_dictionaries({group: st.integers(-5, 300) for group in GROUPS})


@settings(max_examples=60)
@given(st.lists(st.tuples(claims_of, totals, rooms, st.floats(0, 100)), min_size=1, max_size=4))
def test_no_limit_is_passed_and_no_slot_is_left_that_somebody_could_use(
    passes: list[tuple[dict[int, Claim], dict[str, int], dict[str, int], float]],
) -> None:
    fair = FairShare(salt=3)
    for claims, total, room, elapsed_s in passes:
        grants = fair.grant(claims, total=total, room=room, elapsed_s=elapsed_s)
        fair.charge(grants, grants)
        of_group, of_queue = Counter[str](), Counter[str]()
        for tenant, grant in grants.items():
            one = claims[tenant]
            of_group[one.group] += grant
            of_queue[one.queue] += grant
            assert 0 < grant <= one.wants
            assert one.maximum is None or one.held + grant <= one.maximum
        assert all(count <= total[group] for group, count in of_group.items())
        assert all(count <= room[queue] for queue, count in of_queue.items())
        for tenant, one in claims.items():
            holds = one.held + grants.get(tenant, 0)
            assert (
                grants.get(tenant, 0) >= one.wants
                or (one.maximum is not None and holds >= one.maximum)
                or of_group[one.group] >= total[one.group]
                or of_queue[one.queue] >= room.get(one.queue, 0)
            )


@settings(max_examples=60)
@given(claims_of, st.integers(0, 200))
def test_who_is_below_its_reserve_comes_before_all_others(claims: dict[int, Claim], free: int) -> None:
    """As long as an owner waits below its reserve, nobody gets a slot beyond its own, but for a sixteenth of them."""
    claims = {tenant: one._replace(queue="a", group="") for tenant, one in claims.items()}
    grants = FairShare().grant(claims, total={"": free}, room={"a": 10**6}, elapsed_s=0.1)
    capacity = free + sum(one.held for one in claims.values())
    waits = [
        tenant for tenant, one in claims.items()
        if one.held + grants.get(tenant, 0) < one.reserved and grants.get(tenant, 0) < one.wants
    ]  # fmt: skip
    if waits:
        beyond = sum(
            grants.get(tenant, 0) - max(0, min(one.reserved - one.held, grants.get(tenant, 0)))
            for tenant, one in claims.items()
        )
        assert beyond <= max(1, capacity // SHARED_PART)
        # There is too little for all: owners are filled to the same part of their reserves.
        filled = [(claims[tenant].held + grants.get(tenant, 0)) / claims[tenant].reserved for tenant in waits]
        for one, has in ((claims[tenant], grants.get(tenant, 0)) for tenant in grants):
            if one.held < one.reserved and has > 1:
                at_last = (one.held + min(has, one.reserved - one.held) - 1) / one.reserved
                assert at_last <= min(filled) + 1e-9


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=12), st.integers(1, 5))
def test_nobody_starves_however_small_the_room(weights: list[int], total: int) -> None:
    """Every run ends before the next pass: whoever waits has its turn within a round of all by weight."""
    fair, served = FairShare(), Counter[int]()
    claims = {tenant: Claim(weight, 100) for tenant, weight in enumerate(weights)}
    for _ in range(2 * sum(weights)):
        grants = fair.grant(claims, total={"": total}, room={"": total}, elapsed_s=0.1)
        served.update(grants)
        fair.charge(grants, grants)
    assert set(served) == set(claims)


@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 40))
def test_who_can_use_nothing_does_not_keep_the_others_waiting(blocked: int, weight: int, total: int) -> None:
    """Tenants whose tickets wait behind limits of their own are offered slots and take none: others get them."""
    fair, last, got = FairShare(), blocked, 0  # the highest number, so that ties go against it
    claims = {tenant: Claim(weight, 1_000) for tenant in range(blocked + 1)}
    for _ in range(3 * (blocked + 1)):
        grants = fair.grant(claims, total={"": total}, room={"": total}, elapsed_s=0.1)
        used = {last: grants[last]} if last in grants else {}
        got += sum(used.values())
        fair.charge(used, grants)
    assert got >= 2


def test_further_rounds_of_a_pass_are_one_pass() -> None:
    """What is left of the first round goes to who can use it; what both give is charged once."""
    fair = FairShare()
    claims = {1: Claim(1, 100), 2: Claim(1, 100)}
    first = fair.grant(claims, total={"": 40}, room={"": 40}, elapsed_s=0.1)
    assert first == {1: 20, 2: 20}
    fair.charge({1: 20, 2: 3}, first)
    second = fair.grant({1: Claim(1, 80, held=20)}, total={"": 17}, room={"": 17}, elapsed_s=0)
    fair.charge(second, second)
    assert second == {1: 17}
    fair.grant({1: Claim(1, 63, held=37), 2: Claim(1, 97, held=3)}, total={"": 0}, room={"": 0}, elapsed_s=1.0)
    assert round(fair.time.accounts[1].virtual - fair.time.accounts[2].virtual) == 34


def test_memory_is_bounded() -> None:
    """All that come and go hold long enough to stay ahead of the clock."""
    fair = FairShare()
    for start in range(0, 3 * REMEMBERED, 2_000):
        claims = {tenant: Claim(1, 2, held=1) for tenant in (0, *range(start, start + 2_000))}
        grants = fair.grant(claims, total={"": 1_000}, room={"": 1_000}, elapsed_s=1)
        fair.charge(grants, grants)
    assert len(fair.time.accounts) <= REMEMBERED


def test_clocks_of_groups_that_are_gone_are_forgotten() -> None:
    fair = FairShare()
    for number in range(0, 3 * REMEMBERED, 1_000):
        claims = {tenant: Claim(1, 1, group=f"g{tenant}") for tenant in range(number, number + 1_000)}
        fair.charge({}, fair.grant(claims, total={}, room={"": 1}, elapsed_s=1))
    assert len(fair.time.groups) <= REMEMBERED and len(fair.time.queues) <= REMEMBERED
