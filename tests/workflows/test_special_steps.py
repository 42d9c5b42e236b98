"""Steps over lists, sub-workflows, delays, compensations, on_failure and steps that wait for the run before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg import sql

from apps.audit.services import Actor
from apps.life.suspending import tenant_resume, tenant_suspend
from apps.outcomes.cancel import execution_cancel
from kernel.clock import utc_now
from kernel.errors import Conflict
from tests.fixtures_flow import assert_exactly_one_outcome, executions_of, make_job
from tests.workflows.engine import Engine, make_workflow, step
from tests.workflows.test_verbs import ask


def items(engine: Engine, run_id: UUID, name: str) -> list[str]:
    """The states of a step's items, by place."""
    rows = [one for one in engine.rows("workflows_steprun", run_id, "run_id") if one["step"] == name]
    return [one["state"] for one in sorted(rows, key=lambda one: one["item"] or 0) if one["item"] is not None]


def test_a_list_runs_so_many_at_once_and_its_results_come_in_order(engine: Engine) -> None:
    each = {"items": "{{ input.regions }}", "max_in_flight": 2}
    run_id = engine.run(
        make_workflow(
            engine.tenant,
            [
                step("each", for_each=each, input={"r": "{{ item }}", "at": "{{ index }}"}),
                step("load", "each", input="{{ steps.each.result }}"),
            ],
        ),
        payload={"regions": ["eu", "us", "asia"]},
    )
    assert items(engine, run_id, "each") == ["running", "running", "waiting"]
    engine.end(run_id, "each", item=1, result='"two"')
    assert items(engine, run_id, "each") == ["running", "succeeded", "running"]
    third = engine.step(run_id, "each", 2)
    assert engine.execution(third["execution_id"])["payload"] == {"r": "asia", "at": 2}
    assert engine.execution(third["execution_id"])["run_key"] == f"{run_id.hex}:each:2:1"
    engine.end(run_id, "each", item=2, result='"three"')
    assert engine.step(run_id, "each")["items_open"] == 1
    engine.end(run_id, "each", item=0, result='"one"')
    assert engine.states(run_id) == {"each": "succeeded", "load": "running"}
    assert engine.execution(engine.step(run_id, "load")["execution_id"])["payload"] == ["one", "two", "three"]

    empty = engine.run(make_workflow(engine.tenant, [step("each", for_each={"items": []}), step("load", "each")]))
    assert engine.states(empty) == {"each": "succeeded", "load": "running"}
    wrong = engine.run(make_workflow(engine.tenant, [step("each", for_each={"items": "{{ input }}"})]), payload=3)
    assert engine.states(wrong) == {"each": "failed"}


def test_a_list_fails_when_too_many_items_do_and_is_retried_where_it_failed(engine: Engine) -> None:
    each = {"items": [1, 2, 3, 4], "max_in_flight": 2, "max_failures": 1}
    run_id = engine.run(make_workflow(engine.tenant, [step("each", for_each=each), step("load", "each")]))
    engine.end(run_id, "each", "failed", item=0)
    assert items(engine, run_id, "each") == ["failed", "running", "running", "waiting"]
    engine.end(run_id, "each", "failed", item=1)
    assert items(engine, run_id, "each") == ["failed", "failed", "running", "skipped"]
    engine.end(run_id, "each", item=2)
    engine.look()
    assert engine.states(run_id) == {"each": "failed", "load": "skipped: upstream_failed"}
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")

    ask(engine, "run_retry", run_id)
    engine.look()
    assert items(engine, run_id, "each") == ["running", "running", "succeeded", "waiting"]
    for place in (0, 1, 3):
        engine.end(run_id, "each", item=place)
    engine.end(run_id, "load")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")
    ask(engine, "run_rerun", run_id, step="each")
    assert items(engine, run_id, "each") == ["running", "running", "waiting", "waiting"]
    assert engine.step(run_id, "each")["generation"] == 2


def test_a_list_that_is_there_for_a_failure_runs_in_a_run_that_stops(engine: Engine) -> None:
    each = {"items": [1, 2, 3], "max_in_flight": 1}
    steps = [step("a"), step("clean", ("a", "finished"), for_each=each), step("b", "a")]
    run_id = engine.run(make_workflow(engine.tenant, steps, failure_policy="fail_fast"))
    engine.end(run_id, "a", "failed")
    for place in range(3):
        engine.end(run_id, "clean", item=place)
        engine.look()
    assert engine.states(run_id)["clean"] == "succeeded"
    assert engine.of_run(run_id)["state"] == "failed"


def test_cancelling_ends_a_list_with_what_waits_of_it(engine: Engine) -> None:
    run_id = engine.run(
        make_workflow(
            engine.tenant, [step("each", for_each={"items": [1, 2, 3], "max_in_flight": 1}), step("z", "each")]
        )
    )
    started = engine.start(run_id, "each", 0)
    cancel(engine, run_id)
    assert items(engine, run_id, "each") == ["running", "cancelled", "cancelled"], "at once, not with the next look"
    assert engine.states(run_id)["z"] == "cancelled"
    engine.look()
    settle(engine, started)
    engine.look()
    assert engine.states(run_id) == {"each": "cancelled", "z": "cancelled"}
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="cancelled")


def test_a_list_that_a_person_cancels_is_cancelled_however_many_items_may_fail(engine: Engine) -> None:
    each = {"items": [1, 2, 3], "max_in_flight": 1, "max_failures": 3}
    run_id = engine.run(make_workflow(engine.tenant, [step("each", for_each=each), step("z", "each")]))
    started = engine.start(run_id, "each", 0)
    ask(engine, "step_cancel", run_id, step="each")
    assert items(engine, run_id, "each") == ["running", "cancelled", "cancelled"]
    settle(engine, started, "succeeded")
    assert engine.states(run_id) == {"each": "cancelled", "z": "skipped: upstream_failed"}
    ask(engine, "step_retry", run_id, step="each")
    engine.look()
    assert items(engine, run_id, "each") == ["succeeded", "running", "waiting"]
    assert engine.states(run_id) == {"each": "running", "z": "waiting"}


def test_a_workflow_in_a_workflow_ends_its_step_and_is_retried_from_either(engine: Engine) -> None:
    inner = make_workflow(
        engine.tenant, [step("x", input="{{ input.n }}"), step("y", "x")], output="{{ steps.y.result }}"
    )
    outer = make_workflow(
        engine.tenant,
        [step("sub", workflow=str(inner), input={"n": 7}), step("after", "sub", input="{{ steps.sub.result }}")],
    )
    run_id = engine.run(outer)
    engine.look()
    child = engine.step(run_id, "sub")["execution_id"]
    assert engine.of_run(child)["root_id"] == run_id
    assert engine.execution(engine.step(child, "x")["execution_id"])["payload"] == 7
    engine.end(child, "x")
    engine.end(child, "y", "failed")
    engine.look()
    assert engine.states(run_id) == {"sub": "failed", "after": "skipped: upstream_failed"}
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")

    ask(engine, "run_retry", child)
    assert engine.states(run_id) == {"sub": "running", "after": "waiting"}
    assert engine.of_run(run_id)["state"] == "running"
    engine.look()
    engine.end(child, "y", "failed")
    engine.look()
    engine.look()
    assert engine.of_run(run_id)["state"] == "failed"
    ask(engine, "run_retry", run_id)
    assert engine.states(child) == {"x": "succeeded", "y": "running"}
    ask(engine, "run_pause", run_id)
    assert engine.of_run(child)["state"] == "paused"
    ask(engine, "run_resume", run_id)
    assert engine.of_run(child)["state"] == "running"
    engine.look()
    engine.end(child, "y", result='"done"')
    engine.look()
    assert engine.execution(engine.step(run_id, "after")["execution_id"])["payload"] == "done"
    engine.end(run_id, "after")
    engine.look()
    assert engine.execution(run_id)["state"] == "succeeded"


def test_a_run_that_a_list_no_longer_has_stays_as_it_ended(engine: Engine) -> None:
    inner = str(make_workflow(engine.tenant, [step("x")]))
    run_id = engine.run(make_workflow(engine.tenant, [step("sub", workflow=inner, for_each={"items": [1]})]))
    engine.look()
    child = engine.step(run_id, "sub", 0)["execution_id"]
    engine.end(child, "x")
    engine.look()
    assert engine.states(run_id) == {"sub": "succeeded"}
    ask(engine, "run_rerun", run_id, step="sub")
    with pytest.raises(Conflict) as refused:
        ask(engine, "run_rerun", child, step="x")
    assert refused.value.extra["code"] == "run_superseded"
    assert engine.states(child) == {"x": "succeeded"}


def test_a_workflow_in_a_paused_one_begins_when_that_is_resumed(engine: Engine) -> None:
    inner = make_workflow(engine.tenant, [step("x")])
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("sub", "a", workflow=str(inner))]))
    engine.end(run_id, "a")
    ask(engine, "run_pause", run_id)
    engine.look()
    child = engine.step(run_id, "sub")["execution_id"]
    assert (engine.of_run(child)["state"], engine.states(child)) == ("paused", {"x": "waiting"})
    ask(engine, "run_resume", run_id)
    engine.look()
    assert engine.states(child) == {"x": "running"}


def test_a_failed_run_compensates_in_reverse_order_and_tells_once(engine: Engine) -> None:
    undo = {"job": str(make_job(engine.tenant)), "input": {"of": "{{ steps.a.state }}"}}
    steps = [
        step("a", compensate=undo), step("b", "a", compensate={"job": undo["job"]}), step("c", "b"), step("d", "b"),
    ]  # fmt: skip
    told = {
        "job": str(make_job(engine.tenant)),
        "input": {"why": "{{ run.error.message }}", "at": "{{ run.failed_step }}"},
    }
    run_id = engine.run(make_workflow(engine.tenant, steps, failure_policy="compensate", on_failure=told))
    engine.end(run_id, "a")
    engine.end(run_id, "b")
    d = engine.start(run_id, "d")
    engine.end(run_id, "c", "failed")
    engine.look()
    assert "undo.b" not in engine.states(run_id), "what runs has to stop first"
    settle(engine, d, "failed", retryable=False)
    assert engine.states(run_id)["undo.b"] == "running"
    engine.end(run_id, "undo.b", "failed")
    assert engine.execution(engine.step(run_id, "undo.a")["execution_id"])["payload"] == {"of": "succeeded"}
    engine.end(run_id, "undo.a")
    handler = engine.step(run_id, "run.on_failure")["execution_id"]
    assert engine.execution(handler)["payload"] == {"why": "The step c failed: it went wrong", "at": "c"}
    engine.end(run_id, "run.on_failure")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")


def test_two_inner_failures_tell_once(engine: Engine) -> None:
    """F20."""
    inner = make_workflow(engine.tenant, [step("i1"), step("i2"), step("i3")])
    told = {"job": str(make_job(engine.tenant))}
    run_id = engine.run(make_workflow(engine.tenant, [step("x"), step("inner", workflow=str(inner))], on_failure=told))
    engine.look()
    child = engine.step(run_id, "inner")["execution_id"]
    for name, outcome in (("i1", "failed"), ("i2", "failed"), ("i3", "succeeded")):
        engine.end(child, name, outcome)
    engine.end(run_id, "x")
    engine.look()
    calls = [one for one in engine.executions(run_id) if one["step"] == "run.on_failure"]
    assert len(calls) == 1
    engine.end(run_id, "run.on_failure")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")


def test_a_run_whose_output_can_not_be_made_tells_too(engine: Engine) -> None:
    told = {"job": str(make_job(engine.tenant)), "input": "{{ run.error.message }}"}
    run_id = engine.run(make_workflow(engine.tenant, [step("a")], output="{{ steps.a.result.rows }}", on_failure=told))
    engine.end(run_id, "a")
    handler = engine.step(run_id, "run.on_failure")["execution_id"]
    assert engine.execution(handler)["payload"].startswith("Its output could not be made")
    engine.end(run_id, "run.on_failure")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")
    ask(engine, "run_rerun", run_id, step="a")
    engine.end(run_id, "a", result='{"rows": 3}')
    engine.look()
    assert engine.execution(run_id)["result"] == 3


def test_a_delay_holds_its_step_until_its_time(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("wait", delay_s=3600), step("go", "wait")]))
    assert engine.states(run_id) == {"wait": "running", "go": "waiting"}
    table = f'"{engine.tenant.schema_name}".workflows_steprun'
    engine.conn.execute(f"UPDATE {table} SET wake_at = now() WHERE run_id = %s AND step = 'wait'", [run_id])
    engine.conn.execute("UPDATE tickets_ticket SET deadline = now() WHERE execution_id = %s", [run_id])
    engine.look()
    assert engine.states(run_id) == {"wait": "succeeded", "go": "running"}


def test_a_step_waits_for_itself_in_the_run_before_and_a_retry_there_needs_no_place(engine: Engine) -> None:
    """F17."""
    workflow = make_workflow(engine.tenant, [step("a"), step("b", "a", depends_on_previous=True)])
    table = sql.SQL("UPDATE {} SET max_concurrency = 1 WHERE job_id = %s").format(
        sql.Identifier(engine.tenant.schema_name, "schedules_jobversion")
    )
    engine.conn.execute(table, [workflow])
    first = engine.run(workflow)
    engine.end(first, "a")
    engine.end(first, "b", "failed")
    engine.look()
    second = engine.run(workflow)
    engine.end(second, "a")
    assert (engine.step(second, "b")["state"], engine.step(second, "b")["reason"]) == ("waiting", "previous_run")
    ask(engine, "run_retry", first)
    engine.look()
    engine.end(first, "b")
    engine.look()
    assert engine.states(second)["b"] == "running", "told by the end of the one before"
    engine.end(second, "b")
    engine.look()
    for run_id in (first, second):
        assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")


def test_a_workflow_runs_after_another_once_for_each_run_that_ended_so(engine: Engine) -> None:
    first = make_workflow(engine.tenant, [step("a")])
    after = make_workflow(engine.tenant, [step("b")], after=[{"workflow": str(first), "on": "succeeded"}])
    make_workflow(engine.tenant, [step("c")], after=[{"workflow": str(first), "on": "failed"}])
    run_id = engine.run(first)
    engine.end(run_id, "a")
    engine.look()
    [follower] = [
        one for one in executions_of(engine.conn, engine.tenant) if one["run_key"].startswith(f"{run_id.hex}>")
    ]
    assert follower["job_id"] == after
    assert engine.states(follower["id"]) == {"b": "running"}
    ask(engine, "run_rerun", run_id, step="a")
    engine.look()
    engine.end(run_id, "a")
    engine.look()
    assert len([one for one in executions_of(engine.conn, engine.tenant) if one["job_id"] == after]) == 1


def cancel(engine: Engine, run_id: UUID) -> None:
    from apps.audit.services import Actor
    from apps.outcomes.cancel import execution_cancel

    execution_cancel(
        tenant=engine.tenant, actor=Actor("member:ana", "operator"), execution_id=run_id, now=utc_now()
    )  # fmt: skip


def settle(engine: Engine, started: Any, outcome: str = "cancelled", **more: Any) -> None:
    from tests.fixtures_flow import settle_as

    settle_as(engine.conn, engine.registry, [started], outcome, **more)


def test_no_time_passes_while_the_tenant_is_suspended(engine: Engine) -> None:
    """Neither an approval's nor the run's ends; a delay, a wait for an instant, is over when the tenant goes on."""
    steps = [step("ask", approval={"timeout_s": 60}), step("wait", delay_s=60), step("load", "wait")]
    run_id = engine.run(make_workflow(engine.tenant, steps, deadline_s=90))
    now, week = utc_now(), timedelta(days=7)
    who: dict[str, Any] = {"tenant": engine.tenant, "actor": Actor("test", "admin")}
    tenant_suspend(**who, now=now)
    engine.pass_time(run_id)
    engine.pass_time(run_id, whole=True)
    assert engine.states(run_id) == {"ask": "running", "wait": "running", "load": "waiting"}
    ask, whole = engine.step(run_id, "ask")["wake_at"], engine.of_run(run_id)["deadline_at"]
    tenant_resume(**who, now=now + week)
    engine.look()
    assert engine.states(run_id) == {"ask": "running", "wait": "succeeded", "load": "running"}
    assert (engine.step(run_id, "ask")["wake_at"], engine.of_run(run_id)["deadline_at"]) == (ask + week, whole + week)
    tenant_suspend(**who, now=now + week)
    execution_cancel(tenant=engine.tenant, actor=Actor("test", "admin"), execution_id=run_id, now=utc_now())
    engine.look()
    assert engine.states(run_id)["load"] == "cancelled", "an operator may still end it"
