"""A client of the API that holds every request and every answer against the OpenAPI document."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from django.test import Client

    from tests.fixtures_people import People

BASE = "/api/v1"
NOTHING = object()
MADE_UP = "tests.made_up"  # a default of a test client: `validate` says what it means
HEADERS = (
    "ETag",
    "Location",
    "Idempotency-Replayed",
    "Retry-After",
    "WWW-Authenticate",
    "RateLimit",
    "RateLimit-Policy",
)
PROBLEM = "application/problem+json"
LINES = "application/x-ndjson"
SVG = "image/svg+xml"


@dataclass(frozen=True)
class Answer:
    """What came back; `body` is decoded, None when there is none."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> str:
        """The code of a problem."""
        return str(self.body["code"])

    @property
    def faults(self) -> dict[str, str]:
        """Code by pointer of a problem's errors."""
        return {error["pointer"]: error["code"] for error in self.body["errors"]}

    @property
    def etag(self) -> str:
        return self.headers["ETag"]


class Api:
    """Calls of one key. Requests that succeed and all answers must be as documented."""

    def __init__(self, key: str | None, *, host: str = "testserver") -> None:
        from django.test import Client

        self.key = key
        self.host = host
        self._client: Client = Client(raise_request_exception=False)

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, body: Any = NOTHING, **headers: str) -> Answer:
        return self.call("POST", path, body, headers=headers)

    def put(self, path: str, body: Any = NOTHING, **headers: str) -> Answer:
        return self.call("PUT", path, body, headers=headers)

    def patch(self, path: str, body: Any = NOTHING, **headers: str) -> Answer:
        return self.call("PATCH", path, body, headers=headers)

    def delete(self, path: str, **headers: str) -> Answer:
        return self.call("DELETE", path, headers=headers)

    def call(
        self, method: str, path: str, body: Any = NOTHING, *, raw: bytes | None = None,
        content_type: str = "application/json", headers: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """One request; header names with _ for -. `raw` is sent as it is."""
        sent = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        sent["Host"] = self.host
        if self.key is not None:
            sent.setdefault("Authorization", f"Bearer {self.key}")
        data = raw if raw is not None else b"" if body is NOTHING else json.dumps(body).encode()
        response = self._client.generic(
            method, path if path.startswith("/") else f"{BASE}/{path}", data,
            content_type=content_type if data else "", headers=sent,
        )  # fmt: skip
        return Answer(response.status_code, _decoded(response), dict(response.items()))


def _at_once(response: Any) -> Any:
    """A streamed answer, read to its end."""
    from django.http import HttpResponse

    whole: Any = HttpResponse(b"".join(response.streaming_content), status=response.status_code)
    whole.headers = response.headers
    whole.wsgi_request = response.wsgi_request
    response.close()
    return whole


def _decoded(response: Any) -> Any:
    """The body: JSON, or a list of JSON lines."""
    if response.headers.get("Content-Type") == LINES:
        return [json.loads(line) for line in response.content.split(b"\n") if line]
    if response.headers.get("Content-Type") == SVG:
        return response.content.decode()
    return json.loads(response.content) if response.content else None


def validate(response: Any, *, made_up: bool = False) -> None:
    """Fails when an answer, or a request that was accepted, is not as the document says.

    What is made up may be accepted as a whole and refused item by item; then only the answer counts.
    """
    from openapi_core.contrib.django import DjangoOpenAPIRequest, DjangoOpenAPIResponse
    from openapi_core.exceptions import OpenAPIError

    request = response.wsgi_request
    seen = DjangoOpenAPIRequest(request)
    seen.parameters.path = {name: str(value) for name, value in seen.parameters.path.items()}
    assert response["X-Request-Id"] == request.request_id
    if response.status_code >= 400:
        assert response["Content-Type"] == PROBLEM, response.content
    described = described_operation(request.method, seen.path_pattern)
    if described is None:
        return
    _validate_headers(described, response)
    if response.status_code >= 400:
        _validate_code(described, response)
    if request.method == "HEAD" or (response.headers.get("Content-Type") == LINES and not response.content):
        return
    try:
        if response.status_code < 400 and not made_up and not _refused_items(response):
            document().validate_request(seen)
        document().validate_response(seen, DjangoOpenAPIResponse(response))
    except OpenAPIError as error:
        cause = getattr(error, "__cause__", None)
        details = getattr(cause, "schema_errors", cause)
        pytest.fail(f"{request.method} {request.path}: {error!r} {details} {response.content!r:.2000}")


def _refused_items(response: Any) -> bool:
    """Of a bulk request that was accepted each item has its own result: some need not have been as documented."""
    return response.wsgi_request.path.endswith("/bulk") and bool(json.loads(response.content).get("refused"))


def described_operation(method: str, pattern: str | None) -> dict[str, Any] | None:
    """What the document says of a method of a path; None when it says nothing."""
    from apps.api.openapi import openapi_document

    methods: dict[str, Any] = openapi_document()["paths"].get(pattern or "", {})
    return methods.get("get" if method == "HEAD" else method.lower())


def _validate_headers(described: Mapping[str, Any], response: Any) -> None:
    """What clients act upon is documented."""
    from apps.api.openapi import openapi_document

    answer = described["responses"].get(str(response.status_code), {})
    if "$ref" in answer:
        answer = openapi_document()["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]
    unknown = {name for name in HEADERS if name in response} - set(answer.get("headers", ()))
    assert not unknown, f"{described['operationId']} does not document {unknown} of its {response.status_code}"


def _validate_code(described: Mapping[str, Any], response: Any) -> None:
    """The status and the code of a problem are those that the operation names, or every operation has."""
    from apps.api.openapi import openapi_document

    name = described["operationId"]
    answer = described["responses"].get(str(response.status_code))
    assert answer is not None, f"{name} does not document status {response.status_code}: {response.content!r:.500}"
    if response.wsgi_request.method == "HEAD":
        return
    code = json.loads(response.content)["code"]
    known = openapi_document()["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]["x-codes"]
    assert code in known, f"{name} answered {response.status_code} {code}: name it in operation(..., problems=...)"


@cache
def document() -> Any:
    from openapi_core import Config, OpenAPI

    from apps.api.openapi import openapi_document

    types = (PROBLEM, "application/merge-patch+json", "application/vnd.shardbeat.selected+json")
    readers: dict[str, Callable[[bytes], Any]] = {
        **dict.fromkeys(types, json.loads),
        LINES: bytes.decode,
        SVG: bytes.decode,
    }
    config = Config(extra_media_type_deserializers=readers)
    return OpenAPI.from_dict(json.loads(json.dumps(openapi_document())), config=config)


@pytest.fixture(autouse=True, scope="session")
def every_answer_is_as_documented() -> Iterator[None]:
    """All clients of Django's in all tests: what they get from the API is held against the document."""
    from django.test import Client
    from django.test.client import FakePayload

    plain = Client.request

    def checked(self: Any, **request: Any) -> Any:
        if not str(request.get("PATH_INFO", "")).startswith(f"{BASE}/"):
            return plain(self, **request)
        body = request["wsgi.input"].read() if "wsgi.input" in request else b""
        request["wsgi.input"] = FakePayload(body)
        response = plain(self, **request)
        if response.streaming:
            response = _at_once(response)
        response.wsgi_request._body = body  # the view has read the stream
        validate(response, made_up=MADE_UP in self.defaults)
        return response

    patch = pytest.MonkeyPatch()
    patch.setattr(Client, "request", checked)
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def static_files_are_looked_for_once() -> Iterator[None]:
    """Each new client of Django's loads the middleware again: looking for static files is most of what that costs."""
    from whitenoise.middleware import WhiteNoiseMiddleware

    plain, known = WhiteNoiseMiddleware.add_files_from_finders, dict[Any, dict[str, Any]]()

    def once(self: Any) -> None:
        how = (self.static_prefix, self.max_age, self.add_headers_function, self.allow_all_origins)
        if how not in known:
            plain(self)
            known[how] = dict(self.files)
        self.files.update(known[how])

    patch = pytest.MonkeyPatch()
    patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", once)
    yield
    patch.undo()


@pytest.fixture
def api(acme_people: People) -> Api:
    """acme's admin, on the public host."""
    return Api(acme_people.admin)


@pytest.fixture
def other_api(globex_people: People) -> Api:
    """globex's admin."""
    return Api(globex_people.admin)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The SQL statements of this process, the ORM's and the stores'."""
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else repr(query))
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    yield seen


def in_parallel(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs `work(0..count-1)` in threads that start together; results, or exceptions, in order."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def one(number: int) -> None:
        from django.db import connection

        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:  # the test looks at it
            results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
