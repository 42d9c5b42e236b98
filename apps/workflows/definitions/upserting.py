"""Workflows by their owner's own id, as jobs and schedules have it (`apps.schedules.upserting`)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from apps.audit.services import Actor
from apps.schedules.locked_jobs import shown
from apps.schedules.upserting import ANY, Condition, put_one, with_external_id
from apps.workflows.definitions.defined import DefinedWorkflow
from apps.workflows.definitions.services import workflow_create, workflow_replace
from tenants.models import Tenant


def workflow_put(
    *, tenant: Tenant, actor: Actor, external_id: str, data: Any, now: datetime, only: Condition = ANY,
    may_create: Callable[[], None] = lambda: None,
) -> tuple[DefinedWorkflow, bool]:  # fmt: skip
    """The workflow of this external id as `data` says, and whether it was made. Stale when `only` does not hold.

    `may_create` raises when the caller may only change. The rest as `workflow_create` and `workflow_replace`.
    """
    given = with_external_id(data, external_id)
    return put_one(
        tenant, only, may_create,
        find=lambda: shown("workflow").filter(external_id=external_id).values_list("pk", flat=True).first(),
        create=lambda: workflow_create(tenant=tenant, actor=actor, data=given, now=now),
        replace=lambda pk: workflow_replace(
            tenant=tenant, actor=actor, workflow_id=pk, data=given, now=now, expect=only.revisions
        ),
    )  # fmt: skip
