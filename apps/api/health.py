"""Probes: is this process alive, and can it serve."""

import logging
from typing import Any

import psycopg
from django.conf import settings
from django.http import HttpRequest, JsonResponse

from tenants import behind

log = logging.getLogger(__name__)
CONNECT_TIMEOUT_S = 2  # the least that the driver knows
STATEMENT_TIMEOUT_MS = 1_000


def alive(request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all; looks at nothing else, so that a lost database restarts nobody."""
    return JsonResponse({"status": "ok"})


def ready(request: HttpRequest) -> JsonResponse:
    """200 when the database answers and has what this version needs, else 503 within about CONNECT_TIMEOUT_S.

    Tenants whose schemas wait for their migration are told, and keep nobody from serving the others.
    """
    try:
        with connection("readyz") as conn:
            lacking = behind.shared_pending(conn)
            others = 0 if lacking else behind.other_version(conn)
    except (psycopg.Error, OSError) as error:
        log.warning("not ready: %s", error)
        return JsonResponse({"status": "unavailable", "database": "does not answer"}, status=503)
    if lacking:
        log.warning("not ready: the shared schema lacks %s", ", ".join(lacking))
        return JsonResponse({"status": "unavailable", "database": "lacks migrations: tenant_migrate"}, status=503)
    return JsonResponse({"status": "ok", "schemas_of_other_version": others})


def connection(name: str) -> "psycopg.Connection[Any]":
    """A connection of its own: one that was opened before may wait for ever for a server that hangs."""
    return psycopg.connect(
        settings.DATABASE_URL, connect_timeout=CONNECT_TIMEOUT_S, autocommit=True,
        options=f"-c timezone=UTC -c statement_timeout={STATEMENT_TIMEOUT_MS}", application_name=f"shardbeat {name}",
    )  # fmt: skip
