"""Pages of lists: newest first, by keyset on the id; the address of a page can be kept and sent to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest, QueryDict

from kernel.keyset import Position

T = TypeVar("T")
M = TypeVar("M", bound=Model)
PAGE_ROWS = 50
CURSOR = "before"


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """One page; `older` and `newest` are query strings, empty when there is no such page."""

    rows: Sequence[T]
    older: str
    newest: str


def cursor_of(request: HttpRequest) -> UUID | None:
    """Where the page begins; nonsense is the first page."""
    return as_uuid(request.GET.get(CURSOR, ""))


def position_of(request: HttpRequest) -> Position | None:
    """The same, for the lists of `kernel.keyset`: one that ends at its bound says where older rows go on."""
    cursor = cursor_of(request)
    return None if cursor is None else Position(cursor)


def number_of(request: HttpRequest) -> int:
    """After which item of an operation the page begins, which are numbered; nonsense is the first page."""
    text = request.GET.get("after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


def newest(request: HttpRequest, found: QuerySet[M], *, by: str = "pk") -> list[M]:
    """The page's rows and one more, when there are more; `by` names their id."""
    cursor = cursor_of(request)
    if cursor is not None:
        found = found.filter(**{f"{by}__lt": cursor})
    return list(found.order_by(f"-{by}")[: PAGE_ROWS + 1])


def listed(request: HttpRequest, rows: Sequence[T], *, key: Callable[[T], object]) -> Listed[T]:
    """From up to PAGE_ROWS + 1 rows."""
    shown = rows[:PAGE_ROWS]
    return paged(request, shown, after=key(shown[-1]) if len(rows) > PAGE_ROWS else None)


def paged(request: HttpRequest, shown: Sequence[T], *, after: object | None) -> Listed[T]:
    """From the rows of a page; older ones come after `after`."""
    older = _with(request.GET, str(after)) if after is not None else ""
    newest = (_with(request.GET, None) or "?") if request.GET.get(CURSOR) else ""
    return Listed(shown, older, newest)


def as_uuid(text: str) -> UUID | None:
    """The id that a text is, if it is one."""
    try:
        return UUID(text.strip()) if len(text) <= 40 else None
    except ValueError:
        return None


def _with(given: QueryDict, cursor: str | None) -> str:
    query = given.copy()
    query.pop(CURSOR, None)
    if cursor is not None:
        query[CURSOR] = cursor
    text = query.urlencode()
    return f"?{text}" if text else ""
