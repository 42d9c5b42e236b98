"""A server on loopback that replays exchanges with a container runtime's API.

An exchange is a line of `exchanges/<api>.jsonl`: a name, the request (method, path, and the parts of query and body
that must be there) and the response (status; json, text, lines of JSON, frames or a tar of one file as its body).
`cut_after` ends the connection within the body, `delay_s` comes before the response, `after` waits until the exchange
of that name has happened. They were written from the APIs' public documentation.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import tarfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from kernel.clock import utc_now

FOLDER = Path(__file__).with_name("exchanges")


def recorded(api: str) -> dict[str, dict[str, Any]]:
    """All exchanges of an API, by name."""
    lines = (FOLDER / f"{api}.jsonl").read_text().splitlines()
    return {one["name"]: one for one in map(json.loads, lines)}


class Replay:
    """Each exchange of the script happens once and requests find theirs in its order; those in `always` any time."""

    def __init__(
        self, api: str, script: list[str], *, always: tuple[str, ...] = (), socket: Path | None = None
    ) -> None:
        known = recorded(api)
        self._left = [known[name] for name in script]
        self._always = [known[name] for name in always]
        self._socket = socket
        self.seen: list[str] = []
        self.bodies: dict[str, Any] = {}
        self.unexpected: list[str] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="replay", daemon=True)

    @property
    def left(self) -> list[str]:
        return [one["name"] for one in self._left]

    def start(self) -> Replay:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._open())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _open(self) -> web.AppRunner:
        app = web.Application(client_max_size=10_000_000)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        if self._socket:
            await web.UnixSite(runner, str(self._socket)).start()
            self.url = f"unix://{self._socket}"
        else:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        return runner

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        for one in [*self._left, *self._always]:
            if _matches(one["request"], request, body):
                break
        else:
            self.unexpected.append(f"{request.method} {request.path_qs} {body[:300]!r}")
            return web.Response(status=501, text="no such exchange")
        if one in self._left:
            self._left.remove(one)
        self.seen.append(one["name"])
        self.bodies[one["name"]] = body
        answer = web.StreamResponse(status=one["response"]["status"])
        with suppress(ConnectionResetError):  # nobody waits for it any more
            await self._respond(request, one["response"], answer)
        return answer

    async def _respond(self, request: web.Request, response: Mapping[str, Any], answer: web.StreamResponse) -> None:
        await asyncio.sleep(response.get("delay_s", 0))  # lint: allow no-sleep-in-tests: the server is slow on purpose
        while response.get("after") and response["after"] not in self.seen:
            await asyncio.sleep(0.01)  # lint: allow no-sleep-in-tests: a condition of another thread
        data = _body(response)
        answer.content_type = "application/json"
        if "cut_after" in response:
            answer.content_length = len(data)
            await answer.prepare(request)
            await answer.write(data[: response["cut_after"]])
            assert request.transport
            request.transport.close()
            return
        if response["status"] not in (204, 304):
            answer.enable_chunked_encoding()
        await answer.prepare(request)
        for part in [data[at : at + 1_000] for at in range(0, len(data), 1_000)]:
            await answer.write(part)
        await answer.write_eof()


def _matches(wanted: Mapping[str, Any], request: web.Request, body: bytes) -> bool:
    if request.method != wanted["method"] or not re.fullmatch(wanted["path"], request.path):
        return False
    if any(request.query.get(name) != value for name, value in wanted.get("query", {}).items()):
        return False
    if any(name in request.query for name in wanted.get("without", ())):
        return False
    return "body" not in wanted or _holds(json.loads(body or b"null"), wanted["body"])


def _holds(given: Any, part: Any) -> bool:
    """Whether `given` has at least what `part` has."""
    if isinstance(part, dict):
        return isinstance(given, dict) and all(name in given and _holds(given[name], part[name]) for name in part)
    return bool(given == part)


def _body(response: Mapping[str, Any]) -> bytes:
    if "json" in response:
        begun = (utc_now() - timedelta(seconds=2)).isoformat(timespec="seconds").replace("+00:00", "Z")
        return json.dumps(response["json"]).replace("@two seconds ago@", begun).encode()
    if "lines" in response:
        return b"".join(json.dumps(line).encode() + b"\n" for line in response["lines"])
    if "frames" in response:
        parts = [(stream, text.encode()) for stream, text in response["frames"]]
        return b"".join(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for stream, data in parts)
    if "tar" in response:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            member = tarfile.TarInfo(response["tar"]["name"])
            data = response["tar"].get("text", "").encode() * response["tar"].get("times", 1)
            if "link" in response["tar"]:
                member.type, member.linkname = tarfile.SYMTYPE, response["tar"]["link"]
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        return made.getvalue()
    return str(response.get("text", "")).encode()
