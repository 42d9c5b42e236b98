"""What persons do to runs, over the real tables."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kernel.clock import utc_now
from kernel.errors import Conflict, Forbidden, InvalidInput, NotFound, Stale
from tests.fixtures_flow import assert_exactly_one_outcome, rows_of, ticket_of
from tests.workflows.engine import Engine, make_workflow, step


def ask(engine: Engine, verb: str, run_id: UUID, *, role: str = "operator", **more: Any) -> None:
    """A verb by a person of the tenant."""
    from apps.audit.services import Actor
    from apps.workflows.interventions import verbs

    getattr(verbs, verb)(
        tenant=engine.tenant, actor=Actor("member:ana", role), run_id=run_id, now=utc_now(), **more
    )  # fmt: skip


def attempts(engine: Engine, run_id: UUID, name: str) -> list[tuple[str, str, int]]:
    """(run key's last part, state, attempts) of the executions of a step."""
    found = [one for one in engine.executions(run_id) if one["step"] == name]
    return [(one["run_key"].rpartition(":")[2], one["state"], one["attempt_count"]) for one in found]


def test_a_retry_reopens_what_failed_and_the_run(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "b")]))
    with pytest.raises(Conflict):
        ask(engine, "run_retry", run_id)
    engine.end(run_id, "a")
    engine.end(run_id, "b", "failed")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")

    ask(engine, "run_retry", run_id, reason="mended")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "waiting"}
    assert engine.execution(run_id)["state"] == "ready"
    [letter] = rows_of(engine.conn, engine.tenant, "deadletters_deadletter")
    assert (letter["resolution"], letter["resolved_by"]) == ("replayed", "member:ana")
    engine.look()
    engine.end(run_id, "b")
    engine.end(run_id, "c")
    engine.look()
    container = assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")
    assert container["error"] is None
    assert engine.of_run(run_id)["error"] is None
    assert attempts(engine, run_id, "b") == [("1", "succeeded", 2)], "the same execution, one attempt more"
    assert attempts(engine, run_id, "a") == [("1", "succeeded", 1)]


def test_a_rerun_makes_new_executions_of_the_step_and_of_what_follows(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "b"), step("z", "a")]))
    for name in "abcz":
        engine.end(run_id, name)
    engine.look()
    ask(engine, "run_rerun", run_id, step="b")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "waiting", "z": "succeeded"}
    with pytest.raises(Conflict):
        ask(engine, "run_rerun", run_id, step="a")  # b runs
    ask(engine, "run_rerun", run_id, step="a", downstream=False)
    engine.end(run_id, "a")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "waiting", "z": "succeeded"}, "F13"
    engine.end(run_id, "b")
    engine.end(run_id, "c")
    engine.look()
    assert engine.execution(run_id)["state"] == "succeeded"
    assert ticket_of(engine.conn, run_id) is None
    assert attempts(engine, run_id, "b") == [("1", "succeeded", 1), ("2", "succeeded", 1)]
    assert attempts(engine, run_id, "z") == [("1", "succeeded", 1)]
    first, second = (one for one in engine.executions(run_id) if one["step"] == "c")
    assert second["replay_of"] == first["id"]
    with pytest.raises(NotFound):
        ask(engine, "run_rerun", run_id, step="nobody")


def test_a_person_skips_and_forces_steps(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "b", join="none_failed")]))
    with pytest.raises(InvalidInput):
        ask(engine, "step_skip", run_id, step="b", reason=" ")
    with pytest.raises(Conflict):
        ask(engine, "step_skip", run_id, step="a", reason="runs")
    engine.end(run_id, "a", "failed")
    engine.look()
    assert engine.states(run_id)["b"] == "skipped: upstream_failed"
    ask(engine, "step_skip", run_id, step="a", reason="not today")
    assert engine.states(run_id) == {
        "a": "skipped: by_person", "b": "skipped: upstream_skipped", "c": "skipped: upstream_skipped"
    }  # fmt: skip
    assert engine.of_run(run_id)["state"] == "succeeded", "nothing failed any more"
    ask(engine, "step_force", run_id, step="b")
    b = engine.step(run_id, "b")
    assert (b["state"], b["forced"], b["decided_by"]) == ("running", True, "member:ana")
    engine.look()
    assert engine.states(run_id)["b"] == "running", "F12: it does not jump back"
    engine.end(run_id, "b")
    assert engine.states(run_id)["c"] == "running"
    engine.end(run_id, "c")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")


def test_a_paused_run_starts_nothing_until_it_is_resumed(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "b")]))
    revision = engine.of_run(run_id)["revision"]
    ask(engine, "run_pause", run_id, reason="the source is down", revision=revision)
    with pytest.raises(Stale):
        ask(engine, "run_resume", run_id, revision=revision)
    engine.end(run_id, "a")
    engine.look()
    assert engine.states(run_id) == {"a": "succeeded", "b": "waiting", "c": "waiting"}
    assert engine.of_run(run_id)["paused_reason"] == "the source is down"
    with pytest.raises(Conflict, match="resume it first"):
        ask(engine, "step_force", run_id, step="c")
    ask(engine, "run_resume", run_id)
    engine.look()
    assert engine.states(run_id)["b"] == "running"
    with pytest.raises(Conflict):
        ask(engine, "run_resume", run_id)


def test_what_fails_a_run_after_a_retry_is_its_error(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b"), step("c")]))
    engine.end(run_id, "a", "failed")
    ask(engine, "step_retry", run_id, step="a")
    engine.end(run_id, "a")
    engine.end(run_id, "b", "failed")
    assert engine.of_run(run_id)["error"]["step"] == "b"
    assert (engine.of_run(run_id)["open"], engine.of_run(run_id)["failed"]) == (1, 1)


def test_a_branch_is_cancelled_and_the_rest_goes_on(engine: Engine) -> None:
    run_id = engine.run(
        make_workflow(engine.tenant, [step("a"), step("b", "a"), step("x"), step("join", "b", "x", join="any")])
    )
    ask(engine, "step_cancel", run_id, step="a", branch=True)
    engine.look()
    assert engine.states(run_id) == {"a": "cancelled", "b": "cancelled", "x": "running", "join": "waiting"}
    assert engine.execution(engine.step(run_id, "a")["execution_id"])["state"] == "cancelled"
    engine.end(run_id, "x")
    engine.end(run_id, "join")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")
    ask(engine, "step_retry", run_id, step="a")
    assert engine.states(run_id)["a"] == "running"
    assert attempts(engine, run_id, "a") == [("1", "cancelled", 0), ("2", "ready", 0)]


def test_an_approval_waits_for_a_person_with_its_role(engine: Engine) -> None:
    steps = [step("ok", approval={"role": "admin"}), step("go", "ok"), step("no", ("ok", "failed"))]
    workflow = make_workflow(engine.tenant, steps)
    run_id, other = engine.run(workflow), engine.run(workflow)
    with pytest.raises(Forbidden):
        ask(engine, "step_approve", run_id, step="ok")
    ask(engine, "step_approve", run_id, step="ok", role="admin", note="fine")
    assert engine.states(run_id)["go"] == "running"
    assert engine.step(run_id, "ok")["output"] == {"approved": True, "by": "member:ana", "note": "fine"}
    with pytest.raises(Conflict):
        ask(engine, "step_approve", run_id, step="ok", role="admin")
    ask(engine, "step_reject", other, step="ok", role="admin", note="too early")
    assert engine.states(other) == {"ok": "failed", "go": "skipped: upstream_failed", "no": "running"}
    assert "too early" in engine.of_run(other)["error"]["message"]
