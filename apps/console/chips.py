"""Ways to narrow a list, as links: the page's own address with one filter changed, from its beginning on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.http import HttpRequest

from apps.presenting.paging import CURSOR

PAGE = "page"  # the number of a page, where a list is not by keyset


class Chip(NamedTuple):
    """One of several; `rows` is how many there are of it, where that is known."""

    label: str
    url: str
    chosen: bool
    rows: int | None = None


def chips(
    request: HttpRequest, name: str, choices: Iterable[tuple[str, str]], *, chosen: str,
    rows: Mapping[Any, int] | None = None,
) -> list[Chip]:  # fmt: skip
    """A chip for each (value, label) of the filter `name`."""
    known = rows or {}
    return [
        Chip(label, changed(request, **{name: value}), value == chosen, known.get(value)) for value, label in choices
    ]


def changed(request: HttpRequest, **filters: str) -> str:
    """The page's query with these filters; an empty one is left out."""
    query = request.GET.copy()
    for place in (CURSOR, PAGE):
        query.pop(place, None)
    for name, value in filters.items():
        query[name] = value
        if not value:
            del query[name]
    return f"?{query.urlencode()}" if query else "?"
