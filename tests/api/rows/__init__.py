"""The role matrix: one row for every operation of the API. A new operation without a row fails the tests.

Each module of this package has `ROWS`, by operationId.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """What an operation answers to whom.

    `least`: the least role of the ladder that may; said here once more, so that a slip in the permissions table is
    found. `also`: roles beside the ladder that may. `answer`: the status when it is allowed, with the document's own
    example as body, or with what `body` makes. `things`: where the path needs another thing than the usual one of
    tests/api/world.py. `other`: what the other tenant's admin gets; 404 for paths that name a thing of acme.
    """

    least: str
    answer: int = 200
    also: tuple[str, ...] = ()
    body: Callable[[Any], Any] | None = None
    things: Mapping[str, str] = field(default_factory=dict)
    other: int | None = None


def all_rows() -> dict[str, Row]:
    """The rows of all modules."""
    found: dict[str, Row] = {}
    for module in pkgutil.iter_modules(__path__):
        rows: dict[str, Row] = importlib.import_module(f"{__name__}.{module.name}").ROWS
        assert not found.keys() & rows.keys(), f"{module.name} repeats {found.keys() & rows.keys()}"
        found |= rows
    return found
