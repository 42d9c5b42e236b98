"""All verbs, by name. A module of this package that has one is found by itself."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from apps.console import roles, verbs
from apps.console.verbs.base import Verb

_FOUND: dict[str, Verb] = {}


def register(verb: type[Verb]) -> type[Verb]:
    """Makes a verb known by its name."""
    if verb.name in _FOUND:
        raise ValueError(f"There are two verbs {verb.name!r}.")
    if verb.level not in roles.LEVELS:
        raise ValueError(f"{verb.name!r} takes the level {verb.level!r}, which there is not.")
    _FOUND[verb.name] = verb()
    return verb


def verb_named(name: str) -> Verb | None:
    """The verb of this name."""
    return all_verbs().get(name)


@cache
def all_verbs() -> dict[str, Verb]:
    """Every verb there is."""
    for module in pkgutil.iter_modules(verbs.__path__):
        import_module(f"{verbs.__name__}.{module.name}")
    return dict(sorted(_FOUND.items()))
