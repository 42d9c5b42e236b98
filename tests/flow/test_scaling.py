"""How many slots a pool should have: properties of the formula, and of the figures that feed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.dispatch.pressure.gauging import Depth, InFlight, Limits, Readings, Serving, Waits, measured
from apps.dispatch.pressure.scaling import Demand, Policy, Rates, Share, averaged, presses, slots_wanted, workers_wanted

FEW = settings(max_examples=80)
shares = st.builds(Share, st.integers(0, 5_000), st.integers(0, 500), st.none() | st.integers(0, 400))
demands = st.builds(Demand, st.floats(0, 2_000), st.floats(0, 900), st.lists(shares, max_size=8))
policies = st.builds(Policy, st.floats(0.1, 1), st.floats(1, 600))


@FEW
@given(demands, policies)
def test_it_serves_what_arrives_and_takes_no_slot_from_under_a_run(demand: Demand, policy: Policy) -> None:
    wanted = slots_wanted(demand, policy).slots
    assert wanted >= sum(share.running for share in demand.shares)
    assert wanted >= demand.arrivals_per_s * demand.run_s - 1e-6
    assert wanted * policy.utilisation >= demand.arrivals_per_s * demand.run_s * (1 - 1e-9) - 1e-6


@FEW
@given(demands, policies)
def test_a_backlog_is_gone_in_the_time_that_it_has(demand: Demand, policy: Policy) -> None:
    """As a fluid: what is over after what arrives is served works off what waits, or each run has a slot of its own."""
    wanted = slots_wanted(demand, policy).slots
    usable = sum(share.usable - share.running for share in demand.shares)
    spare = wanted - demand.arrivals_per_s * demand.run_s
    drained = spare * policy.drain_s / demand.run_s if demand.run_s else float("inf")
    assert spare >= usable - 1e-6 or drained >= usable * (1 - 1e-6)


@FEW
@given(demands, policies, st.floats(0, 100), st.floats(0, 100), st.integers(0, 100))
def test_more_to_do_never_wants_less(demand: Demand, policy: Policy, faster: float, longer: float, more: int) -> None:
    before = slots_wanted(demand, policy).slots
    assert slots_wanted(replace(demand, arrivals_per_s=demand.arrivals_per_s + faster), policy).slots >= before
    assert slots_wanted(replace(demand, run_s=demand.run_s + longer), policy).slots >= before
    assert slots_wanted(replace(demand, shares=[*demand.shares, Share(more)]), policy).slots >= before


@FEW
@given(demands, policies, st.integers(0, 50), st.integers(50, 500))
def test_it_stays_within_its_bounds(demand: Demand, policy: Policy, least: int, most: int) -> None:
    wanted = slots_wanted(demand, replace(policy, least=least, most=most)).slots
    assert least <= wanted <= most
    free = slots_wanted(demand, policy).slots
    assert wanted == min(most, max(least, free))


def test_nothing_to_do_wants_nothing_and_one_run_wants_one() -> None:
    assert slots_wanted(Demand(0, 5), Policy()).slots == 0
    assert slots_wanted(Demand(0, 0.001, [Share(1)]), Policy()).slots == 1
    assert slots_wanted(Demand(0, 5, [Share(7, 0, 0)]), Policy()).slots == 0  # its tenant may run none


def test_what_a_tenant_may_not_use_is_not_wanted_for_it() -> None:
    flood = Share(waiting=100_000, running=3, most=5)
    assert slots_wanted(Demand(0, 60, [flood]), Policy()).slots == 5
    assert slots_wanted(Demand(0, 60, [flood, Share(10)]), Policy()).slots == 15


@FEW
@given(st.floats(0.1, 500), st.floats(0.01, 60), st.integers(1, 20), st.floats(1, 10))
def test_rates_find_what_goes_on_whatever_the_slots(arrivals: float, run_s: float, slots: int, step_s: float) -> None:
    """Steady arrivals at a pool of a fixed size: what cannot be served grows, and is seen as arriving all the same."""
    rates: Rates | None = None
    owed, alive, came = 0.0, 0, 0.0
    for _ in range(300):
        came += arrivals * step_s
        busy = min(float(slots), arrivals * run_s)
        owed += busy / run_s * step_s
        ended, owed = int(owed), owed - int(owed)
        before, alive = alive, alive + int(came) - ended
        came -= int(came)
        rates = averaged(rates, ended=ended, grown=alive - before, slot_s=ended * run_s, elapsed_s=step_s)
    assert rates is not None
    assert abs(rates.arrivals_per_s - arrivals) <= 0.1 * arrivals + 1.1 / step_s
    if busy / run_s * step_s > 20:
        assert rates.run_s is not None and abs(rates.run_s - run_s) <= 0.1 * run_s


def test_a_steady_flow_wants_the_same_from_one_look_to_the_next() -> None:
    rates, wanted = None, set()
    for number in range(600):
        rates = averaged(rates, ended=20, grown=0, slot_s=20.0, elapsed_s=2.0)
        if number > 100:
            wanted.add(slots_wanted(Demand(rates.arrivals_per_s, rates.run_s or 0, [Share(0, 10)]), Policy()).slots)
    assert wanted == {13}  # ten a second for a second each, four fifths of the slots busy


def test_workers_of_so_many_slots() -> None:
    assert [workers_wanted(slots, per_worker=8) for slots in (0, 1, 8, 9)] == [0, 1, 1, 2]


@FEW
@given(st.lists(st.floats(0, 20), min_size=1, max_size=60), st.floats(0.5, 10))
def test_pressure_has_two_edges(waits: list[float], after_s: float) -> None:
    on = False
    for wait in waits:
        was, on = on, presses(on, oldest_wait_s=wait, after_s=after_s)
        assert on or wait < after_s
        assert not on or wait >= after_s / 2
        assert was == on or (wait >= after_s if on else wait < after_s / 2)
    assert not presses(True, oldest_wait_s=1e9, after_s=0)


# --- figures ---


def look(before: Any, *, now: Readings, defer_s: float = 5.0, **tenants: Limits) -> dict[str, Any]:
    known = {int(name[1:]): limits for name, limits in tenants.items()}
    return measured(before, now, tenants=known, policy=Policy(), defer_s=defer_s)


def row(found: dict[str, Any], pool: str = "http", group: str = "") -> dict[str, Any]:
    return next(one for one in found["pools"] if (one["pool"], one["group"]) == (pool, group))


def test_figures_go_by_pool_and_by_the_group_of_whose_runs_they_are() -> None:
    worker = Serving("w", "", {"http": 10, "python": 2}, {"http": 40})
    gpu = Serving("g", "gpu", {"python": 4}, {})
    now = Readings(
        depths=[Depth("http", 0, 1, 7, 2), Depth("http", 1, 1, 3), Depth("python", 0, 2, 9)],
        in_flight=[InFlight("http", 1, 4, 5)], waits=[Waits("http", "", 0, 2.5)], workers=[worker, gpu], elapsed_s=2,
    )  # fmt: skip
    found = look(None, now=now, t1=Limits("", {}), t2=Limits("gpu", {"python": 3}))
    http = row(found)
    assert http["ready"] == {"live": 7, "catch_up": 3, "backfill": 0} and http["later"] == 2
    assert (http["queued"], http["running"], http["slots"], http["workers"]) == (4, 5, 10, 1)
    assert http["oldest_wait_s"]["live"] == 2.5 and not http["pressed"]
    assert row(found, "python", "gpu")["usable"] == 3 and row(found, "python", "gpu")["slots"] == 4
    assert row(found, "python")["usable"] == 0


def test_a_worker_that_ended_or_is_new_makes_no_wild_rate() -> None:
    def now(**ended: int) -> Readings:
        return Readings(workers=[Serving(name, "", {"http": 1}, {"http": count}) for name, count in ended.items()])

    found = look(None, now=now(a=1_000))
    assert row(found)["ended_per_s"] == 0
    found = look(found, now=now(a=1_010, b=5))
    assert 0 < row(found)["ended_per_s"] < 15
    found = look(found, now=now(b=9))
    assert found["ended"] == {"b": {"http": 9}}
    assert 0 < row(found)["ended_per_s"] < 15


def test_a_pool_without_workers_remembers_how_long_its_runs_take() -> None:
    found = None
    for number in range(100):
        found = look(
            found,
            now=Readings(
                workers=[Serving("w", "", {"http": 4}, {"http": number * 4}, {"http": number * 40.0})], elapsed_s=10,
                in_flight=[InFlight("http", 1, 0, 4)],
            ),
        )  # fmt: skip
    assert abs(row(found or {})["run_s"] - 10) < 0.1
    for _ in range(200):
        found = look(found, now=Readings(elapsed_s=10))
    found = look(found, now=Readings(depths=[Depth("http", 0, 1, 12)], elapsed_s=10))
    http = row(found)
    assert abs(http["run_s"] - 10) < 0.1 and http["workers"] == 0
    assert (http["wanted_slots"], http["wanted_workers"]) == (5, 2)  # two for the backlog, the rest for what comes
    unknown = look(None, now=Readings(depths=[Depth("http", 0, 1, 12)], usual_run_s=30))
    assert row(unknown)["wanted_slots"] >= 6 and row(unknown)["wanted_workers"] is None


def test_pressure_is_carried_from_one_measurement_to_the_next() -> None:
    seen, found = [], None
    for oldest in (4.9, 5.1, 3.0, 2.4, 3.0):
        found = look(found, now=Readings(waits=[Waits("http", "", 0, oldest), Waits("python", "", 1, 99.0)]))
        seen.append(row(found)["pressed"])
        assert not row(found, "python")["pressed"]  # what was missed waits for itself
    assert seen == [False, True, True, False, False]
