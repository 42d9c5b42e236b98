"""Whose connections a call may use: one pool for each allow-list, and one for each tenant's client certificate.

A connection that was opened with a certificate is its tenant's alone. Contexts are made in a thread (reading the
system's authorities takes milliseconds), bounded in number, and dropped some minutes after their last use.
"""

import asyncio
import hashlib
import os
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from kernel.clock import monotonic_s
from kernel.httprules import TargetRefused
from workers.executors.address import Lookup
from workers.executors.http_connector import Connector

READ_BUFFER_BYTES = 16_384  # per call in flight, twice that is held at most
CERTIFICATES_MOST = 32  # with their contexts; those in use come on top
CERTIFICATE_LIFE_S = 300.0  # after its last use

Network = tuple[str, ...]
Key = tuple[Network, int, bytes]


@dataclass(frozen=True, slots=True, repr=False)
class ClientCertificate:
    """PEM texts of a certificate (with its chain) and its private key."""

    certificate: str
    key: str

    def digest(self) -> bytes:
        return hashlib.sha256(f"{len(self.key)}:{self.key}{self.certificate}".encode()).digest()


@dataclass(slots=True, eq=False)
class _Entry:
    session: aiohttp.ClientSession
    users: int = 0
    used_at: float = 0.0
    dropped: bool = False


class Sessions:
    """Sessions by allow-list and certificate. To be used in the loop's thread only."""

    def __init__(
        self, lookup: Lookup, tls: ssl.SSLContext | bool, make_tls: Callable[[], ssl.SSLContext],
        clock: Callable[[], float] = monotonic_s,
    ) -> None:  # fmt: skip
        self._lookup, self._tls, self._make_tls, self._clock = lookup, tls, make_tls, clock
        self._plain: dict[Network, aiohttp.ClientSession] = {}  # operators write allow-lists: fewer than tenants
        self._own: OrderedDict[Key, _Entry] = OrderedDict()  # the least recently used first
        self._making: dict[Key, asyncio.Lock] = {}

    def plain(self, network: Network) -> aiohttp.ClientSession:
        """Without a client certificate, for everybody with this allow-list."""
        session = self._plain.get(network)
        if session is None:
            self._plain[network] = session = self._open(network, self._tls)
        return session

    @asynccontextmanager
    async def lease(
        self, network: Network, tenant_id: int, certificate: ClientCertificate | None
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """A session to call with, open until the block ends. TargetRefused for a certificate that is none."""
        if certificate is None:
            yield self.plain(network)
            return
        key = (network, tenant_id, certificate.digest())
        entry = await self._entry(key, certificate)
        entry.users += 1
        try:
            yield entry.session
        finally:
            entry.users -= 1
            entry.used_at = self._clock()
            if entry.dropped and not entry.users:
                await entry.session.close()

    async def close(self) -> None:
        """Close all, whoever uses them."""
        for session in (*self._plain.values(), *(entry.session for entry in self._own.values())):
            await session.close()

    def __len__(self) -> int:
        """How many certificates have a session."""
        return len(self._own)

    async def _entry(self, key: Key, certificate: ClientCertificate) -> _Entry:
        lock = self._making.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                entry = self._own.get(key)
                if entry is None:
                    context = await asyncio.to_thread(_context, self._make_tls, certificate)
                    entry = self._own.get(key)  # whoever came after a cancelled one may have been faster
                    if entry is None:
                        self._own[key] = entry = _Entry(self._open(key[0], context))
        finally:
            if not lock.locked():
                self._making.pop(key, None)
        self._own.move_to_end(key)
        entry.used_at = self._clock()
        entry.users += 1  # so that tidying keeps it
        await self._tidy()
        entry.users -= 1
        return entry

    async def _tidy(self) -> None:
        old = self._clock() - CERTIFICATE_LIFE_S
        idle = [key for key, entry in self._own.items() if not entry.users]
        for key in idle:
            if self._own[key].used_at < old or len(self._own) > CERTIFICATES_MOST:
                entry = self._own.pop(key)
                entry.dropped = True
                await entry.session.close()

    def _open(self, network: Network, tls: ssl.SSLContext | bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=Connector(self._lookup, network, tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # one deadline, around the whole call
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),  # an empty body has none
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )


def _context(make_tls: Callable[[], ssl.SSLContext], certificate: ClientCertificate) -> ssl.SSLContext:
    """A context that shows the certificate. The key is in no file that has a name for longer than this takes."""
    context = make_tls()
    text = f"{certificate.key.strip()}\n{certificate.certificate.strip()}\n".encode()
    try:
        if hasattr(os, "memfd_create"):
            with os.fdopen(os.memfd_create("certificate"), "wb") as file:
                file.write(text)
                file.flush()
                _load(context, f"/proc/self/fd/{file.fileno()}")
        else:
            with tempfile.NamedTemporaryFile() as named:  # only its owner may read it
                named.write(text)
                named.flush()
                _load(context, named.name)
    except (ssl.SSLError, ValueError, OSError):
        detail = "The client certificate and its key do not belong together, or are not PEM without a password."
        raise TargetRefused("/auth", "bad_certificate", detail) from None
    return context


def _load(context: ssl.SSLContext, path: str) -> None:
    context.load_cert_chain(path, password="")  # with none OpenSSL would ask at a terminal
