"""Where a schedule's runs meet those of others, in sentences. Pure."""

from __future__ import annotations

import json

from apps.schedules.load_hints import Hint, Quieter


def load_words(hint: Hint | None) -> list[str]:
    """Nothing where it is calm, or where nothing is known."""
    if hint is None or hint.level == "calm":
        return []
    said = [
        f"{hint.level.capitalize()}: at {hint.at:%Y-%m-%d %H:%M} UTC {hint.times_usual:g} times as many runs as usual"
        " are expected on the platform."
    ]
    if hint.quieter is not None:
        said.append(f"Quieter would be {_changes(hint.quieter)}.")
    if hint.jitter is not None:
        said.append(f"Spread out, with {_changes(hint.jitter)}.")
    return said


def _changes(one: Quieter) -> str:
    named = ", ".join(f"{name} {json.dumps(value)}" for name, value in one.changes.items())
    return f"{named} ({one.times_usual:g} times as usual)"
