"""The newest snapshot for whoever may see it, taken before a page's own transaction begins; and what operators are told
when a page needs what the database does not have (yet)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from psycopg import errors

from apps.console.roles import VIEW, may
from apps.console.snapshot.store import FAULT_CHARS, Snapshot, latest
from tenants import door

log = logging.getLogger(__name__)

PAGES = ("/admin/", "/t/")
WITHOUT = ("/admin/login/", "/admin/logout/", "/admin/jsi18n/")
NOT_THERE = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)


class SnapshotMiddleware:
    """Comes before the tenant's schema is chosen."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if _is_of_operators(request) and not request.path_info.startswith(WITHOUT) and may(request.user, VIEW):
            request.console_snapshot = latest()  # type: ignore[attr-defined]  # `snapshot_of` reads it
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """A page says that the database is of another version; it would be an error without a word else."""
        cause = door.cause_of(exception)
        if not isinstance(cause, NOT_THERE) or not _is_of_operators(request):
            return None
        log.warning("%s needs what the database does not have", request.path, exc_info=exception)
        context = {"fault": str(cause).partition("\n")[0][:FAULT_CHARS], "path": request.path}
        return render(request, "console/other_version.html", context, status=503)


def _is_of_operators(request: HttpRequest) -> bool:
    return getattr(request, "tenant", None) is None and request.path_info.startswith(PAGES)


def snapshot_of(request: Any) -> Snapshot | None:
    """What was taken for this request; None where nobody may see it."""
    return getattr(request, "console_snapshot", None)
