"""Who may do what: one table of roles, and scopes that narrow it. Pure; the API, the portal and services ask it.

An action is `<object>.<verb>`. A scope is an action, `<object>.*`, or `*.<verb>`; whoever has scopes may do what the
role reaches for and a scope names. No scopes at all (None) is the whole role.
"""

from collections.abc import Collection, Iterable
from typing import Protocol

ROLES = ("viewer", "editor", "operator", "admin")  # each may do what those before it may

LEAST_ROLE = {
    "job.read": "viewer",
    "job.create": "editor",
    "job.update": "editor",
    "job.delete": "editor",
    "job.pause": "editor",
    "job.resume": "editor",
    "workflow.read": "viewer",
    "workflow.preview": "viewer",
    "workflow.create": "editor",
    "workflow.update": "editor",
    "workflow.delete": "editor",
    "workflow.pause": "editor",
    "workflow.resume": "editor",
    "workflow.run": "editor",
    "workflowrun.read": "viewer",
    "workflowrun.cancel": "operator",
    "workflowrun.pause": "operator",
    "workflowrun.resume": "operator",
    "workflowrun.retry": "operator",
    "workflowrun.rerun": "operator",
    "workflowrun.skip": "operator",
    "workflowrun.force": "operator",
    "workflowrun.approve": "editor",  # or what the approval itself asks for, when that is more
    "workflowrun.reject": "editor",
    "schedule.read": "viewer",
    "schedule.preview": "viewer",
    "schedule.create": "editor",
    "schedule.update": "editor",
    "schedule.delete": "editor",
    "schedule.pause": "editor",
    "schedule.resume": "editor",
    "schedule.trigger": "editor",
    "schedule.repair": "operator",
    "schedule.backfill": "operator",
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
    "operation.read": "viewer",
    "operation.pause": "editor",  # these also take what its items need: apps.operations.access
    "operation.resume": "editor",
    "operation.cancel": "editor",
    "operation.undo": "editor",
    "operation.update": "editor",
    "execution.erase": "admin",  # it can't be undone
    "deadletter.read": "viewer",
    "deadletter.replay": "operator",
    "deadletter.resolve": "operator",
    "deadletter.reopen": "operator",
    "execution.complete": "operator",
    "queue.read": "viewer",
    "queue.pause": "editor",
    "queue.resume": "editor",
    "queue.work": "operator",
    "hold.read": "admin",  # it says what somebody is suspected of
    "hold.create": "admin",
    "hold.release": "admin",
    "usage.read": "viewer",
    "audit.read": "admin",  # it says of persons where they were
    "event.read": "viewer",
    "webhook.read": "viewer",
    "webhook.create": "admin",  # it carries what happens here to the outside
    "webhook.update": "admin",
    "webhook.delete": "admin",
    "webhook.rotate": "admin",
    "webhook.test": "operator",
    "webhook.replay": "operator",
    "apikey.read": "admin",
    "apikey.create": "admin",
    "apikey.rotate": "admin",
    "apikey.revoke": "admin",
    "member.read": "admin",
    "member.update": "admin",
    "member.remove": "admin",
    "member.reset": "admin",
    "member.sign_out": "admin",
    "provider.read": "admin",
    "provider.update": "admin",
    "provider.delete": "admin",
    "invitation.read": "admin",
    "invitation.create": "admin",
    "invitation.revoke": "admin",
}


# Roles beside the ladder: for programs that do one thing. The token of a run is such a role, too.
NARROW = {
    "worker": frozenset({"queue.read", "queue.work"}),
    "completion": frozenset({"execution.complete"}),
}
KEY_ROLES = ("worker", *ROLES)  # what a key may have


class Subject(Protocol):
    """Whoever asks, as far as this table is concerned: an `apps.audit.services.Actor`."""

    @property
    def role(self) -> str: ...
    @property
    def scopes(self) -> Collection[str] | None: ...


def may(subject: Subject, action: str) -> bool:
    """Whether role and scopes reach for this action. Unknown roles may nothing."""
    return role_reaches(subject.role, action) and scopes_reach(subject.scopes, action)


def role_reaches(role: str, action: str) -> bool:
    """Whether a role alone reaches for an action."""
    if role in NARROW:
        return action in NARROW[role]
    return role in ROLES and ROLES.index(role) >= ROLES.index(LEAST_ROLE[action])


def scopes_reach(scopes: Collection[str] | None, action: str) -> bool:
    """Whether scopes name an action; None does not narrow."""
    if scopes is None:
        return True
    thing, _, verb = action.partition(".")
    return action in scopes or f"{thing}.*" in scopes or f"*.{verb}" in scopes


def known_scopes() -> list[str]:
    """Every scope that names something, sorted."""
    parts = [action.partition(".") for action in LEAST_ROLE]
    return sorted({*LEAST_ROLE, *(f"{thing}.*" for thing, _, _ in parts), *(f"*.{verb}" for _, _, verb in parts)})


def actions_of(*, role: str, scopes: Collection[str] | None = None) -> frozenset[str]:
    """All that a role may do within scopes."""
    return frozenset(one for one in LEAST_ROLE if role_reaches(role, one) and scopes_reach(scopes, one))


def may_grant(subject: Subject, *, role: str, scopes: Iterable[str] | None) -> bool:
    """Whether what is granted is no more than the subject may itself: nobody hands out what they lack."""
    own = actions_of(role=subject.role, scopes=subject.scopes)
    given = actions_of(role=role, scopes=None if scopes is None else frozenset(scopes))
    if subject.scopes is not None and scopes is None:
        return False  # an action that comes with a later version would be in the role and in no scope of the granter
    return given <= own
