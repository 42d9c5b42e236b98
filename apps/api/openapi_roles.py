"""Which role an operation needs, in the document: `x-action` is what scopes name, `x-role` the least role that may."""

from typing import Any

from django.urls import resolve

from tenants.permissions import LEAST_ROLE, NARROW

ACTION = "x-action"
ROLE = "x-role"
ALSO = "x-also"  # roles beside the ladder
SOMETHING = "00000000-0000-7000-8000-000000000000"
PLACES = {"{version}": "1"}  # what is no id in a path


def add_roles(found: dict[str, Any]) -> None:
    """Adds them to every operation of a document."""
    for path, methods in found["paths"].items():
        concrete = "/".join(PLACES.get(part, SOMETHING) if part.startswith("{") else part for part in path.split("/"))
        view: Any = getattr(resolve(concrete).func, "cls", None)
        for method, one in methods.items():
            action = getattr(view, "actions", {}).get(method.upper())
            if action is not None:
                one[ACTION] = action
                one[ROLE] = LEAST_ROLE[action]
                one[ALSO] = [role for role, actions in NARROW.items() if action in actions]
