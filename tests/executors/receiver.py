"""An HTTP server on loopback that answers as its path says, well or badly. It writes bytes itself, to be able to."""

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

WAIT_S = 30.0
TLS_HANDSHAKE = b"\x16"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {  # what comes first, and what then comes for ever
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "hints": (b"", b"HTTP/1.1 103 Early Hints\nLink: </x>\n\n"),
    "big_hints": (b"", b"HTTP/1.1 103 Early Hints\r\n" + b"Link: %b\r\n" % (b"x" * 4_000) * 100 + b"\r\n"),
    "blank": (b"", b"\r\n"),
    "head": (b"HTTP/1.1 200 OK\r\n", b"X-Fill: 1\r\n"),
    "name": (b"HTTP/1.1 200 OK\r\n", b"x"),
    "chunks": (CHUNKED, b"1\r\nx\r\n"),
    "extension": (CHUNKED + b"1;", b"x"),
    "extensions": (CHUNKED, b"1;%b\r\nx\r\n" % (b"x" * 4_000)),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", b"X: 1\r\n"),
    "members": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b"")),
    "answers": (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
}
BOMB = gzip.compress(bytes(50_000_000))  # 48 kB
DEFLATE_BOMB = zlib.compress(bytes(50_000_000))


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]  # lower-case names
    body: bytes


@dataclass
class Hold:
    """A request to /hold/<name>: the test knows when it came and says when it is answered."""

    came: threading.Event = field(default_factory=threading.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)


class Receiver:
    """Serves in a thread between `start` and `stop`. `requests` is what came, `connections` how often."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self.sent_bytes = 0  # of endless answers
        self._holds: dict[str, Hold] = defaultdict(Hold)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="receiver")
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)

    def redirect_url(self, status: int, where: str, host: str = "127.0.0.1") -> str:
        """A URL that answers with a redirect to anywhere."""
        return self.url(f"/redirect/to/{status}/{quote(where, safe='')}", host)

    def url(self, path: str = "/ok", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def serving(self) -> int:
        """Connections that are open."""
        return len(self._tasks)

    def wait_held(self, name: str) -> None:
        assert self._holds[name].came.wait(WAIT_S), f"no request to /hold/{name} came"

    def release(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._holds[name].release.set)

    def drop_all(self) -> None:
        """Close all connections, whatever is going on in them."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    continue
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first = await reader.readexactly(1)
        if first == TLS_HANDSHAKE:
            writer.write(response(400, b"this is no TLS server"))
            return False
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(request := Request(method, path, headers, body))
        name, _, rest = path.lstrip("/").partition("?")[0].partition("/")
        answer: Callable[[Request, str, asyncio.StreamWriter], Awaitable[None]] = getattr(self, "_do_" + name)
        await answer(request, rest, writer)
        await writer.drain()
        return name not in ("close", "short", "garbage", "headers")

    async def _do_ok(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        writer.write(response(200, b"ok"))

    async def _do_status(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """/status/<code>/<header>:<value>/..."""
        code, *headers = rest.split("/")
        writer.write(response(int(code), b"as asked", *(header.replace("_", " ") for header in headers)))

    async def _do_later(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """202 with the token that was sent, or with what follows in the path."""
        token = rest or request.headers.get("shardbeat-completion", "")
        writer.write(response(202, b"later", f"Shardbeat-Completion: {token}"))

    async def _do_redirect(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """/redirect/<how>; "to" has <status>/<where, percent-encoded> behind it, "hops" counts down to /ok."""
        how, _, more = rest.partition("/")
        known = {"self": request.path, "next": "/redirect/next?token=S3CR3T", "crlf": "/x%0d%0aX:1"}
        status, where = 302, known.get(how)
        if how == "to":
            status, where = int(more.partition("/")[0]), unquote(more.partition("/")[2])
        elif how == "hops":
            where = f"/redirect/hops/{int(more) - 1}" if int(more) > 1 else "/ok"
        body = b"" if request.method == "HEAD" else b"moved"
        writer.write(response(status, body, f"Location: {where}"))

    async def _do_json(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """/json/<text, percent-encoded>"""
        writer.write(response(200, unquote(rest).encode(), "Content-Type: application/json"))

    async def _do_charset(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """/charset/<name>/<text, percent-encoded>"""
        name, _, text = rest.partition("/")
        data = unquote(text).encode("utf-8" if name == "nonsense" else name)
        writer.write(response(200, data, f'Content-Type: text/plain; charset="{name}"'))

    async def _do_trickle(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """One byte of the head each tenth of a second, for ever."""
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)  # lint: allow no-sleep-in-tests: this server is slow on purpose

    async def _do_trickle_body(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """One byte of the body each tenth of a second, for ever."""
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)  # lint: allow no-sleep-in-tests: this server is slow on purpose

    async def _do_hold(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        hold = self._holds[rest]
        hold.came.set()
        await hold.release.wait()
        writer.write(response(200, b"released"))

    async def _do_drip(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """The beginning of the headers or of the body, and then nothing."""
        writer.write(response(200, b"begun", length=100) if rest == "body" else b"HTTP/1.1 200 OK\r\nX")
        await asyncio.Event().wait()

    async def _do_close(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        return

    async def _do_short(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        writer.write(response(200, b"begun", length=100))

    async def _do_garbage(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\xff\x16 this is not HTTP\r\n\r\n")

    async def _do_headers(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + b"X-Fill: " + b"x" * 100_000 + b"\r\n\r\n")

    async def _do_body(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        body = {
            "binary": bytes(range(256)),
            "nul": b"a\x00b",
            "utf8": "é".encode() * 60_000,
            "escapes": b"\x01" * 60_000,
            "big": b"x" * 1_000_000,
        }[rest]
        writer.write(response(200, body))

    async def _do_hostile(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """A failure of five megabytes with markup, a mark that turns lines round, and what it was sent in secret."""
        told = f"<script>alert(1)</script><img src=x onerror=alert(2)>\u202e{request.headers.get('authorization')} "
        page = told.encode() + b"x" * 5_000_000
        writer.write(response(500, page, "Set-Cookie: session=hush", "Server: <script>alert(3)</script>"))

    async def _do_encoded(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        body = {
            "small": gzip.compress(b"small"),
            "twice": gzip.compress(b"one ") + gzip.compress(b"two"),
            "bomb": BOMB,
            "broken": gzip.compress(b"x" * 1_000)[:-12],
            "wrong": b"this is not gzip",
            "deflate_bomb": DEFLATE_BOMB,
            "raw_deflate_bomb": DEFLATE_BOMB[2:-4],
            "bomb_in_members": gzip.compress(bytes(1_000_000)) * 50,
        }[rest]
        writer.write(response(200, body, f"Content-Encoding: {'deflate' if 'deflate' in rest else 'gzip'}"))

    async def _do_endless(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """Data that never stops: chunked, beyond its length, or within a length that nobody has."""
        head, piece = {
            "chunked": (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"8000\r\n" + b"x" * 0x8000 + b"\r\n",
            ),
            "overrun": (response(200, b"", length=10), b"x" * 0x8000),
            "huge": (response(200, b"", length=99_999_999_999), b"x" * 0x8000),
            "close": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 0x8000),
            "gzip": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(b"x" * 100)),
        }[rest]
        writer.write(head)
        while True:
            writer.write(piece)
            self.sent_bytes += len(piece)
            await writer.drain()

    async def _do_hinted(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """So many informational answers first, in pieces that end where it is hardest."""
        data = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * int(rest) + response(200, b"ok")
        for at in range(0, len(data), 13):
            writer.write(data[at : at + 13])
            await writer.drain()

    async def _do_flood(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        """Small things that never stop, each of which costs the reader more than the writer."""
        head, piece = FLOODS[rest]
        piece *= 262_144 // len(piece) + 1
        writer.write(head)
        while True:
            writer.write(piece)
            self.sent_bytes += len(piece)
            await writer.drain()

    async def _do_echo(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        writer.write(response(200, json.dumps(request.headers).encode(), "Content-Type: application/json"))


def response(status: int, body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
