"""Who sees to the failures of one cause in a tenant, so that two operators do not look at the same."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction

from apps.audit.actors import Actor, operator
from apps.audit.services import record
from apps.console.models import Assignment
from apps.console.roles import RESPOND, may
from kernel.errors import Conflict, NotFound
from tenants.models import Tenant

OPERATORS_MOST = 500  # that one chooses from


class Assigned(NamedTuple):
    """The operator's login, and since when."""

    login: str
    since: datetime


def operators() -> list[User]:
    """Those who may see to failures, by login."""
    able = User.objects.with_perm(f"console.{RESPOND}", backend="django.contrib.auth.backends.ModelBackend")
    return list(able.filter(is_staff=True).order_by("username")[:OPERATORS_MOST])


def assigned(fingerprints: Collection[str], *, tenant_id: int | None = None) -> dict[tuple[int, str], Assigned]:
    """By tenant and cause, of one tenant or of all."""
    rows = Assignment.objects.filter(fingerprint__in=list(fingerprints)) if fingerprints else Assignment.objects.none()
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    found = rows.values_list("tenant_id", "fingerprint", "user__username", "assigned_at")
    return {(row[0], row[1]): Assigned(row[2], row[3]) for row in found[:OPERATORS_MOST]}


def assign(*, tenant: Tenant, fingerprint: str, login: str, actor: Actor, now: datetime) -> None:
    """From now on this operator sees to it, whoever did before. NotFound for a login that may not."""
    with transaction.atomic():
        user = User.objects.filter(username=login, is_staff=True, is_active=True).first()
        if user is None or not may(user, RESPOND):
            raise NotFound("There is no operator of that login who may see to it.")
        before = _locked(tenant, fingerprint)
        Assignment.objects.update_or_create(
            tenant_id=tenant.pk, fingerprint=fingerprint, defaults={"user": user, "assigned_at": now}
        )
        record(
            actor=actor, action="deadletters.assign", object_type="deadletters", object_id=fingerprint, now=now,
            tenant_id=tenant.pk, before={"operator": before.user_id} if before else None,
            after={"operator": user.pk}, about=operator(user.pk), personal={"name": login},
        )  # fmt: skip


def unassign(*, tenant: Tenant, fingerprint: str, actor: Actor, now: datetime) -> None:
    """Nobody in particular sees to it. Conflict when nobody did."""
    with transaction.atomic():
        before = _locked(tenant, fingerprint)
        if before is None:
            raise Conflict("It is not assigned to anybody.")
        Assignment.objects.filter(tenant_id=tenant.pk, fingerprint=fingerprint).delete()
        record(
            actor=actor, action="deadletters.unassign", object_type="deadletters", object_id=fingerprint, now=now,
            tenant_id=tenant.pk, before={"operator": before.user_id},
        )  # fmt: skip


def _locked(tenant: Tenant, fingerprint: str) -> Assignment | None:
    return Assignment.objects.select_for_update().filter(tenant_id=tenant.pk, fingerprint=fingerprint).first()
