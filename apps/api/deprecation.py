"""Operations that will go: said in the document and with every answer (RFC 9745, RFC 8594)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, TypeVar

from django.utils.http import http_date
from rest_framework.response import Response

HEADERS: Mapping[str, str] = {
    "Deprecation": "Since when it should not be used any more: @ and seconds since 1970 (RFC 9745).",
    "Sunset": "When it stops working, if that is known (RFC 8594).",
    "Link": "What to use instead.",
}
F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "deprecation"


@dataclass(frozen=True)
class Deprecated:
    """`since` when it should not be used any more, and when it stops working; `link` tells what to use instead."""

    since: date
    sunset: date | None = None
    link: str = ""

    def __post_init__(self) -> None:
        if self.sunset is not None and self.sunset < self.since:
            raise ValueError("An operation can't go before it is deprecated (RFC 9745, section 4).")

    def headers(self) -> dict[str, str]:
        """Dates begin at midnight UTC."""
        found = {"Deprecation": f"@{_seconds(self.since)}"}
        if self.sunset is not None:
            found["Sunset"] = http_date(_seconds(self.sunset))
        if self.link:
            found["Link"] = f'<{self.link}>; rel="deprecation"; type="text/html"'
        return found


def mark(handler: F, deprecated: Deprecated) -> F:
    """Remembers it at the handler of a method."""
    setattr(handler, ATTRIBUTE, deprecated)
    return handler


def say(handler: Any, response: Response) -> None:
    """Adds the headers to an answer when the handler that made it is deprecated."""
    deprecated: Deprecated | None = getattr(handler, ATTRIBUTE, None)
    if deprecated is not None:
        for name, value in deprecated.headers().items():
            response.headers[name] = value


def describe_deprecation(found: dict[str, Any]) -> None:
    """Adds the headers to the successes of all deprecated operations of an OpenAPI document."""
    for one in (one for path in found["paths"].values() for one in path.values()):
        if one.get("deprecated"):
            for answer in one["responses"].values():
                shown = {name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS.items()}
                answer["headers"] = {**answer.get("headers", {}), **shown}


def _seconds(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp())
