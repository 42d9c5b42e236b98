"""The OpenAPI document: drf-spectacular reads the views, and what holds for all of them is added here."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, get_args

from django.conf import settings
from drf_spectacular.drainage import reset_generator_stats
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from apps.api.codes import CODES
from apps.api.deprecation import Deprecated, describe_deprecation, mark
from apps.api.endpoint import changes_what_is_stored
from apps.api.lists import PAGE_SIZE, PAGE_SIZE_MAX
from apps.api.openapi_examples import add_examples
from apps.api.openapi_headers import add_headers
from apps.api.openapi_links import add_links
from apps.api.openapi_parameters import describe_parameters
from apps.api.openapi_problems import OWN_CODES, document_problems
from apps.api.openapi_reads import document_reads
from apps.api.openapi_roles import add_roles
from apps.api.rehearsal import PARAMETER
from apps.operations.backfill.wish import OVERLAPS
from apps.operations.states import STATES as OPERATION_STATES
from apps.schedules.job_input import KINDS
from apps.schedules.timing_spec import CHOICES
from apps.webhooks.services_deliveries import REPLAYS
from apps.workflows.definitions.definition import StepType
from apps.workflows.dependencies.depending_input import CONDITIONS
from apps.workflows.models import STEP_STATES, STEP_TYPES
from apps.workflows.views.runs_reading import STATES
from kernel.eventtypes import EVENT_TYPES, EVERYTHING
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES
from tenants.permissions import KEY_ROLES, ROLES, known_scopes

Decorator = Callable[[Any], Any]
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
SCHEME = "apiKey"
STRICT_SUFFIXES = ("Input", "Change", "Replacement", "Ask", "Beat")

PAGE_SIZE_PARAMETER = OpenApiParameter(
    "page_size", {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE},
    description="how many items a page has at most",
)  # fmt: skip
CURSOR_PARAMETER = OpenApiParameter("cursor", str, description="next_cursor of the former page")
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True, description="ETag, or *")
IF_MATCH_OPTIONAL = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="ETag: only when it is there and unchanged; *: only when it is there",
)
IF_NONE_MATCH_ANY = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="*: only when it is not there yet"
)
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


class SessionScheme(OpenApiAuthenticationExtension):
    """How `SessionAuthentication` is shown."""

    target_class = "apps.api.session_auth.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        text = "The console's login, on the tenant's host; what changes something needs X-CSRFToken as well."
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME, "description": text}


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
CREATED_PARAMETERS = tuple(time_parameters("created"))
COUNT_PARAMETER = parameter("count", bool, text="true: how many there are, exactly up to 10,000, on every page")


def operation(
    name: str, summary: str, *, answer: Any = None, status: int = 200, body: Any = None, tag: str,
    parameters: Sequence[OpenApiParameter] = (), if_match: bool = False, retry_safe: bool = False,
    media: str = "", also: Mapping[int, Any] | None = None, rehearsed: bool | None = None, problems: Sequence[str] = (),
    deprecated: Deprecated | None = None,
) -> Decorator:  # fmt: skip
    """Describes one operation; `name` is its operationId.

    What is `rehearsed` takes validate_only: whatever has a body and is retry-safe or wants If-Match, unless it says
    otherwise because not all of its effects are in its transaction. `problems` are the codes (apps.api.codes) that it
    answers with beside those that follow from its form. A deprecated one says so in each answer. `media` is the type
    of answers that are not JSON.
    """
    if unknown := set(problems) - set(CODES):
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} must be in apps.api.codes")
    shown = list(parameters)
    if if_match:
        shown.append(IF_MATCH)
    if retry_safe:
        shown.append(IDEMPOTENCY)
    responses: dict[Any, Any] = {
        (status, media) if media else status: answer if answer is not None else OpenApiResponse(description="Done.")
    }
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
    describe: Decorator = extend_schema(
        operation_id=name, summary=summary, tags=[tag], parameters=shown, request=request, responses=responses,
        deprecated=deprecated is not None, extensions={OWN_CODES: list(problems)} if problems else None,
    )  # fmt: skip

    def finish(method: Any) -> Any:
        if rehearsed:
            method = changes_what_is_stored(method)
        method = describe(method)
        method.answer = answer  # what of it can be selected: apps.api.selecting
        return method if deprecated is None else mark(method, deprecated)

    return finish


@cache  # lint: allow memory-has-a-bound: one for each list of the API
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
            "DependencyCondition": [*CONDITIONS],
            "JobStatus": ["active", "paused"],
            "ScheduleStatus": ["active", "paused", "completed"],
            "EventType": [*EVENT_TYPES],
            "SubscribedType": [*EVENT_TYPES, EVERYTHING],
            "ReplayKind": [*REPLAYS],
            "KeyRole": [*KEY_ROLES],
            "MemberRole": [*ROLES],
            "Scope": known_scopes(),
            "StepType": list(get_args(StepType)),
            "StepRunType": [*STEP_TYPES],
            "StepState": [*STEP_STATES],
            "WorkflowRunState": [*STATES],
            "OperationState": [*OPERATION_STATES],
            "BackfillOverlap": [*OVERLAPS],
            "OverlapEnum": [*CHOICES["overlap"]],
            "InvitationStatus": ["open", "accepted", "revoked", "expired"],
        },
    }
    with patched_settings(options):
        found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    schemas = found["components"]["schemas"]
    for name, schema in schemas.items():
        if name.endswith(STRICT_SUFFIXES):
            schema["additionalProperties"] = False
    document_reads(found)
    add_roles(found)
    describe_parameters(found)
    add_examples(found)
    add_links(found)
    describe_deprecation(found)
    document_problems(found)
    add_headers(found)
    found["servers"] = [{"url": "/"}]
    return found
