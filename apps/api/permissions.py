"""Who may do what: one table. A refused attempt is answered with 403 and noted in the audit trail."""

from typing import TYPE_CHECKING, Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.audit.services import Actor, record
from kernel.errors import Forbidden

if TYPE_CHECKING:
    from apps.api.endpoint import Endpoint

ROLES = ("viewer", "editor", "operator", "admin")  # each may do what those before it may

LEAST_ROLE = {
    "job.read": "viewer",
    "job.create": "editor",
    "job.update": "editor",
    "job.delete": "editor",
    "job.pause": "editor",
    "job.resume": "editor",
    "schedule.read": "viewer",
    "schedule.preview": "viewer",
    "schedule.create": "editor",
    "schedule.update": "editor",
    "schedule.delete": "editor",
    "schedule.pause": "editor",
    "schedule.resume": "editor",
    "schedule.trigger": "editor",
    "calendar.read": "viewer",
    "calendar.create": "editor",
    "calendar.update": "editor",
    "calendar.delete": "editor",
    "secret.read": "viewer",
    "secret.create": "editor",
    "secret.update": "editor",
    "secret.delete": "editor",
    "signing.read": "viewer",
    "signing.rotate": "admin",
    "breaker.read": "viewer",
    "breaker.reset": "operator",
    "execution.read": "viewer",
    "execution.submit": "editor",
    "execution.cancel": "operator",
    "execution.rerun": "operator",
    "deadletter.read": "viewer",
    "deadletter.replay": "operator",
    "deadletter.resolve": "operator",
    "execution.complete": "operator",
    "queue.read": "viewer",
    "queue.pause": "editor",
    "queue.resume": "editor",
    "queue.work": "operator",
    "apikey.read": "admin",
    "apikey.create": "admin",
    "apikey.revoke": "admin",
}


# Roles beside the ladder: for programs that do one thing. The token of a run is such a role, too.
NARROW = {
    "worker": frozenset({"queue.read", "queue.work"}),
    "completion": frozenset({"execution.complete"}),
}
KEY_ROLES = ("worker", *ROLES)  # what a key may have
OBJECT_ID_CHARS = 64  # of the audit trail


def may(actor: Actor, action: str) -> bool:
    """Whether the actor's role reaches for this action. Unknown roles may nothing."""
    if actor.role in NARROW:
        return action in NARROW[actor.role]
    return actor.role in ROLES and ROLES.index(actor.role) >= ROLES.index(LEAST_ROLE[action])


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
        object_type, _, _ = action.partition(".")
        record(
            actor=actor, action=action, object_type=object_type, object_id=_object_of(view.kwargs),
            now=endpoint.now, tenant_id=actor.tenant_id, allowed=False, reason=f"role {actor.role}",
        )  # fmt: skip
        least = LEAST_ROLE[action]
        raise Forbidden(f"This needs the role {least}; the key has {actor.role}.", code="role_too_low", needs=least)


def _object_of(kwargs: dict[str, Any]) -> str:
    """What the trail says that it was about: never a token, and no more than it can hold."""
    name, value = next(iter(kwargs.items()), ("", ""))
    return "" if name == "token" else str(value).replace("\0", "")[:OBJECT_ID_CHARS]
