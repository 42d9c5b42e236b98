"""Placing legal holds and releasing them."""

from datetime import datetime
from typing import Any
from uuid import UUID

from apps.archive.finding import execution_find
from apps.archive.models import SCOPES, LegalHold
from apps.audit.services import Actor, record
from apps.executions.models import Execution
from apps.schedules.input_fields import Fields
from apps.schedules.models import Job, Schedule
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Conflict, Faults, Forbidden, NotFound
from kernel.ids import uuid7
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

OPEN_MOST = 1_000  # of a tenant: everything that deletes looks at each
REASON_CHARS = 500
WORKFLOW = "workflow"  # kind of the jobs that workflows are

# The deletion of a tenant locks its row for update, looks for holds and then removes. Whoever waited for that asks with
# a time that has passed.
_STAYS = "SELECT 1 FROM public.tenants_tenant WHERE id = %s FOR KEY SHARE"
_REMOVED = "SELECT delete_after <= greatest(%s, clock_timestamp()) FROM public.tenants_tenant WHERE id = %s"


def hold_place(*, tenant: Tenant, actor: Actor, data: Any, now: datetime, by_operator: bool = False) -> LegalHold:
    """Places a hold: when it returns nothing of what it names can be deleted any more.

    `data` is {"scope", "object", "from_at", "until_at", "reason"}; the two instants narrow it to executions that were
    made in [from_at, until_at). It waits for the batch that is being deleted. InvalidInput; Conflict when the tenant's
    data are being removed, or it has too many holds; what `archive.reading` raises when a file can't be read.
    """

    def work() -> LegalHold:
        form = _read(tenant, data)
        conn = door.raw()
        conn.execute(_STAYS, [tenant.pk])
        found = conn.execute(_REMOVED, [now, tenant.pk]).fetchone()
        if found is None or found[0]:
            raise Conflict("The tenant's data are being removed.", code="grace_over")
        if LegalHold.objects.filter(released_at=None).count() >= OPEN_MOST:
            raise Conflict(f"There are {OPEN_MOST:,} open holds; release some.", code="too_many_holds")
        made = LegalHold.objects.create(
            id=uuid7(), **form, by_operator=by_operator, created_by=actor.stored, created_at=now
        )
        shown = {name: str(value) for name, value in form.items() if value is not None and name != "reason"}
        record(
            actor=actor, action="hold.create", object_type="hold", object_id=made.pk, now=now, tenant_id=tenant.pk,
            after=shown, reason=made.reason,
        )  # fmt: skip
        return made

    return in_tenant(tenant, work)


def hold_release(
    *, tenant: Tenant, actor: Actor, hold_id: UUID, reason: str, now: datetime, by_operator: bool = False
) -> LegalHold:
    """Releases a hold; what is old enough goes with the next runs of what deletes. NotFound; Conflict when it is
    released; Forbidden when an operator placed it and this is none."""

    def work() -> LegalHold:
        found = LegalHold.objects.filter(pk=hold_id).first()
        if found is None:
            raise NotFound("There is no such legal hold.")
        if found.by_operator and not by_operator:
            raise Forbidden("An operator placed this hold; only an operator can release it.", code="hold_of_operator")
        released = {"released_at": now, "released_by": actor.stored, "released_reason": reason}
        if not LegalHold.objects.filter(pk=hold_id, released_at=None).update(**released):
            raise Conflict("The hold is released already.", code="already_released")
        record(
            actor=actor, action="hold.release", object_type="hold", object_id=hold_id, now=now, tenant_id=tenant.pk,
            reason=reason,
        )  # fmt: skip
        return LegalHold.objects.get(pk=hold_id)

    return in_tenant(tenant, work)


def _read(tenant: Tenant, data: Any) -> dict[str, Any]:
    """The columns of a new hold. InvalidInput with all faults."""
    fields = Fields(data, faults := Faults())
    fields.only(("scope", "object", "from_at", "until_at", "reason"))
    scope = fields.choice("scope", SCOPES)
    reason = fields.text("reason", most=REASON_CHARS, required=True, lines=True)
    object_id = None
    if scope == "tenant":
        if fields.data.get("object") is not None:
            faults.add("/object", "contradiction", "The tenant itself is held: leave it out.")
    elif scope in SCOPES and fields.data.get("object") is None:
        faults.add("/object", "required", f"This field is required: the id of the {scope}.")
    elif scope in SCOPES:
        object_id = fields.id("object")
        if object_id is not None and not _exists(tenant, scope, object_id):
            faults.add("/object", "not_found", f"There is no such {scope}.")
    instants = {
        name: None if (given := fields.data.get(name)) is None else read_instant(given, f"/{name}", "UTC", faults)
        for name in ("from_at", "until_at")
    }
    from_at, until_at = instants.values()
    if from_at is not None and until_at is not None and from_at >= until_at:
        faults.add("/until_at", "contradiction", "must be later than from_at.")
    faults.raise_if_any()
    return {"scope": scope, "object_id": object_id, "reason": reason, **instants}


def _exists(tenant: Tenant, scope: str, object_id: UUID) -> bool:
    """What is deleted counts, too: its history is there."""
    if scope == "schedule":
        return Schedule.objects.filter(pk=object_id).exists()
    if scope == "execution":
        return Execution.objects.filter(pk=object_id).exists() or execution_find(tenant, object_id) is not None
    jobs = Job.objects.filter(pk=object_id)
    return (jobs.filter(kind=WORKFLOW) if scope == "workflow" else jobs).exists()
