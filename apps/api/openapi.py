"""The OpenAPI document: drf-spectacular reads the views, and what holds for all of them is added here."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from drf_spectacular.drainage import reset_generator_stats
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from apps.api.endpoint import changes_what_is_stored
from apps.api.lists import PAGE_SIZE, PAGE_SIZE_MAX, SELECTING
from apps.api.problems import MEDIA_TYPE
from apps.api.rehearsal import PARAMETER
from apps.api.selecting import SELECTED
from apps.schedules.job_input import KINDS
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES

Decorator = Callable[[Any], Any]
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
SCHEME = "apiKey"
STRICT_SUFFIXES = ("Input", "Change", "Replacement", "Ask", "Beat")

PAGE_SIZE_PARAMETER = OpenApiParameter(
    "page_size", {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE}
)
CURSOR_PARAMETER = OpenApiParameter("cursor", str, description="next_cursor of the former page")
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True, description="ETag, or *")
IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, description="Sent again within 72 h, the same answer comes back"
)

VALIDATE_ONLY = OpenApiParameter(
    PARAMETER, {"type": "boolean", "default": False},
    description="Answers 200 with what would be, and changes nothing; ids in it are made up",
)  # fmt: skip


class KeyScheme(OpenApiAuthenticationExtension):
    """How `ApiKeyAuthentication` is shown."""

    target_class = "apps.api.authentication.ApiKeyAuthentication"
    name = SCHEME

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "sb_..."}


def parameter(
    name: str, kind: Any = str, *, choices: Sequence[str] = (), several: bool = True, text: str = ""
) -> OpenApiParameter:
    """A filter of a list. With `choices`, several may be given with commas."""
    if choices and several:
        schema = {"type": "array", "items": {"type": "string", "enum": list(choices)}, "minItems": 1}
        return OpenApiParameter(name, schema, style="form", explode=False, description=text)
    if choices:
        return OpenApiParameter(name, {"type": "string", "enum": list(choices)}, description=text)
    return OpenApiParameter(name, kind, description=text)


def time_parameters(*stems: str) -> list[OpenApiParameter]:
    """created -> created_after and created_before, both exclusive."""
    return [
        parameter(f"{stem}_{end}", OpenApiTypes.DATETIME, text=f"{stem}_at is {text}")
        for stem in stems
        for end, text in (("after", "later than this"), ("before", "earlier than this"))
    ]


LABEL_PARAMETER = OpenApiParameter(
    "label", {"type": "array", "items": {"type": "string"}}, style="form", explode=True,
    description="name:value; given several times, all must match",
)  # fmt: skip
COUNT_PARAMETER = parameter("count", bool, text="true: how many there are, exactly up to 10,000, on every page")


def operation(
    name: str, summary: str, *, answer: Any = None, status: int = 200, body: Any = None, tag: str,
    parameters: Sequence[OpenApiParameter] = (), if_match: bool = False, retry_safe: bool = False,
    also: Mapping[int, Any] | None = None, rehearsed: bool | None = None,
) -> Decorator:  # fmt: skip
    """Describes one operation; `name` is its operationId.

    What is `rehearsed` takes validate_only: whatever has a body and is retry-safe or wants If-Match, unless it says
    otherwise because not all of its effects are in its transaction.
    """
    shown = list(parameters)
    if if_match:
        shown.append(IF_MATCH)
    if retry_safe:
        shown.append(IDEMPOTENCY)
    responses: dict[Any, Any] = {status: answer if answer is not None else OpenApiResponse(description="Done.")}
    responses |= dict(also or {})
    if rehearsed is None:
        rehearsed = (retry_safe or if_match) and body is not None
    if rehearsed:
        shown.append(VALIDATE_ONLY)
        responses.setdefault(200, answer)
    request: Any = body
    if name.endswith("_patch"):
        request = {MERGE_PATCH: body, JSON: body}
    elif body is not None:
        request = {JSON: body}
    described: Decorator = extend_schema(
        operation_id=name, summary=summary, tags=[tag], parameters=shown, request=request, responses=responses
    )

    def describe(method: Any) -> Any:
        found = described(changes_what_is_stored(method) if rehearsed else method)
        found.answer = answer  # what of it can be selected: apps.api.selecting
        return found

    return describe


@cache
def listing(
    item: type[serializers.Serializer[Any]], name: str, *, counted: bool = False
) -> type[serializers.Serializer[Any]]:
    """The answer of a list: `items` and `next_cursor`, and the count of one that can be `counted`."""
    members: dict[str, Any] = {
        "items": item(many=True),
        "next_cursor": serializers.CharField(allow_null=True),
        "__doc__": "A page; `next_cursor` is null on the last one. A page before it may be short, even empty.",
    }
    if counted:
        members["count"] = serializers.IntegerField(required=False, help_text="With count=true: at least so many.")
        members["count_is_exact"] = serializers.BooleanField(required=False, help_text="Whether it is just so many.")
    return type(f"{name}List", (serializers.Serializer,), members)


@cache
def openapi_document() -> dict[str, Any]:
    """The whole document; made once a process."""
    reset_generator_stats()
    options: dict[str, Any] = {
        "OAS_VERSION": "3.1.0",
        "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
        "COMPONENT_SPLIT_PATCH": False,
        "ENUM_NAME_OVERRIDES": {
            "JobKind": [*KINDS],
            "AttemptState": [*ATTEMPT_STATES],
            "ExecutionState": [*EXECUTION_STATES],
            "JobStatus": ["active", "paused"],
        },
    }
    with patched_settings(options):
        found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    schemas = found["components"]["schemas"]
    schemas.update(_problem_schemas())
    for name, schema in schemas.items():
        if name.endswith(STRICT_SUFFIXES):
            schema["additionalProperties"] = False
    schemas["Selected"] = {"type": "object", "description": "Only the members that `fields` names, and `id`."}
    for path in found["paths"].values():
        if "get" in path:
            _readable(path["get"], schemas)
        for one in path.values():
            one["responses"]["429"] = _too_many()
            one["responses"]["default"] = {
                "description": "A problem.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
    found["servers"] = [{"url": "/"}]
    return found


def _readable(one: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """What every read can do: select members of the answer, and answer only what has changed."""
    content = one["responses"]["200"].get("content", {}).get(JSON, {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    members = schemas.get(name, {}).get("properties")
    if not members:
        return
    is_list = set(members) >= {"items", "next_cursor"}
    if is_list:
        members = schemas[members["items"]["items"]["$ref"].rpartition("/")[2]]["properties"]
    selected: dict[str, Any] = {"$ref": "#/components/schemas/Selected"}
    if is_list:
        rest = {key: value for key, value in schemas[name]["properties"].items() if key != "items"}
        selected = {
            "type": "object",
            "properties": {"items": {"type": "array", "items": selected}, **rest},
            "required": ["items", "next_cursor"],
        }
    one["responses"]["200"]["content"][SELECTED] = {"schema": selected}
    one["responses"]["304"] = {"description": "What If-None-Match names is still so."}
    names = {"type": "string", "enum": sorted(members)}
    one["parameters"] = [
        *one.get("parameters", ()),
        {
            "name": SELECTING, "in": "query", "style": "form", "explode": False,
            "schema": {"type": "array", "items": names, "minItems": 1},
            "description": f"Only these members, with commas; `id` always comes. The answer is {SELECTED}.",
        },
        {
            "name": "If-None-Match", "in": "header", "schema": {"type": "string"},
            "description": "ETag of a former answer; 304 while it would be the same.",
        },
    ]  # fmt: skip


def _too_many() -> dict[str, Any]:
    """What comes when there were too many requests, or a plan allows no more objects (then without the headers)."""
    texts = {
        "Retry-After": "Seconds.",
        "RateLimit": 'Where the caller stands: "policy";r=what is left;t=seconds until there is more.',
        "RateLimit-Policy": '"policy";q=requests;w=seconds',
    }
    return {
        "description": "Too many requests (`rate_limited`), or a limit of the plan (`quota_exceeded`).",
        "headers": {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()},
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _problem_schemas() -> dict[str, Any]:
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
