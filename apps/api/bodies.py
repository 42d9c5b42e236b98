"""Bodies without an announced length: Django takes them for empty, so they are read here, bounded, before it looks."""

import io
from typing import BinaryIO, cast

from django.conf import settings
from django.core.handlers.wsgi import LimitedStream
from django.http import HttpRequest

from kernel.errors import ShardbeatError


class BodyTooLarge(ShardbeatError):
    """The body is larger than any valid one."""

    code = "body_too_large"
    status = 413


class LengthRequired(ShardbeatError):
    """This server can't tell where a body without a length ends."""

    code = "length_required"
    status = 411


class BodyBroken(ShardbeatError):
    """The body's chunks end early or are none."""

    code = "bad_request"
    status = 400


def take_in(request: HttpRequest) -> None:
    """Gives a request that came in chunks a body with a length. BodyTooLarge, BodyBroken, LengthRequired.

    Servers that mark the end of the input say so (`wsgi.input_terminated`; gunicorn does).
    """
    meta = request.META
    if not meta.get("HTTP_TRANSFER_ENCODING"):
        return
    if not meta.get("wsgi.input_terminated"):
        if meta.get("CONTENT_LENGTH"):  # a server in front has put the chunks together
            return
        raise LengthRequired("Send the body with a Content-Length.")
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    try:
        raw = _read(meta["wsgi.input"], most + 1)
    except Exception as error:  # servers have exceptions of their own for this
        raise BodyBroken("The body's chunks can't be read to their end.") from error
    if len(raw) > most:
        raise too_large(most)
    meta["CONTENT_LENGTH"] = str(len(raw))
    request._stream = cast("BinaryIO", LimitedStream(io.BytesIO(raw), len(raw)))  # as WSGIRequest makes it


def too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body has more than the {most:,} bytes that are allowed.")


def _read(stream: io.BufferedIOBase, most: int) -> bytes:
    """At most `most` bytes; a read may give less than it is asked for."""
    parts: list[bytes] = []
    left = most
    while left and (part := stream.read(min(left, 65_536))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
