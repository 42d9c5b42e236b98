"""Pull queues over the API: the jobs that name them, leasing from them, and who may."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.api.makers import Makers, audit, instant, ticket
from tests.api.pulling import end, lease, lease_one
from tests.fixtures_api import NOTHING, Api, in_parallel
from tests.fixtures_flow import rows_of
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]


# --- jobs ---


def test_a_pull_job_names_its_queue_and_needs_no_target(api: Api) -> None:
    made = api.post("jobs", {"name": "a", "kind": "pull", "queue": "invoices.eu-1", "timeout_s": 28_800})
    assert (made.status, made.body["queue"], made.body["target"]) == (201, "invoices.eu-1", {})
    assert api.get("queues/invoices.eu-1").body["ready"] == 0
    assert api.get("jobs?kind=pull").body["items"] == [made.body]


@pytest.mark.parametrize(
    ("members", "faults"),
    [
        ({}, {"/queue": "required"}),
        ({"queue": "Invoices"}, {"/queue": "invalid_name"}),
        ({"queue": "a b"}, {"/queue": "invalid_name"}),
        ({"queue": "a/b"}, {"/queue": "invalid_name"}),
        ({"queue": "-a"}, {"/queue": "invalid_name"}),
        ({"queue": "a" * 64}, {"/queue": "invalid_name"}),
        ({"queue": "leases"}, {"/queue": "invalid_name"}),
        ({"queue": 7}, {"/queue": "invalid_name"}),
        ({"queue": "a", "timeout_s": 28_801}, {"/timeout_s": "range"}),
        ({"queue": "a", "target": []}, {"/target": "type"}),
        ({"queue": "a", "target": {"delivery": "carrier pigeon"}}, {"/target/delivery": "choice"}),
    ],
)
def test_faults_of_pull_jobs(api: Api, members: dict[str, Any], faults: dict[str, str]) -> None:
    assert api.post("jobs", {"name": "a", "kind": "pull", **members}).faults == faults


def test_a_job_moves_to_another_queue_with_its_next_run(api: Api, pull: Any, worker: Api) -> None:
    old = pull()
    job = old["job"]
    assert api.patch(f"jobs/{job}", {"queue": "other"}, If_Match="*").status == 200
    new = api.post("executions", {"job": job}).body
    assert lease_one(worker)["execution"] == old["id"]
    assert lease_one(worker, "other")["execution"] == new["id"]


def test_a_name_that_no_queue_can_have_is_not_found(api: Api) -> None:
    for name in ("a%00b", "a" * 300, "%2e%2e"):
        answers = [api.get(f"queues/{name}"), *(api.post(f"queues/{name}/{do}", {}) for do in ("lease", "pause"))]
        assert {one.status for one in answers} == {404}


# --- leasing ---


def test_a_lease_has_all_that_a_worker_needs(pull: Any, worker: Api, api: Api, conn: Conn) -> None:
    run = pull(payload={"n": 7}, job={"timeout_s": 120})
    item = lease_one(worker, worker="box 1", lease_s=30)
    assert {name: item[name] for name in ("execution", "run_key", "job", "attempt", "payload", "target")} == {
        "execution": run["id"], "run_key": run["run_key"], "job": run["job"], "attempt": 1, "payload": {"n": 7},
        "target": {"size": "A4"},
    }  # fmt: skip
    started = instant(item["started_at"])
    assert instant(item["lease_until"]) - started < timedelta(seconds=31)
    assert instant(item["deadline"]) - started == timedelta(seconds=120)
    held = ticket(conn, run["id"])
    assert held is not None
    assert (held["remote"], held["worker_id"], held["holder"], held["lease_s"]) == (True, None, "box 1", 30)
    assert api.get(f"executions/{run['id']}").body["state"] == "running"
    assert lease(worker) == []


def test_the_lease_never_outlasts_the_time_out(pull: Any, worker: Api) -> None:
    pull(job={"timeout_s": 20})
    item = lease_one(worker, lease_s=900)
    assert item["lease_until"] == item["deadline"]


def test_priority_then_time_up_to_max(pull: Any, worker: Api) -> None:
    low, high, middle = pull(priority=1)["id"], pull(priority=9)["id"], pull(priority=5)["id"]
    assert [item["execution"] for item in lease(worker, max=2)] == [high, middle]
    assert [item["execution"] for item in lease(worker, max=2)] == [low]


def test_queues_are_apart(pull: Any, worker: Api) -> None:
    one, other = pull("one")["id"], pull("other")["id"]
    assert [item["execution"] for item in lease(worker, "other", max=10)] == [other]
    assert [item["execution"] for item in lease(worker, "one", max=10)] == [one]
    missing = worker.post("queues/none/lease", {})
    assert (missing.status, missing.code) == (404, "not_found")


def test_faults_of_a_wish(pull: Any, worker: Api) -> None:
    pull()
    body = {"max": 0, "wait_s": 31, "lease_s": 901, "worker": "x" * 101, "colour": 1}
    refused = worker.post("queues/invoices/lease", body)
    assert refused.faults == {
        "/max": "range", "/wait_s": "range", "/lease_s": "range", "/worker": "too_long", "/colour": "unknown_field",
    }  # fmt: skip
    assert len(lease(worker)) == 1


def test_what_may_not_start_is_not_leased(
    pull: Any, make: Makers, worker: Api, api: Api, conn: Conn, acme: Any, globex: Any
) -> None:
    """The predicates of release: tenant, job, concurrency, queue, time."""
    from apps.audit.services import Actor
    from kernel.clock import utc_now
    from tenants.pauses import dispatch_pause, dispatch_resume

    operator = Actor("operator", "admin")
    first = pull(job={"max_concurrency": 1})
    second = api.post("executions", {"job": first["job"]}).body
    later = api.post("executions", {"job": first["job"], "delay_s": 3600}).body
    for stop, go in (
        (lambda: api.post(f"jobs/{first['job']}/pause"), lambda: api.post(f"jobs/{first['job']}/resume")),
        (lambda: api.post("queues/invoices/pause"), lambda: api.post("queues/invoices/resume")),
        (
            lambda: conn.execute("UPDATE tenants_tenant SET dispatch_paused = true WHERE id = %s", [acme.pk]),
            lambda: conn.execute("UPDATE tenants_tenant SET dispatch_paused = false WHERE id = %s", [acme.pk]),
        ),
        (
            lambda: dispatch_pause(pool="pull", actor=operator, now=utc_now()),
            lambda: dispatch_resume(pool="pull", actor=operator, now=utc_now()),
        ),
    ):
        stop()
        assert lease(worker, max=10) == []
        go()
    items = lease(worker, max=10)
    assert [item["execution"] for item in items] == [first["id"]], "one at a time"
    assert lease(worker, max=10) == []
    assert end(worker, items[0], "complete").status == 200
    assert [item["execution"] for item in lease(worker, max=10)] == [second["id"]]
    assert later["state"] == "scheduled"


def test_a_tenants_limit_spans_its_pools(pull: Any, worker: Api, plan: Any, conn: Conn, acme: Any) -> None:
    from tenants.models import Plan

    for _ in range(3):
        pull()
    Plan.objects.filter(name="standard").update(max_running=2)
    try:
        assert len(lease(worker, max=10)) == 2
        assert lease(worker, max=10) == []
    finally:
        Plan.objects.filter(name="standard").update(max_running=None)


def test_runs_of_a_serial_schedule_are_leased_one_at_a_time(
    make: Makers, worker: Api, fire: Callable[..., Any], api: Api, conn: Conn
) -> None:
    job = make.job(kind="pull", queue="invoices", target={})
    schedule = make.schedule(job=job["id"], overlap="buffer_all", trigger={"every_s": 60})
    for _ in range(2):
        due_at = conn.execute("SELECT due_at FROM due_dueentry WHERE key = %s", [schedule["id"]]).fetchone()
        assert due_at is not None
        fire(due_at[0])
    conn.execute("UPDATE tickets_ticket SET available_at = now(), rank = coalesce(rank, now())")
    first = lease(worker, max=10)
    assert len(first) == 1
    assert lease(worker, max=10) == []
    end(worker, first[0], "complete")
    assert len(lease(worker, max=10)) == 1


def test_each_run_is_leased_once_however_many_ask(pull: Any, worker: Api, make: Makers) -> None:
    job = make.job(kind="pull", queue="invoices", target={}, max_concurrency=7)
    for _ in range(12):
        make.execution(job=job["id"])
    taken = in_parallel(6, lambda _: lease(Api(worker.key), max=3))
    ids = [item["execution"] for items in taken for item in items]
    assert len(ids) == len(set(ids)) == 7, "the limit holds"


def test_what_has_waited_for_too_long_is_not_leased(pull: Any, worker: Api, conn: Conn) -> None:
    run = pull(job={"max_queue_age_s": 3600})
    conn.execute("UPDATE tickets_ticket SET start_by = clock_timestamp() - interval '1 second'")
    assert lease(worker) == []
    conn.execute("UPDATE tickets_ticket SET start_by = clock_timestamp() + interval '1 hour'")
    assert lease_one(worker)["execution"] == run["id"]


def test_the_total_time_out_bounds_leases_too(pull: Any, worker: Api, conn: Conn) -> None:
    run = pull(job={"timeout_s": 100, "total_timeout_s": 150})
    first = lease_one(worker)
    assert end(worker, first, "release").status == 200
    conn.execute("UPDATE tickets_ticket SET first_started_at = first_started_at - interval '100 seconds'")
    second = lease_one(worker, lease_s=900)
    left = instant(second["deadline"]) - instant(second["started_at"])
    assert second["execution"] == run["id"]
    assert timedelta(seconds=40) < left <= timedelta(seconds=50)
    assert end(worker, second, "heartbeat", {"lease_s": 900}).body["lease_until"] == second["deadline"]


# --- who may ---


def test_a_workers_key_may_work_and_nothing_else(pull: Any, worker: Api, acme_people: People) -> None:
    run = pull()
    assert worker.get("queues").status == 200
    for method, path in (
        ("GET", "jobs"), ("GET", "executions"), ("POST", f"executions/{run['id']}/cancel"), ("GET", "api-keys"),
        ("POST", "queues/invoices/pause"),
    ):  # fmt: skip
        refused = worker.call(method, path, {} if method == "POST" else NOTHING)
        assert (refused.status, refused.code) == (403, "role_too_low"), path
    assert Api(acme_people.editor).post("queues/invoices/lease", {}).code == "role_too_low"
    assert len(lease(Api(acme_people.operator))) == 1


def test_keys_for_workers_are_made_over_the_api(api: Api) -> None:
    made = api.post("api-keys", {"name": "box", "role": "worker"})
    assert (made.status, made.body["role"]) == (201, "worker")


# --- queues ---


def test_a_queue_shows_what_is_in_it_and_who_works(pull: Any, worker: Api, api: Api, conn: Conn, acme: Any) -> None:
    runs = [pull() for _ in range(3)]
    pull("other")
    lease_one(worker, worker="box 1")
    lease_one(worker, worker="box 2")
    found = api.get("queues/invoices").body
    assert (found["ready"], found["running"], found["status"]) == (1, 2, "active")
    assert {one["name"] for one in found["consumers"]} == {"box 1", "box 2"}
    assert instant(found["oldest_at"]) >= instant(runs[2]["actual_at"]) - timedelta(seconds=1)
    assert [one["name"] for one in api.get("queues").body["items"]] == ["invoices", "other"]
    paused = api.post("queues/invoices/pause", {"reason": "printer"})
    assert (paused.body["status"], paused.body["paused_reason"]) == ("paused", "printer")
    assert api.post("queues/invoices/pause").body["paused_reason"] == "printer", "twice is once"
    assert api.post("queues/invoices/resume").body["status"] == "active"
    assert audit(conn, "invoices") == ["queue.pause", "queue.resume"]
    assert len(rows_of(conn, acme, "executions_attempt")) == 0
