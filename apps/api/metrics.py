"""Figures for machines: Prometheus text, and JSON for autoscalers. Off without METRICS_TOKEN; never a tenant's name.

Answered like probes, before hosts and tenants are looked at, on a connection of its own: a scraper comes with the
machine's address, and the figures are most wanted when everything else waits.
"""

from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from secrets import compare_digest

import psycopg
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from apps.api.health import connection
from apps.api.metric_families import Families
from apps.dispatch.pressure import pool_figures
from apps.dispatch.pressure.pool_figures import Seen
from kernel.pools import POOLS

READS = ("GET", "HEAD")
Answer = Callable[[HttpRequest, Seen], HttpResponse]


def metrics(request: HttpRequest) -> HttpResponse:
    """All figures in Prometheus' or OpenMetrics' text format, as the scraper asks."""
    return _guarded(request, _text)


def pools(request: HttpRequest) -> HttpResponse:
    """The figures of pools as JSON; with `pool` (and `group`) of that one alone. 503 while nobody measures."""
    return _guarded(request, _json)


def _text(request: HttpRequest, seen: Seen) -> HttpResponse:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(seen))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def _json(request: HttpRequest, seen: Seen) -> HttpResponse:
    wanted, group = request.GET.get("pool"), request.GET.get("group", "")
    if wanted is not None and wanted not in POOLS:
        return _refusal(HTTPStatus.BAD_REQUEST, f"pool is one of {', '.join(POOLS)}.")
    measured = seen.measured
    if measured is None or seen.stale:
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "No dispatcher measures: nobody knows what is wanted.")
    found = seen.pools() if wanted is None else [seen.pool(wanted, group)]
    return JsonResponse(
        {
            "as_of": measured.measured_at.isoformat(), "age_s": round(measured.age_s, 3), "live": measured.live,
            "pools": [asdict(one) for one in found],
        }
    )  # fmt: skip


def _guarded(request: HttpRequest, answer: Answer) -> HttpResponse:
    token = settings.METRICS_TOKEN
    if not token:
        return _refusal(HTTPStatus.NOT_FOUND, "There is no such page.")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not compare_digest(given.strip().encode(), token.encode()):
        refusal = _refusal(HTTPStatus.UNAUTHORIZED, "Send the token of METRICS_TOKEN: Authorization: Bearer ...")
        refusal["WWW-Authenticate"] = "Bearer"
        return refusal
    if request.method not in READS:
        refusal = _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "Figures are read.")
        refusal["Allow"] = ", ".join(READS)
        return refusal
    try:
        with connection("metrics") as conn:
            seen = pool_figures.read(conn)
    except (psycopg.Error, OSError):
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "The database does not answer.")
    response = answer(request, seen)
    response["Cache-Control"] = "no-store"
    return response


def _refusal(status: HTTPStatus, detail: str) -> HttpResponse:
    return JsonResponse({"status": status.value, "detail": detail}, status=status)
