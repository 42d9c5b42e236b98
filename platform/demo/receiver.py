"""The server that the demo's jobs call, in place of the tenants' own. `python -m demo.receiver PORT`, loopback only.

Targets: `/ok/NAME` answers 200; `/slow?s=5` answers after that many seconds; `/fail` always 500; `/flaky` fails until
the third attempt of a run; `/gone` 410. `GET /hits` lists the latest requests with their headers, newest first
(`?path=/ok/NAME` and `?limit=N` narrow it); it is what a tenant would see in its own log.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Any

import uvloop
from aiohttp import web

from embedded.folder import HOST

KEEP_HITS = 2_000
MOST_SLOW_S = 60.0
FLAKY_SUCCEEDS_AT = 3
BODY_SHOWN = 2_000
HITS = web.AppKey("hits", deque[dict[str, Any]])


def build() -> web.Application:
    app = web.Application(middlewares=[note], client_max_size=8 * 1024 * 1024)
    app[HITS] = deque(maxlen=KEEP_HITS)
    app.router.add_get("/hits", hits)
    app.router.add_delete("/hits", forget)
    app.router.add_route("*", "/ok/{name:.*}", ok)
    app.router.add_route("*", "/slow", slow)
    app.router.add_route("*", "/fail", fail)
    app.router.add_route("*", "/flaky", flaky)
    app.router.add_route("*", "/gone", gone)
    return app


@web.middleware
async def note(request: web.Request, handler: Any) -> web.StreamResponse:
    """Remember every request to a target, answered or not."""
    if request.path != "/hits":
        body = await request.text()
        request.app[HITS].append(
            {
                "at": datetime.now(UTC).isoformat(),
                "method": request.method,
                "path": request.path,
                "headers": dict(request.headers),
                "body": body[:BODY_SHOWN],
            }
        )
    response: web.StreamResponse = await handler(request)
    return response


async def ok(request: web.Request) -> web.Response:
    return web.json_response({"done": request.match_info["name"]})


async def slow(request: web.Request) -> web.Response:
    try:
        wait_s = min(MOST_SLOW_S, max(0.0, float(request.query.get("s", "5"))))
    except ValueError:
        raise web.HTTPBadRequest(text="s is a number of seconds") from None
    await asyncio.sleep(wait_s)
    return web.json_response({"waited_s": wait_s})


async def fail(request: web.Request) -> web.Response:
    return web.json_response({"error": "this target always fails"}, status=500)


async def flaky(request: web.Request) -> web.Response:
    attempt = request.headers.get("Shardbeat-Attempt", "1")
    if attempt.isdigit() and int(attempt) >= FLAKY_SUCCEEDS_AT:
        return web.json_response({"done_at_attempt": int(attempt)})
    return web.json_response({"error": "not yet"}, status=503, headers={"Retry-After": "1"})


async def gone(request: web.Request) -> web.Response:
    return web.json_response({"error": "this target is no more"}, status=410)


async def hits(request: web.Request) -> web.Response:
    path = request.query.get("path")
    limit = request.query.get("limit", "100")
    seen = request.app[HITS]
    found = [hit for hit in reversed(seen) if path is None or hit["path"] == path]
    shown = found[: int(limit) if limit.isdigit() else 100]
    return web.json_response({"count": len(found), "hits": shown}, dumps=lambda value: json.dumps(value, indent=1))


async def forget(request: web.Request) -> web.Response:
    request.app[HITS].clear()
    return web.Response(status=204)


def main() -> None:
    web.run_app(
        build(),
        host=HOST,
        port=int(sys.argv[1]),
        access_log=None,
        print=lambda *_: None,
        loop=uvloop.new_event_loop(),
        shutdown_timeout=1,
    )


if __name__ == "__main__":
    main()
