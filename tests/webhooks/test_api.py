"""/webhooks and /events over the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.api.makers import NOWHERE, TARGET, Makers, audit
from tests.conftest import wait_until
from tests.fixtures_api import Api, in_parallel
from tests.fixtures_flow import count, settle_as, ticket_of
from tests.fixtures_people import People
from tests.webhooks.hands import begin, carry, deliveries_of, emit, events_of, types_of

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
HOOK = {"url": TARGET["url"], "types": ["*"]}


def made(api: Api, **members: Any) -> dict[str, Any]:
    answer = api.post("webhooks", {**HOOK, **members})
    assert answer.status == 201, answer.body
    body: dict[str, Any] = answer.body
    return body


def test_create_read_change_delete(api: Api, conn: Conn) -> None:
    answer = api.post("webhooks", {**HOOK, "types": ["run.failed", "run.failed"], "labels": {"team": "a"}})
    assert answer.status == 201 and answer.headers["Location"].endswith(answer.body["id"])
    secret = answer.body.pop("signing_secret")
    assert secret.startswith("whsec_")
    path = f"webhooks/{answer.body['id']}"
    read = api.get(path)
    assert read.body == answer.body
    assert read.body["types"] == ["run.failed"] and read.body["enabled"] is True and read.body["jobs"] == []
    assert api.get("webhooks").body["items"] == [answer.body]
    changed = api.patch(path, {"description": "to the pager", "labels": {"team": None}}, If_Match=read.etag)
    assert changed.status == 200 and changed.body["description"] == "to the pager" and changed.body["labels"] == {}
    assert api.patch(path, {"description": "x"}, If_Match=read.etag).status == 412
    assert api.patch(path, {"description": "x"}).code == "if_match_required"
    whole = api.put(path, {**changed.body, "types": ["*"], "description": None}, If_Match=changed.etag)
    assert whole.status == 200 and whole.body["types"] == ["*"] and whole.body["description"] is None
    assert api.delete(path, If_Match="*").status == 204
    assert api.get(path).status == 404 and api.get("webhooks").body["items"] == []
    noted = ["webhook.create", "webhook.update", "webhook.update", "webhook.delete"]
    assert [one for one in audit(conn, answer.body["id"]) if not one.startswith("-")] == noted
    text = str(conn.execute("SELECT array_agg(after::text || before::text) FROM audit_auditevent").fetchone())
    assert secret not in text


@pytest.mark.parametrize(
    ("members", "faults"),
    [
        ({"url": None}, {"/url": "required"}),
        ({"url": "http://10.0.0.7/x"}, {"/url": "address_not_public"}),
        ({"url": "http://169.254.169.254/latest"}, {"/url": "address_not_public"}),
        ({"url": "http://[::ffff:10.0.0.1]/"}, {"/url": "address_not_public"}),
        ({"url": "http://0x7f.1:22/"}, {"/url": "port_not_allowed"}),
        ({"url": "ftp://example.com/"}, {"/url": "scheme_not_allowed"}),
        ({"url": "http://user:pass@example.com/"}, {"/url": "credentials_in_url"}),
        ({"url": "https://example.com/{{ payload.x }}"}, {"/url": "invalid"}),
        ({"types": []}, {"/types": "type"}),
        ({"types": ["run.exploded"]}, {"/types/0": "choice"}),
        ({"types": None}, {"/types": "required"}),
        ({"jobs": ["x"]}, {"/jobs/0": "type"}),
        ({"schedules": "x"}, {"/schedules": "type"}),
        ({"labels": {"-": "x"}}, {"/labels/-": "invalid_name"}),
        ({"enabled": 1}, {"/enabled": "type"}),
        ({"signing_secret": "whsec_short"}, {"/signing_secret": "bad_secret"}),
        ({"secret": "x"}, {"/secret": "unknown_field"}),
    ],
    ids=str,
)
def test_what_is_refused(api: Api, members: dict[str, Any], faults: dict[str, str]) -> None:
    answer = api.post("webhooks", {**HOOK, **members})
    assert answer.status == 400
    if members.get("url"):  # the codes are those of HTTP jobs
        job = api.post("jobs", {"name": "x", "kind": "http", "target": {"url": members["url"]}})
        if "{{" not in members["url"]:
            assert {f"/target{key}": value for key, value in answer.faults.items()} == job.faults
        assert list(answer.faults) == list(faults)
    else:
        assert answer.faults == faults


def test_credentials_in_a_url_are_not_shown_and_stay(api: Api, conn: Conn) -> None:
    url = f"{TARGET['url']}?token=s3cr3t&team=a"
    hook = made(api, url=url)
    assert hook["url"] == f"{TARGET['url']}?token=***&team=a"
    path = f"webhooks/{hook['id']}"
    assert api.put(path, {**api.get(path).body, "description": "x"}, If_Match="*").status == 200
    assert api.patch(path, {"types": ["quota.near"]}, If_Match="*").status == 200
    stored = "SELECT url FROM t_acme.webhooks_webhook"
    assert conn.execute(stored).fetchone() == (url,)
    assert api.patch(path, {"url": url.replace("s3cr3t", "n3w")}, If_Match="*").status == 200
    assert conn.execute(stored).fetchone() == (url.replace("s3cr3t", "n3w"),)
    assert api.post("webhooks", {**HOOK, "url": hook["url"]}).faults == {"/url": "masked"}
    texts = str(conn.execute("SELECT array_agg(coalesce(before::text, '') || after) FROM audit_auditevent").fetchall())
    assert "s3cr3t" not in texts and "n3w" not in texts and "***" in texts


def test_another_tenant_sees_nothing(api: Api, other_api: Api, conn: Conn, acme: Tenant) -> None:
    hook = made(api)
    event = emit(conn, acme)
    for path in (f"webhooks/{hook['id']}", f"webhooks/{hook['id']}/deliveries", f"events/{event}"):
        assert other_api.get(path).status == 404
    for path in ("test", "rotate", "replay"):
        body = {"after": str(event)} if path == "replay" else {}
        assert other_api.post(f"webhooks/{hook['id']}/{path}", body).status == 404
    assert other_api.delete(f"webhooks/{hook['id']}", If_Match="*").status == 404
    assert other_api.get("webhooks").body["items"] == [] and other_api.get("events").body["items"] == []
    assert other_api.get(f"events?after={event}").status == 410


def test_the_same_idempotency_key_makes_one(api: Api) -> None:
    first = api.post("webhooks", HOOK, Idempotency_Key="k")
    again = api.post("webhooks", HOOK, Idempotency_Key="k")
    assert again.status == 201 and again.body["id"] == first.body["id"]
    assert first.body["signing_secret"] and again.body["signing_secret"] is None
    assert len(api.get("webhooks").body["items"]) == 1


def test_validate_only_makes_nothing(api: Api, conn: Conn) -> None:
    answer = api.post("webhooks?validate_only=true", HOOK)
    assert answer.status == 200 and answer.body["signing_secret"] is None
    assert api.get("webhooks").body["items"] == []
    assert count(conn, "SELECT count(*) FROM t_acme.schedules_job") == 0
    assert count(conn, "SELECT count(*) FROM due_eventbell") == 0


def test_a_tenant_has_at_most_so_many(api: Api) -> None:
    from apps.webhooks.services import WEBHOOKS_MAX

    for _ in range(WEBHOOKS_MAX - 1):
        made(api)
    answers = in_parallel(4, lambda _: api_of(api).post("webhooks", HOOK))
    assert sorted(one.status for one in answers) == [201, 429, 429, 429]
    [refused, *_] = [one for one in answers if one.status == 429]
    assert refused.code == "quota_exceeded" and refused.body["limit"] == WEBHOOKS_MAX


def test_a_plan_may_allow_fewer(api: Api, plan: Any) -> None:
    plan(max_webhooks=1)
    made(api)
    refused = api.post("webhooks", HOOK)
    assert (refused.status, refused.body["quota"], refused.body["limit"], refused.body["use"]) == (
        429, "max_webhooks", 1, 1,
    )  # fmt: skip


def api_of(api: Api) -> Api:
    """A client of its own for a thread."""
    return Api(api.key)


def test_the_hidden_job_is_nowhere(api: Api, make: Makers, conn: Conn, plan: Any) -> None:
    hook = made(api)
    plan(max_jobs=1)
    job = make.job(name=f"webhook {hook['id']}")  # neither its name nor its place is taken
    assert [one["id"] for one in api.get("jobs").body["items"]] == [job["id"]]
    assert api.get(f"jobs/{hook['id']}").status == 404
    assert api.post("executions", {"job": hook["id"]}).faults == {"/job": "not_found"}
    assert api.post("schedules", {"name": "x", "job": hook["id"], "trigger": {"every_s": 60}}).status == 400


def test_deliveries_are_listed_with_their_webhook(
    api: Api, conn: Conn, acme: Tenant, registry: Registry
) -> None:  # fmt: skip
    hook = made(api)
    emitted = [emit(conn, acme) for _ in range(3)]
    carry(conn, registry, acme)
    path = f"webhooks/{hook['id']}/deliveries"
    first, second, third = [begin(conn, one["id"]) for one in deliveries_of(conn, acme)]
    settle_as(conn, registry, [first], result='{"status": 204}')
    error = {"class": "http_status", "message": "The target answered 500.", "status": 500}
    settle_as(conn, registry, [second], "failed", error=error)
    settle_as(conn, registry, [third], "failed", error=error, retryable=False)
    items = api.get(path).body["items"]
    assert [one["event"] for one in items] == [str(one) for one in reversed(emitted)]
    assert [one["state"] for one in items] == ["dead", "ready", "succeeded"]
    assert [one["status"] for one in items] == [500, None, 204] and items[1]["next_attempt_at"]
    assert items[0]["error"] == {"class": "http_status", "message": "The target answered 500."}
    assert items[0]["webhook_id"] == f"{emitted[2].hex}.{hook['id'].replace('-', '')}"
    assert api.get(f"{path}/{items[0]['id']}").body == items[0]
    assert [one["state"] for one in api.get(f"{path}?state=dead,succeeded").body["items"]] == ["dead", "succeeded"]
    assert [one["id"] for one in api.get(f"{path}?event={emitted[0]}").body["items"]] == [items[2]["id"]]
    page = api.get(f"{path}?page_size=2").body
    assert len(page["items"]) == 2
    assert api.get(f"{path}?page_size=2&cursor={page['next_cursor']}").body["items"] == items[2:]
    attempts = api.get(f"executions/{items[1]['id']}/attempts").body["items"]
    assert [one["state"] for one in attempts] == ["failed"]
    assert api.get("executions").body["items"] == []  # unless they are asked for
    assert len(api.get("executions?trigger=webhook").body["items"]) == 3
    assert api.get("dead-letters").body["items"] == []


def test_a_failed_delivery_is_opened_again_and_any_other_made_anew(
    api: Api, conn: Conn, acme: Tenant, registry: Registry
) -> None:
    hook = made(api)
    for _ in range(2):
        emit(conn, acme)
    carry(conn, registry, acme)
    well, badly = [begin(conn, one["id"]) for one in deliveries_of(conn, acme)]
    path = f"webhooks/{hook['id']}/deliveries"
    assert api.post(f"{path}/{well.execution_id}/replay").code == "not_finished"
    settle_as(conn, registry, [well])
    settle_as(conn, registry, [badly], "failed", retryable=False)
    reopened = api.post(f"{path}/{badly.execution_id}/replay")
    assert reopened.status == 202 and reopened.body["id"] == str(badly.execution_id)
    assert (reopened.body["state"], reopened.body["attempt_count"]) == ("ready", 1)
    anew = api.post(f"{path}/{well.execution_id}/replay").body
    assert anew["replay_of"] == str(well.execution_id) and anew["webhook_id"] != well.run_key
    assert anew["event"] == well.run_key[:32].replace(well.run_key[:32], anew["event"])
    assert ticket_of(conn, badly.execution_id)["state"] == "ready"
    api.patch(f"webhooks/{hook['id']}", {"enabled": False}, If_Match="*")
    assert api.post(f"{path}/{well.execution_id}/replay").code == "webhook_disabled"
    assert api.post(f"{path}/{NOWHERE}/replay").status == 404


def test_replay_of_what_has_not_arrived(api: Api, conn: Conn, acme: Tenant, registry: Registry) -> None:
    hook = made(api)
    before = emit(conn, acme)
    carry(conn, registry, acme)
    settle_as(conn, registry, [begin(conn, one["id"]) for one in deliveries_of(conn, acme)])
    arrived, dead, ended = emit(conn, acme), emit(conn, acme), emit(conn, acme)
    carry(conn, registry, acme)
    _, first, second, _ = [one["id"] for one in deliveries_of(conn, acme)]
    settle_as(conn, registry, [begin(conn, first)])
    settle_as(conn, registry, [begin(conn, second)], "failed", retryable=False)
    api.patch(f"webhooks/{hook['id']}", {"enabled": False}, If_Match="*")  # ends the third
    missed = emit(conn, acme)
    carry(conn, registry, acme)
    newest = events_of(conn, acme)[-1]["tx"]
    from apps.events import store

    wait_until(lambda: store.horizon(conn) > newest, "the events to be settled")
    assert api.post(f"webhooks/{hook['id']}/replay", {"after": str(before)}).code == "webhook_disabled"
    api.patch(f"webhooks/{hook['id']}", {"enabled": True}, If_Match="*")
    answer = api.post(f"webhooks/{hook['id']}/replay", {"after": str(before)})
    assert answer.status == 202 and answer.body["replaying"] == "missing"
    assert api.post(f"webhooks/{hook['id']}/replay", {"after": str(before)}).code == "replay_in_progress"
    carry(conn, registry, acme)
    alive = [one for one in deliveries_of(conn, acme) if one["finished_at"] is None]
    assert {one["payload"]["id"] for one in alive} >= {str(one) for one in (dead, ended, missed)}
    assert not {str(before), str(arrived)} & {one["payload"]["id"] for one in alive}
    assert [one["id"] for one in alive if one["payload"]["id"] == str(dead)] == [second]
    assert api.get(f"webhooks/{hook['id']}").body["replaying"] is None
    total = len(deliveries_of(conn, acme))
    api.post(f"webhooks/{hook['id']}/replay", {"after": str(before)})
    carry(conn, registry, acme)
    assert len(deliveries_of(conn, acme)) == total  # what is under way is not sent twice
    api.post(f"webhooks/{hook['id']}/replay", {"after": str(before), "replay": "all"})
    carry(conn, registry, acme)
    again = deliveries_of(conn, acme)[total:]
    assert {one["payload"]["id"] for one in again} >= {str(one) for one in (arrived, dead, ended, missed)}
    assert api.post(f"webhooks/{hook['id']}/replay", {"after": NOWHERE}).faults == {"/after": "not_found"}


def test_a_test_goes_also_to_one_that_is_disabled(api: Api, conn: Conn, acme: Tenant) -> None:
    hook = made(api, enabled=False)
    answer = api.post(f"webhooks/{hook['id']}/test")
    assert answer.status == 202 and answer.body["type"] == "webhook.test" and answer.body["event"] is None
    [one] = deliveries_of(conn, acme)
    assert one["job_version"] == 2 and one["payload"]["type"] == "webhook.test"
    assert types_of(conn, acme) == []


def test_rotation_keeps_the_former_secret_for_a_while(api: Api, conn: Conn) -> None:
    hook = made(api)
    answer = api.post(f"webhooks/{hook['id']}/rotate", {"overlap_s": 60})
    assert answer.status == 200 and answer.body["signing_secret"] != hook["signing_secret"]
    assert answer.body["former_secret_until"]
    third = api.post(f"webhooks/{hook['id']}/rotate", {"overlap_s": 0})
    assert third.body["former_secret_until"] is None
    assert count(conn, "SELECT count(*) FROM t_acme.secrets_secret WHERE purpose = 'webhook'") == 1
    assert api.get("secrets").body["items"] == []
    assert api.delete(f"webhooks/{hook['id']}", If_Match="*").status == 204
    assert count(conn, "SELECT count(*) FROM t_acme.secrets_secret") == 0


def test_events_are_read_on_from_the_last_one(api: Api, conn: Conn, acme: Tenant) -> None:
    ids = [str(emit(conn, acme, type_)) for type_ in ("schedule.paused", "quota.near", "schedule.resumed")]
    wait_until(lambda: len(api.get("events").body["items"]) == 3, "the events to be readable")
    items = api.get("events").body["items"]
    assert [one["id"] for one in items] == ids and items[0]["data"] == {"n": 1}
    assert [one["id"] for one in api.get(f"events?after={ids[0]}").body["items"]] == ids[1:]
    assert api.get(f"events?after={ids[2]}").body == {"items": [], "next_cursor": None}
    page = api.get("events?page_size=2").body
    assert [one["id"] for one in page["items"]] == ids[:2]
    assert api.get(f"events?page_size=2&cursor={page['next_cursor']}").body["items"] == items[2:]
    assert [one["id"] for one in api.get("events?type=quota.near").body["items"]] == [ids[1]]
    assert api.get(f"events/{ids[1]}").body == items[1]
    assert api.get(f"events?job={NOWHERE}").body["items"] == []
    assert api.get(f"events?after={NOWHERE}").code == "event_gone"
    assert api.get("events?after=x").status == 400
    conn.execute("DELETE FROM t_acme.events_event WHERE id = %s", [ids[0]])
    assert api.get(f"events?after={ids[0]}").status == 410


def test_a_viewer_reads_and_nothing_else(acme_people: People, api: Api) -> None:
    hook = made(api)
    viewer, operator = Api(acme_people.viewer), Api(acme_people.operator)
    assert viewer.get(f"webhooks/{hook['id']}").status == 200 and viewer.get("events").status == 200
    assert viewer.post(f"webhooks/{hook['id']}/test").code == "role_too_low"
    assert operator.post(f"webhooks/{hook['id']}/test").status == 202
    assert operator.post("webhooks", HOOK).code == "role_too_low"
    assert operator.post(f"webhooks/{hook['id']}/rotate").code == "role_too_low"


def test_lists_take_few_statements(
    api: Api, conn: Conn, acme: Tenant, registry: Registry, statements: list[str]
) -> None:
    hook = made(api)
    for _ in range(5):
        emit(conn, acme)
    carry(conn, registry, acme)
    for path in ("webhooks", "events", f"webhooks/{hook['id']}/deliveries"):
        statements.clear()
        api.get(path)
        assert len(statements) <= 12, (path, statements)
