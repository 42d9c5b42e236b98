"""Reads what a target answers: never more than is kept, whatever its length header, encoding or patience says."""

import asyncio
import base64
import codecs
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp

from workers.executors.bounds import RESULT_MAX_BYTES, fit_text
from workers.executors.http_protocol import PIECE_BYTES, overran

BODY_MAX_BYTES = RESULT_MAX_BYTES
HEADER_VALUE_MAX_CHARS = 300
# Room for the other parts of the result: the status and the headers below, each at most at its limit in JSON.
BODY_MAX_JSON_BYTES = 49_152
KEPT_HEADERS = (
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "Date",
    "ETag",
    "Last-Modified",
    "Location",
    "Retry-After",
    "Server",
    "X-Request-Id",
    "Shardbeat-No-Retry",
)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# Python knows more codecs, some of which are no charsets or take long.
_DECODED = re.compile(
    r"utf-?8|utf-?16(?:le|be)?|us-ascii|ascii|latin-?1|iso-?8859-[0-9]{1,2}|windows-[0-9]{3,4}|koi8-[ru]|macintosh"
    r"|shift_jis|euc-(?:jp|kr)|gb2312|gbk|gb18030|big5"
)
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
_DEFLATE = -zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Body:
    """The beginning of a response body."""

    data: bytes
    truncated: bool  # there was more, or less than announced


async def read_body(response: aiohttp.ClientResponse, max_bytes: int = BODY_MAX_BYTES) -> Body:
    """Read at most `max_bytes`, decompressed. The connection is closed when there is more.

    A body that breaks off or can't be decompressed is kept as far as it came: the status decides the outcome.
    """
    decoder = decoder_for(response.headers.get("Content-Encoding", ""))
    stream, size = response.content, 0
    kept: list[bytes] = []
    try:
        while data := await stream.readany():
            for chunk in pieces(data) if decoder else (data,):
                if kept:
                    await asyncio.sleep(0)  # what is buffered already never waits, and others want to run too
                kept.append(decoder.feed(chunk, max_bytes + 1 - size) if decoder else chunk)
                size += len(kept[-1])
                if size > max_bytes:
                    response.close()
                    return Body(b"".join(kept)[:max_bytes], True)
    except (aiohttp.ClientError, ConnectionError, zlib.error):
        response.close()
        return Body(b"".join(kept), True)
    incomplete = overran(response) or (decoder is not None and not decoder.complete)
    return Body(kept[0] if len(kept) == 1 else b"".join(kept), incomplete)


def pieces(data: bytes) -> Iterator[bytes]:
    """`data` in parts that take a decoder little time, also when they are full of empty gzip members."""
    return (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))


class Decoder:
    """gzip or deflate, never more than asked for: 48 kB of gzip can hold 50 MB."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._started = False

    @property
    def complete(self) -> bool:
        return self._inflate.eof or not self._started

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        """The next decompressed bytes, at most `max_bytes` (at least 1). Raises zlib.error."""
        out = []
        while data and max_bytes > 0:
            if self._inflate.eof:  # gzip members may follow each other
                self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP)
            try:
                piece = self._inflate.decompress(data, max_bytes)
            except zlib.error:
                if self._started:
                    raise
                # Some servers call raw deflate data "deflate".
                self._inflate = zlib.decompressobj(_DEFLATE)
                piece = self._inflate.decompress(data, max_bytes)
            self._started = True
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            out.append(piece)
            max_bytes -= len(piece)
        return b"".join(out)


def decoder_for(encoding: str) -> Decoder | None:
    """A decoder for the encodings that we ask for; anything else is kept as it came."""
    return Decoder() if encoding.strip().lower() in ("gzip", "x-gzip", "deflate") else None


def result_of(response: aiohttp.ClientResponse, body: Body) -> dict[str, Any]:
    """The attempt's result: {"status", "headers", "body", "base64", "truncated"}, at most RESULT_MAX_BYTES as JSON."""
    text, is_base64, cut = body_text(body.data[:BODY_MAX_BYTES], charset_of(response.headers.get("Content-Type", "")))
    return {
        "status": response.status,
        "headers": kept_headers(response),
        "body": text,
        "base64": is_base64,
        "truncated": body.truncated or cut or len(body.data) > BODY_MAX_BYTES,
    }


def charset_of(content_type: str) -> str:
    """The charset of a Content-Type when it is one that we decode, else UTF-8."""
    matched = _CHARSET.search(content_type[:HEADER_VALUE_MAX_CHARS])
    return matched[1].lower() if matched and _DECODED.fullmatch(matched[1].lower()) else "utf-8"


def body_text(data: bytes, charset: str = "utf-8") -> tuple[str, bool, bool]:
    """Text when it can be decoded and has no NUL, else base64; whether it is base64; whether it had to be cut."""
    try:
        # A cut may go through a character: what is left of one at the end of a body of full size is dropped.
        text = codecs.getincrementaldecoder(charset)().decode(data, final=len(data) < BODY_MAX_BYTES)
    except (UnicodeDecodeError, LookupError):
        return _base64(data)
    if "\x00" in text:
        return _base64(data)
    text, cut = fit_text(text, BODY_MAX_JSON_BYTES)
    return text, False, cut


def kept_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers that help to understand an answer; no cookies, no query of a location."""
    found = response.headers
    kept = {name: found[name] for name in KEPT_HEADERS if name in found}
    if "Location" in kept:
        kept["Location"] = kept["Location"].partition("?")[0]
    for name, value in kept.items():
        if not value.isascii() or len(value) > HEADER_VALUE_MAX_CHARS:
            kept[name] = value[:HEADER_VALUE_MAX_CHARS].encode(errors="replace").decode()
    return kept


def _base64(data: bytes) -> tuple[str, bool, bool]:
    most = BODY_MAX_JSON_BYTES // 4 * 3 - 3
    return base64.b64encode(data[:most]).decode(), True, len(data) > most
