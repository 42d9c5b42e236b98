"""Runs that somebody asks for: a schedule's now, a finished one again. What is submitted is in `submission`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.executions.erasures import refuse_erased
from apps.executions.models import Execution
from apps.outcomes.again import UNCHANGED, How, start_new
from apps.outcomes.replay import check_payload
from apps.schedules.defined import version_of
from apps.schedules.locked import lock_schedule
from apps.schedules.policy import overlap as overlap_of
from apps.schedules.running import FIRED_BY_CHARS, JobNow, Run, make_way, run_start, share_job
from apps.schedules.timing import spec_from_json
from apps.schedules.timing_spec import CHOICES
from apps.tickets import store as tickets
from apps.usage import deltas
from apps.usage.admitting import admit_runs
from apps.usage.figures import SKIPPED, Tally
from apps.workflows.dependencies.depending import dependents_decide
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound
from kernel.ids import uuid7
from kernel.transitions import FINAL_STATES
from tenants import door
from tenants.models import Tenant
from tenants.registry import tenancy_of
from tenants.work import in_tenant

SKIPPED_OVERLAP = "overlap_skipped"


def schedule_trigger(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, overlap: str | None = None, reason: str = ""
) -> UUID:
    """Runs a schedule's job once, now; returns the execution's id. `overlap` takes the place of the schedule's policy.

    Where the policy leaves no room, the execution is made as skipped. Paused and completed schedules run too.
    InvalidInput for a policy that its runs, which do not wait for one another, can't follow; QuotaExceeded.
    `reason` is for the trail.
    """

    def work() -> UUID:
        _, schedule = lock_schedule(schedule_id, now=now)  # fire and other triggers take turns
        definition = version_of(schedule)
        job = share_job(tenant, schedule.job_id)
        spec = spec_from_json(definition.spec)
        chosen = _overlap(spec.overlap, overlap)
        run = Run(
            trigger="manual", fired_by=actor.stored, schedule_id=schedule_id, schedule_version=definition.version,
            payload_from="schedule" if definition.own_payload else "job",
            guarded=spec.overlap != "allow" and chosen != "allow",
            max_queue_age_s=definition.definition.get("max_queue_age_s"),
        )  # fmt: skip
        conn = door.raw()
        if chosen == "allow":
            alive = 0
        elif spec.overlap == "allow":
            alive = tickets.alive_of_schedule(conn, schedule_id)
        else:
            alive = tickets.alive_of_schedules(conn, [schedule_id]).get(schedule_id, 0)
        decided = overlap_of(chosen, new=1, live=alive, buffer=spec.overlap_max)
        if decided.starts:
            admit_runs(conn, tenant, 1, now)
        if decided.replaces:
            ended = make_way(tenant, schedule_id, cancels=decided.cancels, now=now, unguarded=spec.overlap == "allow")
            if ended:
                dependents_decide(conn, tenancy_of(tenant), ended, now)
        if not decided.starts:
            execution_id = _skip(tenant, job, run, now)
        else:
            execution_id = run_start(tenant, job, run, now=now)
        record(
            actor=actor, action="schedule.trigger", object_type="schedule", object_id=schedule_id, now=now,
            tenant_id=tenant.pk, after={"execution": str(execution_id), **({"overlap": overlap} if overlap else {})},
            reason=reason,
        )  # fmt: skip
        return execution_id

    return in_tenant(tenant, work)


def _overlap(own: str, asked: str | None) -> str:
    if asked is None:
        return own
    if asked not in CHOICES["overlap"]:
        raise InvalidInput([FieldError("/overlap", "choice", f"must be one of {', '.join(CHOICES['overlap'])}.")])
    if own == "allow" and asked not in ("allow", "skip", "replace_pending"):
        detail = (
            f"{asked!r} lets the new run wait for the others, but this schedule's overlap is 'allow': its runs wait "
            "for nothing. Use 'allow', 'skip' or 'replace_pending', or change the schedule."
        )
        raise InvalidInput([FieldError("/overlap", "contradiction", detail)])
    return asked


def execution_rerun(
    *, tenant: Tenant, actor: Actor, execution_id: UUID, now: datetime, payload: Any = UNCHANGED
) -> UUID:  # fmt: skip
    """Runs a finished execution again as a new one: new run key, same payload, the job as it is now. QuotaExceeded.

    A `payload` takes the place of the one that it had, None that of the job's; InvalidInput for one that can't be kept.
    That of a step of a workflow runs alone: its run takes no notice. To go on with the run, its verbs are for.
    """
    other = payload is not UNCHANGED
    if other and (faults := check_payload(payload, tenant.plan.max_payload_bytes)):
        raise InvalidInput(faults)

    def work() -> UUID:
        old = Execution.objects.filter(pk=execution_id).first()
        if old is None:
            raise NotFound("There is no such execution.")
        if old.state not in FINAL_STATES:
            raise Conflict("The execution is not finished; cancel it or wait.", code="not_finished")
        refuse_erased(door.raw(), tenant.schema_name, [execution_id])
        job = share_job(tenant, old.job_id, inside=True)
        admit_runs(door.raw(), tenant, 1, now)
        new_id = start_new(tenant, actor, {job.id: job}, [old], How(payload=payload), now)[0].execution_id
        after = {"execution": str(new_id), **({"new_payload": True} if other else {})}
        _record(actor, "execution.rerun", execution_id, now, tenant, after=after)
        return new_id

    return in_tenant(tenant, work)


def _skip(tenant: Tenant, job: JobNow, run: Run, now: datetime) -> UUID:
    """The execution that says why there was none. It is no occurrence, so it has no nominal instant."""
    execution_id = uuid7()
    tally = Tally()
    tally.add(tenant.pk, SKIPPED)
    deltas.add(door.raw(), tally, now=now)
    Execution.objects.create(
        id=execution_id, run_key=execution_id.hex, job_id=job.id, job_version=job.version,
        schedule_id=run.schedule_id, schedule_version=run.schedule_version, trigger=run.trigger, state="skipped",
        priority=job.priority, actual_at=now, created_at=now, finished_at=now, reason=SKIPPED_OVERLAP,
        fired_by=run.fired_by[:FIRED_BY_CHARS],
    )  # fmt: skip
    return execution_id


def _record(actor: Actor, action: str, execution_id: UUID, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="execution", object_id=execution_id, now=now, tenant_id=tenant.pk,
        **more,
    )  # fmt: skip
