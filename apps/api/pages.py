"""/schema, /docs, and the answer for what there is not."""

import hashlib
from collections.abc import Callable
from functools import cache, wraps

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import condition

from apps.api.openapi import openapi_document
from apps.api.problems import plain_response
from apps.api.renderers import encode

SAFE = ("GET", "HEAD")


def read_only(page: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Other methods than GET and HEAD are refused as everywhere in the API."""

    @csrf_exempt
    @wraps(page)
    def serve(request: HttpRequest) -> HttpResponse:
        if request.method in SAFE:
            return page(request)
        detail = f'Method "{request.method}" not allowed.'
        refused = plain_response(request, status=405, code="method_not_allowed", detail=detail)
        refused["Allow"] = ", ".join(SAFE)
        return refused

    return serve


@cache
def _encoded() -> tuple[bytes, str]:
    """The document as it is sent, and its ETag; made once a process."""
    body = encode(openapi_document())
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


@read_only
@condition(etag_func=lambda _: _encoded()[1])
def schema(request: HttpRequest) -> HttpResponse:
    """The OpenAPI document. Public: it says nothing about anybody. Whoever has it is told so (304)."""
    return HttpResponse(_encoded()[0], content_type="application/json")


@read_only
def docs(request: HttpRequest) -> HttpResponse:
    """A page to read the document and to try requests."""
    return render(request, "api/docs.html")


@csrf_exempt
def missing(request: HttpRequest) -> HttpResponse:
    """Everything under the API that is no resource."""
    hint = " Paths have no slash at the end." if request.path.endswith("/") else ""
    return plain_response(request, status=404, code="not_found", detail=f"There is no such resource.{hint}")
