"""What a form gets whose token is missing or old."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.csrf import csrf_failure


def failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """On a tenant's host a page of ours; Django's for operators."""
    if getattr(request, "tenant", None) is None:
        return csrf_failure(request, reason)
    return render(request, "portal/login_csrf.html", status=403)
