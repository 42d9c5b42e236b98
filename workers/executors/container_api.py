"""HTTP to a runtime that has an API: one session, bounded answers, every failure a RuntimeFailed with its kind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any

import aiohttp
import orjson

from workers.executors.container_runtime import RuntimeFailed

REQUEST_S = 30.0
ANSWER_MAX_BYTES = 16_777_216
SAID_MAX_CHARS = 500
BUSY = (429, 503)


class Answer:
    """A status and a whole body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body

    def json(self) -> Any:
        """The body as JSON; an empty object when it is none."""
        try:
            return orjson.loads(self.body)
        except ValueError:
            return {}

    def said(self) -> str:
        """What the runtime says is wrong."""
        parsed = self.json()
        text = parsed.get("message") if isinstance(parsed, dict) else None
        return str(text or self.body.decode(errors="replace"))[:SAID_MAX_CHARS]


class Api:
    """Paths are below `url`, which is http://, https:// or unix:///path/of/a.sock."""

    def __init__(
        self, url: str, *, prefix: str = "", tls: SSLContext | None = None,
        headers: Callable[[], Mapping[str, str]] = dict, request_s: float = REQUEST_S,
    ) -> None:  # fmt: skip
        self._socket = url.removeprefix("unix://") if url.startswith("unix://") else None
        self._base = ("http://runtime" if self._socket else url.rstrip("/")) + prefix
        self._tls, self._headers, self._request_s = tls, headers, request_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        connector: aiohttp.BaseConnector
        if self._socket:
            connector = aiohttp.UnixConnector(self._socket, limit=0)
        else:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )  # fmt: skip

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, *, ok: tuple[int, ...] = (), params: Mapping[str, str] | None = None,
        json: Any = None, data: bytes | None = None, content_type: str = "application/json",
        within_s: float | None = None, max_bytes: int = ANSWER_MAX_BYTES,
    ) -> Answer:  # fmt: skip
        """The answer when its status is 2xx or in `ok`. Raises RuntimeFailed for all others."""
        body = orjson.dumps(json) if json is not None else data
        limit_s = self._request_s if within_s is None else within_s
        try:
            async with (
                asyncio.timeout(limit_s),
                self._request(method, path, params, body, content_type) as response,
            ):
                answer = Answer(response.status, await _read_most(response, max_bytes))
                if len(answer.body) > max_bytes:
                    response.close()  # the rest is not wanted
        except TimeoutError:
            message = f"The container runtime did not answer {method} {path} within {limit_s:g} s."
            raise RuntimeFailed("container_failed", message, available=False) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from None
        if not 200 <= answer.status < 300 and answer.status not in ok:
            raise failed(answer, f"{method} {path}")
        return answer

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a long answer as it comes. Raises RuntimeFailed; what breaks off inside, aiohttp's errors."""
        try:
            async with (
                asyncio.timeout(self._request_s) as limit,
                self._request(method, path, params, None, "") as response,
            ):
                if not 200 <= response.status < 300:
                    raise failed(Answer(response.status, await _read_most(response, 65_536)), f"{method} {path}")
                limit.reschedule(None)
                yield response.content
        except TimeoutError:
            message = f"The container runtime did not answer {method} {path} within {self._request_s:g} s."
            raise RuntimeFailed("container_failed", message, available=False) from None
        except aiohttp.ClientConnectorError as error:
            raise _unreachable(error) from None

    def _request(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str
    ) -> Any:
        assert self._session is not None
        headers = {**self._headers(), **({"Content-Type": content_type} if body is not None else {})}
        return self._session.request(
            method, self._base + path, params=params, data=body, headers=headers, allow_redirects=False
        )


def failed(answer: Answer, what: str) -> RuntimeFailed:
    """What an unwelcome answer means for the attempt."""
    return RuntimeFailed(
        "container_failed", f"The container runtime answered {answer.status} to {what}: {answer.said()}",
        available=answer.status not in BUSY, status=answer.status,
    )  # fmt: skip


def _unreachable(error: BaseException) -> RuntimeFailed:
    message = f"The container runtime can't be reached: {type(error).__name__}."
    return RuntimeFailed("container_failed", message, available=False)


async def _read_most(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """At most a little more than `max_bytes`."""
    kept = bytearray()
    while len(kept) <= max_bytes and (data := await response.content.readany()):
        kept += data
    return bytes(kept)
