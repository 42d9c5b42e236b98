"""Fair shares between tenants: pure, so that hypothesis may look for what is unfair."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch.flatshare import QUANTUM_MAX, REMEMBERED, Claim, FairShare

QUEUES = ("a", "b", "c")
claims_strategy = st.dictionaries(
    st.integers(1, 12),
    st.builds(
        Claim, weight=st.integers(1, 50), most=st.integers(0, 300), queue=st.sampled_from((*QUEUES, "nobody listens"))
    ),
    max_size=12,
)
rooms = st.fixed_dictionaries({queue: st.integers(-5, 400) for queue in QUEUES})


@given(claims_strategy, rooms, st.integers(0, 1_000))
def test_a_share_is_never_above_what_there_is_and_never_below_what_can_be_used(
    claims: dict[int, Claim], room: dict[str, int], total: int
) -> None:
    grants = FairShare().share(claims, total=total, room=room)
    assert set(grants) <= set(claims)
    assert all(0 < grant <= claims[tenant].most for tenant, grant in grants.items())
    used: Counter[str] = Counter()
    for tenant, grant in grants.items():
        used[claims[tenant].queue] += grant
    assert all(count <= room.get(queue, 0) for queue, count in used.items())
    assert sum(grants.values()) <= total
    if sum(grants.values()) < total:  # work conserving: nothing is left that anybody could still use
        for tenant, claim in claims.items():
            full = grants.get(tenant, 0) >= claim.most
            assert full or used[claim.queue] >= max(0, room.get(claim.queue, 0))


@given(st.lists(st.integers(1, 20), min_size=2, max_size=8), st.lists(st.integers(1, 500), min_size=5, max_size=40))
def test_tenants_that_always_wait_get_what_their_weights_say(weights: list[int], totals: list[int]) -> None:
    """The lag between any two is bounded by a turn of each, however long it goes on."""
    fair, served = FairShare(), Counter[int]()
    claims = {tenant: Claim(weight, 10**9, "a") for tenant, weight in enumerate(weights)}
    for total in totals:
        grants = fair.share(claims, total=total, room={"a": 10**9})
        served.update(grants)
        fair.charge(grants, dict(enumerate(weights)))
        assert sum(grants.values()) == total
        for one, weight in enumerate(weights):
            for other, other_weight in enumerate(weights):
                lag = served[one] / weight - served[other] / other_weight
                assert lag <= QUANTUM_MAX * (1 / weight + 1 / other_weight) + 1e-6


@given(st.lists(st.integers(1, 100), min_size=2, max_size=30), st.integers(1, 5))
def test_nobody_starves_however_small_the_room(weights: list[int], total: int) -> None:
    fair, served = FairShare(), Counter[int]()
    claims = {tenant: Claim(weight, 100, "a") for tenant, weight in enumerate(weights)}
    for _ in range(sum(weights) + len(weights)):
        grants = fair.share(claims, total=total, room={"a": total})
        served.update(grants)
        fair.charge(grants, dict(enumerate(weights)))
    assert set(served) == set(claims)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 40))
def test_who_can_use_nothing_does_not_keep_the_others_waiting(blocked: int, weight: int, total: int) -> None:
    """Tenants whose tickets wait behind their own gates are offered slots and take none: that costs nobody a slot."""
    fair = FairShare()
    claims = {tenant: Claim(weight, 1_000, "a") for tenant in range(blocked + 1)}
    last = blocked  # the highest number, so that ties go against it
    got = 0
    for _ in range(3 * (blocked + 1)):
        grants = fair.share(claims, total=total, room={"a": total})
        used = {last: grants[last]} if last in grants else {}
        got += sum(used.values())
        fair.charge(used, dict.fromkeys(claims, weight), offered=grants)
    assert got >= 2


def test_silence_is_not_saved_up() -> None:
    """Who was away for long gets its share from now on, not what it would have had."""
    fair = FairShare()
    weights = {1: 1, 2: 1}
    for _ in range(100):
        grants = fair.share({1: Claim(1, 1_000, "a")}, total=100, room={"a": 100})
        fair.charge(grants, weights)
    both = {tenant: Claim(1, 1_000, "a") for tenant in weights}
    grants = fair.share(both, total=100, room={"a": 100})
    assert abs(grants[1] - grants[2]) <= QUANTUM_MAX


def test_a_burst_is_not_paid_for_when_others_did_not_want_the_room() -> None:
    fair = FairShare()
    weights = {1: 1, 2: 1}
    for _ in range(50):
        fair.charge(fair.share({1: Claim(1, 1_000, "a")}, total=100, room={"a": 100}), weights)
    served: Counter[int] = Counter()
    for _ in range(10):
        grants = fair.share({tenant: Claim(1, 1_000, "a") for tenant in weights}, total=100, room={"a": 100})
        served.update(grants)
        fair.charge(grants, weights)
    assert abs(served[1] - served[2]) <= 2 * QUANTUM_MAX


def test_memory_is_bounded() -> None:
    fair = FairShare()
    for start in range(0, 3 * REMEMBERED, 1_000):
        claims = {tenant: Claim(1, 1, "a") for tenant in range(start, start + 1_000)}
        grants = fair.share(claims, total=1_000, room={"a": 1_000})
        fair.charge(grants, dict.fromkeys(claims, 1))
    assert len(fair.virtual) <= 2 * REMEMBERED
