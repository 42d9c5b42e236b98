"""/schema, /docs, and the answer for what there is not."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from apps.api.openapi import openapi_document
from apps.api.problems import plain_response
from apps.api.renderers import encode


@require_safe
def schema(request: HttpRequest) -> HttpResponse:
    """The OpenAPI document. Public: it says nothing about anybody."""
    return HttpResponse(encode(openapi_document()), content_type="application/json")


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """A page to read the document and to try requests."""
    return render(request, "api/docs.html")


@csrf_exempt
def missing(request: HttpRequest) -> HttpResponse:
    """Everything under the API that is no resource."""
    hint = " Paths have no slash at the end." if request.path.endswith("/") else ""
    return plain_response(request, status=404, code="not_found", detail=f"There is no such resource.{hint}")
