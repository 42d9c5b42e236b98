"""The table of `tenants.permissions` at the API's door. A refused attempt is 403 and noted in the audit trail."""

from typing import TYPE_CHECKING, Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.audit.services import Actor, record
from kernel.errors import Forbidden
from tenants.permissions import LEAST_ROLE, may, role_reaches

if TYPE_CHECKING:
    from apps.api.endpoint import Endpoint

OBJECT_ID_CHARS = 64  # of the audit trail


class RolePermission(BasePermission):
    """Checks the view's action of this method. Without a key DRF answers 401."""

    def has_permission(self, request: Request, view: Any) -> bool:
        actor = request.user
        if not isinstance(actor, Actor):
            return False
        endpoint: Endpoint = view
        action = endpoint.actions.get("GET" if request.method == "HEAD" else str(request.method))
        if action is not None:  # a method without an action is answered with 405
            need(endpoint, actor, action)
        return True


def need(endpoint: "Endpoint", actor: Actor, action: str) -> None:
    """Forbidden, and noted, when role and scopes do not reach for an action."""
    if may(actor, action):
        return
    narrowed = role_reaches(actor.role, action)
    object_type, _, _ = action.partition(".")
    record(
        actor=actor, action=action, object_type=object_type, object_id=_object_of(endpoint.kwargs), now=endpoint.now,
        tenant_id=actor.tenant_id, allowed=False, reason=f"scope {action}" if narrowed else f"role {actor.role}",
    )  # fmt: skip
    if narrowed:
        raise Forbidden(f"No scope of the key names {action}.", code="scope_missing", needs=action)
    least = LEAST_ROLE[action]
    raise Forbidden(f"This needs the role {least}; the key has {actor.role}.", code="role_too_low", needs=least)


def _object_of(kwargs: dict[str, Any]) -> str:
    """What the trail says that it was about: never a token, and no more than it can hold."""
    name, value = next(iter(kwargs.items()), ("", ""))
    return "" if name == "token" else str(value).replace("\0", "")[:OBJECT_ID_CHARS]
