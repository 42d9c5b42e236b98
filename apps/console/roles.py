"""Who may do what in the console: five roles, each a group of Django's of that name.

A role is a set of levels; a verb and a page name the level that they take. What the stock admin pages show and change
follows from Django's own permissions, which the groups hold, too. They are written again by every migration of the
shared schema: whoever needs something else makes a group of another name.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q

from apps.audit.actors import Actor, operator
from apps.audit.services import record
from kernel.errors import NotFound

VIEW, RESPOND, OPERATE, PLATFORM, AUDIT = LEVELS = ("view", "respond", "operate", "platform", "audit")
ROLES: dict[str, tuple[str, ...]] = {
    "viewer": (VIEW,),
    "responder": (VIEW, RESPOND),
    "operator": (VIEW, RESPOND, OPERATE),
    "platform": (VIEW, RESPOND, OPERATE, PLATFORM),
    "auditor": (VIEW, AUDIT),
}
_OPERATORS_OWN = ("auth", "admin", "contenttypes", "sessions", "console")  # who is an operator: superusers alone
_NEVER_CHANGED = ("audit",)
# What each level may do on the stock pages, besides looking.
_STOCK = {
    RESPOND: Q(codename__in=("change_ticket", "change_breaker", "change_dueentry", "change_deadletter")),
    OPERATE: Q(codename__in=("change_tenant", "change_periodictask", "change_schedule", "change_webhook"))
    | Q(content_type__app_label="operations")
    | Q(content_type__app_label="tenants", content_type__model__in=("plan", "planpool")),
    PLATFORM: ~Q(content_type__app_label__in=(*_OPERATORS_OWN, *_NEVER_CHANGED)),
}


def may(user: Any, level: str) -> bool:
    """Whether somebody's roles have the level. Superusers have all."""
    return bool(user.is_active and user.is_staff and user.has_perm(f"console.{level}"))


def lacks(user: Any, level: str) -> str:
    """Why somebody may not do what takes the level; empty when they may."""
    if may(user, level):
        return ""
    able = [name for name, levels in ROLES.items() if level in levels]
    return f"Your role may not do this. It takes: {' or '.join(able)}."


def roles_of(user: Any) -> list[str]:
    """The roles that somebody has, in the order of ROLES."""
    held = set(user.groups.values_list("name", flat=True))
    return [name for name in ROLES if name in held]


def roles_give(*, login: str, roles: Sequence[str], actor: Actor, now: datetime) -> tuple[list[str], list[str]]:
    """Gives an operator just these roles, with an audit row; returns those of before and of now. NotFound."""
    with transaction.atomic():
        user = User.objects.select_for_update().filter(username=login, is_staff=True).first()
        if user is None:
            raise NotFound(f"There is no staff user {login!r}; make one with createsuperuser or in the admin.")
        before, after = roles_of(user), [name for name in ROLES if name in roles]
        if before != after:
            user.groups.remove(*Group.objects.filter(name__in=before))
            user.groups.add(*Group.objects.filter(name__in=after))
            record(
                actor=actor, action="operator.roles", object_type="user", object_id=user.pk, now=now, tenant_id=None,
                before={"roles": before}, after={"roles": after}, about=operator(user.pk), personal={"name": login},
            )  # fmt: skip
    return before, after


def roles_make(*, using: str = "default") -> None:
    """Makes the groups, and gives each the permissions that there are now."""
    for config in apps.get_app_configs():
        create_permissions(config, verbosity=0, using=using)
    for name, levels in ROLES.items():
        group, _ = Group.objects.using(using).get_or_create(name=name)
        group.permissions.set(_permissions(levels, using))


def _permissions(levels: Iterable[str], using: str) -> list[Permission]:
    wanted = Q(content_type__app_label="console", codename__in=list(levels))
    wanted |= Q(codename__startswith="view_") & ~Q(content_type__app_label__in=_OPERATORS_OWN)
    for level in levels:
        wanted |= _STOCK.get(level, Q(pk__in=[]))
    return list(Permission.objects.using(using).filter(wanted))
