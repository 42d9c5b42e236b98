"""/audit-events, and what of the API's own doing is in the trail."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from apps.audit.reading import cursor_key, of_cursor_key
from tenants.models import Tenant
from tests.api.makers import JOB, MINUTELY, NOWHERE, Makers
from tests.api.rows import all_rows
from tests.api.test_matrix import Operation, operations, prepared
from tests.api.world import World
from tests.audit.hands import a_person, seal_all, write
from tests.fixtures_api import Api
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
HOSTILE = 'x"}\n{"id": 1}\r\u0085\u2028\u2029\u202e\x7f</script>\\ \ud7ff\U0001f600'
# What changes nothing that is kept, or is kept where it belongs: in the attempts of a run.
NOT_NOTED = {
    "schedules_preview", "schedules_preview_unsaved", "queues_lease", "leases_heartbeat", "leases_complete",
    "leases_fail", "leases_release", "leases_settle", "executions_complete", "executions_heartbeat",
    "executions_explain", "schedules_explain", "workflows_preview", "workflows_preview_unsaved",
    "workflow_runs_explain", "workflow_steps_explain",
    "schedules_completeness_repair",  # of a schedule that lacks nothing; see test_completeness
}  # fmt: skip


def trail(conn: Conn, request_id: str) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT action, object_id, allowed, reason FROM audit_auditevent WHERE request_id = %s ORDER BY id",
        [request_id],
    ).fetchall()


@pytest.mark.parametrize("operation", [one for one in operations() if one.method != "GET"], ids=lambda one: one.name)
def test_every_write_is_in_the_trail(operation: Operation, world: World, api: Api, conn: Conn) -> None:
    row = all_rows()[operation.name]
    path, body = prepared(world, operation, row)
    if operation.name in ("jobs_resume", "queues_resume", "workflows_resume"):  # what is not paused would stay as it is
        assert api.post(path.replace("/resume", "/pause")).status == 200
    answer = operation.send(api, path, body)
    assert answer.status == row.answer, answer.body
    rows = conn.execute(
        "SELECT allowed, subject <> '', personal IS NOT NULL FROM audit_auditevent WHERE request_id = %s",
        [answer.headers["X-Request-Id"]],
    ).fetchall()
    if operation.name in NOT_NOTED:
        assert rows == []
    else:
        assert rows and set(rows) == {(True, True, True)}, "add its row to the trail, or a reason to NOT_NOTED"


def test_a_row_as_it_is_answered(api: Api, make: Makers, conn: Conn, acme_people: People) -> None:
    made = make.schedule(name="one")
    paused = api.post(f"schedules/{made['id']}/pause", {"reason": "flood"})
    request_id = paused.headers["X-Request-Id"]
    (one,) = api.get(f"audit-events?request_id={request_id}").body["items"]
    assert one["seal"] is None and one["about"] is None and one["allowed"]
    assert (one["action"], one["object_type"], one["object_id"]) == ("schedule.pause", "schedule", made["id"])
    assert one["actor"]["name"] == "key:admin key (admin)" and one["actor"]["id"].startswith("key:")
    assert (one["actor"]["role"], one["actor"]["address"], one["actor"]["erased"]) == ("admin", "127.0.0.1", False)
    seal_all(conn)
    (one,) = api.get(f"audit-events?request_id={request_id}").body["items"]
    end = api.get("audit-events/chain").body
    assert one["seal"]["number"] == end["number"] and one["seal"]["head"] == end["head"]


def test_filters(api: Api, make: Makers, acme_people: People, conn: Conn, acme: Tenant) -> None:
    first, second = make.job(), make.job()
    api.delete(f"jobs/{first['id']}", If_Match="*")
    Api(acme_people.viewer).delete(f"jobs/{second['id']}", If_Match="*")
    write(conn, acme, by=a_person(acme), about="invitation:1", personal={"email": "bob@acme.test"})

    def found(query: str) -> list[tuple[str, str]]:
        return [(one["action"], one["object_id"]) for one in api.get(f"audit-events?{query}").body["items"]]

    assert found(f"object={first['id']}") == [("job.delete", first["id"]), ("job.create", first["id"])]
    assert found("action=job.delete") == [("job.delete", second["id"]), ("job.delete", first["id"])]
    assert found("action=job.delete&allowed=false") == [("job.delete", second["id"])]
    assert found("action=job.delete&allowed=true") == [("job.delete", first["id"])]
    assert len(found("object_type=job")) == 5 and found("object_type=calendar") == []
    assert found("actor=user:7") == found("about=invitation:1") == [("job.update", "0")]
    assert len(found("actor=key:admin%20key%20(admin)")) == 3
    assert found("created_after=2090-01-01T00:00:00Z") == []
    assert len(found("created_before=2090-01-01T00:00:00Z")) == 5
    (one,) = api.get("audit-events?about=invitation:1").body["items"]
    assert one["about"] == {"id": "invitation:1", "email": "bob@acme.test"}
    for bad in ("allowed=maybe", "who=me", "created_after=soon", "cursor=AAAA"):
        assert api.get(f"audit-events?{bad}").status == 400


def test_pages(api: Api, conn: Conn, acme: Tenant, globex: Tenant, other_api: Api) -> None:
    for _ in range(7):
        write(conn, acme)
        write(conn, globex)
    seen: list[str] = []
    query = "audit-events?page_size=3"
    while True:
        answer = api.get(query).body
        seen += [one["id"] for one in answer["items"]]
        if answer["next_cursor"] is None:
            break
        query = f"audit-events?page_size=3&cursor={answer['next_cursor']}"
    assert len(seen) == len(set(seen)) == 7
    cursor = api.get("audit-events?page_size=3").body["next_cursor"]
    assert other_api.get(f"audit-events?page_size=3&cursor={cursor}").status == 200  # of ids, which are no secret there
    assert all(one["id"] not in seen for one in other_api.get("audit-events").body["items"])


def test_a_page_looks_at_a_bounded_number_of_rows(
    api: Api, conn: Conn, acme: Tenant, globex: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A filter that matches little gives short pages, and all of it in the end."""
    from apps.audit import reading

    monkeypatch.setattr(reading, "SCAN_MOST", 4)
    for number in range(11):
        write(conn, acme, reason=f"r{number % 5}")
        write(conn, globex)
    write(conn, acme, allowed=False)
    query, pages = "audit-events?allowed=true&page_size=3", []
    while True:
        answer = api.get(query).body
        pages.append(len(answer["items"]))
        if answer["next_cursor"] is None:
            break
        query = f"audit-events?allowed=true&page_size=3&cursor={answer['next_cursor']}"
    assert sum(pages) == 11 and max(pages) <= 3
    assert api.get("audit-events?action=none").body["items"] == []
    assert api.get("audit-events?object=none").body == {"items": [], "next_cursor": None}


def test_ranges_of_time(api: Api, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour between rows: the ids of what lies outside are not looked at, and nothing inside is left out."""
    from datetime import timedelta

    from tests.audit import hands

    for hour in range(6):
        monkeypatch.setattr(hands, "NOW", hands.NOW + timedelta(hours=1))
        write(conn, acme, reason=str(hour))
    first = (hands.NOW - timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last = hands.NOW.strftime("%Y-%m-%dT%H:%M:%SZ")

    def found(query: str) -> list[str]:
        return [one["reason"] for one in api.get(f"audit-events?{query}").body["items"]]

    assert found(f"created_after={first}&created_before={last}") == ["4", "3", "2", "1"]
    assert found(f"created_after={first}") == ["5", "4", "3", "2", "1"]
    assert found(f"created_before={first}") == [] and found(f"created_before={last}") == ["4", "3", "2", "1", "0"]
    assert found(f"created_after={first}&created_before={last}&action=none") == []
    page = api.get(f"audit-events?created_before={last}&page_size=2").body
    assert len(page["items"]) == 2
    rest = api.get(f"audit-events?created_before={last}&page_size=2&cursor={page['next_cursor']}").body
    assert [one["reason"] for one in rest["items"]] == ["2", "1"]


def test_cursors_tell_nothing() -> None:
    assert of_cursor_key(cursor_key(12345)) == 12345 and cursor_key(1) != cursor_key(2)
    assert cursor_key(1).int >> 64 != 0


def test_a_made_up_cursor_is_refused(api: Api, conn: Conn, acme: Tenant) -> None:
    import base64
    from uuid import UUID

    write(conn, acme, 3)
    cursor = api.get("audit-events?page_size=1").body["next_cursor"]
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    made_up = base64.urlsafe_b64encode(UUID(int=2).bytes + raw[16:]).rstrip(b"=").decode()
    assert api.get(f"audit-events?page_size=1&cursor={made_up}").faults == {"?cursor": "bad_cursor"}


def test_few_statements_however_many_rows(api: Api, conn: Conn, acme: Tenant, statements: list[str]) -> None:
    for number in range(20):
        write(conn, acme, by=a_person(acme, number))
    seal_all(conn)
    statements.clear()
    assert len(api.get("audit-events").body["items"]) == 20
    assert len(statements) <= 12, statements


def test_the_export_is_the_chain(api: Api, conn: Conn, acme: Tenant, globex: Tenant, other_api: Api) -> None:
    write(conn, acme, 5, by=a_person(acme))
    write(conn, globex, 2)
    seal_all(conn)
    write(conn, acme)  # not sealed yet
    first = api.get("audit-events/export?limit=3")
    assert first.headers["Content-Type"] == "application/x-ndjson"
    assert first.headers["Content-Disposition"] == 'attachment; filename="audit-acme.jsonl"'
    assert [one["seal"]["number"] for one in first.body] == [1, 2, 3]
    rest = api.get("audit-events/export?after=3", Accept="application/x-ndjson").body
    assert [one["seal"]["number"] for one in rest] == [4, 5]
    assert rest[-1]["seal"]["head"] == api.get("audit-events/chain").body["head"]
    assert rest[0]["actor"]["name"] == "member:ada@acme.test (admin)"
    assert api.get("audit-events/export?after=5").body == []
    assert [one["seal"]["number"] for one in other_api.get("audit-events/export").body] == [1, 2]
    for bad in ("after=-1", "after=x", "limit=0", "limit=100001", "who=me", f"after={'9' * 30}"):
        assert api.get(f"audit-events/export?{bad}").status == 400


def test_what_committed_late_is_not_missed_by_who_exports_bit_by_bit(
    api: Api, conn: Conn, second: Conn, acme: Tenant
) -> None:  # fmt: skip
    with second.transaction():
        write(second, acme, reason="early")
        write(conn, acme, reason="later")
        seal_all(conn)
        (line,) = api.get("audit-events/export").body
        assert line["reason"] == "later"
    seal_all(conn)
    (line,) = api.get(f"audit-events/export?after={line['seal']['number']}").body
    assert line["reason"] == "early"


def test_hostile_text_stays_in_its_line(conn: Conn, acme: Tenant, acme_people: People) -> None:
    from django.test import Client

    write(conn, acme, 2, by=a_person(acme, name=f"member:{HOSTILE}"), reason=HOSTILE, after={HOSTILE: [HOSTILE]})
    seal_all(conn)
    response: Any = Client().get(
        "/api/v1/audit-events/export", headers={"Authorization": f"Bearer {acme_people.admin}"}
    )
    text = response.content.decode()
    assert len(text.splitlines()) == 2  # by the rules of whoever has the most kinds of line ends
    for line in text.splitlines():
        one = json.loads(line)
        assert one["reason"] == HOSTILE and one["after"] == {HOSTILE: [HOSTILE]}
        assert one["actor"]["name"] == f"member:{HOSTILE}"


def test_numbers_come_as_they_were_stored(api: Api, conn: Conn, acme: Tenant) -> None:
    write(conn, acme, after={"big": 2**63, "float": 0.1})
    seal_all(conn)
    (line,) = api.get("audit-events/export").body
    assert line["after"] == {"big": 2**63, "float": 0.1}


def test_a_long_export_is_read_in_chunks(
    api: Api, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from apps.audit import reading

    monkeypatch.setattr(reading, "CHUNK", 4)
    write(conn, acme, 10)
    seal_all(conn)
    assert [one["seal"]["number"] for one in api.get("audit-events/export").body] == list(range(1, 11))
    assert len(api.get("audit-events/export?limit=6").body) == 6


@pytest.mark.parametrize("path", ["audit-events", "audit-events/export", "audit-events/chain"])
def test_only_admins_read_it(path: str, acme_people: People, conn: Conn) -> None:
    for role in ("viewer", "editor", "operator"):
        refused = Api(acme_people.keys[role]).get(path)
        assert (refused.status, refused.code) == (403, "role_too_low")
        assert trail(conn, refused.body["request_id"]) == [("audit.read", "", False, f"role {role}")]


def test_an_erased_person(api: Api, conn: Conn, acme: Tenant) -> None:
    from apps.audit import personal

    write(conn, acme, by=a_person(acme))
    personal.erase(conn, subject="user:7")
    (one,) = api.get("audit-events").body["items"]
    assert one["actor"] == {
        "id": "user:7", "name": "user:7", "role": "admin", "address": None, "agent": None, "erased": True,
    }  # fmt: skip


def test_refusals_of_services(api: Api, make: Makers, conn: Conn, plan: Any) -> None:
    job = make.job()
    stale = api.patch(f"jobs/{job['id']}", {"name": "x"}, If_Match='"999"')
    assert stale.status == 412
    assert trail(conn, stale.body["request_id"]) == [("job.update", job["id"], False, "stale")]
    without = api.delete(f"jobs/{job['id']}")
    assert without.status == 428
    assert trail(conn, without.body["request_id"]) == [("job.delete", job["id"], False, "if_match_required")]
    plan(max_jobs=1)
    full = api.post("jobs", {"name": "one more", "kind": "http", "target": job["target"]})
    assert full.status == 429
    assert trail(conn, full.body["request_id"]) == [("job.create", "", False, "quota_exceeded")]
    (one,) = api.get(f"audit-events?request_id={full.body['request_id']}").body["items"]
    assert one["after"] == {"quota": "max_jobs", "limit": 1, "use": 1}


def test_faults_and_what_is_missing_are_not_noted(api: Api, conn: Conn) -> None:
    for answer in (api.post("jobs", {}), api.delete(f"jobs/{NOWHERE}", If_Match="*"), api.get(f"jobs/{NOWHERE}")):
        assert answer.status in (400, 404) and trail(conn, answer.body["request_id"]) == []


def test_a_rehearsal_leaves_nothing(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job()
    answer = api.post("schedules?validate_only=true", {"name": "x", "job": job["id"], "trigger": MINUTELY})
    assert answer.status == 200 and trail(conn, answer.headers["X-Request-Id"]) == []


def test_where_a_request_comes_from(acme_people: People, api: Api, settings: Any) -> None:
    settings.TRUSTED_PROXIES = 1
    hostile = "curl/8 \x1b[31m\u0416" + "y" * 500
    sent = {"X_Forwarded_For": "6.6.6.6, 192.0.2.44", "User_Agent": hostile.encode().decode("latin-1")}
    answer = api.post("jobs", JOB, **sent)
    (one,) = api.get(f"audit-events?request_id={answer.headers['X-Request-Id']}").body["items"]
    assert one["actor"]["address"] == "192.0.2.44"
    assert one["actor"]["agent"].startswith("curl/8 ") and "\x1b" not in one["actor"]["agent"]
    assert len(one["actor"]["agent"]) <= 120
