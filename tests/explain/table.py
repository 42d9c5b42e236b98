"""The table of situations: what people ask about, and the cause that must be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tests.explain.stage import Stage

Asked = tuple[str, UUID] | tuple[str, UUID, datetime]


@dataclass(frozen=True)
class Situation:
    """`says`: parts of the sentence. `holders`: how many are named. `clears`: whether a time is given."""

    name: str
    code: str
    make: Callable[[Stage], Asked]
    fine: bool
    says: tuple[str, ...]
    holders: int
    clears: bool


SITUATIONS: list[Situation] = []


def situation(
    code: str, *says: str, fine: bool = False, holders: int = 0, clears: bool = False
) -> Callable[[Callable[[Stage], Asked]], Callable[[Stage], Asked]]:
    def add(make: Callable[[Stage], Asked]) -> Callable[[Stage], Asked]:
        SITUATIONS.append(Situation(make.__name__, code, make, fine, says, holders, clears))
        return make

    return add
