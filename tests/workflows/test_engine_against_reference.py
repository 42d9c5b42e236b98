"""Random graphs over the real tables come to what a naive evaluator says, through lost attempts and late reports."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from apps.outcomes.settle import settle
from apps.tickets.values import Started
from tests.fixtures_flow import assert_exactly_one_outcome, make_job, settle_as, settlement, started_now, ticket_of
from tests.workflows.engine import WORKER, Engine, make_workflow
from tests.workflows.making import JOB, faults
from tests.workflows.reference import Outcome, Played, play

UNWANTED = [{"value": "{{ run.id }}", "equals": "another"}]


def random_graph(rng: random.Random) -> list[dict[str, Any]]:
    """Up to 14 steps in any order, with all joins and conditions."""
    made = []
    for at in range(rng.randint(1, 14)):
        above = rng.sample(range(at), min(at, rng.randint(0, 4)))
        join: Any = rng.choice(["all", "all", "any", "none_failed", "at_least"]) if above else "all"
        ons = ["succeeded"] if join == "none_failed" else ["succeeded", "succeeded", "failed", "finished", "skipped"]
        needs = [{"step": f"s{parent}", "on": rng.choice(ons)} for parent in above]
        if join == "at_least":
            join = {"at_least": rng.randint(1, len(needs))}
        made.append({"name": f"s{at}", "job": str(JOB), "needs": needs, "join": join})
        made[-1]["allow_failure"] = rng.random() < 0.3
    rng.shuffle(made)
    return made


def random_outcomes(rng: random.Random, steps: list[dict[str, Any]], policy: str) -> dict[str, Outcome]:
    """With fail_fast each step ends at an instant of its own: of two at one instant either may be the first."""
    if policy == "continue":
        states = ["succeeded", "succeeded", "failed", "cancelled"]
        return {step["name"]: Outcome(rng.choice(states), rng.randint(1, 4), rng.random() < 0.2) for step in steps}
    return {step["name"]: Outcome(rng.choice(["succeeded", "failed"]), 2.0**at) for at, step in enumerate(steps)}


class Player:
    """Plays a run over the tables: what runs ends in the order of its outcomes' times."""

    def __init__(self, engine: Engine, rng: random.Random, run_id: UUID, outcomes: dict[str, Outcome]) -> None:
        self.engine, self.rng, self.run_id, self.outcomes = engine, rng, run_id, outcomes
        self.now = 0.0
        self.began: dict[str, float] = {}

    def play(self) -> None:
        while running := self._running():
            for name in running:
                self.began.setdefault(name, self.now)
            asked = [name for name, one in running.items() if self._is_asked_to_stop(one)]
            ends = {name: self.began[name] + self.outcomes[name].seconds for name in running}
            self.now = self.now if asked else min(ends.values())
            names = asked or [name for name, at in ends.items() if at == self.now]
            self._end({running[name]: "cancelled" if asked else self.outcomes[name].state for name in names})

    def _running(self) -> dict[str, UUID]:
        self.engine.look()
        rows = self.engine.rows("workflows_steprun", self.run_id, "run_id")
        return {one["step"]: one["execution_id"] for one in rows if one["state"] == "running"}

    def _is_asked_to_stop(self, execution: UUID) -> bool:
        return bool(ticket_of(self.engine.conn, execution)["cancel_requested"])

    def _end(self, states: dict[UUID, str]) -> None:
        conn, registry = self.engine.conn, self.engine.registry
        started = started_now(conn, list(states), WORKER)
        if self.rng.random() < 0.2 and "cancelled" not in states.values():  # their worker died: they are tried again
            settle_as(conn, registry, started, "lost")
            started = started_now(conn, list(states), WORKER)
        items = [settlement(conn, registry, one, states[one.execution_id], retryable=False) for one in started]
        batches = [items] if self.rng.random() < 0.5 else [[one] for one in items]
        for batch in batches:
            settle(conn, registry, batch)
        late: list[Started] = [self.rng.choice(started)]
        assert settle_as(conn, registry, late, "failed").counts == {"stale": 1}


def assert_as_expected(engine: Engine, run_id: UUID, policy: str, expected: Played) -> None:
    rows = engine.rows("workflows_steprun", run_id, "run_id")
    assert {one["step"]: one["state"] for one in rows} == expected.states
    if policy == "continue":  # what stops a run and what it followed from may both be the reason
        skipped = {name: why for name, why in expected.reasons.items() if expected.states[name] == "skipped"}
        assert {one["step"]: one["reason"] for one in rows if one["state"] == "skipped"} == skipped
    run = engine.of_run(run_id)
    assert (run["state"], run["open"]) == (expected.run, 0)
    found = engine.executions(run_id)
    assert sorted(one["run_key"] for one in found) == sorted(f"{run_id.hex}:{name}:1" for name in expected.started)
    state = {"succeeded": "succeeded", "failed": "dead"}[expected.run]
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state=state)


def play_some(engine: Engine, seed: int, graphs: int) -> None:
    rng, played = random.Random(seed), 0
    job = str(make_job(engine.tenant, retry={"max_attempts": 3}))
    while played < graphs:
        steps, policy = random_graph(rng), rng.choice(["continue", "continue", "fail_fast"])
        if faults(*steps):
            continue
        played += 1
        outcomes = random_outcomes(rng, steps, policy)
        expected = play({"steps": steps, "failure_policy": policy}, outcomes)
        real = [{**one, "job": job, "when": UNWANTED if outcomes[one["name"]].unwanted else []} for one in steps]
        run_id = engine.run(make_workflow(engine.tenant, real, failure_policy=policy))
        Player(engine, rng, run_id, outcomes).play()
        engine.look()
        assert_as_expected(engine, run_id, policy, expected)


def test_some_random_graphs(engine: Engine) -> None:
    play_some(engine, seed=7, graphs=12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_random_graphs(engine: Engine, seed: int) -> None:
    play_some(engine, seed=seed, graphs=80)
