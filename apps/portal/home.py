"""The first page."""

from django.http import HttpResponse
from django.shortcuts import render

from apps.portal.login_gate import PortalRequest, signed_in


@signed_in
def home(request: PortalRequest) -> HttpResponse:
    return render(request, "portal/home.html")
