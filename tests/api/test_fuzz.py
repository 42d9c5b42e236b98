"""Whatever is sent: never a 5xx, never an answer that is not documented. Requests are made from the document."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
import pytest

from tests.api.makers import Makers
from tests.api.test_tenants import operations
from tests.api.world import World
from tests.fixtures_api import BASE, MADE_UP

if TYPE_CHECKING:
    from tests.fixtures_api import Api

# Of good and of bad requests for each operation; what takes a body has more to get wrong.
EXAMPLES = 4
EXAMPLES_WITHOUT_BODY = 2
MANY = 10  # times as many, in a run without a limit of time


@cache
def document() -> Any:
    """The document as requests are made from it."""
    import schemathesis

    from apps.api.openapi import openapi_document

    return schemathesis.openapi.from_dict(openapi_document())


@pytest.mark.parametrize(("method", "path"), operations(), ids=lambda value: value.removeprefix(f"{BASE}/"))
def test_made_up_requests(api: Api, make: Makers, conn: Any, registry: Any, method: str, path: str) -> None:
    world = World(api, make, conn, registry)
    world.with_things(path)
    made_up(api, world, method, path)


@pytest.mark.long
@pytest.mark.parametrize(("method", "path"), operations(), ids=lambda value: value.removeprefix(f"{BASE}/"))
def test_many_made_up_requests(api: Api, make: Makers, conn: Any, registry: Any, method: str, path: str) -> None:
    world = World(api, make, conn, registry)
    world.with_things(path)
    made_up(api, world, method, path, times=MANY)


def made_up(api: Api, world: World, method: str, path: str, *, times: int = 1) -> None:
    """Good and bad requests of one operation."""
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.generation import GenerationMode

    from apps.api.openapi import openapi_document

    operation = document()[path][method]

    def one(case: Any) -> None:
        send(api, method, path, world.ids, case)

    has_body = "requestBody" in openapi_document()["paths"][path][method.lower()]
    bounded = settings(
        max_examples=times * (EXAMPLES if has_body else EXAMPLES_WITHOUT_BODY), deadline=None, database=None,
        derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        bounded(given(operation.as_strategy(generation_mode=mode))(one))()


def send(api: Api, method: str, path: str, known: dict[str, str], case: Any) -> None:
    """Sends a made-up request with a good key, mostly to things that there are."""
    from django.test import Client

    headers = {name: str(value) for name, value in (case.headers or {}).items() if str(value).isprintable()}
    headers.setdefault("If-Match", "*")
    headers |= {"Authorization": f"Bearer {api.key}", "Host": "testserver"}
    for name, value in {**(case.path_parameters or {}), **known}.items():
        path = path.replace("{" + name + "}", str(value))
    body = b"" if type(case.body).__name__ == "NotSet" else encoded(case.body)
    query = urlencode(case.query or {}, doseq=True, errors="replace")
    client = Client(raise_request_exception=False)
    client.defaults[MADE_UP] = "yes"
    response = client.generic(
        method, f"{path}?{query}", body, content_type="application/json" if body else "", headers=headers,
    )  # fmt: skip
    assert response.status_code < 500, (body, response.content)


def encoded(body: Any) -> bytes:
    try:
        return body if isinstance(body, bytes) else orjson.dumps(body)
    except TypeError:  # numbers beyond 64 bits, halves of characters
        import json

        return json.dumps(body, default=str).encode()
