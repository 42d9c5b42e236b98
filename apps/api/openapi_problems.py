"""The answers from 400 on that each operation of the OpenAPI document has, with the codes that they may bring."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from apps.api.codes import (
    ALWAYS,
    CODES,
    OF_A_BODY,
    OF_A_CHANGE,
    OF_A_PATH,
    OF_IDEMPOTENCY,
    OF_IF_MATCH,
    by_status,
)
from apps.api.problems import MEDIA_TYPE, TYPE_PREFIX

OWN_CODES = "x-problems"  # what `operation()` leaves for `document_problems`, which takes it away
CODES_OF_ANSWER = "x-codes"  # of an answer: the codes that it may bring
READS = ("get", "head")
RETRY = {"Retry-After": "Seconds, where waiting helps."}
HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "How to identify yourself."},
    409: RETRY,
    429: RETRY,
    503: RETRY,
}


def document_problems(found: dict[str, Any]) -> None:
    """Adds to a document the answers of all its operations from 400 on. Equal ones are written once."""
    components = found["components"]
    components["schemas"].update(problem_schemas())
    shared: dict[str, Any] = components.setdefault("responses", {})
    for path, methods in found["paths"].items():
        for method, one in methods.items():
            for status, codes in by_status(codes_of(method, path, one)).items():
                name = _name_of(status, codes)
                shared.setdefault(name, _answer(status, codes))
                one["responses"][str(status)] = {"$ref": f"#/components/responses/{name}"}
            one.pop(OWN_CODES, None)


def codes_of(method: str, path: str, one: Mapping[str, Any]) -> list[str]:
    """All codes of one operation: those of every request, those of its form, those that it names itself."""
    return [*general_codes(method, path, one), *one.get(OWN_CODES, ())]


def general_codes(method: str, path: str, one: Mapping[str, Any]) -> list[str]:
    """The codes of every request, and those that follow from the form of an operation."""
    headers = {parameter["name"] for parameter in one.get("parameters", ()) if parameter["in"] == "header"}
    codes = list(ALWAYS)
    if "{" in path:
        codes += OF_A_PATH
    if method.lower() not in READS:
        codes += OF_A_CHANGE
    if "requestBody" in one:
        codes += OF_A_BODY
    if "If-Match" in headers:
        codes += OF_IF_MATCH
    if "Idempotency-Key" in headers:
        codes += OF_IDEMPOTENCY
    return codes


def problem_example(status: int, code: str) -> dict[str, Any]:
    """A problem document as the API would answer it."""
    fault = {"pointer": "/name", "code": "required", "detail": "This field is required."}
    meaning = CODES[code].meaning
    return {
        "type": TYPE_PREFIX + code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": f"{meaning[:1].upper()}{meaning[1:]}.".replace("`", ""),
        "code": code,
        "errors": [fault] if code == "invalid" else [],
        "request_id": "0f8fad5bd9cb469fa16570867728950e",
    }


def problem_schemas() -> dict[str, Any]:
    """Schemas of problem documents; they may have more members, which the code decides."""
    error = {
        "type": "object",
        "description": "One fault of a request.",
        "properties": {name: {"type": "string"} for name in ("pointer", "code", "detail")},
        "required": ["pointer", "code", "detail"],
    }
    texts = ("type", "title", "detail", "code", "request_id")
    return {
        "ProblemError": error,
        "Problem": {
            "type": "object",
            "description": "A problem document (RFC 9457). Its code is stable; docs/reference/errors.md lists them.",
            "properties": {
                **{name: {"type": "string"} for name in texts},
                "status": {"type": "integer"},
                "errors": {"type": "array", "items": {"$ref": "#/components/schemas/ProblemError"}},
            },
            "required": ["type", "title", "status", "detail", "code", "errors", "request_id"],
        },
    }


def _name_of(status: int, codes: Iterable[str]) -> str:
    """Of an answer that several operations share: by its status and codes."""
    return "_".join((str(status), *codes))


def _answer(status: int, codes: list[str]) -> dict[str, Any]:
    lines = [f"`{code}`: {CODES[code].meaning}." for code in codes]
    answer = {
        "description": "\n\n".join(lines),
        CODES_OF_ANSWER: codes,
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": {code: {"value": problem_example(status, code)} for code in codes},
            }
        },
    }
    if status in HEADERS:
        answer["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS[status].items()
        }
    return answer
