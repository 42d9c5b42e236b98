"""Suspending a tenant and letting it go on. While it stands still no time passes for what waits.

What runs goes on to its end, and whoever holds it may say how that went. Nothing else of the tenant starts, and its
keys and logins are refused. What its schedules pass over is a row each, so nothing is owed when it goes on.
"""

from datetime import datetime
from typing import Any

from apps.audit.services import Actor, record
from apps.tickets import resting as tickets
from apps.webhooks import outcome as webhooks
from apps.workflows.runs import resting as runs
from kernel.errors import Conflict, FieldError, InvalidInput
from tenants import door, suspension
from tenants.models import Suspension, Tenant
from tenants.suspension import Span
from tenants.work import Again, atomically

REASON_CHARS = 500
Status = Tenant.Status


def tenant_suspend(*, tenant: Tenant, actor: Actor, now: datetime, reason: str = "") -> Tenant:
    """Stops a tenant. Asked again, nothing changes. Conflict when it is not there yet or is being deleted."""
    if len(reason) > REASON_CHARS:
        raise InvalidInput([FieldError("/reason", "too_long", f"has at most {REASON_CHARS} characters.")])

    def work() -> Tenant:
        rows = Tenant.objects.select_for_update(of=("self",)).select_related("plan")
        found = _checked(rows.filter(pk=tenant.pk).first())
        if found.status == Status.SUSPENDED:
            return found
        found.status = Status.SUSPENDED
        found.save(update_fields=["status"])
        suspension.begin(found, now=now, reason=reason)
        _record(actor, "tenant.suspend", found, now, {"status": Status.ACTIVE}, {"status": found.status}, reason)
        return found

    return atomically(work)


def tenant_resume(*, tenant: Tenant, actor: Actor, now: datetime, reason: str = "") -> Tenant:
    """Lets a tenant go on. Asked again, nothing changes. Conflict as for `tenant_suspend`.

    One transaction: what waits of it has its limits moved, and its runs of workflows are looked at.
    """

    def work() -> Tenant:
        # One at a time. The tenant's own row comes last: whoever releases other tenants' runs may have to lock it, too,
        # and must not wait while the limits of many tickets are moved.
        list(Suspension.objects.select_for_update().filter(tenant=tenant, ended_at=None))
        found = _checked(Tenant.objects.select_related("plan").filter(pk=tenant.pk).first())
        if found.status == Status.ACTIVE:
            return found
        span = suspension.end(found, now=now)
        _let_time_go_on(found, span)
        if not Tenant.objects.filter(pk=found.pk, status=Status.SUSPENDED).update(status=Status.ACTIVE):
            raise Again
        found.status = Status.ACTIVE
        after = {"status": found.status, "suspended_since": span.since.isoformat() if span else None}
        _record(actor, "tenant.resume", found, now, {"status": Status.SUSPENDED}, after, reason)
        return found

    return atomically(work)


def _let_time_go_on(tenant: Tenant, span: Span | None) -> None:
    conn, schema = door.raw(), tenant.schema_name
    if span is not None:
        runs.go_on(conn, schema, since=span.since, until=span.until)
        tickets.go_on(conn, tenant_id=tenant.pk, since=span.since, until=span.until)
    tickets.look_at_runs(conn, tenant_id=tenant.pk)
    if span is not None:
        webhooks.go_on(conn, schema, since=span.since, until=span.until)


def _checked(found: Tenant | None) -> Tenant:
    """A tenant that is active or suspended."""
    if found is None or found.status not in (Status.ACTIVE, Status.SUSPENDED):
        status = "gone" if found is None else found.status
        hint = "; keep it first (tenant_delete --undo)" if status == Status.DELETING else ""
        raise Conflict(f"The tenant is {status}{hint}.", code="tenant_not_active")
    return found


def _record(
    actor: Actor, action: str, tenant: Tenant, now: datetime, before: dict[str, Any], after: dict[str, Any], reason: str
) -> None:
    record(
        actor=actor, action=action, object_type="tenant", object_id=tenant.pk, now=now, tenant_id=tenant.pk,
        before=before, after=after, reason=reason,
    )  # fmt: skip
