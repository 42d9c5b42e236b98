"""Tasks of kind "python" that the platform brings along; operators register their own with PYTHON_TASKS."""

from collections.abc import Mapping
from typing import Any


def noop(payload: Any, context: Mapping[str, Any]) -> None:
    """Does nothing: for trying the platform and for measuring it."""


def echo(payload: Any, context: Mapping[str, Any]) -> dict[str, Any]:
    """Answers with what it was given."""
    return {"payload": payload, "context": dict(context)}
