"""Connections that go only where they may, over a protocol that bounds what comes back."""

from functools import partial
from ssl import SSLContext
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from workers.executors.address import NOBODY, GuardedResolver, Lookup, calling, socket_factory
from workers.executors.http_protocol import Protocol

# Below the 5 s after which common servers close idle connections: a call on a closing one fails for nothing.
KEEPALIVE_S = 4.0


class Connector(aiohttp.TCPConnector):
    """The connections of all calls that share an allow-list."""

    def __init__(self, lookup: Lookup, network: tuple[str, ...], tls: SSLContext | bool) -> None:
        super().__init__(
            limit=0,  # slots bound what is in flight
            resolver=GuardedResolver(lookup, network),
            socket_factory=socket_factory(network),
            ssl=tls,
            keepalive_timeout=KEEPALIVE_S,
        )
        # aiohttp offers no setting for it; test_giant_answers_are_cut_e12 notices when a new version looks elsewhere.
        self._factory = cast("partial[ResponseHandler]", partial(Protocol, loop=self._loop))

    async def connect(self, *args: Any, **kwargs: Any) -> Connection:
        """A connection for the current call, which counts as sent from then on."""
        connection = await super().connect(*args, **kwargs)
        calling.get(NOBODY).sent = True
        return connection
