"""Every error as a problem document (RFC 9457): a stable code, a sentence, and all faults of the request at once."""

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import psycopg
from django.core.exceptions import DisallowedHost, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.refusals import note_refusal
from apps.api.renderers import encode
from kernel.errors import FieldError, InvalidInput, ShardbeatError
from tenants import door, template

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:shardbeat:problem:"
SHOWN_ERRORS = 100
RETRY_AFTER_S = 1
UNAVAILABLE = "The database does not answer; try again."
MIGRATING = "This tenant's data are being brought up to date; try again."
MIGRATING_RETRY_AFTER_S = 10
NOT_THERE_YET = (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
# Django wraps what goes through its cursors; the stores' psycopg connections raise their own.
NO_DATABASE = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)

# DRF's own errors by class; their codes are its, ours are stable.
_DRF_CODES: Mapping[type[exceptions.APIException], tuple[str, str]] = {
    exceptions.NotAuthenticated: ("not_authenticated", "Give an API key: Authorization: Bearer sb_..."),
    exceptions.AuthenticationFailed: ("invalid_key", "The API key is unknown, expired or revoked."),
    exceptions.MethodNotAllowed: ("method_not_allowed", ""),
    exceptions.NotAcceptable: ("not_acceptable", "Answers are application/json; accept that."),
    exceptions.UnsupportedMediaType: ("unsupported_media_type", ""),
    exceptions.ParseError: ("malformed_json", ""),
}


def document(
    *, status: int, code: str, detail: str, request_id: str, errors: Iterable[FieldError] = (),
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The members of a problem document."""
    shown = list(errors)[:SHOWN_ERRORS]
    return {
        "type": TYPE_PREFIX + code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "errors": [{"pointer": one.pointer, "code": one.code, "detail": one.detail} for one in shown],
        "request_id": request_id,
        **(extra or {}),
    }


class Known(NamedTuple):
    """What is said of a ShardbeatError, alone or as one of many."""

    status: int
    code: str
    detail: str
    errors: list[FieldError]
    extra: dict[str, Any]
    retry_after_s: int | None


def problem_of(error: ShardbeatError) -> Known:
    """The parts of an error's problem document."""
    extra = dict(error.extra)
    code, seconds = str(extra.pop("code", error.code)), extra.pop("retry_after_s", None)
    errors = error.errors if isinstance(error, InvalidInput) else []
    return Known(error.status, code, error.detail, errors, extra, seconds)


def plain_response(
    request: HttpRequest, *, status: int, code: str, detail: str, extra: Mapping[str, Any] | None = None
) -> HttpResponse:
    """A problem document from outside of DRF."""
    body = document(status=status, code=code, detail=detail, request_id=request_id_of(request), extra=extra)
    return HttpResponse(encode(body), status=status, content_type=MEDIA_TYPE)


def unavailable_response(request: HttpRequest, error: Exception) -> HttpResponse:
    """What a request gets when the database does not answer, outside of DRF."""
    log.warning("request %s: the database did not answer", request_id_of(request), exc_info=error)
    response = plain_response(request, status=503, code="unavailable", detail=UNAVAILABLE)
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def migrating_response(request: HttpRequest, error: Exception) -> HttpResponse:
    """The same when the tenant's schema waits for a migration (`waits_for_migration`)."""
    log.warning("request %s: the tenant's schema is behind", request_id_of(request), exc_info=error)
    response = plain_response(request, status=503, code="unavailable", detail=MIGRATING)
    response["Retry-After"] = str(MIGRATING_RETRY_AFTER_S)
    return response


def waits_for_migration(request: HttpRequest | Request, error: Exception) -> bool:
    """Whether a statement failed on what the tenant's schema has in another version, which is not the schema's now."""
    cause, tenant = door.cause_of(error), getattr(request, "tenant", None)
    return isinstance(cause, NOT_THERE_YET) and tenant is not None and tenant.schema_version != template.version()


def refusal_response(request: HttpRequest, error: ShardbeatError) -> HttpResponse:
    """A ShardbeatError outside of DRF, as `exception_handler` answers it."""
    extra = dict(error.extra)
    seconds = extra.pop("retry_after_s", None)
    response = plain_response(request, status=error.status, code=error.code, detail=error.detail, extra=extra)
    response["Cache-Control"] = "no-store"
    if seconds is not None:
        response["Retry-After"] = str(seconds)
    return response


def request_id_of(request: HttpRequest | Request) -> str:
    return getattr(request, "request_id", "")


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's hook. What is not known is logged with its trace and answered with a plain 500."""
    request = context["request"]
    note_refusal(error, request, context["view"])
    request_id = request_id_of(request)
    headers: dict[str, str] = {}
    errors: list[FieldError] = []
    extra: dict[str, Any] = {}
    if isinstance(error, ShardbeatError):
        status, code, detail, errors, extra, seconds = problem_of(error)
        if seconds is not None:
            headers["Retry-After"] = str(seconds)
    elif isinstance(error, exceptions.APIException):
        status = error.status_code
        code, detail = _of_drf(error)
        if isinstance(error, exceptions.MethodNotAllowed):
            headers["Allow"] = ", ".join(context["view"].allowed_methods)
        challenge = getattr(error, "auth_header", None)  # DRF sets it on a 401
        if challenge:
            headers["WWW-Authenticate"] = str(challenge)
    elif isinstance(error, Http404):
        status, code, detail = 404, "not_found", "There is no such resource."
    elif isinstance(error, RequestDataTooBig):
        status, code, detail = 413, "body_too_large", "The body is too large."
    elif isinstance(error, DisallowedHost | SuspiciousOperation):
        status, code, detail = 400, "bad_request", "The request can't be understood."
    elif isinstance(error, NO_DATABASE):
        log.warning("request %s: the database did not answer", request_id, exc_info=error)
        status, code, detail = 503, "unavailable", UNAVAILABLE
        headers["Retry-After"] = str(RETRY_AFTER_S)
    elif waits_for_migration(request, error):
        log.warning("request %s: the tenant's schema is behind", request_id, exc_info=error)
        status, code, detail = 503, "unavailable", MIGRATING
        headers["Retry-After"] = str(MIGRATING_RETRY_AFTER_S)
    else:
        kind = "database error" if isinstance(error, DatabaseError | psycopg.Error) else "error"
        log.error("request %s: unexpected %s", request_id, kind, exc_info=error)
        status, code, detail = 500, "internal_error", "Something went wrong on our side; the request id names it."
    body = document(status=status, code=code, detail=detail, request_id=request_id, errors=errors, extra=extra)
    return Response(body, status=status, headers=headers, content_type=MEDIA_TYPE)


def _of_drf(error: exceptions.APIException) -> tuple[str, str]:
    for kind, (code, detail) in _DRF_CODES.items():
        if isinstance(error, kind):
            return code, detail or str(error.detail)
    return "error", str(error.detail)
