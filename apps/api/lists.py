"""Lists: typed filters, opaque keyset cursors, a page with what comes after it and, when asked for, a count."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import QueryDict

from apps.operations.asking import UNSTORABLE, FilterQuery
from kernel.keyset import Count, Order, Position

T = TypeVar("T")
M = TypeVar("M", bound=Model)
PAGE_SIZE = 50
PAGE_SIZE_MAX = 500
MARK_BYTES = 8  # of a cursor: which list, which filters
ID_BYTES = 16
PAGING = ("page_size", "cursor")
COUNTED = (*PAGING, "count")
SELECTING = "fields"
_NOT_OF_THE_LIST = {*COUNTED, SELECTING}  # a cursor goes on whatever these are


class ListQuery(FilterQuery):
    """Query parameters, asked for one at a time; `finish` raises all faults. A pointer to one is `?name`."""

    def __init__(self, params: QueryDict, names: Collection[str], *, path: str = "") -> None:
        super().__init__(dict(params.lists()), names, place="?{}")
        self._path = path

    def page_size(self) -> int:
        value = self.given("page_size")
        if value is None:
            return PAGE_SIZE
        if not value.isascii() or not value.isdigit() or len(value) > 4 or not 1 <= int(value) <= PAGE_SIZE_MAX:
            self.fault("page_size", "range", f"must be a whole number from 1 to {PAGE_SIZE_MAX}.")
            return PAGE_SIZE
        return int(value)

    def before(self) -> UUID | None:
        """Where the former page of a list by id ended."""
        position = self.position(Order())
        return None if position is None else position.id

    def position(self, order: Order) -> Position | None:
        """Where the former page of a list in this order ended."""
        value = self.given("cursor")
        if value is None:
            return None
        try:
            raw = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
            found = Position(UUID(bytes=raw[:ID_BYTES]), raw[ID_BYTES:-MARK_BYTES].decode() or None)
        except (ValueError, binascii.Error):
            self.fault("cursor", "bad_cursor", "Give next_cursor of the former page, unchanged.")
            return None
        if raw[-MARK_BYTES:] != self._mark() or not _fits(found.value, order):
            detail = "This cursor belongs to another list or to other filters; begin with the first page."
            self.fault("cursor", "bad_cursor", detail)
            return None
        return found

    def order(self, known: Collection[str]) -> str:
        """One of the known orders; the first of them when none is asked for."""
        value = self.given("order")
        if value is None or value not in known:
            if value is not None:
                self.fault("order", "choice", f"must be one of {', '.join(known)}.")
            return next(iter(known))
        return value

    def counted(self) -> bool:
        """Whether a count is asked for."""
        return self.flag("count")

    def cursor_of(self, key: UUID | Position) -> str:
        """The opaque cursor of the last row of a page; good for this list with these filters in this order."""
        place = Position(key) if isinstance(key, UUID) else key
        raw = place.id.bytes + (place.value or "").encode() + self._mark()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def _mark(self) -> bytes:
        filters = sorted((name, sorted(values)) for name, values in self.params.items() if name not in _NOT_OF_THE_LIST)
        text = repr((self._path, filters)).encode(errors="surrogatepass")
        return hashlib.blake2b(text, digest_size=MARK_BYTES).digest()


def page(
    rows: Sequence[T], *, query: ListQuery, size: int, key: Callable[[T], UUID], shape: Callable[[T], Any]
) -> dict[str, Any]:
    """The answer of a list from one row more than fits, when there are more."""
    shown = rows[:size]
    following = query.cursor_of(key(shown[-1])) if len(rows) > size else None
    return {"items": [shape(row) for row in shown], "next_cursor": following}


def listed(
    rows: Sequence[T], after: Position | None, *, query: ListQuery, shape: Callable[[T], Any], count: Count | None
) -> dict[str, Any]:
    """The answer of a list whose next page begins after `after`."""
    answer = {
        "items": [shape(row) for row in rows],
        "next_cursor": None if after is None else query.cursor_of(after),
    }
    return answer if count is None else {**answer, "count": count.number, "count_is_exact": count.exact}


def newest(found: "QuerySet[M]", *, query: ListQuery, shape: Callable[[M], Any], by: str = "pk") -> dict[str, Any]:
    """The answer of a list of models, newest first; `by` names their id. Reads the rest of the query. InvalidInput."""
    before, size = query.before(), query.page_size()
    query.finish()
    if before is not None:
        found = found.filter(**{f"{by}__lt": before})
    rows = list(found.order_by(f"-{by}")[: size + 1])
    return page(rows, query=query, size=size, key=attrgetter(by), shape=shape)


def _fits(value: str | None, order: Order) -> bool:
    """Whether a cursor's value can be one of this order: whoever made it up gets no error of the database."""
    if not order.key or value is None:
        return not order.key and value is None
    if order.cast != "timestamptz":
        return not UNSTORABLE.search(value)
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
