"""Who a browser is: leaves the signed-in member on the request, and makes foreign sessions nobody's."""

from collections.abc import Callable
from typing import cast

from django.conf import settings
from django.http import HttpResponse

from apps.api.middleware import TenantRequest
from apps.api.problems import NO_DATABASE, unavailable_response
from tenants.sessions import actor_of_member, member_of


class MemberMiddleware:
    """Comes after Django's sessions and authentication. Requests without a session cookie cost nothing."""

    def __init__(self, get_response: Callable[[TenantRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: TenantRequest) -> HttpResponse:
        request.member = request.actor = None
        if settings.SESSION_COOKIE_NAME in request.COOKIES and request.api_key is None and request.completion is None:
            try:
                member = member_of(request, request.tenant)
            except NO_DATABASE as error:
                return unavailable_response(request, cast("Exception", error))
            if member is not None:
                request.member = member
                request.actor = actor_of_member(member, request)
        return self._get_response(request)
