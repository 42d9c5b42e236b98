"""/workflow-runs and /approvals: what became of runs, and what persons do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID
from xml.etree import ElementTree

import psycopg
import pytest

from tests.api.makers import MINUTELY, NOWHERE, TARGET, Makers, audit, begin, begin_run, kill, look_at, settle
from tests.fixtures_api import Api

if TYPE_CHECKING:
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
JOB = {"kind": "http", "target": TARGET, "retry": {"max_attempts": 1}}
MESSAGE = 'Load <all> {{ steps.extract.result.rows | default("no") }} rows of {{ input.region }}?'
STEPS: list[dict[str, Any]] = [
    {"name": "extract", "job": JOB},
    {"name": "check", "needs": ["extract"], "approval": {"role": "admin", "message": MESSAGE}},
    {"name": "load", "job": JOB, "needs": ["check"]},
    {"name": "tell", "job": JOB, "needs": [{"step": "load", "on": "failed"}]},
]


def started(api: Api, make: Makers, conn: Conn, registry: Registry, *steps: dict[str, Any], **more: Any) -> str:
    """A run that has begun."""
    made = make.workflow(*(steps or STEPS), **more)
    run = str(api.post(f"workflows/{made['id']}/run", {"input": {"region": "eu"}}).body["id"])
    begin_run(conn, registry, run)
    return run


def states(api: Api, run: str) -> dict[str, str]:
    return {one["step"]: one["state"] for one in api.get(f"workflow-runs/{run}/steps").body["items"]}


def execution_of(api: Api, run: str, step: str) -> str:
    return str(api.get(f"workflow-runs/{run}/steps/{step}").body["execution"])


def test_a_run_from_its_wait_to_its_end(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    made = make.workflow(*STEPS, max_active_runs=1, name="nightly <load>")
    waiting = api.post(f"workflows/{made['id']}/run", {"input": {"region": "eu"}, "labels": {"why": "test"}}).body["id"]
    path = f"workflow-runs/{waiting}"
    seen = api.get(path).body
    assert (seen["state"], seen["workflow_name"], seen["step_count"], seen["input"]) == (
        "ready", "nightly <load>", 0, {"region": "eu"}
    )  # fmt: skip
    assert api.get(f"{path}/graph").body["nodes"][0]["state"] == "waiting"
    assert api.get(f"{path}/timeline").body["bars"] == api.get(f"{path}/steps").body["items"] == []
    assert api.post(f"{path}/pause").code == "run_not_begun"
    assert api.post(f"{path}/explain").body["kind"] == "workflow_run"

    from apps.tickets import workflow_runs

    (begun,) = workflow_runs.begin(conn, [UUID(waiting)])
    assert api.get(path).body["state"] == "ready", "nothing of it is there yet"
    assert api.post(f"{path}/pause").body["detail"] == "The run has not begun: it is ready."
    look_at(conn, registry, begun)
    seen = api.get(path).body
    assert (seen["state"], seen["step_count"], seen["steps"]["running"], seen["steps"]["waiting"]) == (
        "running", 4, 1, 3
    )  # fmt: skip
    extract = api.get(f"{path}/steps/extract").body
    assert (extract["state"], extract["execution_state"], extract["attempt_count"]) == ("running", "ready", 0)
    execution = api.get(f"executions/{extract['execution']}").body
    assert (execution["workflow_run"], execution["step"], execution["trigger"]) == (waiting, "extract", "workflow")
    listed = api.get(f"executions?workflow_run={waiting}").body["items"]
    assert {one["id"] for one in listed} == {waiting, extract["execution"]}
    settle(conn, registry, begin(conn, extract["execution"]), result='{"rows": 3}')

    (asked,) = api.get("approvals").body["items"]
    assert (asked["run"], asked["step"], asked["role"]) == (waiting, "check", "admin")
    assert asked["message"] == asked["value"] == "Load <all> 3 rows of eu?"
    assert "Load <all> 3 rows of eu?" in api.get(f"{path}/explain").body["verdict"]["detail"]
    why = api.get(f"{path}/steps/load/explain").body
    assert (why["kind"], why["state"]) == ("step", "waiting") and "check" in why["verdict"]["detail"]
    yes = api.post(f"{path}/steps/check/approve", {"note": "seen"})
    assert (yes.status, yes.body["state"], yes.body["note"], yes.body["output"]["approved"]) == (
        200, "succeeded", "seen", True
    )  # fmt: skip
    assert api.post(f"{path}/steps/check/approve").code == "not_awaiting_approval"
    assert api.get("approvals").body["items"] == []
    kill(conn, registry, execution_of(api, waiting, "load"))
    assert states(api, waiting) == {
        "extract": "succeeded", "check": "succeeded", "load": "failed", "tell": "running"
    }  # fmt: skip
    settle(conn, registry, begin(conn, execution_of(api, waiting, "tell")))

    why = api.get(f"{path}/steps/load/explain").body["verdict"]
    assert (why["code"], why["link"]) == ("step_failed", f"/api/v1/workflow-runs/{waiting}")
    ended = api.get(path).body
    assert (ended["state"], ended["error"]["step"], ended["steps"]["failed"]) == ("failed", "load", 1)
    assert ended["error"]["execution"] == execution_of(api, waiting, "load")
    timeline = api.get(f"{path}/timeline").body
    assert [one["step"] for one in timeline["critical_path"]] == ["extract", "check", "load", "tell"]
    assert [one["freed_by"] for one in timeline["bars"]] == [None, "extract", "check", "load"]
    assert timeline["finished_at"] == ended["finished_at"]
    nodes = {one["step"]: one["state"] for one in api.get(f"{path}/graph").body["nodes"]}
    assert nodes == states(api, waiting)
    picture = api.get(f"{path}/graph.svg", Accept="image/svg+xml")
    assert "<load>" not in picture.body and ElementTree.fromstring(picture.body).tag.endswith("svg")
    assert "default-src 'none'" in picture.headers["Content-Security-Policy"]


def test_lists_of_runs(api: Api, make: Makers, conn: Conn, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.workflows.views import runs_reading

    assert api.get("workflow-runs").body["items"] == []
    runs = [started(api, make, conn, registry) for _ in range(2)]
    workflow = api.get(f"workflow-runs/{runs[1]}").body["workflow"]
    later = api.post(f"workflows/{workflow}/run", {"delay_s": 60, "labels": {"why": "test"}}).body["id"]
    gone = api.post(f"workflows/{workflow}/run").body["id"]
    assert api.post(f"workflow-runs/{gone}/cancel").body["state"] == "cancelled"
    make.execution()
    paused = api.post(f"workflow-runs/{runs[0]}/pause", {"reason": "source is down"}).body
    assert (paused["state"], paused["paused_reason"], paused["paused_by"] is not None) == (
        "paused", "source is down", True
    )  # fmt: skip

    def ids(query: str, path: str = "workflow-runs") -> list[str]:
        return [one["id"] for one in api.get(f"{path}?{query}").body["items"]]

    assert ids("") == [gone, later, *reversed(runs)]
    assert ids("order=created_at&state=running,paused") == runs
    assert ids("state=paused") == runs[:1] and ids("state=cancelled") == [gone] and ids("state=scheduled") == [later]
    assert ids("state=succeeded") == ids("trigger=schedule") == []
    assert ids(f"workflow={workflow}") == ids("", f"workflows/{workflow}/runs") == [gone, later, runs[1]]
    assert ids("label=why:test") == [later]
    with monkeypatch.context() as many:
        many.setattr(runs_reading, "MAX_APART", 1)  # of a tenant with more workflows, the newest executions are read
        assert ids("") == [gone, later, *reversed(runs)] and ids("state=paused") == runs[:1]
    assert ids(f"workflow={make.job()['id']}") == []
    first = api.get("workflow-runs?page_size=3&count=true").body
    assert (first["count"], first["count_is_exact"]) == (4, True)
    assert ids(f"page_size=3&cursor={first['next_cursor']}") == runs[:1]
    assert api.get(f"workflows/{NOWHERE}/runs").status == api.get(f"workflow-runs/{NOWHERE}").status == 404
    plain = make.execution()["id"]
    assert api.get(f"workflow-runs/{plain}").status == 404, "an execution of a job is no run of a workflow"
    assert api.post(f"workflow-runs/{plain}/cancel").status == 404
    assert api.delete(f"workflows/{workflow}", If_Match="*").status == 204
    assert ids(f"workflow={workflow}") == [gone, later, runs[1]], "runs outlive their workflow"


def test_pages_of_steps_and_of_items(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    steps: list[dict[str, Any]] = [
        {"name": "each", "job": JOB, "for_each": {"items": [1, 2, 3], "max_in_flight": 1}},
        *({"name": f"s{number}", "delay_s": 9, "needs": ["each"]} for number in range(4)),
    ]
    run = started(api, make, conn, registry, *steps)
    path = f"workflow-runs/{run}/steps"
    first = api.get(f"{path}?page_size=2").body
    rest = api.get(f"{path}?page_size=5&cursor={first['next_cursor']}").body
    assert [one["step"] for one in first["items"] + rest["items"]] == ["each", "s0", "s1", "s2", "s3"]
    assert rest["next_cursor"] is None and first["items"][0]["items"] == 3
    items = api.get(f"{path}?items=true&step=each").body["items"]
    assert [(one["item"], one["value"], one["state"]) for one in items] == [
        (None, None, "running"), (0, 1, "running"), (1, 2, "waiting"), (2, 3, "waiting"),
    ]  # fmt: skip
    assert len(api.get(f"{path}?state=running").body["items"]) == 1
    assert api.get(f"{path}/each?item=1").body["value"] == 2
    assert api.get(f"{path}/each?item=7").status == api.get(f"{path}/nobody").status == 404
    nodes = api.get(f"workflow-runs/{run}/graph").body["nodes"]
    assert nodes[0]["note"] == "0 of 3 items"
    kill(conn, registry, items[1]["execution"])
    assert api.post(f"{path}/each/retry", {"item": 0}).body["state"] == "running"
    assert api.post(f"{path}/each/retry", {"item": -1}).faults == {"/item": "range"}


def test_persons_stop_repeat_and_decide(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    run = started(api, make, conn, registry)
    path = f"workflow-runs/{run}"
    tag = api.get(path).etag
    held = api.post(f"{path}/pause", {}, If_Match=tag)
    assert held.status == 200 and held.etag != tag
    assert api.post(f"{path}/resume", {}, If_Match=tag).status == 412
    assert api.post(f"{path}/pause").code == "run_not_running"
    rehearsed = api.post(f"{path}/resume?validate_only=true")
    assert (rehearsed.body["state"], api.get(path).body["state"]) == ("running", "paused")
    assert api.post(f"{path}/resume", {}, If_Match=held.etag).body["state"] == "running"
    assert api.post(f"{path}/retry").code == "nothing_to_retry"
    assert api.post(f"{path}/rerun", {}).faults == {"/step": "required"}
    assert api.post(f"{path}/rerun", {"step": "extract"}).code == "step_not_finished"
    assert api.post(f"{path}/rerun", {"step": "nobody"}).status == 404
    assert api.post(f"{path}/steps/load/skip", {}).faults == {"/reason": "required"}
    assert api.post(f"{path}/steps/extract/skip", {"reason": "x"}).code == "step_running"
    assert api.post(f"{path}/steps/extract/approve").code == "not_an_approval"
    skipped = api.post(f"{path}/steps/load/skip", {"reason": "loaded by hand"}).body
    assert (skipped["state"], skipped["forced"], skipped["note"]) == ("skipped", True, "loaded by hand")
    kill(conn, registry, execution_of(api, run, "extract"))
    assert states(api, run) == {"extract": "failed", "check": "skipped", "load": "skipped", "tell": "skipped"}
    again = api.post(f"{path}/steps/extract/retry", {"reason": "mended"}, Idempotency_Key="once")
    assert (again.body["state"], again.body["execution_state"]) == ("running", "ready")
    assert api.post(f"{path}/steps/extract/retry", {"reason": "mended"}, Idempotency_Key="once").body == again.body
    settle(conn, registry, begin(conn, execution_of(api, run, "extract")))
    once_more = api.post(f"{path}/rerun", {"step": "extract", "downstream": False, "reason": "again"}).body
    assert (once_more["steps"]["running"], states(api, run)["check"]) == (2, "running"), "what follows stays"
    assert api.post(f"{path}/steps/extract/rerun", {"downstream": 1}).faults == {"/downstream": "type"}
    settle(conn, registry, begin(conn, execution_of(api, run, "extract")))
    assert api.post(f"{path}/steps/check/cancel", {"branch": True}).body["state"] == "cancelled"
    assert api.post(f"{path}/steps/tell/force").body["state"] == "running"
    stopping = api.post(f"{path}/cancel")
    assert (stopping.status, stopping.body["state"]) == (202, "cancelling")
    done = ("pause", "resume", "skip", "retry", "rerun", "cancel_step", "force", "cancel")
    assert [one for one in audit(conn, run) if not one.startswith("-")] == [f"workflowrun.{one}" for one in done]


def test_an_approval_asks_for_its_role(
    api: Api, make: Makers, conn: Conn, registry: Registry, acme_people: Any
) -> None:
    run = started(api, make, conn, registry, {"name": "ask", "approval": {"role": "admin"}})
    answer = Api(acme_people.editor).post(f"workflow-runs/{run}/steps/ask/approve")
    assert (answer.status, answer.code) == (403, "role_needed")
    assert api.post(f"workflow-runs/{run}/steps/ask/reject", {"note": "no"}).body["error"]["class"] == "rejected"


def test_a_workflow_by_schedule_is_a_run(api: Api, make: Makers, fire: Any) -> None:
    from datetime import timedelta

    from tests.api.makers import instant

    made = make.workflow(*STEPS)
    schedule = make.schedule(job=None, workflow=made["id"], trigger=MINUTELY)
    fire(instant(schedule["next_at"]) + timedelta(seconds=1))
    (run,) = api.get(f"workflow-runs?schedule={schedule['id']}").body["items"]
    assert (run["workflow"], run["trigger"], run["nominal_at"]) == (made["id"], "schedule", schedule["next_at"])
