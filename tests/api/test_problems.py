"""Faults of every kind as problem documents, and hostile input in milliseconds."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
import pytest

from tests.api.makers import JOB, Makers
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
MEMBERS = {"type", "title", "status", "detail", "code", "errors", "request_id"}


def refused(answer: Any, status: int, code: str) -> None:
    assert (answer.status, answer.code) == (status, code), answer.body
    assert set(answer.body) >= MEMBERS
    assert answer.body["type"] == f"urn:shardbeat:problem:{code}"
    assert answer.body["status"] == status
    assert answer.body["request_id"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize("path", ["nothing", "jobs/", "jobs/x", "jobs/1", "", "jobs/pause", "jobs/%0A", "%0A%0Ax"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_what_there_is_not(api: Api, method: str, path: str) -> None:
    refused(api.call(method, path, {}), 404, "not_found")


def test_a_slash_too_many_gets_a_hint(api: Api) -> None:
    assert "slash" in api.get("jobs/").body["detail"]


@pytest.mark.parametrize(("method", "path", "allow"), [
    ("DELETE", "jobs", {"GET", "HEAD", "POST"}),
    ("OPTIONS", "jobs", {"GET", "HEAD", "POST"}),
    ("POST", "attempts", {"GET", "HEAD"}),
    ("GET", "schedules/preview", {"POST"}),
    ("TRACE", "jobs", {"GET", "HEAD", "POST"}),
])  # fmt: skip
def test_methods_that_there_are_not(api: Api, method: str, path: str, allow: set[str]) -> None:
    answer = api.call(method, path)
    refused(answer, 405, "method_not_allowed")
    assert set(answer.headers["Allow"].split(", ")) == allow


def test_head_is_get_without_a_body(api: Api) -> None:
    answer = api.call("HEAD", "jobs")
    assert (answer.status, answer.body) == (200, None)


def test_answers_that_nobody_makes(api: Api) -> None:
    refused(api.get("jobs", Accept="text/html"), 406, "not_acceptable")
    for accepted in ("*/*", "application/*", "application/json", "text/html, application/json;q=0.5"):
        assert api.get("jobs", Accept=accepted).status == 200


UNREAD = [
    "text/plain", "application/xml", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded",
    "application/merge-patch+json", "nonsense",
]  # fmt: skip


@pytest.mark.parametrize("kind", UNREAD)
def test_bodies_that_nobody_reads(api: Api, kind: str) -> None:
    refused(api.call("POST", "jobs", JOB, content_type=kind), 415, "unsupported_media_type")


def test_json_with_a_charset_is_json(api: Api) -> None:
    assert api.call("POST", "jobs", JOB, content_type="application/json; charset=utf-8").status == 201


MALFORMED = [
    b"{", b"nope", b'{"name": }', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b"\xff\xfe{}", b"\x00",
    b'{"a": "\\ud800"}', b"[" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'"\xc3\x28"', b"1" * 10_000,
    b"\xef\xbb\xbf{}",
]  # fmt: skip


@pytest.mark.parametrize("raw", MALFORMED, ids=lambda raw: repr(raw[:20]))
def test_what_is_not_json(api: Api, raw: bytes) -> None:
    refused(api.call("POST", "jobs", raw=raw), 400, "malformed_json")


@pytest.mark.parametrize("body", [[], "x", 5, None, True, [[]]])
def test_what_is_not_an_object(api: Api, body: Any) -> None:
    answer = api.post("jobs", body)
    refused(answer, 400, "invalid")
    assert answer.faults[""] == "not_an_object"


TWICE = [
    b'{"name": "a", "name": "b"}', b'{"payload": {"x": 1, "y": 2, "x": 1}}', b'{"payload": [[{"\\u0061": 1, "a": 2}]]}',
]  # fmt: skip


@pytest.mark.parametrize("raw", TWICE)
def test_members_that_are_given_twice(api: Api, raw: bytes) -> None:
    refused(api.call("POST", "jobs", raw=raw), 400, "repeated_member")


def test_an_empty_body_lacks_everything(api: Api) -> None:
    assert set(api.call("POST", "jobs", raw=b"").faults) == {"/name", "/kind", "/target"}


def test_five_megabytes_are_refused_unread(api: Api) -> None:
    began = time.monotonic()
    answer = api.call("POST", "jobs", raw=b'{"name": "' + b"x" * 5_000_000 + b'"}')
    refused(answer, 413, "body_too_large")
    assert time.monotonic() - began < 1


def test_just_within_the_bound_is_read_and_judged(api: Api) -> None:
    began = time.monotonic()
    answer = api.post("jobs", {**JOB, "payload": "x" * 2_000_000})
    assert answer.faults == {"/payload": "too_large"}
    assert time.monotonic() - began < 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded(api: Api) -> None:
    refused_ = api.post("jobs", {**JOB, "payload": nested(500)})
    assert list(refused_.faults.values()) == ["too_deep"]
    made = api.post("jobs", {**JOB, "payload": nested(60)})
    assert made.status == 201
    assert api.get(f"jobs/{made.body['id']}").body["payload"] == nested(60)


def test_many_faults_are_cut(api: Api) -> None:
    answer = api.post("jobs", {f"field{n}": n for n in range(100_000)})
    assert len(answer.body["errors"]) <= 100
    answer = api.post("jobs", {**JOB, "labels": {"!" * n: "x" for n in range(1, 50)}})
    assert len(answer.body["errors"]) == 49
    answer = api.post("jobs", {"x" * 1_000_000: 1})
    assert len(json.dumps(answer.body)) < 5_000


NUMBERS = [2**63, -(2**63) - 1, 10**18, 1e300, 1.5, -0.0, 0]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_in_payloads_stay_numbers(api: Api, number: float) -> None:
    made = api.post("jobs", {**JOB, "payload": {"n": number}})
    assert made.status == 201
    assert made.body["payload"]["n"] == pytest.approx(number)
    assert api.get(f"jobs/{made.body['id']}").body["payload"]["n"] == pytest.approx(number)


TEXTS = [
    "\u202eright to left", "<script>alert(1)</script>", "'; DROP TABLE jobs; --", "%s %(x)s {0}", "\U0001d518",
    "\\u0000", "a\tb",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_texts_stay_texts(api: Api, text: str) -> None:
    made = api.post("jobs", {**JOB, "payload": {text: text}, "labels": {"a": text.replace("\t", " ")}})
    assert made.status == 201
    assert made.body["payload"] == {text: text}


@pytest.mark.parametrize("field", ["name", "payload", "labels", "target", "external_id", "kind"])
@pytest.mark.parametrize("text", ["\u0000", "a\u0000b"])
def test_nul_is_refused_everywhere(api: Api, conn: Conn, field: str, text: str) -> None:
    value: Any = {"x": text} if field in ("payload", "labels", "target") else text
    answer = api.post("jobs", {**JOB, field: value})
    refused(answer, 400, "invalid")
    assert any(pointer.startswith(f"/{field}") for pointer in answer.faults)


@pytest.mark.parametrize("header", ["X-Request-Id", "If-Match", "Idempotency-Key", "Accept", "Authorization"])
def test_odd_headers_break_nothing(api: Api, make: Makers, header: str) -> None:
    job = make.job()
    for value in ("x" * 10_000, "%00", "\x7f", "ü", '"', ",", ";;;", "{}"):
        answer = api.call("PATCH", f"jobs/{job['id']}", {}, headers={header: value})
        assert answer.status < 500, (header, value)


def test_a_request_id_is_taken_over_when_it_is_harmless(api: Api) -> None:
    assert api.get("jobs", X_Request_Id="abc-1.2_3").headers["X-Request-Id"] == "abc-1.2_3"
    for odd in ("x" * 65, "a b", "<x>", ""):
        assert api.get("jobs", X_Request_Id=odd).headers["X-Request-Id"] != odd


def test_answers_are_not_cached(api: Api, make: Makers) -> None:
    job = make.job()["id"]
    for path in ("jobs", f"jobs/{job}", "jobs?no=1"):
        assert api.get(path).headers["Cache-Control"] == "no-store"
    assert Api(None).get("jobs").headers["Cache-Control"] == "no-store"


def test_quotas_name_themselves(api: Api, make: Makers, plan: Any) -> None:
    job = make.job()["id"]
    plan(max_jobs=2, max_schedules=1)
    make.job()
    answer = api.post("jobs", {**JOB, "name": "third"})
    refused(answer, 429, "quota_exceeded")
    assert {name: answer.body[name] for name in ("quota", "limit", "use")} == {
        "quota": "max_jobs",
        "limit": 2,
        "use": 2,
    }
    make.schedule(job=job)
    schedule = {"name": "second", "job": job, "trigger": {"cron": "* * * * *"}}
    assert api.post("schedules", schedule).body["quota"] == "max_schedules"
    plan(max_payload_bytes=10)
    assert api.post("executions", {"job": job, "payload": "x" * 9}).faults == {"/payload": "too_large"}


def test_a_lost_database_is_503(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.schedules import listing

    def lost(_: Any) -> Any:
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(listing, "jobs_defined", lost)
    answer = api.get("jobs")
    refused(answer, 503, "unavailable")
    assert answer.headers["Retry-After"] == "1"


def test_errors_say_nothing_of_our_insides(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.schedules import listing

    def broken(_: Any) -> Any:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(listing, "jobs_defined", broken)
    answer = api.get("jobs")
    refused(answer, 500, "internal_error")
    assert "hunter2" not in json.dumps(answer.body)
