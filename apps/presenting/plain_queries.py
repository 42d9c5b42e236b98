"""A NUL in an address: PostgreSQL's texts can't hold one, and a statement that is given one fails."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse

API = "/api/"  # answers what is wrong with a parameter
NUL = "%00"


class PlainQueryMiddleware:
    """Pages are asked without it: it is left out of the query, and no path has one. Comes before the query is read."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(API):
            if "\0" in request.path_info:
                raise Http404
            request.META["QUERY_STRING"] = without_nul(request.META.get("QUERY_STRING", ""))
        return self._get_response(request)


def without_nul(query: str) -> str:
    """A query as it was sent, without NULs: also without those that taking others out would make."""
    while NUL in query:
        query = query.replace(NUL, "")
    return query
