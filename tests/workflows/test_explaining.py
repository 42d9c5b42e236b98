"""Why does a run not go on: over the real tables, one run in the situations that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kernel.clock import utc_now
from kernel.errors import NotFound
from tests.workflows.engine import Engine, make_workflow, step
from tests.workflows.test_special_steps import cancel
from tests.workflows.test_verbs import ask

if TYPE_CHECKING:
    from apps.dispatch.explaining.values import Explanation


def explain(engine: Engine, run_id: UUID, name: str | None = None, item: int | None = None) -> Explanation:
    from apps.dispatch.explaining.workflow_runs import run_explain, step_explain
    from tenants.work import in_tenant

    if name is None:
        return in_tenant(engine.tenant, lambda: run_explain(engine.tenant, run_id, now=utc_now()))
    return in_tenant(
        engine.tenant, lambda: step_explain(engine.tenant, run_id, name, item=item, now=utc_now())
    )  # fmt: skip


def test_a_run_and_its_steps_say_what_they_wait_for(engine: Engine) -> None:
    from apps.dispatch.explaining.shape import explanation_shape, explanation_text

    steps = [
        step("a"), step("ok", "a", approval={"role": "admin"}),
        step("each", "ok", for_each={"items": [1, 2], "max_in_flight": 1}), step("end", "each"),
    ]  # fmt: skip
    run_id = engine.run(make_workflow(engine.tenant, steps))
    assert explain(engine, run_id, "a").verdict.code == "no_workers", "what holds its execution"
    whole = explain(engine, run_id)
    assert (whole.kind, whole.state) == ("workflow_run", "running")
    assert whole.verdict.detail.startswith("Step 'a': ")
    assert explanation_shape(whole)["verdict"]["link"] is None
    assert explanation_text(whole).startswith(f"Workflow run {run_id}")
    waits = explain(engine, run_id, "ok")
    assert waits.verdict.code == "waits_for_steps"
    assert waits.notes == ["It needs 'a' to succeed; that step is running."]

    engine.end(run_id, "a")
    assert explain(engine, run_id).verdict.code == "awaits_approval"
    ask(engine, "run_pause", run_id, reason="wait")
    assert "by member:ana: wait" in explain(engine, run_id).verdict.detail
    ask(engine, "run_resume", run_id)
    ask(engine, "step_approve", run_id, step="ok", role="admin")
    assert explain(engine, run_id, "each").verdict.code == "items_running"
    assert explain(engine, run_id, "each", 1).verdict.code == "items_in_flight"
    engine.end(run_id, "each", "failed", item=0)
    engine.look()
    ended = explain(engine, run_id)
    assert (ended.verdict.code, ended.state) == ("run_failed", "failed")
    assert "'each'" in ended.verdict.detail
    assert explain(engine, run_id, "end").verdict.code == "upstream_failed"
    with pytest.raises(NotFound):
        explain(engine, run_id, "nobody")
    with pytest.raises(NotFound):
        explain(engine, UUID(int=5))


def test_what_holds_a_workflow_in_a_workflow_is_what_holds_its_step(engine: Engine) -> None:
    inner = make_workflow(engine.tenant, [step("ok", approval={"role": "admin", "message": "Go?"})], max_active_runs=1)
    sub = {"workflow": str(inner), "for_each": {"items": [1, 2]}}
    run_id = engine.run(make_workflow(engine.tenant, [step("sub", **sub)]))
    engine.look()
    asked = explain(engine, run_id).verdict
    assert asked.code == "awaits_approval"
    assert asked.detail.startswith("Step 'sub[0]': Step 'ok': It waits for a person with the role admin")
    assert explain(engine, run_id, "sub", 0).verdict.code == "awaits_approval"
    assert explain(engine, run_id, "sub", 1).verdict.code == "job_concurrency", "its run has not begun"
    assert explain(engine, run_id, "sub").verdict.code == "items_running"
    ask(engine, "run_pause", run_id)
    assert explain(engine, run_id, "sub", 0).verdict.code == "run_paused"


def test_who_stopped_a_step_is_named_however_it_was_stopped(engine: Engine) -> None:
    each = {"items": [1, 2], "max_in_flight": 1}
    flow = make_workflow(
        engine.tenant, [step("a"), step("bad"), step("each", for_each=each)], failure_policy="fail_fast"
    )
    outer = make_workflow(engine.tenant, [step("sub", workflow=str(flow))])

    one = engine.run(flow)
    ask(engine, "step_cancel", one, step="a", reason="not today")
    ask(engine, "step_cancel", one, step="each", reason="nor this")
    why = explain(engine, one, "a").verdict
    assert why.code == "cancelled" and "member:ana" in why.detail and "not today" in why.detail
    assert "member:ana" in explain(engine, one, "each", 0).verdict.detail
    assert engine.step(one, "each")["note"] == "nor this"
    assert engine.of_run(one)["error"]["message"] == "The step a was cancelled."

    two = engine.run(flow)
    engine.end(two, "bad", "failed")
    engine.look()
    assert "the platform" in (detail := explain(engine, two, "a").verdict.detail) and "fail_fast" in detail

    three = engine.run(outer)
    engine.look()
    child = engine.step(three, "sub")["execution_id"]
    cancel(engine, three)
    engine.look()
    assert "member:ana" in explain(engine, child, "a").verdict.detail


def test_a_step_that_waits_for_the_run_before_names_it(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a", depends_on_previous=True)])
    first, second = engine.run(workflow), engine.run(workflow)
    found = explain(engine, second, "a").verdict
    assert found.code == "waits_for_previous"
    assert str(first) in found.detail


def test_a_run_that_has_not_begun_is_explained_as_what_waits(engine: Engine) -> None:
    from apps.schedules.running import Run, run_start, share_job
    from tenants.work import in_tenant

    workflow = make_workflow(engine.tenant, [step("a")])
    run = Run(trigger="api", fired_by="test")
    run_id = in_tenant(
        engine.tenant, lambda: run_start(engine.tenant, share_job(engine.tenant, workflow), run, now=utc_now())
    )  # fmt: skip
    assert explain(engine, run_id).kind == "workflow_run"
