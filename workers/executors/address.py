"""Where a tenant's call may connect to: names are resolved and judged here, and each socket once more.

The resolver alone does not see literal addresses, and a check before the call does not see what a name means a moment
later. So the last word is with the socket factory, which gets the very address that `connect` gets.
"""

import asyncio
import contextvars
import queue
import socket
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from kernel.addressrules import is_allowed
from workers.executors.http_breaker import Passage

Lookup = Callable[[str], Awaitable[Sequence[str]]]  # name -> addresses

LOOKUP_THREADS = 32
LOOKUPS_PER_TENANT = 8  # one tenant's dead name servers leave threads for the others
IDLE_THREAD_S = 30.0


@dataclass(slots=True)
class Calling:
    """The call that the current task makes."""

    tenant_id: int
    may_repeat: bool = True  # doing it twice is harmless
    sent: bool = False  # a connection was there, so the target may have acted
    passage: Passage | None = None  # through the destination's circuit breaker
    proving: bool = False  # asks for a token elsewhere: how that ends says nothing of the destination


calling: contextvars.ContextVar[Calling] = contextvars.ContextVar("calling")


NOBODY = Calling(0)


class AddressBlocked(OSError):
    """The address is neither public nor on the allow-list. Says no address: names inside are nobody's business."""

    def __init__(self) -> None:
        super().__init__("the target leads to an address that is not public")


def socket_factory(network: tuple[str, ...]) -> Callable[[Any], socket.socket]:
    """For aiohttp's connector: a socket for an allowed address, AddressBlocked for every other."""

    def make(addr_info: Any) -> socket.socket:
        family, kind, proto, _, sockaddr = addr_info
        if not _may_connect(sockaddr[0], sockaddr[1], network):
            raise AddressBlocked
        return socket.socket(family, kind, proto)

    return make


class GuardedResolver(AbstractResolver):
    """Any answer that may not be called blocks the name, and so does an answer that is none."""

    def __init__(self, lookup: Lookup, network: tuple[str, ...]) -> None:
        self._lookup, self._network = lookup, network

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        try:
            addresses = await self._lookup(host)
        except Exception as error:
            raise OSError("the name could not be looked up") from error
        if not addresses:
            raise OSError("the name has no address")
        if not all(_may_connect(address, port, self._network) for address in addresses):
            raise AddressBlocked
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing of its own is open."""


Job = tuple[str, asyncio.Future[list[str]]]


class SystemLookup:
    """The system's resolver in daemon threads: a name server that never answers delays neither others nor the exit."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()  # lint: allow memory-has-a-bound: one for each slot
        # One for each tenant that calls by name.
        self._shares: dict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(LOOKUPS_PER_TENANT))
        self._lock = threading.Lock()
        self._threads = self._idle = 0

    async def __call__(self, host: str) -> list[str]:
        async with self._shares[calling.get(NOBODY).tenant_id]:
            found: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
            self._jobs.put((host, found))
            self._add_thread()
            return await found

    def _add_thread(self) -> None:
        with self._lock:
            if self._idle >= self._jobs.qsize() or self._threads >= LOOKUP_THREADS:
                return
            self._threads += 1
        threading.Thread(target=self._serve, name="name lookup", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                host, found = self._jobs.get(timeout=IDLE_THREAD_S)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                    if self._jobs.qsize():  # came in at the last moment and counts on this thread
                        continue
                    self._threads -= 1
                    return
            with self._lock:
                self._idle -= 1
            try:
                _answer(found, system_addresses(host), None)
            except (OSError, UnicodeError) as error:
                _answer(found, [], error)


def system_addresses(host: str) -> list[str]:
    """The addresses of a name after the system's resolver, in its order. Blocks; raises OSError."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def _answer(found: asyncio.Future[list[str]], addresses: list[str], error: Exception | None) -> None:
    def settle() -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(addresses)

    try:
        found.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop was closed while the name server thought


def _may_connect(address: str, port: int, network: tuple[str, ...]) -> bool:
    try:
        return is_allowed(ip_address(address), port, network)
    except ValueError:
        return False
