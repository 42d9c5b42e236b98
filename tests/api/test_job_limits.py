"""Concurrency keys and rate limits: in bodies and versions, and on all tickets and entries that come of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from kernel.limitrules import flow_of
from tests.api.makers import JOB, Makers, begin, due, kill, settle, ticket
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
BY_LABEL, BY_PAYLOAD = {"label": "customer", "max": 1}, {"payload": "/customer/id", "max": 2}
RATE = {"runs": 100, "per_s": 60, "burst": 10}


def keyed(row: dict[str, Any] | None) -> tuple[UUID | None, int | None, str | None]:
    """(flow, limit, key) of a ticket or a due entry."""
    assert row is not None
    return row["flow"], row["flow_limit"], row.get("flow_key", row.get("key"))


def wanted(job: dict[str, Any], value: Any) -> tuple[UUID, int | None, str | None]:
    """What a run of the job with this value has."""
    flow = flow_of(UUID(job["id"]), job["concurrency_key"], value)
    return flow.flow, flow.limit, flow.key


def test_they_come_back_as_they_are_stored(api: Api, make: Makers) -> None:
    job = make.job(concurrency_key={"label": "customer"}, rate_limit={"runs": 100, "per_s": 60})
    assert (job["concurrency_key"], job["rate_limit"]) == (BY_LABEL, RATE)
    assert make.job()["concurrency_key"] is None
    path = f"jobs/{job['id']}"
    patch = {"concurrency_key": {"label": None, "payload": "/customer/id", "max": 2}, "rate_limit": {"burst": 1}}
    changed = api.patch(path, patch, If_Match="*").body
    assert (changed["concurrency_key"], changed["rate_limit"]) == (BY_PAYLOAD, {**RATE, "burst": 1})
    versions = api.get(f"{path}/versions").body["items"]
    assert [one["concurrency_key"] for one in versions] == [BY_PAYLOAD, BY_LABEL]
    assert [one["rate_limit"]["burst"] for one in versions] == [1, 10]
    again = api.put(path, changed, If_Match="*").body
    assert again["version"] == 2, "sent back as it is, nothing changes"
    gone = api.patch(path, {"concurrency_key": None, "rate_limit": None}, If_Match="*").body
    assert (gone["concurrency_key"], gone["rate_limit"], gone["version"]) == (None, None, 3)


def test_their_faults_have_a_place(api: Api, make: Makers) -> None:
    bad = {**JOB, "concurrency_key": {"label": "a", "payload": "/b"}, "rate_limit": {"runs": 0, "per": "min"}}
    faults = {
        "/concurrency_key": "contradiction", "/rate_limit/runs": "range", "/rate_limit/per_s": "required",
        "/rate_limit/per": "unknown_field",
    }  # fmt: skip
    assert api.post("jobs", bad).faults == faults
    assert api.post("jobs?validate_only=true", bad).faults == faults
    job = make.job(concurrency_key=BY_LABEL)
    refused = api.patch(f"jobs/{job['id']}", {"concurrency_key": {"payload": "/b"}}, If_Match="*")
    assert refused.faults == {"/concurrency_key": "contradiction"}
    done = api.post("jobs/bulk", {"items": [{**JOB, "rate_limit": RATE}, {**bad, "name": "other"}]}).body
    assert [one["status"] for one in done["items"]] == [201, 400]


def test_every_run_has_the_flow_of_its_payload(api: Api, make: Makers, conn: Conn, registry: Any) -> None:
    job = make.job(concurrency_key=BY_PAYLOAD, payload={"customer": {"id": "house"}}, retry={"max_attempts": 1})
    plain = make.execution(job=job["id"])
    assert keyed(ticket(conn, plain["id"])) == wanted(job, "house"), "the job's own payload"
    own = make.execution(job=job["id"], payload={"customer": {"id": 42}})
    assert keyed(ticket(conn, own["id"])) == wanted(job, 42)
    free = make.execution(job=job["id"], payload={"customer": {"id": [42]}})
    assert keyed(ticket(conn, free["id"])) == (UUID(job["id"]), None, None), "no value, no limit"
    later = make.execution(job=job["id"], payload={"customer": {"id": 42}}, delay_s=60)
    assert keyed(due(conn, later["id"])) == wanted(job, 42)
    items = [{"job": job["id"], "payload": {"customer": {"id": n}}} for n in ("a", "b")]
    made = [one["id"] for one in api.post("executions/bulk", {"items": items}).body["items"]]
    assert [keyed(ticket(conn, one)) for one in made] == [wanted(job, "a"), wanted(job, "b")]
    kill(conn, registry, own["id"])
    [letter] = api.get("dead-letters").body["items"]
    api.post(f"dead-letters/{letter['id']}/replay", {})
    assert keyed(ticket(conn, own["id"])) == wanted(job, 42), "replayed"
    settle(conn, registry, begin(conn, own["id"]))
    rerun = api.post(f"executions/{own['id']}/rerun", {}).body
    assert keyed(ticket(conn, rerun["id"])) == wanted(job, 42)


def test_schedules_fire_into_the_flow_of_their_version(
    api: Api, make: Makers, conn: Conn, registry: Any, acme: Any
) -> None:
    from tests.flow.test_repairs import repair

    job = make.job(concurrency_key=BY_PAYLOAD, payload={"customer": {"id": "house"}})
    none = make.schedule(job=job["id"])
    own = make.schedule(job=job["id"], payload={"customer": {"id": 7}})
    assert keyed(due(conn, none["id"])) == wanted(job, "house")
    assert keyed(due(conn, own["id"])) == wanted(job, 7)
    run = api.post(f"schedules/{own['id']}/trigger", {}).body
    assert keyed(ticket(conn, run["id"])) == wanted(job, 7)
    api.patch(f"schedules/{own['id']}", {"payload": {"customer": {"id": 8}}}, If_Match="*")
    assert keyed(due(conn, own["id"])) == wanted(job, 8)
    for verb in ("pause", "resume"):
        api.post(f"schedules/{own['id']}/{verb}", {})
    assert keyed(due(conn, own["id"])) == wanted(job, 8)
    for verb in ("pause", "resume"):
        api.post(f"jobs/{job['id']}/{verb}", {})
    assert keyed(due(conn, own["id"])) == wanted(job, 8)
    conn.execute("DELETE FROM due_dueentry")
    conn.execute("DELETE FROM tickets_ticket")
    repair(conn, registry, only=acme)
    assert keyed(due(conn, none["id"])) == wanted(job, "house")
    assert keyed(due(conn, own["id"])) == wanted(job, 8)
    assert keyed(ticket(conn, run["id"])) == wanted(job, 7), "its schedule's version of then"


def test_labels_come_from_job_schedule_and_run(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(concurrency_key=BY_LABEL, labels={"customer": "job"})
    schedule = make.schedule(job=job["id"])
    assert keyed(due(conn, schedule["id"])) == wanted(job, "job")
    api.patch(f"schedules/{schedule['id']}", {"labels": {"customer": "schedule"}}, If_Match="*")
    assert keyed(due(conn, schedule["id"])) == wanted(job, "schedule")
    run = make.execution(job=job["id"], labels={"customer": "run"})
    assert keyed(ticket(conn, run["id"])) == wanted(job, "run")
    other = make.execution(job=job["id"])
    api.patch(f"jobs/{job['id']}", {"labels": {"customer": "new"}}, If_Match="*")
    assert keyed(due(conn, schedule["id"])) == wanted(job, "schedule")
    assert keyed(ticket(conn, run["id"])) == wanted(job, "run")
    assert keyed(ticket(conn, other["id"])) == wanted(job, "new")
    api.patch(f"schedules/{schedule['id']}", {"labels": {"customer": None}}, If_Match="*")
    assert keyed(due(conn, schedule["id"])) == wanted(job, "new")


def test_what_is_alive_follows_the_job(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(labels={"customer": "job"})
    schedule = make.schedule(job=job["id"], payload={"customer": {"id": 1}})
    payload = {"customer": {"id": 2}}
    run, later = (make.execution(job=job["id"], payload=payload, delay_s=after) for after in (0, 60))
    busy = make.execution(job=job["id"], payload=payload)
    begin(conn, busy["id"])

    def follows(key: dict[str, Any] | None, values: tuple[Any, Any]) -> None:
        changed = api.patch(f"jobs/{job['id']}", {"concurrency_key": key}, If_Match="*").body
        if key is None:
            assert keyed(due(conn, schedule["id"])) == keyed(due(conn, later["id"])) == (None, None, None)
            assert keyed(ticket(conn, run["id"])) == (UUID(job["id"]), None, None)
            return
        assert keyed(due(conn, schedule["id"])) == wanted(changed, values[0])
        for row in (due(conn, later["id"]), ticket(conn, run["id"]), ticket(conn, busy["id"])):
            assert keyed(row) == wanted(changed, values[1])

    follows(BY_PAYLOAD, (1, 2))
    follows({"max": 5}, (1, 2))
    follows({"payload": None, "label": "customer"}, ("job", "job"))
    follows(None, (None, None))


def bucket(conn: Conn, job: dict[str, Any]) -> tuple[Any, ...] | None:
    """(tokens a second, burst, tokens) of a job's rate."""
    return conn.execute("SELECT per_s, burst, tokens FROM tickets_bucket WHERE owner = %s", [job["id"]]).fetchone()


def test_a_rate_has_a_bucket_while_the_job_has_it(api: Api, make: Makers, conn: Conn, registry: Any, acme: Any) -> None:
    from tests.flow.test_repairs import repair

    job, plain = make.job(rate_limit=RATE), make.job()
    assert (bucket(conn, job), bucket(conn, plain)) == ((100 / 60, 10, 10), None)
    conn.execute("UPDATE tickets_bucket SET tokens = 2, at = clock_timestamp() - interval '1.2 s'")
    api.patch(f"jobs/{job['id']}", {"rate_limit": {"runs": 60, "burst": 20}}, If_Match="*")
    found = bucket(conn, job)
    assert found is not None
    assert found[:2] == (1, 20)
    assert 4 <= found[2] < 10, "what it had, and what came back at the rate until now"
    api.patch(f"jobs/{job['id']}", {"rate_limit": {"burst": 3}}, If_Match="*")
    assert bucket(conn, job) == (1, 3, 3)
    api.patch(f"jobs/{job['id']}", {"rate_limit": None}, If_Match="*")
    assert bucket(conn, job) is None
    made = api.put("jobs/by-external-id/own", {**JOB, "rate_limit": RATE}).body
    assert bucket(conn, made) == (100 / 60, 10, 10)
    run = make.execution(job=made["id"])
    conn.execute("UPDATE tickets_bucket SET burst = 99")
    conn.execute(
        "INSERT INTO tickets_bucket (tenant_id, owner, per_s, burst, tokens, at) VALUES (%s, %s, 1, 1, 1, now())",
        [acme.pk, plain["id"]],
    )
    repaired = [(one.check, str(one.object_id)) for one in repair(conn, registry, only=acme)]
    assert sorted(repaired) == [("bucket_without_rate", plain["id"]), ("rate_without_bucket", made["id"])]
    assert (bucket(conn, made), bucket(conn, plain)) == ((100 / 60, 10, 10), None)
    assert api.delete(f"jobs/{made['id']}", If_Match="*").status == 204
    assert repair(conn, registry, only=acme) == [], "what waits still has its rate"
    assert api.post(f"executions/{run['id']}/cancel", {}).status == 200
    assert [one.check for one in repair(conn, registry, only=acme)] == ["bucket_without_rate"]


POINTERS = [
    "/a~1b",
    "/c~0d",
    "/~01",
    "/",
    "/list/1",
    "/list/9",
    "/list/x",
    "/customer/id",
    "/customer",
    "/t",
    "/0",
    "/x/",
]


@pytest.mark.parametrize("pointer", POINTERS)
def test_postgresql_reads_pointers_as_the_rules_do(make: Makers, conn: Conn, acme: Any, pointer: str) -> None:
    from apps.schedules.keyed import flows_of_executions
    from kernel.limitrules import value_at

    payload = {
        "customer": {"id": 42}, "list": ["a", "b"], "a/b": "1", "c~d": 2, "~1": 3, "": 4, "0": 5, "t": True,
        "x": {"": 2**70},
    }  # fmt: skip
    job = make.job(concurrency_key={"payload": pointer}, payload=payload)
    run = make.execution(job=job["id"])
    expected = wanted(job, value_at(payload, pointer))
    assert keyed(ticket(conn, run["id"])) == expected
    found = flows_of_executions(conn, acme.schema_name, [UUID(run["id"])])
    assert tuple(found[UUID(run["id"])]) == expected


def test_pull_queues_keep_keys_and_rates(api: Api, make: Makers, conn: Conn) -> None:
    keyed_job = make.job(kind="pull", target={}, queue="keyed", concurrency_key=BY_PAYLOAD)
    slow_job = make.job(kind="pull", target={}, queue="slow", rate_limit={"runs": 1, "per_s": 3600, "burst": 2})
    for number in (1, 1, 1, 2):
        make.execution(job=keyed_job["id"], payload={"customer": {"id": number}})
        make.execution(job=slow_job["id"])

    def leased(queue: str) -> list[Any]:
        items = api.post(f"queues/{queue}/lease", {"max": 10}).body["items"]
        return [(one["payload"] or {}).get("customer", {}).get("id") for one in items]

    assert sorted(leased("keyed")) == [1, 1, 2], "two of each"
    assert leased("keyed") == []
    assert len(leased("slow")) == 2
    assert leased("slow") == []
