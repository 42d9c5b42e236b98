"""/schema, /docs, and the answer for what there is not."""

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt

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


@read_only
def schema(request: HttpRequest) -> HttpResponse:
    """The OpenAPI document. Public: it says nothing about anybody."""
    return HttpResponse(encode(openapi_document()), content_type="application/json")


@read_only
def docs(request: HttpRequest) -> HttpResponse:
    """A page to read the document and to try requests."""
    return render(request, "api/docs.html")


@csrf_exempt
def missing(request: HttpRequest) -> HttpResponse:
    """Everything under the API that is no resource."""
    hint = " Paths have no slash at the end." if request.path.endswith("/") else ""
    return plain_response(request, status=404, code="not_found", detail=f"There is no such resource.{hint}")
