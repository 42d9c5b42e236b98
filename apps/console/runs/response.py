"""What came back from a run, to be shown: hostile text, bounded, without what looks like a secret. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from apps.console.shown import SHOWN_CHARS, masked, masked_text
from kernel.printing import LINES, printable

HEADERS_MOST = 60


class Answered(NamedTuple):
    """An answer over HTTP has a status; another result is its `value`. `rest` characters of the body are not shown."""

    status: int | None
    headers: list[tuple[str, str]]
    body: str
    rest: int
    notes: list[str]
    value: Any


def answer_of(result: Any) -> Answered | None:
    """None where there is no result."""
    if result is None:
        return None
    if not isinstance(result, Mapping) or not isinstance(result.get("status"), int) or "body" not in result:
        return Answered(None, [], "", 0, [], masked(result))
    given = masked(result.get("headers"))
    headers = [(str(name), str(value)) for name, value in given.items()] if isinstance(given, Mapping) else []
    body = str(result["body"] or "")
    notes = ["The body is no text; this is base64."] if result.get("base64") else []
    notes += ["Only its beginning was kept."] if result.get("truncated") else []
    text = printable(masked_text(body[:SHOWN_CHARS]), keep=LINES)
    return Answered(result["status"], headers[:HEADERS_MOST], text, max(0, len(body) - SHOWN_CHARS), notes, None)
