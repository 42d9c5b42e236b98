"""Giving a tenant another plan or worker group; what it is called is `tenants.renaming`."""

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator

from apps.audit.services import Actor, record
from kernel.errors import FieldError, InvalidInput
from tenants.models import GROUP_PATTERN, Plan, Tenant
from tenants.work import atomically


def tenant_change(
    *, tenant: Tenant, plan: Plan | None, worker_group: str | None, actor: Actor, now: datetime, reason: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What it had and what it has; None keeps. InvalidInput for what is no group's name."""
    if worker_group:
        try:
            RegexValidator(GROUP_PATTERN)(worker_group)
        except ValidationError:
            raise InvalidInput([FieldError("/worker_group", "invalid", "is no name of a worker group.")]) from None

    def work() -> tuple[dict[str, Any], dict[str, Any]]:
        found = Tenant.objects.select_for_update(of=("self",)).select_related("plan").filter(pk=tenant.pk).get()
        before = {"plan": found.plan.name, "worker_group": found.worker_group}
        found.plan = plan or found.plan
        found.worker_group = found.worker_group if worker_group is None else worker_group
        after = {"plan": found.plan.name, "worker_group": found.worker_group}
        if after != before:
            found.save(update_fields=["plan", "worker_group"])
            record(
                actor=actor, action="tenant.update", object_type="tenant", object_id=found.pk, now=now,
                tenant_id=found.pk, before=before, after=after, reason=reason,
            )  # fmt: skip
        return before, after

    return atomically(work)
