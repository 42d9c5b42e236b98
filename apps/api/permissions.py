"""The table of `tenants.permissions` at the API's door. A refused attempt is 403 and noted in the audit trail."""

from typing import TYPE_CHECKING, Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.api.refusals import NotAllowed
from apps.audit.services import Actor
from tenants.permissions import LEAST_ROLE, may, role_reaches

if TYPE_CHECKING:
    from apps.api.endpoint import Endpoint


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
    """Forbidden, and noted in the end, when role and scopes do not reach for an action."""
    if may(actor, action):
        return
    if role_reaches(actor.role, action):
        raise NotAllowed(action, f"scope {action}", f"No scope of the key names {action}.", "scope_missing", action)
    least, reason = LEAST_ROLE[action], f"role {actor.role}"
    raise NotAllowed(
        action, reason, f"This needs the role {least}; the key has {actor.role}.", "role_too_low", least
    )  # fmt: skip
