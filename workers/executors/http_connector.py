"""Connections that go only where they may, and that keep an answer although garbage follows it."""

from functools import partial
from ssl import SSLContext
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from workers.executors.address import GuardedResolver, Lookup, socket_factory

# Below the 5 s after which common servers close idle connections: a call on a closing one fails for nothing.
KEEPALIVE_S = 4.0
HEAD_END = b"\r\n\r\n"


class Protocol(ResponseHandler):
    """Hands the parser the head of an answer before what follows it.

    The parser forgets a good answer when the same piece of data also holds bytes beyond its length. Where data is
    split makes no difference otherwise.
    """

    overran = False  # something came after the answer's end
    _head_is_due = True

    def set_response_params(self, **params: Any) -> None:
        self._head_is_due = True
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._head_is_due and (end := data.find(HEAD_END)) >= 0:
            self._head_is_due = False
            end += len(HEAD_END)
            if end < len(data):
                super().data_received(data[:end])
                data = data[end:]
        super().data_received(data)
        self.overran = self.exception() is not None


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


def overran(response: aiohttp.ClientResponse) -> bool:
    """Whether the target sent more than the length that it had announced."""
    return getattr(response._protocol, "overran", False)
