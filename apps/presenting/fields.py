"""Form fields: what is asked, what was given and what is wrong with it. Services judge the values, not these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kernel.errors import FieldError, ShardbeatError, code_of

MAX_INPUT_CHARS = 1_000_000  # of one field; services have closer limits of their own


class Given(Protocol):
    """What a browser sent."""

    def get(self, name: str, default: str, /) -> object: ...
    def getlist(self, name: str, /) -> Sequence[object]: ...


class Option(NamedTuple):
    """One choice."""

    value: str
    label: str


@dataclass(slots=True)
class Field:
    """One input with its label. `kind`: text, area, code, number, select, check, checks, radio, hidden."""

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    help: str = ""
    options: Sequence[Option] = ()
    required: bool = False
    rows: int = 3
    suggestions: str = ""  # id of a datalist
    unit: str = ""
    autocomplete: str = "off"
    chosen: list[str] = field(default_factory=list)  # of checks
    errors: list[str] = field(default_factory=list)

    @property
    def described_by(self) -> str:
        """Ids of the texts that belong to the input."""
        parts = [f"help-{self.name}"] if self.help else []
        return " ".join([*parts, *([f"error-{self.name}"] if self.errors else [])])

    @property
    def checked(self) -> bool:
        return self.kind == "check" and bool(self.value)


class Form:
    """Fields by name, and faults that belong to none of them."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = {one.name: one for one in fields}
        self.errors: list[str] = []

    def __getitem__(self, name: str) -> Field:
        return self.fields[name]

    def take(self, given: Given) -> None:
        """The values that a browser sent; line ends as everybody writes them."""
        for one in self.fields.values():
            text = str(given.get(one.name, ""))
            if one.kind == "checks":
                known = {option.value for option in one.options}
                one.chosen = [str(value) for value in given.getlist(one.name) if value in known]
            one.value = text[:MAX_INPUT_CHARS].replace("\r\n", "\n")

    def text(self, name: str) -> str:
        return self.fields[name].value.strip()

    def seen(self) -> set[int]:
        """The revision that was looked at; none, which no row has, when the browser sent something else."""
        text = self.text("revision")
        return {int(text)} if text.isascii() and text.isdigit() and len(text) < 10 else set()

    def blame(self, errors: Iterable[FieldError], places: Mapping[str, str] | None = None) -> None:
        """Faults to their fields. `places` maps the first name of a pointer to a field of another name."""
        for error in errors:
            first = error.pointer.strip("/").split("/")[0]
            name = (places or {}).get(first, first)
            if name in self.fields and self.fields[name].kind != "hidden":
                self.fields[name].errors.append(sentence(error.detail, about=_rest(error.pointer)))
            else:
                self.errors.append(sentence(error.detail, about=error.pointer.strip("/")))

    def refuse(self, error: ShardbeatError) -> None:
        """A refusal of the whole, to the field of a name or id that is taken where it is about one."""
        name, _, word = code_of(error).rpartition("_")
        if word == "taken" and name in self.fields:
            self.blame([FieldError(f"/{name}", error.code, error.detail)])
        else:
            self.errors.append(error.detail)

    @property
    def faulty(self) -> bool:
        return bool(self.errors) or any(one.errors for one in self.fields.values())

    @property
    def faults(self) -> list[tuple[Field, str]]:
        """Every fault with its field, for the summary on top."""
        return [(one, text) for one in self.fields.values() for text in one.errors]


def sentence(detail: str, *, about: str = "") -> str:
    """A service's detail as a sentence: "must be ..." becomes "This must be ..."."""
    if detail[:1].islower():
        return f"{about or 'This'} {detail}"
    return f"{about}: {detail}" if about else detail


def choices(values: Iterable[str]) -> list[Option]:
    """Options whose labels are their values in words."""
    return [Option(value, value.replace("_", " ")) for value in values]


def typed(value: float | str) -> str:
    """A number as people type it, with all its digits, so that sending it back changes nothing."""
    return str(value).removesuffix(".0")


def _rest(pointer: str) -> str:
    """What of a pointer is inside of its field."""
    return "/".join(pointer.strip("/").split("/")[1:])
