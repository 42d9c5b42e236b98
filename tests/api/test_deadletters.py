"""/dead-letters: what failed for good, replayed or resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.api.makers import NOWHERE, Makers, audit, begin, instant, kill, settle, ticket
from tests.fixtures_api import Api
from tests.operations.fixtures import work_off

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


@pytest.fixture
def dead(make: Makers, conn: Conn, registry: Registry) -> dict[str, Any]:
    """A dead execution with a payload of its own."""
    run = make.execution(payload={"x": 1}, labels={"a": "b"}, priority=9)
    kill(conn, registry, run["id"])
    return run


def letter_of(api: Api, run: dict[str, Any]) -> dict[str, Any]:
    (letter,) = api.get(f"dead-letters?status=open&execution={run['id']}").body["items"]
    found: dict[str, Any] = letter
    return found


def test_a_dead_letter_tells_what_failed(api: Api, dead: dict[str, Any]) -> None:
    letter = letter_of(api, dead)
    assert (letter["execution"], letter["job"], letter["attempts"]) == (dead["id"], dead["job"], 1)
    assert (letter["status"], letter["error"]["status"]) == ("open", 400)
    assert api.get(f"dead-letters/{letter['id']}").body == letter
    assert api.get(f"dead-letters?fingerprint={letter['fingerprint']}&job={dead['job']}").body["items"] == [letter]
    assert api.get("dead-letters?status=resolved,replayed").body["items"] == []
    assert api.get(f"dead-letters?schedule={NOWHERE}").body["items"] == []


def test_open_letters_are_grouped_by_their_cause(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    job = make.job()["id"]
    runs = [make.execution(job=job)["id"] for _ in range(5)]
    for number, run in enumerate(runs):
        error = {"class": "http", "status": 500 + number % 2, "message": f"row {number}"}
        settle(conn, registry, begin(conn, run), "failed", error=error, retryable=False)
    letters = {one["execution"]: one for one in api.get("dead-letters").body["items"]}
    api.post(f"dead-letters/{letters[runs[0]]['id']}/resolve")
    first = api.get("dead-letters/groups?page_size=1").body
    second = api.get(f"dead-letters/groups?page_size=1&cursor={first['next_cursor']}").body
    groups = {one["fingerprint"]: one for one in (*first["items"], *second["items"])}
    assert (second["next_cursor"], list(groups)) == (None, sorted(groups))
    for newest, oldest, status in ((runs[4], runs[2], 500), (runs[3], runs[1], 501)):
        group = groups[letters[newest]["fingerprint"]]
        assert (group["count"], group["count_is_exact"], group["error"]["status"]) == (2, True, status)
        assert (group["newest"], group["newest_at"]) == (letters[newest]["id"], letters[newest]["created_at"])
        assert (group["oldest_at"], group["job"]) == (letters[oldest]["created_at"], job)


def test_a_replay_goes_on_under_the_same_run_key(
    api: Api, make: Makers, dead: dict[str, Any], conn: Conn, registry: Registry
) -> None:
    letter = letter_of(api, dead)
    api.patch(f"jobs/{dead['job']}", {"timeout_s": 5}, If_Match="*")
    replayed = api.post(f"dead-letters/{letter['id']}/replay", {"note": "fixed the target"})
    assert replayed.status == 202
    run = replayed.body
    assert (run["id"], run["run_key"], run["state"]) == (dead["id"], dead["run_key"], "ready")
    assert (run["attempt_count"], run["error"], run["finished_at"], run["job_version"]) == (1, None, None, 2)
    made = ticket(conn, run["id"])
    assert made
    assert (made["attempt"], made["failures"], made["payload_from"]) == (1, 0, "execution")
    assert (made["job_version"], made["timeout_s"], made["priority"]) == (2, 5, 9)
    closed = api.get(f"dead-letters/{letter['id']}").body
    assert (closed["status"], closed["note"]) == ("replayed", "fixed the target")
    assert closed["resolved_by"] == "key:admin key (admin)"
    again = api.post(f"dead-letters/{letter['id']}/replay")
    assert (again.status, again.code) == (409, "not_open")
    settle(conn, registry, begin(conn, run["id"]))
    done = api.get(f"executions/{run['id']}").body
    assert (done["state"], done["attempt_count"]) == ("succeeded", 2)
    numbers = [one["number"] for one in api.get(f"executions/{run['id']}/attempts").body["items"]]
    assert numbers == [2, 1]
    assert audit(conn, letter["id"]) == ["deadletter.replay"]


def test_a_new_key_makes_a_new_run_and_what_dies_each_time_is_refused(
    api: Api, dead: dict[str, Any], conn: Conn, registry: Registry
) -> None:
    first = letter_of(api, dead)
    run = api.post(f"dead-letters/{first['id']}/replay", {"new_key": True}).body
    assert (run["replay_of"], run["payload"], run["labels"]) == (dead["id"], {"x": 1}, {"a": "b"})
    assert run["run_key"] != dead["run_key"]
    assert api.get(f"dead-letters/{first['id']}").body["replays"] == 1
    for _ in range(2):
        kill(conn, registry, run["id"])
        assert api.post(f"dead-letters/{letter_of(api, run)['id']}/replay").status == 202
    kill(conn, registry, run["id"])
    last = letter_of(api, run)
    assert last["replays"] == 3
    refused = api.post(f"dead-letters/{last['id']}/replay")
    assert (refused.status, refused.code, refused.body["replays"]) == (409, "replayed_too_often", 3)
    assert api.post(f"dead-letters/{last['id']}/replay", {"force": True}).status == 202


def test_many_are_replayed_by_their_cause(api: Api, make: Makers, conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make.job()["id"]
    runs = [make.execution(job=job)["id"] for _ in range(3)]
    for run in runs:
        kill(conn, registry, run)
    kill(conn, registry, make.execution()["id"])  # of another job, for the same reason
    (group,) = api.get("dead-letters/groups").body["items"]
    body = {"filter": {"fingerprint": group["fingerprint"], "job": job}, "payload": {"x": 2}, "reason": "mended"}
    rehearsed = api.post("dead-letters/bulk-replay", {**body, "dry_run": True})
    assert (rehearsed.status, rehearsed.body["count"], len(rehearsed.body["sample"])) == (200, 3, 3)
    asked = api.post("dead-letters/bulk-replay", body, Idempotency_Key="k")
    assert (asked.status, api.post("dead-letters/bulk-replay", body, Idempotency_Key="k").body) == (202, asked.body)
    work_off(acme, UUID(asked.body["id"]), most=3)
    items = api.get(f"operations/{asked.body['id']}/items").body["items"]
    made = [api.get(f"executions/{one['execution']}").body for one in items]
    assert {(run["replay_of"], run["payload"]["x"]) for run in made} == {(run, 2) for run in runs}
    closed = api.get(f"dead-letters/{items[0]['target']}").body
    assert (closed["status"], closed["note"]) == ("replayed", "mended")
    refused = api.post("dead-letters/bulk-replay", {"filter": {"status": "resolved"}, "max_replays": 101})
    assert refused.faults == {"/filter/status": "choice"}
    assert api.post("dead-letters/bulk-resolve", {"filter": {}}).faults == {"/filter": "required"}
    resolved = api.post("dead-letters/bulk-resolve", {"filter": {"all": True}}).body
    assert work_off(acme, UUID(resolved["id"])).succeeded == 1


def test_dying_again_makes_a_new_letter(api: Api, dead: dict[str, Any], conn: Conn, registry: Registry) -> None:
    first = letter_of(api, dead)
    api.post(f"dead-letters/{first['id']}/replay")
    kill(conn, registry, dead["id"])
    second = letter_of(api, dead)
    assert (second["id"] != first["id"], second["attempts"]) == (True, 2)
    assert len(api.get(f"dead-letters?execution={dead['id']}").body["items"]) == 2


@pytest.mark.parametrize("payload", [{"x": 2}, [], 0, None])
def test_another_payload_makes_a_new_run(api: Api, dead: dict[str, Any], conn: Conn, payload: Any) -> None:
    letter = letter_of(api, dead)
    replayed = api.post(f"dead-letters/{letter['id']}/replay", {"payload": payload})
    run = replayed.body
    assert (replayed.status, run["replay_of"], run["payload"]) == (202, dead["id"], payload)
    assert run["run_key"] != dead["run_key"]
    made = ticket(conn, run["id"])
    assert made and (made["attempt"], made["payload_from"]) == (0, "job" if payload is None else "execution")
    assert api.get(f"executions/{dead['id']}").body["state"] == "dead"
    assert api.get(f"dead-letters/{letter['id']}").body["status"] == "replayed"


def test_a_replayed_occurrence_counts_for_the_overlap_policy_again(
    api: Api, make: Makers, conn: Conn, registry: Registry, fire: Any
) -> None:
    schedule = make.schedule(overlap="skip", payload={"s": 1})
    fire(instant(schedule["next_at"]))
    (run,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    kill(conn, registry, run["id"])
    replayed = api.post(f"dead-letters/{letter_of(api, run)['id']}/replay").body
    made = ticket(conn, run["id"])
    assert made and (made["guarded"], made["payload_from"]) == (True, "schedule")
    assert (replayed["nominal_at"], replayed["schedule"]) == (run["nominal_at"], schedule["id"])
    assert api.post(f"schedules/{schedule['id']}/trigger").body["state"] == "skipped"


def test_a_letter_is_resolved_with_a_note(api: Api, dead: dict[str, Any], conn: Conn) -> None:
    letter = letter_of(api, dead)
    resolved = api.post(f"dead-letters/{letter['id']}/resolve", {"note": "customer\nknows"})
    assert (resolved.status, resolved.body["status"], resolved.body["note"]) == (200, "resolved", "customer\nknows")
    assert api.post(f"dead-letters/{letter['id']}/resolve").code == "not_open"
    assert api.post(f"dead-letters/{letter['id']}/replay").code == "not_open"
    assert ticket(conn, dead["id"]) is None
    opened = api.post(f"dead-letters/{letter['id']}/reopen", {"note": "they don't"})
    assert (opened.status, opened.body["status"], opened.body["note"]) == (200, "open", None)
    assert api.post(f"dead-letters/{letter['id']}/reopen").code == "not_resolved"
    assert audit(conn, letter["id"]) == ["deadletter.resolve", "deadletter.reopen"]
    api.post(f"dead-letters/{letter['id']}/resolve")
    conn.execute("UPDATE t_acme.executions_execution SET state = 'cancelled' WHERE id = %s", [dead["id"]])
    refused = api.post(f"dead-letters/{letter['id']}/reopen")
    assert (refused.code, api.get(f"dead-letters/{letter['id']}").body["status"]) == ("not_dead", "resolved")


def test_the_job_is_deleted(api: Api, dead: dict[str, Any]) -> None:
    letter = letter_of(api, dead)
    api.delete(f"jobs/{dead['job']}", If_Match="*")
    refused = api.post(f"dead-letters/{letter['id']}/replay")
    assert (refused.status, refused.code) == (409, "job_deleted")
    assert letter_of(api, dead)["status"] == "open", "nothing happened to it"


def test_the_job_is_paused(api: Api, dead: dict[str, Any], conn: Conn) -> None:
    api.post(f"jobs/{dead['job']}/pause")
    api.post(f"dead-letters/{letter_of(api, dead)['id']}/replay")
    made = ticket(conn, dead["id"])
    assert made and made["job_limit"] == 0


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"payload": "x" * 262_144}, "/payload", "too_large"),
        ({"payload": "\u0000"}, "/payload", "invalid_character"),
        ({"note": 5}, "/note", "type"),
        ({"note": "x" * 1001}, "/note", "too_long"),
        ({"new_key": "yes"}, "/new_key", "type"),
        ({"force": 1}, "/force", "type"),
        ({"reason": "x"}, "/reason", "unknown_field"),
        ([], "", "not_an_object"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_bodies(api: Api, dead: dict[str, Any], body: Any, pointer: str, code: str) -> None:
    letter = letter_of(api, dead)
    assert api.post(f"dead-letters/{letter['id']}/replay", body).faults == {pointer: code}
    assert letter_of(api, dead) == letter


@pytest.mark.parametrize("action", ["", "replay", "resolve", "reopen"])
def test_a_letter_that_does_not_exist(api: Api, action: str) -> None:
    answer = api.post(f"dead-letters/{NOWHERE}/{action}") if action else api.get(f"dead-letters/{NOWHERE}")
    assert (answer.status, answer.code) == (404, "not_found")
