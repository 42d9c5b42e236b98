"""Which of the queues that there are a worker listens to: by its configuration, and by what operators told it since.

Patterns are queue names with `*` and `?`. A list of them may name what is wanted and, with `!` before, what is not:
with something wanted nothing else is taken, and what is not wanted is never taken. What was told at run time goes
before the configuration, and of that the last word that fits a queue counts.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from kernel.pools import tenant_of

PATTERN = re.compile(r"[a-z0-9.@*?-]{1,80}")


class Rules(NamedTuple):
    """What is wanted and what is not. Without anything wanted everything is."""

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As it is configured."""
        return ",".join([*self.wanted, *(f"!{one}" for one in self.unwanted)])

    def take(self, name: str) -> bool:
        """Whether a name is wanted."""
        if any(fnmatchcase(name, one) for one in self.unwanted):
            return False
        return not self.wanted or any(fnmatchcase(name, one) for one in self.wanted)


ALL = Rules()


class Told(NamedTuple):
    """One word of an operator: listen to what fits, or do not."""

    pattern: str
    listens: bool


def read_rules(parts: Iterable[str]) -> Rules:
    """Rules from a list such as `http.*`, `!http.own.acme`. ValueError for what is no pattern."""
    wanted: list[str] = []
    unwanted: list[str] = []
    for part in parts:
        (unwanted if part.startswith("!") else wanted).append(pattern_of(part.removeprefix("!")))
    return Rules(tuple(wanted), tuple(unwanted))


def pattern_of(text: str) -> str:
    """The pattern that a text is; ValueError otherwise."""
    if not PATTERN.fullmatch(text):
        raise ValueError(f"{text!r} is no queue: up to 80 of a-z, 0-9, dot, dash, @, * and ?.")
    return text


def listened(
    queues: Iterable[str], *, by_queue: Rules = ALL, by_tenant: Rules = ALL, told: Sequence[Told] = ()
) -> list[str]:
    """Of these queues those that a worker listens to. `told` is in the order in which it was said.

    Rules by tenant are for queues that tenants have of their own: the others have no tenant that could be wanted.
    """
    return [name for name in queues if _listens(name, by_queue, by_tenant, told)]


def _listens(name: str, by_queue: Rules, by_tenant: Rules, told: Sequence[Told]) -> bool:
    for word in reversed(told):
        if fnmatchcase(name, word.pattern):
            return word.listens
    return by_queue.take(name) and by_tenant.take(tenant_of(name))
