"""What pages that are open ask for every second: the parts that have changed, from the snapshot that all share."""

from __future__ import annotations

from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.http import parse_etags

from apps.console.pages import page
from apps.console.snapshot.drawing import SETS
from apps.console.snapshot.middleware import snapshot_of


@page("live_parts", "live.json", title="Live", template="")
def live_parts(request: HttpRequest, now: datetime) -> HttpResponse:
    """304 when nothing of it is new. `?parts=overview` has those of the first page, too.

    Whoever asks is told of when the figures are and what time it is, both by the database's clock: where nobody makes
    new ones these are old, though there is an answer.
    """
    found, names = snapshot_of(request), SETS.get(request.GET.get("parts", "strip"))
    if found is None or names is None:
        raise Http404
    version, as_of = f'"{found.version(*names)}"', found.made_at.isoformat()
    known = parse_etags(request.headers.get("If-None-Match", ""))
    if version in (one.removeprefix("W/") for one in known):  # a proxy that compresses marks it as weak
        response = HttpResponse(status=304)
    else:
        parts = {name: found.parts.get(name, "") for name in names}
        response = JsonResponse({"as_of": as_of, "number": found.number, "took_ms": found.took_ms, "parts": parts})
    response.headers["ETag"] = version
    response.headers["Shardbeat-As-Of"], response.headers["Shardbeat-Now"] = as_of, now.isoformat()
    response.headers["Cache-Control"] = "no-cache, private"
    return response
