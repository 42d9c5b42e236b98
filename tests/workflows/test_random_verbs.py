"""Random runs under random verbs: whatever persons do and steps bring, the counters fit the states, nothing is stuck,
and each run comes to its end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from kernel.errors import ShardbeatError
from tests.fixtures_flow import make_job, ticket_of
from tests.workflows.engine import Engine, make_workflow, step
from tests.workflows.test_special_steps import cancel
from tests.workflows.test_verbs import ask

Row = dict[str, Any]
VERBS: Sequence[tuple[str, dict[str, Any]]] = (
    ("look", {}), ("look", {}), ("run_retry", {}), ("run_rerun", {}), ("run_rerun", {"downstream": False}),
    ("step_retry", {}), ("step_skip", {"reason": "so"}), ("step_force", {}), ("step_cancel", {}),
    ("step_cancel", {"branch": True}), ("run_pause", {}), ("run_resume", {}), ("run_resume", {}), ("cancel", {}),
)  # fmt: skip
OPS, ENDING = 35, 150


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(100, 200), marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_runs_under_random_verbs_stay_whole_and_end(engine: Engine, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        told: list[Any] = [seed]
        try:
            run_id = engine.run(random_workflow(engine, rng, told, inner=True))
            for _ in range(OPS):
                random_op(engine, rng, run_id, told)
                for one in tree(engine, run_id):
                    assert_whole(engine, one)
            assert_ends(engine, run_id)
        except BaseException:
            print(*told, sep="\n")
            raise


def random_workflow(engine: Engine, rng: random.Random, told: list[Any], *, inner: bool) -> UUID:
    job = {"job": str(make_job(engine.tenant))}
    names = "abcdefg"[: rng.randint(2, 7 if inner else 3)]
    steps = []
    for at, name in enumerate(names):
        on = ["succeeded"] * 4 + ["failed", "finished", "skipped"]
        needs = [(parent, rng.choice(on)) for parent in names[:at] if rng.random() < 0.4]
        more: dict[str, Any] = {"allow_failure": True} if rng.random() < 0.15 else {}
        if needs:
            more["join"] = rng.choice(["all", "all", "any", "none_failed"])
        kind = rng.random()
        if kind < 0.2:
            each = {"items": list(range(rng.randint(0, 4))), "max_failures": rng.randint(0, 1)}
            more["for_each"] = each | ({"max_in_flight": rng.randint(1, 2)} if rng.random() < 0.7 else {})
        elif kind < 0.3:
            more["approval"] = {"role": "operator"}
        elif kind < 0.45 and inner:
            more["workflow"] = str(random_workflow(engine, rng, told, inner=False))
        if rng.random() < 0.2:
            more["compensate"] = job
        steps.append(step(name, *needs, **more))
    policy = rng.choice(["continue", "continue", "fail_fast", "compensate"])
    told.append((policy, steps))
    tells: dict[str, Any] = {"on_failure": job} if rng.random() < 0.4 else {}
    return make_workflow(engine.tenant, steps, failure_policy=policy, **tells)


def random_op(engine: Engine, rng: random.Random, root: UUID, told: list[Any]) -> None:
    """One end of a step or one verb, of the run or of one of its sub-workflows."""
    run_id = rng.choice(tree(engine, root))
    if rng.random() < 0.55 and end_one(engine, run_id, told, outcome=rng.choice(["succeeded", "succeeded", "failed"])):
        return
    verb, more = rng.choice(VERBS)
    if verb == "cancel" and rng.random() < 0.7:
        return
    if verb.startswith("step") or verb == "run_rerun":
        names = [one["step"] for one in steps_of(engine, run_id) if one["type"] not in ("compensation", "on_failure")]
        more = {**more, "step": rng.choice(names)}
    told.append((str(run_id), verb, more))
    try:
        if verb == "cancel":
            cancel(engine, run_id)
        elif verb != "look":
            ask(engine, verb, run_id, **more)
    except ShardbeatError as refused:
        told[-1] = (*told[-1], refused.detail)
    if verb in ("look", "run_resume"):
        engine.look()


def end_one(engine: Engine, run_id: UUID, told: list[Any], *, outcome: str = "succeeded") -> bool:
    """Ends a step that goes on, if any: its attempt, or the question to a person."""
    for one in engine.rows("workflows_steprun", run_id, "run_id"):
        if one["state"] != "running" or one["items"] is not None or one["type"] == "workflow":
            continue
        if one["type"] == "approval":
            verb = "step_approve" if outcome == "succeeded" else "step_reject"
            told.append((str(run_id), verb, one["step"]))
            ask(engine, verb, run_id, step=one["step"])
            return True
        ticket = ticket_of(engine.conn, one["execution_id"])
        if ticket is not None and ticket["state"] == "ready":
            told.append((str(run_id), one["step"], one["item"], outcome))
            engine.end(run_id, one["step"], outcome, item=one["item"])
            return True
    return False


def assert_whole(engine: Engine, run_id: UUID) -> None:
    """The counters of a run are those of its states, and what runs of it is there to run."""
    from apps.workflows import deciding
    from apps.workflows.known import graphs_here

    run, rows = engine.of_run(run_id), engine.rows("workflows_steprun", run_id, "run_id")
    version = (run["workflow_id"], run["version"])
    graph = graphs_here().load(engine.conn, engine.tenant.schema_name, {version})[version]
    steps = {one["step"]: one for one in rows if one["item"] is None}
    ends = {
        name: deciding.End(one["state"], one["reason"]) for name, one in steps.items() if one["state"] in deciding.FINAL
    }
    assert run["open"] == len(steps) - len(ends)
    assert run["failed"] == sum(
        deciding.fails_run(graph.steps[name], ends[name]) for name in ends if name in graph.steps
    )
    for name, one in steps.items():
        if name in graph.steps and one["state"] == "waiting":
            needs = deciding.counted(graph.steps[name], ends)
            assert needs == deciding.Needs(one["pending"], one["met"], one["failed"], one["succeeded"]), name
            if run["state"] == "running":
                assert deciding.decide(graph.steps[name], needs).kind == "wait", name
        if one["items"] is not None:
            items = [item for item in rows if item["item"] is not None and item["step"] == name]
            assert len(items) == one["items"]
            assert one["items_open"] == sum(item["state"] not in deciding.FINAL for item in items)
    for one in rows:
        if one["state"] == "running" and one["type"] != "approval" and one["items"] is None:
            assert engine.execution(one["execution_id"])["finished_at"] is None, one["step"]
            assert ticket_of(engine.conn, one["execution_id"]) is not None, one["step"]
    assert run["finished_at"] is None or run["open"] == 0


def assert_ends(engine: Engine, root: UUID) -> None:
    """With steps that succeed from now on the run ends, and its execution with it."""
    told: list[Any] = []
    for _ in range(ENDING):
        for run_id in tree(engine, root):
            if engine.of_run(run_id)["state"] == "paused":
                ask(engine, "run_resume", run_id)
        engine.look()
        if engine.of_run(root)["finished_at"] is not None:
            break
        for run_id in tree(engine, root):
            end_one(engine, run_id, told)
    engine.look()
    for run_id in tree(engine, root):
        run, execution = engine.of_run(run_id), engine.execution(run_id)
        assert run["finished_at"] is not None, told[-5:]
        # One that failed and was asked to stop before it was settled is cancelled, as any execution is.
        assert execution["state"] in {"failed": ("dead", "cancelled")}.get(run["state"], (run["state"],))
        assert ticket_of(engine.conn, run_id) is None
        keys = [one["run_key"] for one in engine.executions(run_id)]
        assert len(keys) == len(set(keys))


def steps_of(engine: Engine, run_id: UUID) -> list[Row]:
    return [one for one in engine.rows("workflows_steprun", run_id, "run_id") if one["item"] is None]


def tree(engine: Engine, root: UUID) -> list[UUID]:
    """The run and those of its sub-workflows that have begun."""
    return [root] + [one["execution_id"] for one in engine.rows("workflows_run", root, "root_id") if one["depth"]]
