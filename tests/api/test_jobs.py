"""/jobs: every endpoint, good and bad input."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.makers import JOB, NOWHERE, TARGET, Makers, audit, begin, due, queue, ticket
from tests.fixtures_api import NOTHING, Api
from tests.schedules.cases import case

Conn = psycopg.Connection[Any]


def test_a_job_is_created_with_its_defaults(api: Api, conn: Conn) -> None:
    made = api.post("jobs", JOB)
    assert made.status == 201
    assert made.headers["Location"] == f"/api/v1/jobs/{made.body['id']}"
    assert made.etag == '"1"'
    wanted: dict[str, Any] = {
        "timeout_s": 60, "priority": 5, "max_concurrency": None, "payload": None, "labels": {}, "status": "active",
        "version": 1, "external_id": None, "queue": None,
    }  # fmt: skip
    assert {name: made.body[name] for name in wanted} == wanted
    assert made.body["retry"]["max_attempts"] == 3
    read = api.get(f"jobs/{made.body['id']}")
    assert (read.status, read.body) == (200, made.body)
    assert read.etag.startswith('"1-'), "the revision, and a digest of the answer"
    assert audit(conn, made.body["id"]) == ["job.create"]


def test_everything_that_is_given_comes_back(api: Api) -> None:
    body = {
        "name": "all", "kind": "http", "payload": {"a": [1, 2.5, None, "ü"]}, "timeout_s": 900, "priority": 9,
        "target": {"url": "https://example.com/", "method": "PUT", "headers": {"X-A": "b"}, "success_status": [200]},
        "max_concurrency": 3, "labels": {"team": "billing", "empty": ""}, "external_id": "ext-1",
    }  # fmt: skip
    made = api.post("jobs", body)
    assert {name: made.body[name] for name in body} == body


def test_a_python_job_names_a_task_of_the_operator(api: Api) -> None:
    python = {"name": "noop", "kind": "python", "target": {"task": "shardbeat.noop", "soft_timeout_s": 1.5}}
    assert api.post("jobs", python).status == 201
    refused = api.post("jobs", {**python, "target": {"task": "os.system", "soft_timeout_s": 100, "args": []}})
    assert refused.faults == {
        "/target/task": "unknown_task", "/target/soft_timeout_s": "range", "/target/args": "unknown_field"
    }  # fmt: skip


BAD = [
    ({"name": None}, "/name", "required"),
    ({"name": "  "}, "/name", "type"),
    ({"name": "x" * 201}, "/name", "too_long"),
    ({"name": "a\nb"}, "/name", "invalid_character"),
    ({"name": 5}, "/name", "type"),
    ({"kind": None}, "/kind", "required"),
    ({"kind": "container"}, "/kind", "kind_not_offered"),
    ({"kind": "pull", "target": {}}, "/queue", "required"),
    ({"kind": "magic"}, "/kind", "choice"),
    ({"kind": []}, "/kind", "choice"),
    ({"target": None}, "/target", "required"),
    ({"target": "http://example.com"}, "/target", "invalid"),
    ({"target": {}}, "/target/url", "required"),
    ({"target": {"url": "ftp://example.com/"}}, "/target/url", "scheme_not_allowed"),
    ({"target": {"url": "http://10.0.0.1/"}}, "/target/url", "address_not_public"),
    ({"target": {"url": "http://169.254.169.254/"}}, "/target/url", "address_not_public"),
    ({"target": {**TARGET, "headers": {"Host": "x"}}}, "/target/headers/Host", "reserved"),
    ({"target": {**TARGET, "headers": {"X-T": "a\r\nb"}}}, "/target/headers/X-T", "invalid_value"),
    ({"target": {**TARGET, "verb": "GET"}}, "/target/verb", "unknown_field"),
    ({"payload": "x" * 262_144}, "/payload", "too_large"),
    ({"payload": {"a": "b\u0000"}}, "/payload/a", "invalid_character"),
    ({"timeout_s": 0}, "/timeout_s", "range"),
    ({"timeout_s": 901}, "/timeout_s", "range"),
    ({"timeout_s": "60"}, "/timeout_s", "range"),
    ({"timeout_s": True}, "/timeout_s", "range"),
    ({"timeout_s": 10**30}, "/timeout_s", "range"),
    ({"priority": 10}, "/priority", "range"),
    ({"priority": -1}, "/priority", "range"),
    ({"max_concurrency": 0}, "/max_concurrency", "range"),
    ({"retry": {"max_attempts": 0}}, "/retry/max_attempts", "out_of_range"),
    ({"retry": {"tries": 5}}, "/retry/tries", "unknown_field"),
    ({"retry": []}, "/retry", "not_an_object"),
    ({"labels": []}, "/labels", "type"),
    ({"labels": {"a": 1}}, "/labels/a", "type"),
    ({"labels": {"/": "x"}}, "/labels/~1", "invalid_name"),
    ({"labels": {str(n): "x" for n in range(51)}}, "/labels", "too_many"),
    ({"external_id": ""}, "/external_id", "type"),
    ({"queue": "mine"}, "/queue", "not_for_kind"),
    ({"colour": "red"}, "/colour", "unknown_field"),
    ({"id": NOWHERE}, "/id", "read_only"),
]


@pytest.mark.parametrize(("change", "pointer", "code"), BAD, ids=lambda value: str(value)[:40])
def test_bad_members_are_refused_with_their_place(
    api: Api, conn: Conn, change: dict[str, Any], pointer: str, code: str
) -> None:
    refused = api.post("jobs", {**JOB, **change})
    assert (refused.status, refused.code) == (400, "invalid")
    assert refused.faults == {pointer: code}
    assert all(error["detail"] for error in refused.body["errors"])
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_job").fetchone() == (0,)


def test_no_priority_out_of_range_becomes_the_highest_c15(api: Api) -> None:
    given = case("worker.jsonl", "C15")
    for number, (priority, status) in enumerate(
        zip(given["input"]["priority"], given["expected"]["http_status"], strict=True)
    ):
        answer = api.post("jobs", {**JOB, "name": f"p{number}", "priority": priority})
        if status == 200:
            assert (answer.status, answer.body["priority"]) == (201, given["expected"]["default"])
        else:
            assert (answer.status, set(answer.faults)) == (status, {"/priority"})


def test_all_faults_are_told_at_once(api: Api) -> None:
    refused = api.post("jobs", {"kind": "http", "timeout_s": 0, "priority": 10, "colour": 1, "target": {"url": "x"}})
    assert set(refused.faults) == {"/name", "/timeout_s", "/priority", "/colour", "/target/url"}


def test_names_and_external_ids_are_unique_while_not_deleted(api: Api, make: Makers) -> None:
    first = make.job(name="Nightly", external_id="n")
    assert api.post("jobs", {**JOB, "name": "nightly"}).code == "name_taken"
    assert api.post("jobs", {**JOB, "external_id": "n"}).code == "external_id_taken"
    second = make.job(name="other")
    taken = api.patch(f"jobs/{second['id']}", {"name": "NIGHTLY"}, If_Match="*")
    assert (taken.status, taken.code) == (409, "name_taken")
    assert api.delete(f"jobs/{first['id']}", If_Match="*").status == 204
    assert make.job(name="nightly", external_id="n")["id"] != first["id"]


def test_a_patch_keeps_what_it_does_not_name(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(payload={"a": 1, "b": {"c": 2}}, timeout_s=30, labels={"x": "1", "y": "2"})
    changed = api.patch(
        f"jobs/{job['id']}", {"payload": {"b": {"c": None, "d": 3}}, "labels": {"x": None}, "timeout_s": None},
        If_Match='"1"',
    )  # fmt: skip
    assert changed.status == 200
    assert changed.body["payload"] == {"a": 1, "b": {"d": 3}}
    assert changed.body["labels"] == {"y": "2"}
    assert changed.body["timeout_s"] == 60
    assert (changed.body["version"], changed.etag) == (2, '"2"')
    merge = api.call(
        "PATCH",
        f"jobs/{job['id']}",
        {"priority": 1},
        content_type="application/merge-patch+json",
        headers={"If-Match": '"2"'},
    )
    assert (merge.status, merge.body["priority"], merge.body["version"]) == (200, 1, 3)
    assert audit(conn, job["id"]) == ["job.create", "job.update", "job.update"]
    after = conn.execute("SELECT after::text FROM audit_auditevent WHERE object_id = %s", [job["id"]]).fetchall()
    assert "(not shown)" in after[1][0], "payloads stay out of the trail"
    assert '"d": 3' not in after[1][0]


def test_a_new_name_is_no_new_version_and_no_change_is_no_new_revision(api: Api, make: Makers) -> None:
    job = make.job()
    renamed = api.patch(f"jobs/{job['id']}", {"name": "renamed"}, If_Match='"1"')
    assert (renamed.body["version"], renamed.etag) == (1, '"2"')
    same = api.patch(f"jobs/{job['id']}", {"name": "renamed"}, If_Match='"2"')
    assert (same.status, same.etag) == (200, '"2"')


def test_put_replaces_and_takes_an_answer_back(api: Api, make: Makers) -> None:
    job = make.job(timeout_s=30, labels={"a": "b"})
    back = api.put(f"jobs/{job['id']}", {**job, "priority": 7, "queue": None}, If_Match='"1"')
    assert (back.status, back.body["timeout_s"], back.body["priority"]) == (200, 30, 7)
    bare = api.put(f"jobs/{job['id']}", {"name": "bare", "kind": "http", "target": TARGET}, If_Match='"2"')
    assert (bare.body["timeout_s"], bare.body["labels"], bare.body["priority"]) == (60, {}, 5)


@pytest.mark.parametrize("method", ["PATCH", "PUT", "DELETE"])
def test_a_change_says_what_it_has_read(api: Api, make: Makers, method: str) -> None:
    job = make.job()
    path, body = f"jobs/{job['id']}", {"name": "new", "kind": "http", "target": TARGET}
    sent: Any = NOTHING if method == "DELETE" else body
    missing = api.call(method, path, sent)
    assert (missing.status, missing.code) == (428, "if_match_required")
    for stale in ('"0"', '"2"', '"x"', "1", ""):
        refused = api.call(method, path, sent, headers={"If-Match": stale})
        assert (refused.status, refused.code) == (412, "stale"), stale
    assert api.get(path).body == job
    assert api.call(method, path, sent, headers={"If-Match": 'W/"1"'}).status in (200, 204)


def test_the_kind_stays(api: Api, make: Makers) -> None:
    job = make.job()
    body = {"kind": "python", "target": {"task": "shardbeat.noop"}, "name": "p"}
    refused = api.put(f"jobs/{job['id']}", body, If_Match="*")
    assert (refused.status, refused.code) == (409, "kind_is_fixed")


def test_a_change_reaches_the_due_entries_of_its_schedules(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job()
    schedule = make.schedule(job=job["id"], trigger={"cron": "0 0 1 1 *"})
    before = due(conn, schedule["id"])
    api.patch(f"jobs/{job['id']}", {"timeout_s": 7, "priority": 8, "max_concurrency": 2}, If_Match="*")
    after = due(conn, schedule["id"])
    assert before and after
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"job_version", "timeout_s", "priority", "max_concurrency"}
    assert (after["job_version"], after["timeout_s"], after["priority"], after["max_concurrency"]) == (2, 7, 8, 2)
    assert api.get(f"schedules/{schedule['id']}").body["version"] == 1


def test_a_new_limit_holds_for_runs_that_wait(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job()
    run, later = make.execution(job=job["id"]), make.execution(job=job["id"], delay_s=3600)
    api.patch(f"jobs/{job['id']}", {"max_concurrency": 1}, If_Match="*")
    waiting, delayed = ticket(conn, run["id"]), due(conn, later["id"])
    assert waiting and delayed
    assert (str(waiting["flow"]), waiting["job_limit"], waiting["job_version"]) == (job["id"], 1, 1)
    assert delayed["max_concurrency"] == 1
    api.patch(f"jobs/{job['id']}", {"max_concurrency": None}, If_Match="*")
    waiting = ticket(conn, run["id"])
    assert waiting and waiting["job_limit"] is None
    assert str(waiting["flow"]) == job["id"]


def test_a_job_in_use_is_not_deleted(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job()
    schedule = make.schedule(job=job["id"])
    refused = api.delete(f"jobs/{job['id']}", If_Match="*")
    assert (refused.status, refused.code) == (409, "job_in_use")
    assert refused.body["schedules"] == [{"id": schedule["id"], "name": schedule["name"]}]
    assert api.delete(f"schedules/{schedule['id']}", If_Match="*").status == 204
    assert api.delete(f"jobs/{job['id']}", If_Match="*").status == 204
    assert api.get(f"jobs/{job['id']}").status == 404
    assert api.delete(f"jobs/{job['id']}", If_Match="*").status == 404
    assert api.post("executions", {"job": job["id"]}).faults == {"/job": "not_found"}
    assert audit(conn, job["id"])[-1] == "job.delete"


def test_pausing_a_job_stops_its_schedules_and_gates_its_runs(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(max_concurrency=5)
    schedule = make.schedule(job=job["id"])
    ready, queued, running = (make.execution(job=job["id"])["id"] for _ in range(3))
    later = make.execution(job=job["id"], delay_s=3600)["id"]
    queue(conn, queued)
    begin(conn, running)
    paused = api.post(f"jobs/{job['id']}/pause", {"reason": "broken"})
    assert (paused.status, paused.body["status"], paused.body["paused_reason"]) == (200, "paused", "broken")
    assert due(conn, schedule["id"]) is None
    states = {id: ticket(conn, id) for id in (ready, queued, running)}
    assert [one and one["state"] for one in states.values()] == ["ready", "ready", "running"]
    assert {one and one["job_limit"] for one in states.values()} == {0}
    new = make.execution(job=job["id"])["id"]
    added, delayed = ticket(conn, new), due(conn, later)
    assert added and added["job_limit"] == 0, "what is submitted meanwhile waits too"
    assert delayed and delayed["max_concurrency"] == 0
    assert make.schedule(job=job["id"])["next_at"] is None
    again = api.post(f"jobs/{job['id']}/pause")
    assert (again.status, again.etag) == (200, paused.etag)

    resumed = api.post(f"jobs/{job['id']}/resume")
    assert (resumed.body["status"], resumed.body["paused_at"], resumed.body["paused_reason"]) == ("active", None, None)
    entry, delayed, waiting = due(conn, schedule["id"]), due(conn, later), ticket(conn, new)
    assert entry and entry["version"] == 2, "completeness starts anew with a version"
    assert waiting and waiting["job_limit"] == 5
    assert delayed and delayed["max_concurrency"] == 5
    assert audit(conn, job["id"]) == ["job.create", "job.pause", "job.resume"]


def test_what_was_due_when_its_job_was_paused_is_accounted_for(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job()
    schedule = make.schedule(job=job["id"], trigger={"every_s": 60, "anchor": "2026-01-01T00:00:00Z"})
    conn.execute(
        "UPDATE due_dueentry SET nominal_at = nominal_at - interval '1 hour', due_at = due_at - interval '1 hour'"
    )
    api.post(f"jobs/{job['id']}/pause")
    (skipped,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert (skipped["state"], skipped["reason"], skipped["count"]) == ("skipped", "job_paused", 60)


@pytest.mark.parametrize("path", ["", "/pause", "/resume"])
def test_a_job_that_does_not_exist(api: Api, path: str) -> None:
    answer = api.post(f"jobs/{NOWHERE}{path}") if path else api.get(f"jobs/{NOWHERE}")
    assert (answer.status, answer.code) == (404, "not_found")


GOOD_NAMES = [
    "failed",
    "timed_out",
    "lost",
    "http_503",
    "http_599",
    "http_5xx",
    "http_1xx",
    "connect_failed",
    "soft_timeout",
]


@pytest.mark.parametrize("member", ["retry_on", "never_on"])
def test_names_of_failures(api: Api, make: Makers, member: str) -> None:
    assert make.job(retry={member: GOOD_NAMES})["retry"][member] == GOOD_NAMES
    exceptions = ["ValueError", "SoftTimeLimitExceeded", "MyException", "HTTPTimeout", "timeout"]
    python = {"kind": "python", "target": {"task": "shardbeat.noop"}}
    assert make.job(**python, retry={member: exceptions})["retry"][member] == exceptions


BAD_NAMES = [
    ("5xx", "did you mean http_5xx?"), ("503", "did you mean http_503?"), ("HTTP-503", "did you mean http_503?"),
    ("http_600", "http_503"), ("http_6xx", "http_5xx"), ("http_50x", "http_5xx"), ("timeouts", "did you mean timeout?"),
    ("connection_failed", "did you mean connect_failed?"), ("ValueError", "connect_failed"), ("sometimes", "http_5xx"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "hint"), BAD_NAMES)
def test_names_that_no_failure_has_are_refused_with_a_hint(api: Api, name: str, hint: str) -> None:
    for member in ("retry_on", "never_on"):
        answer = api.post("jobs", {**JOB, "retry": {member: ["lost", name]}})
        (error,) = answer.body["errors"]
        assert (answer.status, error["pointer"], error["code"]) == (400, f"/retry/{member}/1", "unknown_value")
        assert hint in error["detail"]


@pytest.mark.parametrize("name", ["a b", "some.Error", "nothing", "http_999", "1Error", "not an Error"])
def test_names_that_no_exception_has(api: Api, name: str) -> None:
    body = {"name": "p", "kind": "python", "target": {"task": "shardbeat.noop"}, "retry": {"retry_on": [name]}}
    assert api.post("jobs", body).faults == {"/retry/retry_on/0": "unknown_value"}


def test_bodies_of_actions_are_checked(api: Api, make: Makers) -> None:
    job = make.job()
    assert api.post(f"jobs/{job['id']}/pause", {"why": "x"}).faults == {"/why": "unknown_field"}
    assert api.post(f"jobs/{job['id']}/pause", {"reason": "x" * 501}).faults == {"/reason": "too_long"}
    assert api.post(f"jobs/{job['id']}/resume", {"reason": "x"}).faults == {"/reason": "unknown_field"}
    assert api.post(f"jobs/{job['id']}/pause", [1]).faults == {"": "not_an_object"}
    assert api.get(f"jobs/{job['id']}").body["status"] == "active"


@pytest.mark.parametrize(("member", "code"), [("timout_s", "unknown_field"), ("version", "read_only")])
def test_a_null_in_a_patch_is_no_way_around_names(api: Api, make: Makers, member: str, code: str) -> None:
    schedule = make.schedule()
    hook = api.post("webhooks", {"url": TARGET["url"], "types": ["*"]})
    calendar = api.post("calendars", {"name": "days", "dates": ["2027-01-01"]})
    assert (hook.status, calendar.status) == (201, 201), (hook.body, calendar.body)
    paths = [f"jobs/{schedule['job']}", f"schedules/{schedule['id']}", f"webhooks/{hook.body['id']}"]
    for path in [*paths, f"calendars/{calendar.body['id']}"]:
        found = api.patch(path, {member: None}, If_Match="*")
        assert found.status == 400, path
        assert set(found.faults) == {f"/{member}"}
        if path.startswith(("jobs", "schedules")):
            assert found.faults == {f"/{member}": code}
        assert api.patch(path, {}, If_Match="*").status == 200
