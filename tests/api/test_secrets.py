"""/secrets and /signing-secrets: values go in, nothing brings them out; and credentials in jobs are masks."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.api.makers import NOWHERE, TARGET, Makers
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
VALUE = "S3CR3T-7f1"
SECRET = {"name": "TOKEN", "value": VALUE, "description": "of the hooks"}


@pytest.fixture
def secret(api: Api) -> Answer:
    made = api.post("secrets", SECRET)
    assert made.status == 201
    return made


def named(name: str = "TOKEN") -> dict[str, Any]:
    return {**TARGET, "headers": {"X-Key": {"secret": name}}}


def trail(conn: Conn) -> list[tuple[Any, ...]]:
    """What was done; refusals are another matter."""
    query = (
        "SELECT action, before, after FROM audit_auditevent WHERE object_type LIKE '%secret' AND allowed ORDER BY id"
    )
    return conn.execute(query).fetchall()


def stored_value(conn: Conn, name: str = "TOKEN") -> str:
    """What a worker would get."""
    from apps.secrets.vault import Vault
    from kernel.clock import utc_now
    from tenants.models import Tenant
    from tenants.registry import Registry
    from tests.fixtures_flow import OneLine

    registry = Registry(OneLine(conn))  # type: ignore[arg-type]  # a line is what it gives
    registry.refresh(force=True)
    tenancy = registry.by_id[Tenant.objects.get(slug="acme").pk]
    return Vault().values(conn, tenancy, [name], now=utc_now()).values[name]


def test_a_secret_is_made_read_listed_and_never_shown(api: Api, secret: Answer, conn: Conn) -> None:
    assert secret.body | {"name": "TOKEN", "description": "of the hooks", "version": 1} == secret.body
    assert secret.headers["Location"] == f"/api/v1/secrets/{secret.body['id']}"
    read, listed = api.get(f"secrets/{secret.body['id']}"), api.get("secrets?name=tok")
    assert read.body == secret.body and listed.body["items"] == [secret.body]
    assert read.etag.startswith('"1-'), "the revision, and a digest of the answer"
    for answer in (secret, read, listed):
        assert VALUE not in json.dumps(answer.body)
    assert stored_value(conn) == VALUE
    assert trail(conn) == [("secret.create", None, {"name": "TOKEN", "version": 1})]


def test_a_new_value_is_a_new_version(api: Api, secret: Answer, conn: Conn) -> None:
    path = f"secrets/{secret.body['id']}"
    changed = api.patch(path, {"value": "n3w"}, If_Match=secret.etag)
    assert (changed.status, changed.body["version"], changed.body["description"]) == (200, 2, "of the hooks")
    assert stored_value(conn) == "n3w"
    assert api.patch(path, {"value": "other"}, If_Match=secret.etag).code == "stale"
    described = api.patch(path, {"description": "else"}, If_Match=changed.etag)
    assert (described.body["version"], described.body["description"]) == (2, "else")
    same = api.patch(path, {}, If_Match=described.etag)
    assert same.etag == described.etag
    replaced = api.put(path, {**same.body, "value": " with blanks \n"}, If_Match="*")
    assert (replaced.status, replaced.body["version"], replaced.body["description"]) == (200, 3, "else")
    assert stored_value(conn) == " with blanks \n"
    assert trail(conn)[1:] == [
        ("secret.update", {"version": 1}, {"version": 2}),
        ("secret.update", {"description": "of the hooks"}, {"description": "else"}),
        ("secret.update", {"version": 2}, {"version": 3}),
    ]


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"/name": "required", "/value": "required"}),
        ({"name": "no blanks", "value": VALUE}, {"/name": "invalid_name"}),
        ({"name": "@job.x", "value": VALUE}, {"/name": "invalid_name"}),
        ({"name": "A", "value": ""}, {"/value": "empty"}),
        ({"name": "A", "value": 5}, {"/value": "type"}),
        ({"name": "A", "value": None}, {"/value": "required"}),
        ({"name": "A", "value": "x" * 32_769}, {"/value": "too_large"}),
        ({"name": "A", "value": "a\x00b"}, {"/value": "invalid_character"}),
        ({"name": "A", "value": VALUE, "more": VALUE}, {"/more": "unknown_field"}),
    ],
)
def test_what_is_refused_is_not_repeated(api: Api, body: Any, faults: dict[str, str]) -> None:
    refused = api.post("secrets", body)
    assert (refused.status, refused.faults) == (400, faults)
    assert VALUE not in json.dumps(refused.body)


def test_a_name_is_there_once_and_can_not_change(api: Api, secret: Answer) -> None:
    assert api.post("secrets", SECRET).code == "name_taken"
    assert api.post("secrets", {**SECRET, "name": "token"}).status == 201, "names differ by case, as variables do"
    refused = api.patch(f"secrets/{secret.body['id']}", {"name": "OTHER"}, If_Match="*")
    assert refused.faults == {"/name": "read_only"}
    results = in_parallel(4, lambda _: Api(api.key).post("secrets", {**SECRET, "name": "RACE"}).status)
    assert sorted(results) == [201, 409, 409, 409]


def test_a_replayed_answer_holds_no_value_and_its_digest_no_hint(api: Api, conn: Conn) -> None:
    import hashlib

    first = api.post("secrets", SECRET, Idempotency_Key="k1")
    again = api.post("secrets", SECRET, Idempotency_Key="k1")
    assert (again.status, again.body) == (201, first.body) and again.headers["Idempotency-Replayed"] == "true"
    assert api.post("secrets", {**SECRET, "value": "other"}, Idempotency_Key="k1").code == "idempotency_key_reused"
    ((fingerprint, body),) = conn.execute("SELECT fingerprint, body FROM api_idempotentanswer").fetchall()
    guess = b"\n".join(
        (b"POST", b"/api/v1/secrets", json.dumps(SECRET, sort_keys=True, separators=(",", ":")).encode())
    )
    assert VALUE not in body and fingerprint != hashlib.sha256(guess).hexdigest()


def test_another_tenants_secret_is_not_there(other_api: Api, secret: Answer) -> None:
    path = f"secrets/{secret.body['id']}"
    assert other_api.get(path).status == 404
    assert other_api.patch(path, {"value": "mine"}, If_Match="*").status == 404
    assert other_api.delete(path, If_Match="*").status == 404
    assert other_api.get("secrets").body["items"] == []


def test_a_secret_in_use_is_not_deleted(api: Api, secret: Answer, make: Makers, conn: Conn) -> None:
    path = f"secrets/{secret.body['id']}"
    job = make.job(target={**TARGET, "body": {"deep": [{"in": {"secret": "TOKEN", "suffix": "!"}}]}})
    refused = api.delete(path, If_Match="*")
    assert (refused.status, refused.code) == (409, "secret_in_use")
    assert (refused.body["jobs"], refused.body["job_count"]) == ([{"id": job["id"], "name": job["name"]}], 1)
    assert api.patch(f"jobs/{job['id']}", {"target": {"body": None}}, If_Match="*").status == 200
    assert api.delete(path, If_Match=secret.etag).status == 204
    assert api.get(path).status == 404
    assert trail(conn)[-1] == ("secret.delete", {"name": "TOKEN"}, None)


def test_a_job_may_name_only_secrets_that_there_are(api: Api, make: Makers, secret: Answer, conn: Conn) -> None:
    refused = api.post("jobs", {"name": "j", "kind": "http", "target": named("TYPO")})
    assert (refused.status, refused.faults) == (400, {"/target/headers/X-Key/secret": "unknown_secret"})
    job = make.job(target=named())
    assert job["target"] == named()
    conn.execute("DELETE FROM t_acme.secrets_secret")
    assert api.patch(f"jobs/{job['id']}", {"timeout_s": 5}, If_Match="*").status == 200, "it can still be mended"


def test_of_a_secrets_end_and_a_jobs_beginning_one_wins(api: Api, secret: Answer) -> None:
    path = f"secrets/{secret.body['id']}"
    works = [
        lambda: Api(api.key).delete(path, If_Match="*").status,
        lambda: Api(api.key).post("jobs", {"name": "j", "kind": "http", "target": named()}).status,
    ]
    results = in_parallel(2, lambda number: works[number]())
    assert results in ([204, 400], [409, 201])


# --- credentials in a job itself ---

LITERAL = {
    "url": f"http://127.0.0.1:9999/ok?token={VALUE}&page=2",
    "headers": {"Authorization": f"Bearer {VALUE}", "X-Api-Key": VALUE, "Cookie": f"a={VALUE}", "X-Trace": "ok"},
}
SHOWN = {
    "url": "http://127.0.0.1:9999/ok?token=***&page=2",
    "headers": {"Authorization": "***", "X-Api-Key": "***", "Cookie": "***", "X-Trace": "ok"},
}


def filled(conn: Conn, job: dict[str, Any]) -> Any:
    """A job's target as a worker sends it."""
    from kernel.secretrules import fill, secret_names

    query = "SELECT target FROM t_acme.schedules_jobversion WHERE job_id = %s ORDER BY version DESC LIMIT 1"
    row = conn.execute(query, [job["id"]]).fetchone()
    assert row is not None and VALUE not in json.dumps(row[0]), "encrypted where it rests"
    return fill(row[0], {name: stored_value(conn, name) for name in secret_names(row[0])})


def test_credentials_in_a_job_are_kept_apart_and_shown_as_masks(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(target=LITERAL)
    assert job["target"] == SHOWN
    assert filled(conn, job) == LITERAL
    for answer in (api.get(f"jobs/{job['id']}"), api.get("jobs")):
        assert VALUE not in json.dumps(answer.body)
    assert api.get("secrets").body["items"] == [], "they are the job's, and not listed"


def test_who_sends_the_mask_back_keeps_the_value(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(target=LITERAL)
    read = api.get(f"jobs/{job['id']}")
    put = api.put(f"jobs/{job['id']}", read.body, If_Match=read.etag)
    assert (put.status, put.body["version"]) == (200, 1), "nothing changed"
    patched = api.patch(f"jobs/{job['id']}", {"target": {"headers": {"X-Trace": "no", "Cookie": "***"}}}, If_Match="*")
    assert patched.body["version"] == 2
    assert filled(conn, job) == {**LITERAL, "headers": {**LITERAL["headers"], "X-Trace": "no"}}  # type: ignore[dict-item]  # it is one


def test_the_same_credential_written_again_is_no_change(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(target=LITERAL)
    assert api.patch(f"jobs/{job['id']}", {"target": LITERAL}, If_Match="*").body["version"] == 1
    other = {"headers": {"X-Api-Key": "another"}}
    assert api.patch(f"jobs/{job['id']}", {"target": other}, If_Match="*").body["version"] == 2
    assert filled(conn, job)["headers"]["X-Api-Key"] == "another"


def test_a_mask_for_nothing_and_a_name_of_the_platforms_are_refused(api: Api, make: Makers) -> None:
    refused = api.post("jobs", {"name": "j", "kind": "http", "target": {**TARGET, "headers": {"X-Api-Key": "***"}}})
    assert refused.faults == {"/target/headers/X-Api-Key": "masked"}
    make.job(target=LITERAL)
    from apps.secrets.models import Secret
    from tenants import door
    from tenants.models import Tenant

    with door.inside(Tenant.objects.get(slug="acme")):
        name = Secret.objects.filter(purpose="sealed").values_list("name", flat=True)[0]
    refused = api.post("jobs", {"name": "j", "kind": "http", "target": named(name)})
    assert refused.faults == {"/target/headers/X-Key/secret": "invalid_name"}


# --- signing ---


def test_a_signing_secret_is_shown_once(api: Api, conn: Conn) -> None:
    assert api.get("signing-secrets").body["items"] == []
    first = api.post("signing-secrets/rotate", {}, Idempotency_Key="k1")
    assert first.status == 201 and first.body["signing_secret"].startswith("whsec_")
    again = api.post("signing-secrets/rotate", {}, Idempotency_Key="k1")
    assert again.body == {**first.body, "signing_secret": None}
    second = api.post("signing-secrets/rotate", {"overlap_s": 3600, "signing_secret": "whsec_" + "A" * 32})
    assert second.body["signing_secret"] == "whsec_" + "A" * 32
    newest, former = api.get("signing-secrets").body["items"]
    assert (newest["id"], newest["expires_at"]) == (second.body["id"], None)
    assert former["id"] == first.body["id"] and former["expires_at"] is not None
    assert api.post("signing-secrets/rotate", {"overlap_s": 0}).status == 201
    assert len(api.get("signing-secrets").body["items"]) == 1
    assert "whsec_" not in repr(trail(conn)) and len(trail(conn)) == 3


@pytest.mark.parametrize("text", ["whsec_", "whsec_!!", "secret", "whsk_" + "A" * 44, "whsec_QUJD"])
def test_only_secrets_of_the_standard_sign(api: Api, text: str) -> None:
    refused = api.post("signing-secrets/rotate", {"signing_secret": text})
    assert (refused.status, refused.faults) == (400, {"/signing_secret": "bad_secret"})
    assert text not in json.dumps(refused.body) or text == "secret" or text == "whsec_"


def test_only_an_admin_changes_what_signs(acme_people: People) -> None:
    assert Api(acme_people.operator).post("signing-secrets/rotate", {}).code == "role_too_low"
    assert Api(acme_people.viewer).get("signing-secrets").status == 200
    assert Api(acme_people.viewer).get(f"secrets/{NOWHERE}").status == 404


def test_credentials_of_containers_are_kept_apart_too(api: Api, conn: Conn, settings: Any) -> None:
    settings.CONTAINER_RUNTIME, settings.CONTAINER_IMAGES = "runc", ["busybox"]
    environment = {"DB_PASSWORD": VALUE, "LEVEL": "info"}
    target = {"image": "busybox", "command": ["true"], "environment": environment}
    made = api.post("jobs", {"name": "c", "kind": "container", "target": target})
    assert made.status == 201, made.body
    assert made.body["target"]["environment"] == {"DB_PASSWORD": "***", "LEVEL": "info"}
    assert filled(conn, made.body)["environment"] == environment
    put = api.put(f"jobs/{made.body['id']}", made.body, If_Match="*")
    assert (put.status, put.body["version"]) == (200, 1)


def test_targets_of_pull_jobs_are_nobodys_business(api: Api) -> None:
    """They go to the tenant's own workers as they are."""
    target = {"headers": {"Authorization": "theirs"}, "key": {"secret": "THEIRS"}, "url": "https://e.org/?token=1"}
    made = api.post("jobs", {"name": "p", "kind": "pull", "queue": "theirs", "target": target})
    assert (made.status, made.body["target"]) == (201, target), made.body
    put = api.put(f"jobs/{made.body['id']}", made.body, If_Match="*")
    assert (put.status, put.body["target"], put.body["version"]) == (200, target, 1)
