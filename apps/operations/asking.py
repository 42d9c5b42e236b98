"""Members of a filter, asked for one at a time and judged together: of a list's query, or of a bulk request's body."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults

MAX_TEXT_CHARS = 200
MAX_ID_CHARS = 36
MAX_LABEL_FILTERS = 10
SHOWN_NAMES = 20
UNSTORABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
SEVERAL = ("label",)  # members that may be given several times


class FilterQuery:
    """`finish` raises all faults. `place` says where one is, with the member's name put in: `?{}`, `/filter/{}`."""

    def __init__(
        self, params: Mapping[str, Sequence[str]], names: Collection[str], *, place: str, faults: Faults | None = None
    ) -> None:
        self.params = params
        self.place = place
        self.faults = Faults() if faults is None else faults
        for name in list(params)[:SHOWN_NAMES]:
            if name not in names:
                known = f"Known: {', '.join(sorted(names))}." if names else "None is known here."
                what = "query parameter" if place.startswith("?") else "filter"
                self.fault(name[:60], "unknown_parameter", f"There is no such {what}. {known}")
            elif name not in SEVERAL and len(params[name]) > 1:
                self.fault(name, "repeated", "Give this parameter once.")

    def finish(self) -> None:
        """InvalidInput with all faults that were found."""
        self.faults.raise_if_any()

    def fault(self, name: str, code: str, detail: str) -> None:
        """Something is wrong with this member."""
        self.faults.add(self.place.format(name), code, detail)

    def given(self, name: str) -> str | None:
        """The member as it was given; the last, of several."""
        values = self.params.get(name)
        return values[-1] if values else None

    def text(self, name: str, *, most: int = MAX_TEXT_CHARS) -> str | None:
        value = self.given(name)
        if value is None:
            return None
        if not value or len(value) > most or UNSTORABLE.search(value):
            self.fault(name, "type", f"must be a text of 1 to {most} characters.")
            return None
        return value

    def flag(self, name: str) -> bool:
        """true or false; false when it is missing."""
        value = self.given(name)
        if value not in (None, "true", "false"):
            self.fault(name, "type", "must be true or false.")
        return value == "true"

    def id(self, name: str) -> UUID | None:
        value = self.given(name)
        if value is None:
            return None
        try:
            return UUID(value) if len(value) <= MAX_ID_CHARS else UUID("")
        except ValueError:
            self.fault(name, "type", "must be an id.")
            return None

    def choices(self, name: str, known: Collection[str]) -> list[str]:
        """One or several of the known values, separated by commas."""
        value = self.given(name)
        if value is None:
            return []
        chosen = value.split(",")
        if not set(chosen) <= set(known):
            self.fault(name, "choice", f"must be of {', '.join(known)} (several with commas).")
            return []
        return sorted(set(chosen))

    def instant(self, name: str) -> datetime | None:
        value = self.given(name)
        if value is None:
            return None
        # An unescaped plus of an offset arrives as a blank.
        return read_instant(value.replace(" ", "+"), self.place.format(name), "UTC", self.faults)

    def labels(self) -> dict[str, str]:
        """`label=name:value`, also several times; all must match."""
        given = self.params.get("label", ())
        wanted: dict[str, str] = {}
        for text in given:
            name, colon, value = text.partition(":")
            if not name or not colon or len(text) > MAX_TEXT_CHARS or UNSTORABLE.search(text):
                self.fault("label", "type", "must look like name:value.")
            else:
                wanted[name] = value
        if len(given) > MAX_LABEL_FILTERS:
            self.fault("label", "too_many", f"Give at most {MAX_LABEL_FILTERS} labels.")
        return wanted

    def whole(self, name: str, usual: int, *, least: int, most: int) -> int:
        """A whole number in a range."""
        value = self.given(name)
        if value is None:
            return usual
        if not value.isascii() or not value.isdigit() or len(value) > 20 or not least <= int(value) <= most:
            self.fault(name, "range", f"must be a whole number from {least} to {most}.")
            return usual
        return int(value)
