"""What a verb is, what it is asked, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, Literal

from django import forms

from apps.audit.actors import Actor
from kernel.errors import ShardbeatError
from tenants.models import Tenant

Scope = Literal["platform", "tenant"]
ALL = "all"  # the target of a verb that is about the whole platform or the whole tenant
VERSION_CHARS = 16


@dataclass(frozen=True, slots=True)
class Ask:
    """Who wants it done to what, and why: `actor` carries the reason into each row of the trail.

    `given` holds the verb's own fields, empty when nothing is filled in yet.
    `version` is what the operator looked at; while looking it is empty.
    """

    target: str
    actor: Actor
    now: datetime
    tenant: Tenant | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    version: str = ""

    @property
    def inside(self) -> Tenant:
        """The tenant of a verb whose scope is one."""
        assert self.tenant is not None
        return self.tenant


@dataclass(frozen=True, slots=True)
class Line:
    """One line of what is shown; `after` is what it would become, None where it stays."""

    name: str
    value: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What a verb would do. `version` changes with whatever an operator has to look at again (see `version_of`).

    `refused` says why it can't be done now, `asks` what has to be filled in before. `link` is the page of what it is
    about.
    """

    title: str
    lines: Sequence[Line]
    version: str
    warnings: Sequence[str] = ()
    refused: str = ""
    link: str = ""
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A verb on a target, to be offered: the undo, or what one does next. `tenant` is a slug.

    `given` fills in the verb's own fields.
    """

    verb: str
    target: str = ALL
    tenant: str = ""
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done: a sentence with numbers, where to see it, and how to undo or cancel it.

    `lines` are what was found, where a verb looks for something; `bad` when that is nothing good.
    """

    text: str
    link: str = ""
    undo: Step | None = None
    then: Sequence[Step] = ()
    lines: Sequence[Line] = ()
    bad: bool = False


class Changed(ShardbeatError):
    """What the operator looked at is not so any more. `now` is what is."""

    code = "changed"
    status = 409

    def __init__(self, now: Preview) -> None:
        super().__init__("It has changed since you looked at it: nothing was done.")
        self.now = now


class Verb:
    """Something that operators do. See the package's docstring."""

    name: ClassVar[str]  # "ticket.cancel": its address, and the action of the row about a refused attempt
    label: ClassVar[str]  # what it does, in one or two words
    level: ClassVar[str]  # that the role must have
    scope: ClassVar[Scope] = "platform"
    key: ClassVar[str] = ""  # one letter for the keyboard
    form: ClassVar[type[forms.BaseForm] | None] = None  # its own fields, besides the reason
    look_first: ClassVar[bool] = False  # what its fields say must have been looked at, too
    hard: ClassVar[bool] = False  # can't be undone: its button says so by its colour

    def button(self, target: str) -> str:
        """What its button says: more than the label where that could be read as something smaller."""
        return self.label

    def concerns(self, ask: Ask) -> Tenant | None:
        """The tenant whose band the page wears; None where it is about several, or there is no such target."""
        return ask.tenant

    def initial(self, ask: Ask) -> Mapping[str, Any]:
        """What its own fields begin with. NotFound when there is no such target."""
        return {}

    def look(self, ask: Ask) -> Preview:
        """What it would do. NotFound when there is no such target."""
        raise NotImplementedError

    def do(self, ask: Ask) -> Receipt:
        """Does it, with its audit row. Raises what the service does; Stale when another one was quicker."""
        raise NotImplementedError


def version_of(*values: Any) -> str:
    """A short text that changes when one of the values does."""
    told = "\x1f".join(map(repr, values))
    return sha256(told.encode()).hexdigest()[:VERSION_CHARS]
