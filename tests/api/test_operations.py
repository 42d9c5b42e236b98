"""Bulk requests by filter, and the operations that they make."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.api.makers import Makers, audit
from tests.fixtures_api import Api
from tests.fixtures_people import People
from tests.operations.fixtures import work_off

Conn = psycopg.Connection[Any]


def faults(answer: Any) -> list[tuple[str, str]]:
    assert answer.status == 400, answer.body
    return [(one["pointer"], one["code"]) for one in answer.body["errors"]]


def test_a_bulk_request_from_its_dry_run_to_its_receipt(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job()["id"]
    runs = [make.execution(job=job)["id"] for _ in range(3)]
    make.execution()
    body = {"filter": {"job": job, "state": ["ready", "scheduled"]}, "reason": "wrong data", "rate_per_s": 500}
    dry = api.post("executions/bulk-cancel", {**body, "dry_run": True})
    assert (dry.status, dry.body["count"]) == (200, 3)
    assert {one["target"] for one in dry.body["sample"]} == set(runs)
    assert api.get("operations").body["items"] == [], "a dry run leaves nothing behind"

    asked = api.post("executions/bulk-cancel", body)
    assert (asked.status, asked.body["state"]) == (202, "planning")
    path = f"operations/{asked.body['id']}"
    assert asked.headers["Location"].endswith(path)
    tag = api.get(path).headers["ETag"]
    assert api.patch(path, {"rate_per_s": None}, if_match=tag).body["rate_per_s"] is None
    assert api.patch(path, {"rate_per_s": 1}, if_match=tag).status == 412
    work_off("acme", asked.body["id"])

    done = api.get(path).body
    assert (done["state"], done["counts"]["succeeded"]) == ("completed", 3)
    first = api.get(f"{path}/items?page_size=2").body
    rest = api.get(f"{path}/items?page_size=2&cursor={first['next_cursor']}").body
    items = first["items"] + rest["items"]
    assert [one["n"] for one in items] == [1, 2, 3] and rest["next_cursor"] is None
    assert api.get(f"{path}/items?state=failed,skipped").body["items"] == []
    lines = api.get(f"{path}/receipt").body
    assert [(one["n"], one["target"]) for one in lines] == [(one["n"], one["target"]) for one in items]
    assert {one["target"] for one in lines} == set(runs)
    assert api.post(f"{path}/undo").code == "no_undo"
    assert api.post(f"{path}/cancel").code == "operation_not_open"
    assert audit(conn, asked.body["id"]) == ["operation.create", "operation.update", "-operation.update"]
    assert [one["id"] for one in api.get("operations?state=completed&action=cancel").body["items"]] == [done["id"]]


def test_what_a_bulk_request_must_say(api: Api, make: Makers, acme_people: People) -> None:
    cancel = "executions/bulk-cancel"
    assert faults(api.post(cancel, {})) == [("/filter", "required")]
    assert faults(api.post(cancel, {"filter": {}})) == [("/filter", "required")], "all is said with all"
    assert faults(api.post(cancel, {"filter": {"stat": "dead"}})) == [("/filter/stat", "unknown_parameter")]
    assert faults(api.post(cancel, {"filter": {"state": "gone", "job": "x"}})) == [
        ("/filter/job", "type"), ("/filter/state", "choice"),
    ]  # fmt: skip
    assert faults(api.post(cancel, {"filter": {"state": 1}})) == [("/filter/state", "type")]
    assert faults(api.post(cancel, {"filter": {"label": {"team": None}}})) == [("/filter/label", "type")]
    assert faults(api.post(cancel, {"filter": {"all": True}, "colour": "red"})) == [("/colour", "unknown_field")]
    assert faults(api.post(cancel, {"filter": {"all": True}, "canary": 0})) == [("/canary", "range")]
    assert faults(api.post("jobs/bulk-label", {"filter": {"all": True}})) == [("/labels", "required")]
    bad = {"filter": {"all": True}, "labels": {"no way": "x"}}
    assert faults(api.post("jobs/bulk-label", bad)) == [("/labels/no way", "invalid_name")]
    made = api.post(cancel, {"filter": {"all": True}}).body["id"]
    editor = Api(acme_people.editor)
    assert editor.post(f"operations/{made}/cancel").code == "role_too_low", "its items need an operator"
    assert editor.get(f"operations/{made}").status == 200
