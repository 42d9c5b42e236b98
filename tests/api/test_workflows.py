"""/workflows: definitions, what starts runs, and what they look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import psycopg

from tests.api.makers import MINUTELY, NOWHERE, TARGET, Makers, audit, due, ticket
from tests.fixtures_api import Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
INLINE = {"kind": "http", "target": TARGET}
STEPS = [
    {"name": "extract", "job": INLINE},
    {"name": "load", "job": INLINE, "needs": ["extract"], "input": {"rows": "{{ steps.extract.result.rows }}"}},
]


def test_a_workflow_from_its_making_to_its_end(api: Api, make: Makers, conn: Conn) -> None:
    made = make.workflow(*STEPS, labels={"team": "billing"}, external_id="own", description="Two\nlines.")
    path = f"workflows/{made['id']}"
    assert (made["version"], made["status"], made["failure_policy"], made["after"]) == (1, "active", "continue", [])
    assert made["steps"][0] == {"name": "extract", "job": {"kind": "http", "target": TARGET | {"url": TARGET["url"]}}}
    read = api.get(path)
    assert (read.status, read.body) == (200, made)
    (item,) = api.get("workflows?label=team:billing&status=active&order=name").body["items"]
    assert item == {name: made[name] for name in item} and "steps" not in item
    described = api.patch(path, {"description": "F15"}, If_Match=read.etag)
    assert (described.status, described.body["steps"], described.body["version"]) == (200, made["steps"], 2)
    assert api.put(path, {"name": "without steps"}, If_Match="*").faults == {"/steps": "required"}
    whole = api.put(path, {**described.body, "max_active_runs": 1}, If_Match=described.etag)
    assert (whole.status, whole.body["max_active_runs"], whole.body["version"]) == (200, 1, 3), (
        "answers can be sent back"
    )
    assert api.patch(path, {"name": "x"}, If_Match=read.etag).status == 412
    versions = api.get(f"{path}/versions").body["items"]
    assert [(one["version"], one["step_count"]) for one in versions] == [(3, 2), (2, 2), (1, 2)]
    first = api.get(f"{path}/versions/1").body
    assert first["steps"] == made["steps"] and first["description"] == "Two\nlines."
    assert api.get(f"{path}/versions/4").status == 404
    assert api.delete(path, If_Match="*").status == 204
    assert api.get(path).status == 404 and api.get("workflows").body["items"] == []
    assert audit(conn, made["id"]) == [
        "workflow.create", *["workflow.update"] * 2, "-workflow.update", "workflow.delete",
    ]  # fmt: skip
    (told,) = conn.execute("SELECT after FROM audit_auditevent WHERE action = 'workflow.create'").fetchall()
    assert told[0]["steps"] == "(not shown)", "they may hold what is secret"


def test_workflows_and_jobs_do_not_mix(api: Api, make: Makers) -> None:
    job, workflow = make.job(name="nightly"), make.workflow(*STEPS, name="Nightly", external_id="own")
    assert make.job(external_id="own")["external_id"] == "own", "each kind has names and ids of its own"
    assert api.post("workflows", {"name": "nightly", "steps": STEPS}).code == "name_taken"
    for path in (f"jobs/{workflow['id']}", f"workflows/{job['id']}", f"jobs/{workflow['id']}/versions"):
        assert api.get(path).status == 404
    assert api.post(f"jobs/{workflow['id']}/pause").status == api.post(f"workflows/{job['id']}/run").status == 404
    assert {one["name"] for one in api.get("jobs").body["items"]} == {"nightly", "job 3"}, "inline jobs are not shown"
    assert api.post("executions", {"job": workflow["id"]}).faults == {"/job": "not_found"}
    assert api.post("jobs", {"name": "x", "kind": "workflow", "target": {}}).faults["/kind"] == "choice"


def test_a_workflow_counts_as_a_job(api: Api, make: Makers, plan: Callable[..., None]) -> None:
    plan(max_jobs=2)
    make.workflow(*STEPS)
    make.job()
    refused = api.post("workflows", {"name": "one more", "steps": STEPS})
    assert (refused.code, refused.body["quota"], refused.body["use"]) == ("quota_exceeded", "max_jobs", 2)


def test_faults_have_their_places(api: Api, make: Makers, acme_people: People, globex_people: People) -> None:
    theirs = Makers(Api(globex_people.admin)).job()["id"]
    unknown = {"kind": "http", "target": {**TARGET, "headers": {"X-Key": {"secret": "NONE"}}}}
    answer = api.post("workflows", {"name": "x", "steps": [{"name": "a", "job": unknown}]})
    assert answer.faults == {"/steps/0/job/target/headers/X-Key/secret": "unknown_secret"}
    masked = {"kind": "http", "target": {**TARGET, "headers": {"Authorization": "***"}}}
    steps = [
        {"name": "a", "job": theirs},
        {"name": "b", "workflow": NOWHERE, "needs": ["d"]},
        {"name": "c", "job": masked, "needs": ["b"]},
        {"name": "d", "delay_s": 1, "needs": ["c"]},
    ]
    assert list(api.post("workflows", {"name": "x", "steps": steps}).faults) == [
        "/steps/2/job/target/headers/Authorization"
    ]
    steps[2]["job"] = INLINE
    answer = api.post("workflows", {"name": "x", "steps": steps})
    assert answer.faults == {
        "/steps/0/job": "unknown_job", "/steps/1/workflow": "unknown_workflow", "/steps": "cycle"
    }  # fmt: skip
    (loop,) = [one["detail"] for one in answer.body["errors"] if one["code"] == "cycle"]
    assert all(f" {name} " in f"{loop} " for name in ("b", "c", "d")) and " a" not in loop.partition(":")[2]
    assert api.get("workflows").body["items"] == []


def test_a_workflow_runs_by_hand_and_by_schedule(api: Api, make: Makers, conn: Conn) -> None:
    made = make.workflow(*STEPS, max_active_runs=2)
    path = f"workflows/{made['id']}"
    run = api.post(f"{path}/run", {"input": {"region": "eu"}, "priority": 7, "labels": {"why": "test"}})
    assert (run.status, run.body["workflow"], run.body["input"]) == (202, made["id"], {"region": "eu"})
    assert run.headers["Location"] == f"/api/v1/workflow-runs/{run.body['id']}"
    waiting = ticket(conn, run.body["id"])
    assert waiting is not None
    assert [waiting[name] for name in ("pool", "queue", "job_limit", "priority")] == ["workflow", "workflow", 2, 7]
    later = api.post(f"{path}/run", {"delay_s": 60})
    assert (later.status, later.body["state"]) == (202, "scheduled")
    assert api.post(f"{path}/run", {"payload": 1, "run_at": "x"}).faults == {
        "/payload": "unknown_field", "/run_at": "format"
    }  # fmt: skip
    body = {"name": "nightly", "workflow": made["id"], "trigger": MINUTELY, "payload": {"region": "us"}}
    schedule = api.post("schedules", body)
    assert (schedule.status, schedule.body["job"], schedule.body["workflow"]) == (201, None, made["id"])
    entry = due(conn, schedule.body["id"])
    assert entry and (entry["pool"], entry["job_version"]) == ("workflow", 1)
    assert api.post("schedules", {**body, "name": "x", "job": make.job()["id"]}).faults == {
        "/workflow": "contradiction"
    }
    mixed = {"name": "y", "job": made["id"], "workflow": None}
    assert api.post("schedules", {**body, **mixed}).faults == {"/job": "not_found"}
    (listed,) = api.get(f"{path}/schedules").body["items"]
    assert listed == api.get(f"schedules?workflow={made['id']}").body["items"][0]
    refused = api.delete(path, If_Match="*")
    assert (refused.status, refused.code, refused.body["schedule_count"]) == (409, "workflow_in_use", 1)
    paused = api.post(f"{path}/pause", {"reason": "maintenance"})
    assert (paused.body["status"], paused.body["paused_reason"]) == ("paused", "maintenance")
    assert due(conn, schedule.body["id"]) is None
    held = ticket(conn, run.body["id"])
    assert held is not None and held["job_limit"] == 0
    for what in (f"executions/{run.body['id']}", f"schedules/{schedule.body['id']}"):
        why = api.get(f"{what}/explain").body["verdict"]
        assert (why["code"], why["link"]) == ("job_paused", f"/api/v1/{path}")
        assert why["detail"].startswith("Its workflow ") and "by key:" in why["detail"]
    assert api.post(f"{path}/resume").body["status"] == "active"
    assert api.patch(path, {"steps": STEPS[:1]}, If_Match="*").body["version"] == 2
    entry = due(conn, schedule.body["id"])
    assert entry and entry["job_version"] == 2
    job = make.job()
    moved = api.patch(f"schedules/{schedule.body['id']}", {"job": job["id"]}, If_Match="*")
    assert (moved.body["job"], moved.body["workflow"]) == (job["id"], None)
    assert api.get(f"schedules/{schedule.body['id']}/versions/1").body["workflow"] == made["id"]
    assert api.delete(path, If_Match="*").status == 204


def test_previews_and_graphs(api: Api, make: Makers) -> None:
    job = make.job(name="<b>load</b>", max_concurrency=2)
    last = {"name": "tell", "job": job["id"], "needs": [{"step": "load", "on": "failed"}], "retry": {"max_attempts": 9}}
    made = make.workflow(*STEPS, last, name="<script>")
    path = f"workflows/{made['id']}"
    seen = api.post(f"{path}/preview")
    assert (seen.status, seen.body["levels"]) == (200, [["extract"], ["load"], ["tell"]])
    first, second, third = seen.body["steps"]
    assert (first["starts"], second["starts"]) == ("at once", "when extract has succeeded")
    assert first["job"]["name"] == "<script>/extract" and first["job"]["id"] is None
    assert third["job"] == {"id": job["id"], "name": "<b>load</b>", "kind": "http", "paused": False}
    assert (third["max_attempts"], third["job_max_concurrency"], third["timeout_s"]) == (9, 2, 60)
    changed = api.post(f"{path}/preview", {"steps": [{"name": "a", "delay_s": 5}]})
    assert (changed.body["steps"][0]["waits_for"], api.get(path).body["version"]) == ("5 s", 1)
    unsaved = api.post("workflows/preview", {"name": "x", "steps": STEPS})
    assert unsaved.body["steps"][0]["job"] == {"id": None, "name": "x/extract", "kind": "http", "paused": False}
    graph = api.get(f"{path}/graph").body
    assert {(one["from"], one["to"], one["on"]) for one in graph["edges"]} == {
        ("extract", "load", "succeeded"), ("load", "tell", "failed")
    }  # fmt: skip
    api.patch(path, {"steps": STEPS[:1]}, If_Match="*")
    picture = api.get(f"{path}/graph.svg?version=1", Accept="image/svg+xml")
    assert (picture.status, picture.headers["Content-Type"]) == (200, "image/svg+xml")
    assert "default-src 'none'" in picture.headers["Content-Security-Policy"]
    assert "<script" not in picture.body and ElementTree.fromstring(picture.body).tag.endswith("svg")
    assert len(api.get(f"{path}/graph").body["nodes"]) == 1
    assert api.get(f"{path}/graph?version=9").status == 404


def test_of_edits_that_would_close_a_loop_one_wins(acme_people: People, make: Makers) -> None:
    """F02 between workflows: each edit alone is fine."""
    ids = [make.workflow()["id"] for _ in range(4)]

    def follow(number: int) -> int:
        path = f"workflows/{ids[number]}"
        after = [{"workflow": ids[number - 1]}]
        return Api(acme_people.admin).patch(path, {"after": after}, If_Match="*").status

    assert sorted(in_parallel(4, follow)) == [200, 200, 200, 400]


def test_a_job_goes_or_is_named_and_never_both(acme_people: People, make: Makers) -> None:
    """F14: deleted by one while another one makes a workflow of it."""
    jobs = [make.job()["id"] for _ in range(4)]

    def work(number: int) -> int:
        api, job = Api(acme_people.admin), jobs[number // 2]
        if number % 2:
            return api.delete(f"jobs/{job}", If_Match="*").status
        return api.post("workflows", {"name": f"of {job}", "steps": [{"name": "a", "job": job}]}).status

    found = in_parallel(8, work)
    assert set(zip(found[::2], found[1::2], strict=True)) <= {(201, 409), (400, 204)}, found


def test_one_thousand_steps_are_saved_and_read(api: Api) -> None:
    steps = [{"name": "first", "delay_s": 0}]
    steps += [{"name": f"s{number}", "delay_s": 0, "needs": ["first"]} for number in range(998)]
    steps += [{"name": "last", "delay_s": 0, "needs": [one["name"] for one in steps[1:]]}]
    made = api.post("workflows", {"name": "wide", "steps": steps})
    assert made.status == 201
    again = api.patch(f"workflows/{made.body['id']}", {"description": "x"}, If_Match="*")
    assert (again.status, again.body["steps"]) == (200, made.body["steps"])
    assert api.post(f"workflows/{made.body['id']}/preview").body["width"] == 998


def test_the_same_workflow_is_put_again_by_its_owners_id(api: Api, conn: Conn) -> None:
    path = "workflows/by-external-id/etl%2Fnightly"
    body = {"name": "nightly", "steps": STEPS}
    tried = api.call("PUT", f"{path}?validate_only=true", body)
    assert (tried.status, api.get(path).status) == (200, 404)
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_job").fetchone() == (0,)
    made = api.put(path, body)
    assert (made.status, made.body["external_id"]) == (201, "etl/nightly")
    again = api.put(path, body)
    assert (again.status, again.body, again.etag) == (200, made.body, made.etag), "nothing changes"
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_job").fetchone() == (3,), "with two jobs inside"
    assert api.put(path, body, If_None_Match="*").status == 412
    assert api.put(path, {**body, "steps": STEPS[:1]}).body["version"] == 2


def test_a_secret_that_an_inline_job_names_stays(api: Api, make: Makers) -> None:
    secret = api.post("secrets", {"name": "TOKEN", "value": "s3cret"}).body
    inline = {"kind": "http", "target": {**TARGET, "headers": {"X-Key": {"secret": "TOKEN"}}}}
    made = make.workflow({"name": "a", "job": inline}, name="etl")
    assert made["steps"][0]["job"] == inline
    refused = api.delete(f"secrets/{secret['id']}", If_Match="*")
    assert (refused.code, [one["name"] for one in refused.body["jobs"]]) == ("secret_in_use", ["etl/a"])
    assert api.patch(f"workflows/{made['id']}", {"steps": STEPS}, If_Match="*").status == 200
    assert api.delete(f"secrets/{secret['id']}", If_Match="*").status == 204, "older versions do not hold it"
