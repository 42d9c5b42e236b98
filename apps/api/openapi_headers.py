"""The headers of answers in the document, where they follow from the form of an operation."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

JSON = "application/json"
RATES: Mapping[str, str] = {
    "RateLimit": 'Where a limit applies: "policy";r=what is left;t=seconds until there is more.',
    "RateLimit-Policy": 'Where a limit applies: "policy";q=requests;w=seconds.',
}
TEXTS: Mapping[str, str] = {
    **RATES,
    "X-Request-Id": "Names the request; give it when you ask about it.",
    "ETag": "The state of the thing in this answer, for If-Match.",
    "Location": "The path of what was made.",
    "Idempotency-Replayed": "true when this is the answer of an earlier request with the same Idempotency-Key.",
}
ALWAYS = ("X-Request-Id", *RATES)
MADE = ("201", "202")


def add_headers(found: dict[str, Any]) -> None:
    """Adds them, and a description of the statuses that have none."""
    components = found["components"]
    components["headers"] = {
        name: {"description": text, "schema": {"type": "string"}} for name, text in TEXTS.items()
    }  # fmt: skip
    changeable = set(_changeable(found))
    for one in (one for path in found["paths"].values() for one in path.values()):
        for status, answer in one["responses"].items():
            if "$ref" not in answer:
                answer["description"] = answer.get("description") or HTTPStatus(int(status)).phrase
                _add(answer, _names(one, status, answer, changeable))
    for answer in components.get("responses", {}).values():
        _add(answer, ALWAYS)


def _names(one: Mapping[str, Any], status: str, answer: Mapping[str, Any], changeable: set[str]) -> Iterator[str]:
    yield from ALWAYS
    if _schema(answer) in changeable:
        yield "ETag"
    if status in MADE:
        yield "Location"
    if "Idempotency-Key" in _headers(one):
        yield "Idempotency-Replayed"


def _changeable(found: Mapping[str, Any]) -> Iterator[str]:
    """Schemas of things that are changed with If-Match: what their own path answers, read too, and what made them."""
    for path, methods in found["paths"].items():
        changes = [one for one in methods.values() if "If-Match" in _headers(one)]
        collection = found["paths"].get(path.rpartition("/{")[0], {})
        made = [collection["post"]] if changes and path.endswith("}") and "post" in collection else []
        read = [methods["get"]] if changes and "get" in methods else []
        for one in (*changes, *read, *made):
            for answer in one["responses"].values():
                yield from filter(None, [_schema(answer)])


def _headers(one: Mapping[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in one.get("parameters", ()) if parameter["in"] == "header"}


def _schema(answer: Mapping[str, Any]) -> str:
    return str(answer.get("content", {}).get(JSON, {}).get("schema", {}).get("$ref", ""))


def _add(answer: dict[str, Any], names: Any) -> None:
    named = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    answer["headers"] = {**named, **answer.get("headers", {})}
