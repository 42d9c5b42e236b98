"""Executions that wait for others, over the API: submitted alone and in bulk, read, listed, explained and cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.api.makers import NOWHERE, Makers, begin, kill, settle
from tests.fixtures_api import Api

if TYPE_CHECKING:
    import psycopg

    from tenants.registry import Registry


def test_a_run_waits_for_others_and_says_for_which(
    api: Api, make: Makers, conn: psycopg.Connection[Any], registry: Registry
) -> None:
    job = make.job()["id"]
    first, second = make.execution(job=job)["id"], make.execution(job=job)["id"]
    wish = {"job": job, "depends_on": [first, {"execution": second, "on": "finished"}]}
    child = api.post("executions", wish, Idempotency_Key="one").body
    assert (child["state"], child["wait_reason"]) == ("blocked", "workflow_blocked")
    assert child["depends_on"] == [
        {"execution": first, "on": "succeeded", "met": None, "state": "ready"},
        {"execution": second, "on": "finished", "met": None, "state": "ready"},
    ]
    again = api.post("executions", wish, Idempotency_Key="one")
    assert (again.body["id"], again.headers["Idempotency-Replayed"]) == (child["id"], "true")
    assert [one["id"] for one in api.get("executions?state=blocked").body["items"]] == [child["id"]]
    for parent in (first, second):
        assert [one["id"] for one in api.get(f"executions?depends_on={parent}").body["items"]] == [child["id"]]
    assert api.get(f"executions?depends_on={child['id']}").body["items"] == []

    kill(conn, registry, second)
    why = api.get(f"executions/{child['id']}/explain").body["verdict"]
    assert (why["code"], [one["execution"] for one in why["holders"]]) == ("workflow_blocked", [first])
    settle(conn, registry, begin(conn, first))
    now = api.get(f"executions/{child['id']}").body
    assert (now["state"], [one["met"] for one in now["depends_on"]]) == ("ready", [True, True])

    skipped = api.post("executions", {"job": job, "depends_on": [second]}).body
    assert (skipped["state"], skipped["reason"], skipped["wait_reason"]) == ("skipped", "dependency_not_met", None)
    assert skipped["error"]["execution"] == second and skipped["finished_at"]
    assert api.post(f"executions/{skipped['id']}/rerun").body["state"] == "ready", "a rerun waits for nothing"


def test_many_at_once_and_what_is_not_there(
    api: Api, other_api: Api, make: Makers, conn: psycopg.Connection[Any]
) -> None:
    job = make.job()["id"]
    parent = make.execution(job=job)["id"]
    theirs = Makers(other_api).execution()["id"]
    good = {"job": job, "depends_on": [parent]}
    bad = {"job": NOWHERE, "depends_on": [parent, theirs], "condition": "failed"}
    answer = api.post("executions/bulk", {"items": [good, bad, good]}).body
    assert [item["status"] for item in answer["items"]] == [202, 400, 202]
    faults = answer["items"][1]["problem"]["errors"]
    assert {one["pointer"]: one["code"] for one in faults} == {"/job": "not_found", "/depends_on/1": "not_found"}
    assert api.post("executions/bulk", {"items": [good, bad], "atomic": True}).status == 422
    children = [item["id"] for item in answer["items"] if item["id"]]
    assert [one["id"] for one in api.get("executions?state=blocked&order=created_at").body["items"]] == children
    assert api.get(f"executions?depends_on={theirs}").body["items"] == []
    assert conn.execute("SELECT count(*) FROM tickets_ticket WHERE followed").fetchone() == (1,)

    cancelled = api.post(f"executions/{children[0]}/cancel")
    assert (cancelled.status, cancelled.body["state"]) == (200, "cancelled")


def test_what_is_blocked_counts_as_alive(api: Api, make: Makers, plan: Callable[..., None]) -> None:
    parent = make.execution()["id"]
    plan(max_live=2)
    wish = {"job": make.job()["id"], "depends_on": [parent]}
    assert api.post("executions", wish).status == 202
    assert api.post("executions", wish).code == "quota_exceeded"
