"""Every operation that takes a body refuses what is none: with the right 4xx, at once, and whatever else is wrong."""

from __future__ import annotations

import gc
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from apps.api.openapi import openapi_document
from tests.fixtures_api import Api

MOST_S = 0.25  # of the processor, for one request with its check against the document; most take some milliseconds
LARGE_BYTES = 200_000  # what is larger goes to each fourth operation: one reader reads all of them
GOOD = b'{"name": "x"}'
BODIES: dict[str, tuple[bytes, dict[str, str], int]] = {
    "too large": (b'{"name": "' + b"x" * 3_000_000 + b'"}', {}, 413),
    "too large by its length only": (GOOD, {"Content-Length": "99999999"}, 413),
    "nested 100,000 deep": (b"[" * 100_000, {}, 400),
    "objects 5,000 deep": (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, {}, 400),
    "UTF-16": (GOOD.decode().encode("utf-16"), {}, 400),
    "Latin-1": ('{"name": "ü"}'.encode("latin-1"), {}, 400),
    "half of a character": (b'{"name": "\\ud800"}', {}, 400),
    "no number": (b'{"a": NaN}', {}, 400),
    "an endless number": (b'{"a": 1e999}', {}, 400),
    "the beginning of JSON": (b'{"name": ', {}, 400),
    "a member twice": (b'{"name": "a", "name": "b"}', {}, 400),
    "a form": (b"name=x", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "a file": (b"--x\r\n\r\n--x--", {"Content-Type": "multipart/form-data; boundary=x"}, 415),
    "XML": (b"<a/>", {"Content-Type": "application/xml"}, 415),
    "compressed": (gzip.compress(GOOD), {"Content-Encoding": "gzip"}, 415),
    "a list": (b"[]", {}, 400),
    "a text": (b'"x"', {}, 400),
    "a member that nobody knows": (b'{"no such member": 1}', {}, 400),
    "a member of 1 MB": (b'{"' + b"x" * 1_000_000 + b'": 1}', {}, 400),
    "90,000 lists": (b'{"payload": [' + b"[1]," * 90_000 + b"[]]}", {}, 400),
    "600,000 lists": (b'{"payload": [' + b"[]," * 600_000 + b"[]]}", {}, 413),
    "600,000 objects": (b'{"items": [' + b"{}," * 600_000 + b"{}]}", {}, 413),
    "brackets in a text": (b'{"no such member": "' + b'[{\\"' * 300_000 + b'"}', {}, 400),
    "100,000 members": (json.dumps({f"m{number}": 1 for number in range(100_000)}).encode(), {}, 400),
}


def taking_bodies() -> list[tuple[str, str]]:
    """(method, path)"""
    paths = openapi_document()["paths"].items()
    return sorted((method, path) for path, all_ in paths for method, one in all_.items() if "requestBody" in one)


@pytest.fixture
def frozen(api: Api) -> Iterator[None]:
    """What is loaded is not looked through by the collector of garbage, as in the processes that serve."""
    api.get("jobs")
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("what", BODIES)
def test_what_is_no_body_is_refused_everywhere_and_at_once(api: Api, things: dict[str, str], what: str) -> None:
    raw, headers, status = BODIES[what]
    kind = headers.get("Content-Type", "application/json")
    sent: dict[str, Any] = {"If-Match": "*", **_but_type(headers)}
    slow: dict[str, float] = {}
    for method, path in taking_bodies()[:: 4 if len(raw) > LARGE_BYTES else 1]:
        for name, value in things.items():
            path = path.replace("{" + name + "}", value)
        began = time.thread_time()
        answer = api.call(method.upper(), path, raw=raw, content_type=kind, headers=sent)
        took = time.thread_time() - began
        assert answer.status == status, (method, path, answer.body)
        assert len(json.dumps(answer.body)) < 50_000
        if took > MOST_S:
            slow[f"{method} {path}"] = took
    assert len(slow) <= 1, slow  # one may have met the collector of garbage


def _but_type(headers: dict[str, str]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name != "Content-Type"}
