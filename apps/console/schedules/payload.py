"""A payload in an operator's form: what looks like a secret is masked, and stays when its mask comes back. Pure."""

from __future__ import annotations

from typing import Any

from apps.console.shown import masked


def unmasked(given: Any, stored: Any) -> Any:
    """What was sent, with the stored values where it has their masks."""
    if given == masked(stored):
        return stored
    if isinstance(given, dict) and isinstance(stored, dict):
        shown = masked(stored)  # as a whole: what a member is may depend on the others
        return {name: _member(name, value, stored, shown) for name, value in given.items()}
    if isinstance(given, list) and isinstance(stored, list):
        return [unmasked(value, stored[place]) if place < len(stored) else value for place, value in enumerate(given)]
    return given


def _member(name: str, value: Any, stored: dict[str, Any], shown: Any) -> Any:
    if name not in stored:
        return value
    was_shown = isinstance(shown, dict) and shown.get(name) == value
    return stored[name] if was_shown else unmasked(value, stored[name])
