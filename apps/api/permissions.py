"""The table of `tenants.permissions` at the API's door. A refused attempt is 403 and noted in the audit trail."""

from typing import TYPE_CHECKING, Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.api.refusals import object_of
from apps.audit.services import Actor, record
from kernel.errors import Forbidden
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
        if action is None or may(actor, action):  # a method without an action is answered with 405
            return True
        narrowed = role_reaches(actor.role, action)
        object_type, _, _ = action.partition(".")
        record(
            actor=actor, action=action, object_type=object_type, object_id=object_of(view.kwargs),
            now=endpoint.now, tenant_id=actor.tenant_id, allowed=False,
            reason=f"scope {action}" if narrowed else f"role {actor.role}",
        )  # fmt: skip
        if narrowed:
            raise Forbidden(f"No scope of the key names {action}.", code="scope_missing", needs=action)
        least = LEAST_ROLE[action]
        raise Forbidden(f"This needs the role {least}; the key has {actor.role}.", code="role_too_low", needs=least)
