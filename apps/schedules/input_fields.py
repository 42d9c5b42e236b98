"""Reading the members of a definition: one at a time, every fault noted with its place. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import orjson

from kernel.errors import Faults
from kernel.jsonrules import MAX_FAULTS, pointer_to, value_faults

MAX_NAME_CHARS = 200
MAX_ID_CHARS = 36
MAX_LABELS = 50
MAX_LABEL_CHARS = 200
LABEL_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_LABEL_NAME = re.compile(LABEL_NAME)
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class Fields:
    """A body whose members are asked for by name. What was never asked for is unknown."""

    def __init__(self, data: object, faults: Faults) -> None:
        self.faults = faults
        if not isinstance(data, Mapping):
            faults.add("", "not_an_object", "must be a JSON object.")
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        faults.errors += value_faults(self.data)

    def only(self, known: Iterable[str], *, read_only: Iterable[str] = ()) -> None:
        """Notes members that are not known; those that only answers carry are named as such."""
        names = set(known)
        fixed = set(read_only)
        for name in [name for name in self.data if name not in names][:MAX_FAULTS]:
            if name in fixed:
                self.faults.add(pointer_to("", name), "read_only", "This field is set by the platform; leave it out.")
            else:
                detail = f"There is no such field. Known: {', '.join(sorted(names))}."
                self.faults.add(pointer_to("", name), "unknown_field", detail)

    def name(self) -> str:
        """The required name: one line that shows something."""
        return self.text("name", most=MAX_NAME_CHARS, required=True) or ""

    def text(self, name: str, *, most: int, required: bool = False, lines: bool = False) -> str | None:
        """A text without blanks around it; None when it is missing."""
        value = self.data.get(name)
        if value is None:
            if required:
                self.faults.add(f"/{name}", "required", "This field is required.")
            return None
        if not isinstance(value, str) or not value.strip():
            self.faults.add(f"/{name}", "type", "must be a text that is not empty.")
            return None
        value = value.strip()
        if len(value) > most:
            self.faults.add(f"/{name}", "too_long", f"has {len(value):,} characters; {most:,} are allowed.")
        elif not lines and _CONTROL.search(value):
            self.faults.add(f"/{name}", "invalid_character", "must be one line without control characters.")
        return value

    def whole(self, name: str, low: int, high: int, default: Any) -> Any:
        """A whole number in [low, high]; the default when it is missing."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.faults.add(f"/{name}", "range", f"must be a whole number from {low} to {high:,}.")
            return default
        return value

    def flag(self, name: str) -> bool:
        """True or false, and nothing that only equals one of them; false when it is missing."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            self.faults.add(f"/{name}", "type", "must be true or false.")
        return value is True

    def choice(self, name: str, choices: Iterable[str], default: str | None = None) -> str:
        """One of the choices; required when there is no default."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        known = list(choices)
        if value is None:
            self.faults.add(f"/{name}", "required", f"This field is required: one of {', '.join(known)}.")
        elif not isinstance(value, str) or value not in known:
            self.faults.add(f"/{name}", "choice", f"must be one of {', '.join(known)}.")
        return value if isinstance(value, str) else ""

    def id(self, name: str) -> UUID | None:
        """A required id."""
        value = self.data.get(name)
        if value is None:
            self.faults.add(f"/{name}", "required", f"This field is required: the id of a {name}.")
            return None
        try:
            return UUID(value) if isinstance(value, str) and len(value) <= MAX_ID_CHARS else UUID("")
        except ValueError:
            self.faults.add(f"/{name}", "type", f"must be the id of a {name}.")
            return None

    def labels(self) -> dict[str, str]:
        """Names with texts, for filtering."""
        value = self.data.get("labels")
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.faults.add("/labels", "type", 'must be an object of texts such as {"team": "billing"}.')
            return {}
        if len(value) > MAX_LABELS:
            self.faults.add("/labels", "too_many", f"has {len(value)} labels; {MAX_LABELS} are allowed.")
            return {}
        for label, text in value.items():
            pointer = pointer_to("/labels", label)
            if not _LABEL_NAME.fullmatch(label):
                detail = "A label's name has 1 to 63 letters, digits and . _ / - and begins and ends without these."
                self.faults.add(pointer, "invalid_name", detail)
            elif not isinstance(text, str) or len(text) > MAX_LABEL_CHARS or _CONTROL.search(text):
                self.faults.add(pointer, "type", f"must be one line of at most {MAX_LABEL_CHARS} characters.")
        return dict(value)

    def json(self, name: str, *, max_bytes: int) -> Any:
        """Any JSON value of at most `max_bytes`; None when it is missing or null."""
        value = self.data.get(name)
        if value is not None:
            size = json_bytes(value)
            if size > max_bytes:
                self.faults.add(f"/{name}", "too_large", f"has {size:,} bytes; the plan allows {max_bytes:,}.")
        return value


def json_bytes(value: Any) -> int:
    """The size of a value as compact JSON. What can't be encoded has its own fault already."""
    try:
        return len(orjson.dumps(value))
    except (TypeError, ValueError):
        return 0
