"""The OpenAPI document, its page, the probes: true, complete, and served to everybody."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.makers import JOB, MINUTELY, Makers
from tests.fixtures_api import Api


def test_the_document_is_valid(api: Api) -> None:
    from openapi_spec_validator import validate

    served = Api(None).get("schema")
    assert served.status == 200
    assert served.body["openapi"].startswith("3.1")
    validate(served.body)


def test_who_has_the_document_is_not_sent_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.test import Client

    from apps.api import pages

    first = Client().get("/api/v1/schema")
    monkeypatch.setattr(pages, "encode", lambda _: pytest.fail("encoded again"))
    again = Client().get("/api/v1/schema")
    assert (again.content, again.headers["ETag"]) == (first.content, first.headers["ETag"])
    same = Client().get("/api/v1/schema", headers={"If-None-Match": first.headers["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert Client().get("/api/v1/schema", headers={"If-None-Match": '"another"'}).status_code == 200


def test_it_is_made_without_complaints(capsys: pytest.CaptureFixture[str]) -> None:
    from apps.api.openapi import openapi_document

    openapi_document.cache_clear()
    openapi_document()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_every_route_is_in_it_and_every_operation_is_named() -> None:
    from apps.api.openapi import openapi_document
    from apps.api.urls import urlpatterns

    paths = openapi_document()["paths"]
    routes = {"/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(one.pattern)) for one in urlpatterns}
    assert routes - set(paths) == {"/api/v1/schema", "/api/v1/docs", r"/api/v1/^[\s\S]*\Z"}
    operations = [one for path in paths.values() for one in path.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    for one in operations:
        assert one["x-action"] and one["x-role"], one["operationId"]
        assert one["summary"] and one["tags"] and one["security"] == [{"apiKey": []}, {"session": []}]
        assert {"400", "401", "403", "406", "429", "500", "503"} <= set(one["responses"])


@pytest.mark.parametrize(
    ("method", "header"), [("post", "Idempotency-Key"), ("patch", "If-Match"), ("put", "If-Match")]
)
def test_headers_are_documented(method: str, header: str) -> None:
    from apps.api.openapi import openapi_document

    for path, methods in openapi_document()["paths"].items():
        # Previews and explanations change nothing; a lease is bounded in time; the token of an attempt makes what is
        # said again safe. docs/api.md ("Sending again") lists them.
        if method in methods and not path.endswith(("preview", "/explain", "/lease", "/complete", "/heartbeat")):
            if path.startswith("/api/v1/queues/leases/"):
                continue
            assert header in {one["name"] for one in methods[method]["parameters"]}, path


def bounds(schema: dict[str, Any], components: dict[str, Any]) -> list[tuple[str, Any]]:
    """(member, a value just outside of what the schema allows)."""
    found: list[tuple[str, Any]] = []
    for name, member in schema["properties"].items():
        for one in (member, *member.get("oneOf", [])):
            one = components[one["$ref"].rsplit("/", 1)[1]] if "$ref" in one else one
            if "minimum" in one:
                found.append((name, one["minimum"] - 1))
            if "maximum" in one:
                found.append((name, one["maximum"] + 1))
            if "maxLength" in one:
                found.append((name, "x" * (one["maxLength"] + 1)))
            if "enum" in one:
                found.append((name, "no such choice"))
    return found


@pytest.mark.parametrize("which", ["JobInput", "ScheduleInput", "SubmitInput", "ApiKeyInput", "PreviewInput"])
def test_bounds_of_the_document_are_those_of_the_service(api: Api, make: Makers, which: str) -> None:
    from apps.api.openapi import openapi_document

    components = openapi_document()["components"]["schemas"]
    job = make.job()["id"]
    path, good = {
        "JobInput": ("jobs", JOB),
        "ScheduleInput": ("schedules", {"name": "s", "job": job, "trigger": MINUTELY}),
        "SubmitInput": ("executions", {"job": job}),
        "ApiKeyInput": ("api-keys", {"name": "k", "role": "viewer"}),
        "PreviewInput": ("schedules/preview", {"trigger": MINUTELY}),
    }[which]
    tried = bounds(components[which], components)
    assert tried
    for name, value in tried:
        if (which, name) == ("JobInput", "queue"):
            continue
        refused = api.post(path, {**good, name: value})
        assert (refused.status, list(refused.faults)) == (400, [f"/{name}"]), (name, value)


def test_the_page_needs_nothing_from_elsewhere_and_nothing_inline() -> None:
    from django.test import Client

    page = Client().get("/api/v1/docs")
    text = page.content.decode()
    policy = page["Content-Security-Policy"]
    assert page.status_code == 200
    assert "unsafe" not in policy and "script-src 'self'" in policy
    assert re.findall(r"""(?:src|href)=["'](?!/)""", text) == []
    assert not re.search(r"<style|style=|<script(?![^>]*\bsrc=)|\son\w+=|javascript:", text)
    for address in re.findall(r"""(?:src|href)=["'](/static/[^"']+)""", text):
        assert Client().get(address).status_code == 200, address


def test_the_page_and_the_document_take_no_other_method() -> None:
    for path in ("schema", "docs"):
        refused = Api(None).post(path, {})
        assert (refused.status, refused.code, refused.headers["Allow"]) == (405, "method_not_allowed", "GET, HEAD")
