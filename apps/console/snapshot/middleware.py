"""The newest snapshot for whoever may see it, taken before a page's own transaction begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.console.roles import VIEW, may
from apps.console.snapshot.store import Snapshot, latest

PAGES = ("/admin/", "/t/")
WITHOUT = ("/admin/login/", "/admin/logout/", "/admin/jsi18n/")


class SnapshotMiddleware:
    """Comes before the tenant's schema is chosen."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        ours = getattr(request, "tenant", None) is None and path.startswith(PAGES) and not path.startswith(WITHOUT)
        if ours and may(request.user, VIEW):
            request.console_snapshot = latest()  # type: ignore[attr-defined]  # `snapshot_of` reads it
        return self._get_response(request)


def snapshot_of(request: Any) -> Snapshot | None:
    """What was taken for this request; None where nobody may see it."""
    return getattr(request, "console_snapshot", None)
