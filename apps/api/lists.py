"""Lists: typed filters, opaque keyset cursors on descending ids, a page with what comes after it."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.http import QueryDict

from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults

T = TypeVar("T")
PAGE_SIZE = 50
PAGE_SIZE_MAX = 500
MAX_TEXT_CHARS = 200
MAX_ID_CHARS = 36
MAX_LABEL_FILTERS = 10
MARK_BYTES = 8  # of a cursor: which list, which filters
PAGING = ("page_size", "cursor")
_UNSTORABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class ListQuery:
    """Query parameters, asked for one at a time; `finish` raises all faults. A pointer to one is `?name`."""

    def __init__(self, params: QueryDict, names: Collection[str], *, path: str = "") -> None:
        self._params = params
        self._path = path
        self.faults = Faults()
        for name in list(params)[:20]:
            shown = f"?{name[:60]}"
            if name not in names:
                known = f"Known: {', '.join(sorted(names))}." if names else "None is known here."
                self.faults.add(shown, "unknown_parameter", f"There is no such query parameter. {known}")
            elif name != "label" and len(params.getlist(name)) > 1:
                self.faults.add(shown, "repeated", "Give this parameter once.")

    def finish(self) -> None:
        """InvalidInput with all faults that were found."""
        self.faults.raise_if_any()

    def text(self, name: str, *, most: int = MAX_TEXT_CHARS) -> str | None:
        value = self._params.get(name)
        if value is None:
            return None
        if not value or len(value) > most or _UNSTORABLE.search(value):
            self.faults.add(f"?{name}", "type", f"must be a text of 1 to {most} characters.")
            return None
        return value

    def flag(self, name: str) -> bool:
        """true or false; false when it is missing."""
        value = self._params.get(name)
        if value not in (None, "true", "false"):
            self.faults.add(f"?{name}", "type", "must be true or false.")
        return value == "true"

    def id(self, name: str) -> UUID | None:
        value = self._params.get(name)
        if value is None:
            return None
        try:
            return UUID(value) if len(value) <= MAX_ID_CHARS else UUID("")
        except ValueError:
            self.faults.add(f"?{name}", "type", "must be an id.")
            return None

    def choices(self, name: str, known: Collection[str]) -> list[str]:
        """One or several of the known values, separated by commas."""
        value = self._params.get(name)
        if value is None:
            return []
        chosen = value.split(",")
        if not set(chosen) <= set(known):
            self.faults.add(f"?{name}", "choice", f"must be of {', '.join(known)} (several with commas).")
            return []
        return sorted(set(chosen))

    def instant(self, name: str) -> datetime | None:
        value = self._params.get(name)
        if value is None:
            return None
        # An unescaped plus of an offset arrives as a blank.
        return read_instant(value.replace(" ", "+"), f"?{name}", "UTC", self.faults)

    def labels(self) -> dict[str, str]:
        """`label=name:value`, also several times; all must match."""
        given = self._params.getlist("label")
        wanted: dict[str, str] = {}
        for text in given:
            name, colon, value = text.partition(":")
            if not name or not colon or len(text) > MAX_TEXT_CHARS or _UNSTORABLE.search(text):
                self.faults.add("?label", "type", "must look like name:value.")
            else:
                wanted[name] = value
        if len(given) > MAX_LABEL_FILTERS:
            self.faults.add("?label", "too_many", f"Give at most {MAX_LABEL_FILTERS} labels.")
        return wanted

    def whole(self, name: str, usual: int, *, least: int, most: int) -> int:
        """A whole number in a range."""
        value = self._params.get(name)
        if value is None:
            return usual
        if not value.isascii() or not value.isdigit() or len(value) > 20 or not least <= int(value) <= most:
            self.faults.add(f"?{name}", "range", f"must be a whole number from {least} to {most}.")
            return usual
        return int(value)

    def page_size(self) -> int:
        value = self._params.get("page_size")
        if value is None:
            return PAGE_SIZE
        if not value.isascii() or not value.isdigit() or len(value) > 4 or not 1 <= int(value) <= PAGE_SIZE_MAX:
            self.faults.add("?page_size", "range", f"must be a whole number from 1 to {PAGE_SIZE_MAX}.")
            return PAGE_SIZE
        return int(value)

    def before(self) -> UUID | None:
        """Where the former page ended."""
        value = self._params.get("cursor")
        if value is None:
            return None
        try:
            raw = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
            key = UUID(bytes=raw[:-MARK_BYTES])
        except (ValueError, binascii.Error):
            self.faults.add("?cursor", "bad_cursor", "Give next_cursor of the former page, unchanged.")
            return None
        if raw[-MARK_BYTES:] != self._mark():
            detail = "This cursor belongs to another list or to other filters; begin with the first page."
            self.faults.add("?cursor", "bad_cursor", detail)
            return None
        return key

    def cursor_of(self, key: UUID) -> str:
        """The opaque cursor of the last row of a page; good for this list with these filters."""
        return base64.urlsafe_b64encode(key.bytes + self._mark()).rstrip(b"=").decode()

    def _mark(self) -> bytes:
        filters = sorted((name, sorted(values)) for name, values in self._params.lists() if name not in PAGING)
        text = repr((self._path, filters)).encode(errors="surrogatepass")
        return hashlib.blake2b(text, digest_size=MARK_BYTES).digest()


def page(
    rows: Sequence[T], *, query: ListQuery, size: int, key: Callable[[T], UUID], shape: Callable[[T], Any]
) -> dict[str, Any]:
    """The answer of a list from one row more than fits, when there are more."""
    shown = rows[:size]
    following = query.cursor_of(key(shown[-1])) if len(rows) > size else None
    return {"items": [shape(row) for row in shown], "next_cursor": following}
