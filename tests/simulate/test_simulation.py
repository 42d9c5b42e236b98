"""The simulation against what is known without it: queueing theory, weights, limits; and it is the same every time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from apps.dispatch.pace import REFILL_WAIT_S, kept_for_newcomers
from apps.dispatch.simulation.answer import Side, answer
from apps.dispatch.simulation.changes import changed, read_sets, scaled
from apps.dispatch.simulation.engine import Result, simulate
from apps.dispatch.simulation.measures import Demand, shares_due, waits_of
from apps.dispatch.simulation.rounds import Rounds
from apps.dispatch.simulation.settings import Settings
from apps.dispatch.simulation.sizing import is_enough, plan, read_demand
from apps.dispatch.simulation.sizing_figures import FIGURES
from apps.dispatch.simulation.sizing_text import plan_text
from apps.dispatch.simulation.spec import read_spec
from apps.dispatch.simulation.state import Run, State
from kernel.errors import InvalidInput

NO_COST = {"round_s": 0.0005} | dict.fromkeys(("look_s", "release_s", "handover_s", "settle_s", "overhead_s"), 0)


def run(seed: int = 1, **document: Any) -> tuple[Settings, Result]:
    settings, load = read_spec({"slots": {"python": 10}, **document}, seed=seed)
    return settings, simulate(settings, load)


def by_slug(settings: Settings, result: Result) -> Mapping[str, Any]:
    return {settings.tenants[tenant].slug: figures for tenant, figures in result.tenants.items()}


def waits(result: Result) -> list[list[float]]:
    return [figures.waits.tolist() for figures in result.tenants.values()]


def erlang_c(servers: int, load: float) -> float:
    """The share of arrivals of an M/M/c queue that must wait (A. K. Erlang, 1917)."""
    part = sum(load**k / math.factorial(k) for k in range(servers))
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (part + last)


def test_waits_are_those_of_an_mmc_queue() -> None:
    servers, per_s, run_s = 10, 7.0, 1.0
    _, result = run(
        seconds=4_500, counted_from=500, tenants={"acme": {}}, costs=NO_COST,
        jobs=[
            {"tenant": "acme", "pool": "python", "run_s": {"exponential": run_s},
             "arrivals": {"poisson_per_s": per_s}}
        ],
    )  # fmt: skip
    found = result.tenants[1].waits
    waited = [wait for wait in found if wait > 0.01]
    expected = erlang_c(servers, per_s * run_s)
    assert len(waited) / len(found) == pytest.approx(expected, rel=0.1)
    assert sum(waited) / len(waited) == pytest.approx(run_s / (servers - per_s * run_s), rel=0.15)
    assert result.busy_s["python", ""] / (result.seconds * servers) == pytest.approx(0.7, rel=0.03)


@pytest.mark.parametrize("shared", [True, False])
def test_weights_of_one_and_three_give_one_and_three(shared: bool) -> None:
    flood = {"run_s": {"exponential": 1}, "pool": "python", "arrivals": {"poisson_per_s": 20}}
    settings, result = run(
        seconds=400, counted_from=60, costs=NO_COST, prefetch=1, slots={"python": 16},
        tenants={"light": {"own_queue": not shared}, "heavy": {"weight": 3, "own_queue": not shared}},
        jobs=[{"tenant": "light", **flood}, {"tenant": "heavy", **flood}],
    )  # fmt: skip
    got = by_slug(settings, result)
    assert got["heavy"].slot_s / got["light"].slot_s == pytest.approx(3, rel=0.05)
    assert got["light"].got / got["light"].due == pytest.approx(1, rel=0.1)


def test_limits_hold_back_with_their_codes() -> None:
    flood = {"run_s": 1, "pool": "python", "arrivals": {"flood": 100}}
    settings, result = run(
        seconds=20, tenants={"acme": {"max_running": 4}, "globex": {}, "paused": {"active": False}},
        jobs=[
            {"tenant": "acme", **flood},
            {"tenant": "globex", "name": "job", "max_concurrency": 2, **flood},
            {"tenant": "globex", "name": "rate", "rate_limit": {"runs": 60, "per_s": 60, "burst": 1}, **flood},
            {"tenant": "globex", "name": "key", "key": {"values": 1, "max": 1}, **flood},
            {"tenant": "paused", **flood},
        ],
        slots={"python": 100}, prefetch=1,
    )  # fmt: skip
    got = by_slug(settings, result)
    assert 70 <= got["acme"].started <= 80, "four at a time for 20 seconds"
    assert 75 <= got["globex"].started <= 82, "two, one and one at a time"
    assert set(got["acme"].held) == {"tenant_concurrency"}
    assert {"job_concurrency", "job_rate", "concurrency_key"} <= set(got["globex"].held)
    assert set(got["paused"].held) == {"tenant_inactive"}
    assert (got["paused"].started, got["paused"].waiting) == (0, 100)


def test_what_goes_at_once_is_held_back_for_no_longer_than_it_waits() -> None:
    """Looks at every full second and a bit would see each of these runs, and take it for a second's wait."""
    _, result = run(
        seconds=3_600, counted_from=0.01, tenants={"acme": {}}, slots={"python": 100},
        jobs=[{"tenant": "acme", "pool": "python", "arrivals": {"every_s": 60, "schedules": 40}}],
    )  # fmt: skip
    acme = result.tenants[1]
    assert max(acme.waits) < 0.2
    assert sum(acme.held.values()) < 2 * sum(acme.waits)


def test_a_pass_looks_as_release_does_and_newcomers_have_their_places() -> None:
    settings, load = read_spec(
        {"slots": {"python": 10}, "tenants": {"flood": {}, "new": {}}, "costs": {"round_s": 0, "look_s": 0.01},
         "jobs": [{"tenant": name, "pool": "python", "arrivals": {"flood": 90}} for name in ("flood", "new")]}
    )  # fmt: skip
    state = State(settings, load.starts_at)
    pool, rounds = state.pools["python"], Rounds(state, "python")

    def come(tenant: int, count: int) -> None:
        for arrival in [one for one in load.arrivals if one.job == tenant][:count]:
            pool.add(Run(pool.waiting.total(), arrival, settings.jobs[tenant], 0.0))

    come(1, 90)
    assert len(rounds.release(0.0).released) == 20, "its slots and as many ahead"
    full = rounds.release(0.2)
    assert (full.released, full.look_s, full.lasting) == ([], 0.05, False)
    assert rounds.release(0.201).look_s == pytest.approx(0.201 / 4), "nobody looks for newcomers again at once"
    come(2, 6)
    assert [run.tenant for run in rounds.release(0.3).released] == [2] * kept_for_newcomers(capacity=20, slots=10)
    assert not rounds.release(0.4).released, "it is no newcomer any more, nor is the other"
    late = rounds.release(0.9)
    assert (late.look_s, late.lasting) == (REFILL_WAIT_S, True)


def test_what_does_not_come_to_be_is_counted() -> None:
    settings, result = run(
        seconds=30, tenants={"acme": {"max_live": 10}, "globex": {"max_runs_per_day": 7}},
        jobs=[
            {"tenant": "acme", "pool": "python", "run_s": 100, "arrivals": {"flood": 30}},
            {"tenant": "globex", "pool": "python", "arrivals": {"every_s": 1}},
            {"tenant": "globex", "pool": "python", "max_queue_age_s": 2, "arrivals": {"flood": 1, "at_s": 20}},
        ],
    )  # fmt: skip
    got = by_slug(settings, result)
    assert got["acme"].dropped == {"backlog_full": 20}
    assert got["globex"].dropped["daily_quota"] == 24


def test_overlap_skips_and_runs_expire() -> None:
    settings, result = run(
        seconds=60, tenants={"acme": {}}, slots={"python": 1}, prefetch=1,
        jobs=[
            {"tenant": "acme", "pool": "python", "run_s": 25, "overlap": "skip", "arrivals": {"every_s": 10}},
            {"tenant": "acme", "pool": "python", "max_queue_age_s": 5, "arrivals": {"flood": 1, "at_s": 3}},
        ],
    )  # fmt: skip
    dropped = by_slug(settings, result)["acme"].dropped
    assert dropped["overlap_skipped"] >= 3
    assert dropped["expired"] == 1


def test_the_same_seed_gives_the_same() -> None:
    document = {
        "seconds": 60, "tenants": {"many": {"copies": 20}},
        "jobs": [{"tenant": "many", "pool": "python", "fails": 0.2, "retry": {"base_s": 0.1},
                  "run_s": {"pareto": {"least": 0.1, "alpha": 1.2, "most": 20}}, "arrivals": {"poisson_per_s": 0.5}}],
    }  # fmt: skip
    first, again, other = (run(seed, **document)[1] for seed in (3, 3, 4))
    assert [one.waits.tolist() for one in first.tenants.values()] == [
        one.waits.tolist() for one in again.tenants.values()
    ]
    assert first.events == again.events
    assert first.events != other.events


def test_a_what_if_beside_the_present() -> None:
    settings, load = read_spec(
        {"seconds": 120, "tenants": {"acme": {}}, "slots": {"python": 2}, "jobs": [
            {"tenant": "acme", "name": "sync", "pool": "python", "run_s": 1, "arrivals": {"poisson_per_s": 3}}]},
        seed=1,
    )  # fmt: skip
    changes = read_sets(["slots.python=8", "load.acme=0.5", "run_s.acme/sync=0.5"])
    new = changed(settings, changes)
    less = scaled(load, new, changes, seed=1)
    assert len(less.arrivals) == pytest.approx(len(load.arrivals) / 2, rel=0.2)
    whole = answer(Side(settings, simulate(settings, load)), Side(new, simulate(new, less)), load, real=False)
    assert whole["what_if"]["tenants"]["acme"]["p95"] < 0.2 < whole["present"]["tenants"]["acme"]["p95"]
    assert whole["what_if"]["pools"]["python"]["utilisation"] < whole["present"]["pools"]["python"]["utilisation"]
    assert any("still waited" in reason for reason in whole["worth"]["reasons"])


@pytest.mark.parametrize(
    "path", ["tenant.nobody.weight=1", "tenant.acme.wait=1", "slots.gpu=1", "job.acme/none.max_concurrency=1", "x=1",
             "=2", "tenant.acme.weight=heavy", "cost.fire_per_s=0", "tenant.acme.weight=Infinity", "slots.http=1e999",
             "tenant.acme.max_slots=5", "tenant.acme.active=no", "tenant.acme.shared_queues=0", "tenant.acme.group=7",
             'job.acme/job-1.rate_limit={"runs": 0, "per_s": 1}', "job.acme/job-1.rate_limit=x"],
)  # fmt: skip
def test_a_change_that_changes_nothing_is_refused(path: str) -> None:
    settings, _ = read_spec(
        {"tenants": {"acme": {}}, "slots": {"http": 1}, "jobs": [{"tenant": "acme", "arrivals": {"flood": 1}}]}
    )
    with pytest.raises(InvalidInput):
        changed(settings, read_sets([path]))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"tenants": {"a": {}}, "slots": {"gpu": 1}, "jobs": []},
        {"tenants": {"a": {"weight": 0}}, "slots": {"http": 1}, "jobs": [{"tenant": "a", "arrivals": {"flood": 1}}]},
        {"tenants": {"a": {}}, "slots": {"http": 1}, "jobs": [{"tenant": "b", "arrivals": {"flood": 1}}]},
        {
            "tenants": {"a": {}},
            "slots": {"http": 1},
            "jobs": [{"tenant": "a", "run_s": {"n": 1}, "arrivals": {"flood": 1}}],
        },
    ],
)
def test_a_load_that_makes_no_sense_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        read_spec(document)


@pytest.mark.parametrize(
    "wrong", [
        {"prefetch": None}, {"prefetch": math.inf}, {"counted_from": "x"}, {"counted_from": 11},
        {"tenant": {"reserved": "x"}},
        {"tenant": {"max_slots": {"gpu": 1}}}, {"tenant": {"active": "no"}}, {"job": {"tenant": []}},
        {"job": {"priority": "x"}},
        {"job": {"rate_limit": {"runs": 1, "per_s": 0}}}, {"job": {"key": "x"}},
        {"job": {"retry": {"max_attempts": 10**9}}},
        {"job": {"fails": 2}}, {"job": {"overlap": "x"}}, {"job": {"lane": []}}, {"job": {"arrivals": {"every_s": 0}}},
        {"job": {"arrivals": {"flood": 10**9}}}, {"job": {"arrivals": {"poisson_per_s": 1e9}}},
        {"job": {"arrivals": {"every_s": 0.001, "schedules": 10**9}}},
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_or_has_no_end_is_refused(wrong: dict[str, Any]) -> None:
    top = {key: value for key, value in wrong.items() if key not in ("tenant", "job")}
    job = {"tenant": "acme", "arrivals": {"flood": 1}, **wrong.get("job", {})}
    document = {"seconds": 10, "tenants": {"acme": wrong.get("tenant", {})}, "slots": {"http": 1}, "jobs": [job], **top}
    with pytest.raises(InvalidInput):
        read_spec(document, most=1_000)


@pytest.mark.parametrize(
    "wrong", [{"worker_processes": {"http": 0}}, {"worker_processes": {"gpu": 1}}, {"worker_processes": 3},
              {"pools": 3},
              {"worker_processes": {"http": "x"}}, {"dispatchers": 2.5}, {"pools": {"http": {"share": 0.5}}},
              {"slot_use": 1.1}, {"burst_s": 0}, {"attempts": 0.5}, {"late_s": -1}],
)  # fmt: skip
def test_a_demand_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        read_demand(wrong)
    assert read_demand({"pools": {"http": {"run_s": 2}}}).pools["http"].run_s == 2


def test_slots_that_are_all_busy_are_not_enough_and_a_burst_gets_what_the_mean_leaves() -> None:
    """100 runs a second of 10 s hold 1,000 slots all the time: who waits there would wait for ever."""
    asked = {
        "runs_per_day": 8_640_000, "peak": 1, "attempts": 1, "burst_per_s": 0,
        "pools": {"container": {"share": 1, "run_s": 10, "slots_a_process": 10}},
    }  # fmt: skip

    def planned(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        found = plan(read_demand({**asked, **more}), FIGURES)
        return found, next(part for part in found["parts"] if part["name"].startswith("worker"))

    full, part = planned(worker_processes={"container": 100})
    assert (part["needed"], part["use"], part["most_per_s"]) == (125, pytest.approx(1), pytest.approx(80))
    assert full["bottleneck"]["part"] == part["name"] and not full["bottleneck"]["holds"]
    assert planned()[0]["bottleneck"]["holds"]
    burst, part = planned(burst_per_s=200, burst_s=10, late_s=10)
    assert part["needed"] == 250, "100 more a second bring 2,000 runs in 20 s"
    assert burst["burst"] == {"due": 2_000, "per_s": pytest.approx(100), "by": part["name"],
                              "seconds": pytest.approx(20), "late_s": pytest.approx(10), "holds": True}  # fmt: skip
    for more in ({"worker_processes": {"container": 249}}, {"dispatchers": 1, "burst_per_s": 20_000}):
        assert not planned(**{"burst_per_s": 200, "worker_processes": {"container": 10**6}, **more})[0]["burst"][
            "holds"
        ]
    assert "NOT ENOUGH" in plan_text(planned(worker_processes={"container": 1})[0])
    exact = read_demand({"runs_per_day": 8_640_000, "peak": 4, "burst_per_s": 1})
    assert is_enough(plan(exact, FIGURES)), "what a plan asks for is enough, also where it fits to the last digit"


def test_a_time_limit_ends_it() -> None:
    settings, load = read_spec(
        {"seconds": 1_800, "tenants": {"acme": {}}, "slots": {"python": 50}, "jobs": [
            {"tenant": "acme", "pool": "python", "run_s": 1, "arrivals": {"poisson_per_s": 10}}]}
    )  # fmt: skip
    result = simulate(settings, load, limit_s=0)
    assert result.cut_short is not None and 0 < result.seconds < 1_800


def test_quantiles_are_those_of_the_waits() -> None:
    assert waits_of([]) == (0, None, None, None, None)
    assert waits_of([float(n) for n in range(1, 101)]) == (100, 50.0, 95.0, 99.0, 100.0)


@pytest.mark.parametrize(
    ("demands", "due"),
    [
        ({1: Demand(1, 0, 99), 2: Demand(3, 0, 99)}, {1: 10, 2: 30}),
        ({1: Demand(1, 5, 0), 2: Demand(3, 0, 99)}, {1: 5, 2: 35}),
        ({1: Demand(1, 0, 99, reserved=20), 2: Demand(3, 0, 99)}, {1: 20, 2: 20}),
        ({1: Demand(1, 0, 99, maximum=2), 2: Demand(1, 0, 99)}, {1: 2, 2: 38}),
        ({1: Demand(1, 0, 99, reserved=60), 2: Demand(1, 0, 99, reserved=20)}, {1: 30, 2: 10}),
    ],
)
def test_shares_that_are_due(demands: Mapping[int, Demand], due: Mapping[int, float]) -> None:
    assert shares_due(demands, 40) == pytest.approx(due)
