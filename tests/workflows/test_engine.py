"""Runs over the real tables: what starts when, once, and how a run ends."""

from __future__ import annotations

from tests.fixtures_flow import assert_exactly_one_outcome, rows_of, ticket_of
from tests.workflows.engine import Engine, make_workflow, step


def test_a_diamond_runs_each_step_once_and_ends(engine: Engine) -> None:
    workflow = make_workflow(
        engine.tenant,
        [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c", input={"of": "{{ steps.b.result.n }}"})],
        output={"d": "{{ steps.d.state }}"},
    )
    run_id = engine.run(workflow, payload={"x": 1})
    assert engine.states(run_id) == {"a": "running", "b": "waiting", "c": "waiting", "d": "waiting"}

    engine.end(run_id, "a")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "running", "d": "waiting"}
    engine.end(run_id, "b", result='{"n": 7}')
    assert engine.states(run_id)["d"] == "waiting"
    engine.end(run_id, "c")
    d = engine.step(run_id, "d")
    assert engine.execution(d["execution_id"])["payload"] == {"of": 7}
    assert d["used"] == {"b": 1, "c": 1}
    engine.end(run_id, "d")

    assert engine.of_run(run_id)["state"] == "succeeded"
    engine.look()
    container = assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")
    assert container["result"] == {"d": "succeeded"}
    found = engine.executions(run_id)
    assert sorted(one["run_key"] for one in found) == [f"{run_id.hex}:{name}:1" for name in "abcd"]
    assert {one["trigger"] for one in found} == {"workflow"}


def test_a_failure_skips_what_needs_it_and_makes_one_letter_of_the_run(engine: Engine) -> None:
    workflow = make_workflow(
        engine.tenant,
        [step("a"), step("b", "a"), step("c", "b"), step("told", ("a", "failed")), step("clean", ("c", "finished"))],
    )
    run_id = engine.run(workflow)
    engine.end(run_id, "a", "failed")
    assert engine.states(run_id) == {
        "a": "failed", "b": "skipped: upstream_failed", "c": "skipped: upstream_failed", "told": "running",
        "clean": "running",
    }  # fmt: skip
    engine.end(run_id, "told")
    engine.end(run_id, "clean")
    engine.look()
    container = assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")
    assert container["error"]["step"] == "a"
    assert container["error"]["execution"] == str(engine.step(run_id, "a")["execution_id"])
    letters = rows_of(engine.conn, engine.tenant, "deadletters_deadletter")
    assert [one["execution_id"] for one in letters] == [run_id]
    assert ticket_of(engine.conn, run_id) is None
