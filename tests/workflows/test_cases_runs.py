"""The cases of tests/cases/workflow.jsonl that need a run."""

from __future__ import annotations

import pytest

from apps.outcomes.cancel import execution_cancel
from kernel.clock import utc_now
from kernel.errors import Conflict
from tests.fixtures_flow import actor, assert_exactly_one_outcome, settle_as
from tests.workflows.engine import Engine, make_workflow, step
from tests.workflows.test_cases import given, steps_of
from tests.workflows.test_verbs import ask


def test_f10_stopped_is_stopped(engine: Engine) -> None:
    stopped, expected = given("F10")
    steps = steps_of(stopped["edges"], stopped["rules"])
    for one in steps:
        del one["job"]  # the engine's no-op takes its place
    run_id = engine.run(make_workflow(engine.tenant, steps))
    a, b = engine.start(run_id, "a"), engine.start(run_id, "b")
    execution_cancel(tenant=engine.tenant, actor=actor(engine.tenant), execution_id=run_id, now=utc_now())
    settle_as(engine.conn, engine.registry, [a, b])
    engine.look()
    assert engine.states(run_id)["z"] == "cancelled"
    assert [one["step"] for one in engine.executions(run_id)].count("z") == expected["z_runs"]
    assert engine.of_run(run_id)["state"] == expected["dag_state"]
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state=expected["dag_state"])


def test_f12_what_a_person_forces_runs(engine: Engine) -> None:
    """The branch chose another way, and does not take the step back."""
    _, expected = given("F12")
    other = [{"value": "{{ steps.br.result.go }}", "equals": "y"}]
    run_id = engine.run(make_workflow(engine.tenant, [step("br"), step("y", "br", when=other), step("end", "y")]))
    engine.end(run_id, "br", result='{"go": "x"}')
    assert engine.states(run_id) == {"br": "succeeded", "y": "skipped: when_false", "end": "skipped: upstream_skipped"}
    ask(engine, "step_force", run_id, step="y")
    for _ in range(2):
        engine.look()
        y = engine.step(run_id, "y")
        assert (y["state"], y["forced"], y["decided_by"]) == ("running", True, "member:ana")
    engine.end(run_id, "y")
    assert engine.states(run_id) == {"br": "succeeded", "y": "succeeded", "end": "running"}
    assert expected["loop"] is False and [one["step"] for one in engine.executions(run_id)] == ["br", "y", "end"]


def test_f13_what_has_started_keeps_what_it_used(engine: Engine) -> None:
    chain, expected = given("F13")
    assert expected["late_duplicate"] == "refused (token)"
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), *(step(b, a) for a, b in chain["edges"])]))
    a = engine.start(run_id, "a")
    settle_as(engine.conn, engine.registry, [a])
    b = engine.start(run_id, "b")
    assert engine.step(run_id, "b")["used"] == {"a": 1}
    late = settle_as(engine.conn, engine.registry, [a], "failed", retryable=False)
    assert late.counts == {"stale": 1}
    with pytest.raises(Conflict):  # what has started keeps what it was given, and is not started again under its feet
        ask(engine, "run_rerun", run_id, step="a")
    ask(engine, "run_rerun", run_id, step="a", downstream=False)
    engine.end(run_id, "a")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running"}
    settle_as(engine.conn, engine.registry, [b])
    assert [one["step"] for one in engine.executions(run_id)] == ["a", "b", "a"]
    used = engine.step(run_id, "b")
    assert (used["used"], used["execution_id"]) == ({"a": 1}, b.execution_id)
    ask(engine, "run_rerun", run_id, step="a")
    engine.end(run_id, "a")
    assert [one["step"] for one in engine.executions(run_id)] == ["a", "b", "a", "a", "b"], "now b was asked for"
