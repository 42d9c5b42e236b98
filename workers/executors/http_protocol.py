"""The wire of a call: what a target sends reaches the parser in small pieces, and never more than an answer may take.

The loop is everybody's. A target decides what its bytes cost us: a million "100 Continue", an endless header, chunks of
one byte, answers that nobody asked for. So heads and bytes are counted before they are parsed, what waits for a reader
stays unparsed, and what goes over a limit ends the connection.
"""

import re
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import set_exception
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import StreamReader

INFORMATIONAL_MAX = 8  # answers such as "100 Continue" or "103 Early Hints" before the one that counts
HEAD_MAX_BYTES = 65_536  # of all heads of a call together
WIRE_MAX_BYTES = 1_048_576  # of a body with its chunk sizes, extensions and trailers; far more than is kept of it
PIECE_BYTES = 16_384  # parsed in one go: a few milliseconds at the worst
# The parser is lenient about line ends, so a head may end without a carriage return.
_HEAD_END = re.compile(rb"\n\r?\n")
_SWITCHING_PROTOCOLS = 101


class Protocol(ResponseHandler):
    """Feeds the parser: each head by itself, then the body piece by piece, while its reader keeps up.

    A head comes before what follows it also because the parser forgets a good answer when the same piece of data holds
    bytes beyond its length. Where data is split makes no difference otherwise.
    """

    overran = False  # something came after the answer's end
    _head_is_due = True
    _is_over = False  # the connection was ended here, and nothing more is parsed
    _heads = _head_bytes = _body_bytes = 0
    _end_of_last = b""  # a head's end may be split between two pieces
    _unparsed = b""

    def set_response_params(self, **params: Any) -> None:
        self._head_is_due, self._end_of_last = True, b""
        self._heads = self._head_bytes = self._body_bytes = 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Parse what came; without data, go on with what waited for the reader."""
        if self._is_over:
            return
        if not data or self._parser is None:
            super().data_received(data)
        else:
            self._unparsed += data
        self._parse()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._unparsed = b""
        super().connection_lost(exc)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take an answer from the parser."""
        status = data[0].code
        if not self._head_is_due:
            self._note_overrun()
            return
        self._head_is_due = 100 <= status <= 199 and status != _SWITCHING_PROTOCOLS
        super().feed_data(data, size)
        if status == _SWITCHING_PROTOCOLS:
            self._end()  # we never ask for it, and no answer follows

    def _parse(self) -> None:
        data, self._unparsed, at = self._unparsed, b"", 0
        while at < len(data) and not (self._is_over or self._reading_paused):
            end = self._head_piece(data, at) if self._head_is_due else self._body_piece(data, at)
            if end > at:
                super().data_received(data[at:end])
                self.overran = self.overran or (not self._head_is_due and self.exception() is not None)
                self._is_over = self._is_over or self.exception() is not None
            at = end
        if not self._is_over:
            self._unparsed = data[at:]

    def _head_piece(self, data: bytes, at: int) -> int:
        """Where the next piece ends. Ends the connection instead when heads take too much."""
        most = min(len(data), at + HEAD_MAX_BYTES - self._head_bytes)
        before = len(self._end_of_last)
        found = _HEAD_END.search(self._end_of_last + data[at:most])
        end = at + found.end() - before if found else most
        self._heads += found is not None
        self._head_bytes += end - at
        self._end_of_last = b"" if found else (self._end_of_last + data[at:end])[-2:]
        if self._heads > INFORMATIONAL_MAX + 1 or end == at:
            self.set_exception(BadHttpMessage("too much before the answer"))
            self._end()
            return at
        return end

    def _body_piece(self, data: bytes, at: int) -> int:
        """Where the next piece ends. Ends the connection instead when nothing is due or the body takes too much."""
        end = min(len(data), at + PIECE_BYTES)
        if self._payload is None or self._payload.is_eof():
            if data[at:end].strip(b"\r\n"):
                self._note_overrun()
            return at if self._is_over else end
        self._body_bytes += end - at
        if self._body_bytes > WIRE_MAX_BYTES:
            set_exception(self._payload, aiohttp.ClientPayloadError("too much for a body"))
            self._end()
            return at
        return end

    def _note_overrun(self) -> None:
        self.overran = True
        self._end()

    def _end(self) -> None:
        """Close at once: nothing that the target still sends is read."""
        self._is_over = True
        self._unparsed = b""
        self.force_close()
        if self.transport is not None:
            self.transport.abort()


def overran(response: aiohttp.ClientResponse) -> bool:
    """Whether the target sent more than the length that it had announced."""
    return getattr(response._protocol, "overran", False)
