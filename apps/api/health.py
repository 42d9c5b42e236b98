"""Probes: is this process alive, and can it serve."""

import logging

from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse

from tenants.work import database_now

log = logging.getLogger(__name__)


def alive(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all; looks at nothing else, so that a lost database restarts nobody."""
    return JsonResponse({"status": "ok"})


def ready(request: HttpRequest) -> JsonResponse:
    """200 when the database answers, else 503: no traffic here, please."""
    try:
        database_now()
    except (DatabaseError, OSError) as error:
        log.warning("not ready: %s", error)
        return JsonResponse({"status": "unavailable", "database": "does not answer"}, status=503)
    return JsonResponse({"status": "ok"})
