"""What a change says in the audit trail: values of what is public, only the names of what may hold secrets."""

from collections.abc import Mapping
from typing import Any

# Headers, tokens, personal data: the versions hold them, the trail does not.
SECRET = ("target", "payload", "steps", "input", "output", "on_failure")


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The members that differ, before and after."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: _shown(name, before.get(name)) for name in names}, {
        name: _shown(name, after.get(name)) for name in names
    }


def of_new(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the making of something says: its members that are not null."""
    return {name: _shown(name, value) for name, value in given.items() if value is not None}


def _shown(name: str, value: Any) -> Any:
    return "(not shown)" if name in SECRET and value is not None else value
