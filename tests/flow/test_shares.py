"""What docs/fairness.md promises of many rounds, with tenants that come and go under the round simulator."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from apps.dispatch.fairness import FairShare
from tests.flow.rounds import ALWAYS, Rounds, Tenant

LENGTHS_S = (1.0, 2.0, 5.0)


def parts(rounds: Rounds, numbers: list[int], since: dict[int, float]) -> list[float]:
    """What each got of the slot time of all of them, as a multiple of what its weight says."""
    used = {number: rounds.slot_s[number] - since.get(number, 0.0) for number in numbers}
    weights = sum(rounds.tenants[number].weight for number in numbers)
    total = sum(used.values())
    return [used[number] / (total * rounds.tenants[number].weight / weights) for number in numbers]


def test_thousand_tenants_with_random_arrivals_get_what_their_weights_say() -> None:
    """The saturated within 5 % of slot time, weights 1 to 20, short and long runs; the others get all they want."""
    random = Random(1)
    tenants = {}
    for number in range(900):
        weight, run_s = 1 + number % 20, LENGTHS_S[number // 20 % 3]
        wants = weight * 3_000 / 9_450 * random.uniform(1.2, 3)  # slots
        tenants[number] = Tenant(weight=weight, run_s=run_s, waiting=0, per_s=wants / run_s)
    light = {
        number: Tenant(weight=random.randint(5, 20), run_s=1.0, waiting=0, per_s=random.uniform(0.05, 0.5))
        for number in range(900, 1_000)
    }
    rounds = Rounds(tenants | light, {"": 3_000}, every_s=1.0)
    longest: dict[int, int] = {}

    def look(now: Rounds) -> None:
        assert now.held() == 3_000
        for number, one in light.items():
            longest[number] = longest.get(number, 0) + 1 if one.waiting else 0
            assert longest[number] <= 2, "who wants little waits for a slot to become free, not for the others' backlog"

    rounds.go(40)
    since = dict(rounds.slot_s)
    rounds.go(260, look=look)
    saturated = [number for number, one in tenants.items() if one.waiting > 10]
    assert len(saturated) > 800
    for number, found in zip(saturated, parts(rounds, saturated, since), strict=True):
        runs = (rounds.slot_s[number] - since[number]) / tenants[number].run_s
        assert abs(found - 1) <= max(0.05, 1 / runs), "5 %, or one run of a tenant that has had few"


@pytest.mark.parametrize("run_s", [0.5, 5.0, 60.0, 600.0])
def test_how_long_runs_last_does_not_change_the_share(run_s: float) -> None:
    """Nor does it take long: a tenant that comes has its slots as soon as they become free."""
    one, other = Tenant(weight=1, run_s=0.5), Tenant(weight=3, run_s=run_s, waiting=0)
    rounds = Rounds({1: one, 2: other}, {"": 80}).go(60)
    assert one.held == 80
    other.waiting = ALWAYS
    rounds.go(2)
    assert 58 <= other.held <= 64, "its part, and a little more for having waited"
    rounds.go(58 if run_s < 60 else 2 * run_s)
    since = dict(rounds.slot_s)
    rounds.go(300)
    assert parts(rounds, [1, 2], since) == pytest.approx([1, 1], abs=0.05)


@pytest.mark.parametrize("later", [False, True], ids=["live", "backfill"])
def test_few_slots_are_shared_by_weight_in_every_lane(later: bool) -> None:
    """What waits in a lower lane only is shared in further rounds of each pass, and owed what it lacks as well."""
    tenants = {number: Tenant(weight=1 + number % 5, run_s=(1.0, 6.0)[number % 2]) for number in range(40)}
    rounds = Rounds(tenants, {"": 30}, later=later).go(600)
    assert parts(rounds, list(tenants), {}) == pytest.approx([1] * 40, abs=0.08)


def test_reserves_are_met_in_one_round_and_what_is_borrowed_comes_back() -> None:
    """Owners come and go; others borrow. One round when there is room, else one more than a running attempt."""
    random, run_s = Random(2), 4.0
    tenants = {
        number: Tenant(weight=random.randint(1, 20), run_s=random.choice((0.5, 1.0, run_s)), reserved=8, waiting=0)
        for number in range(20)
    } | {number: Tenant(weight=20, run_s=run_s) for number in range(20, 40)}
    rounds = Rounds(tenants, {"": 200}, exact=True)
    patience = round(run_s / rounds.every_s) + 1
    below: dict[int, int] = {}

    def look(now: Rounds) -> None:
        owners = [tenants[number] for number in range(20)]
        waits = [one for one in owners if one.waiting and one.held < one.reserved]
        if waits:
            assert now.held() == 200, "no owner waits while there is room"
            got = sum(count for number, count in now.granted.items() if number >= 20)
            assert got <= 12, "a sixteenth of the slots is all that the others hold then"
        for number, one in enumerate(owners):
            below[number] = below.get(number, 0) + 1 if one in waits else 0
            assert below[number] <= patience
            if random.random() < 0.02:
                one.waiting = 0 if one.waiting else ALWAYS

    rounds.go(300, look=look)
    assert max(one.held for one in tenants.values() if not one.reserved) > 5, "what owners do not use is lent"


def test_reserves_of_more_than_all_slots_are_scaled_down_and_starve_nobody() -> None:
    tenants = {1: Tenant(reserved=60, weight=1), 2: Tenant(reserved=120, weight=1), 3: Tenant(weight=1)}
    rounds = Rounds(tenants, {"": 96}).go(60)
    since = dict(rounds.slot_s)
    rounds.go(60)
    assert [rounds.slot_s[number] - since[number] for number in tenants] == pytest.approx(
        [30 * 60, 60 * 60, 6 * 60], 0.02
    )


def test_no_limit_is_ever_passed() -> None:
    """1,000 tenants in three groups and ten queues, with maxima, reserves and bursts; every round is looked at."""
    random = Random(3)
    groups = {"": 600, "gpu": 150, "eu": 300}
    queues = {f"q{number}@{group}": 30 + 20 * number for number in range(4) for group in groups}
    tenants = {}
    for number in range(1_000):
        reserved, queue = random.choice((0, 0, 0, 0, 0, 0, 0, 3)), random.choice(list(queues))
        tenants[number] = Tenant(
            weight=random.randint(1, 20), run_s=random.choice((0.5, 1.0, 3.0)), waiting=random.choice((0, 0, 5, 1_000)),
            reserved=reserved, maximum=random.choice((None, None, reserved + 2, reserved + 10)),
            per_s=random.uniform(0, 1.5), queue=queue, group=queue.partition("@")[2],
        )  # fmt: skip
    rounds = Rounds(tenants, groups, queues)

    def look(now: Rounds) -> None:
        of_group, of_queue = dict.fromkeys(groups, 0), dict.fromkeys(queues, 0)
        for one in tenants.values():
            assert one.maximum is None or one.held <= one.maximum
            of_group[one.group] += one.held
            of_queue[one.queue] += one.held
        assert all(of_group[group] <= slots for group, slots in groups.items())
        assert all(of_queue[queue] <= room for queue, room in queues.items())

    rounds.go(60, look=look)
    starved = [number for number, one in tenants.items() if one.waiting and not rounds.started[number]]
    assert not starved


def test_nobody_waits_longer_than_its_turn() -> None:
    """Fewer slots than tenants, and all of weight 20 but one: its turn comes as often as its weight says."""
    tenants = {number: Tenant(weight=20, run_s=1.0) for number in range(50)}
    tenants[50] = Tenant(weight=1, run_s=1.0)
    rounds = Rounds(tenants, {"": 5}, exact=True)
    started: list[int] = []
    rounds.go(800, look=lambda now: started.append(now.number) if 50 in now.granted else None)
    gaps_s = [(after - before) * rounds.every_s for before, after in pairwise(started)]
    assert len(gaps_s) >= 3
    assert max(gaps_s) <= 1.25 * 1_001 / 5  # of 1,001 parts it has one


def test_a_flood_does_not_move_another_tenants_wait() -> None:
    """The small tenant starts at once, however long the flood has lasted and whatever is left of it."""
    small = Tenant(run_s=0.5, waiting=0, per_s=2.0)
    rounds = Rounds({1: Tenant(run_s=0.5, waiting=100_000), 2: small}, {"": 20}).go(120)
    waited: list[int] = []
    rounds.go(120, look=lambda now: waited.append(small.waiting))
    assert max(waited) == 0


def test_silence_is_not_saved_up_and_a_burst_is_not_paid_for() -> None:
    """Both got what nobody else wanted; from now on they share."""
    tenants = {1: Tenant(run_s=1.0), 2: Tenant(run_s=1.0, waiting=0)}
    rounds = Rounds(tenants, {"": 40}).go(600)
    tenants[2].waiting = ALWAYS
    rounds.go(3)
    since = dict(rounds.slot_s)
    rounds.go(20)
    assert parts(rounds, [1, 2], since) == pytest.approx([1, 1], abs=0.06)


def test_what_was_held_by_long_runs_keeps_nobody_away_for_long() -> None:
    """A tenant's runs of ten minutes filled the pool before another came: when they end it need not wait ten more."""
    tenants = {1: Tenant(run_s=600.0), 2: Tenant(run_s=1.0, waiting=0)}
    rounds = Rounds(tenants, {"": 40}, exact=True, every_s=1.0).go(10)
    tenants[1].run_s = 1.0
    tenants[2].waiting = ALWAYS
    rounds.go(590)
    assert tenants[1].held == 40
    starved_s = 0
    for _ in range(180):
        rounds.go(1)
        starved_s += tenants[1].held == 0
    assert starved_s <= 60
    assert tenants[1].held == pytest.approx(20, abs=2)


def test_takeovers_do_no_harm() -> None:
    """Nothing is remembered every few seconds: limits hold, nobody starves, shares stay near to what weights say."""
    tenants = {number: Tenant(weight=1 + number % 4, run_s=1.0, maximum=6) for number in range(100)}
    rounds = Rounds(tenants, {"": 60})
    for term in range(1, 30):
        rounds.fair = FairShare(salt=term)
        rounds.go(5, look=lambda now: None)
        assert rounds.held() == 60 and all(one.held <= 6 for one in tenants.values())
    assert set(rounds.started) == set(tenants)
    found = parts(rounds, list(tenants), {})
    assert min(found) >= 0.5 and max(found) <= 2


def test_a_tenant_that_moves_to_another_group_starts_there_like_the_others() -> None:
    tenants = {number: Tenant(run_s=1.0) for number in range(3)} | {
        number: Tenant(run_s=1.0, group="own") for number in (3, 4)
    }
    rounds = Rounds(tenants, {"": 30, "own": 30}).go(120)
    tenants[2].group = "own"
    rounds.go(10)
    since = dict(rounds.slot_s)
    rounds.go(30)
    assert parts(rounds, [2, 3, 4], since) == pytest.approx([1, 1, 1], abs=0.1)
