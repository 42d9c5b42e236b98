"""Runs that somebody asks for: submitted at once or for later, a schedule's now, a finished one again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from apps.audit.services import Actor, record
from apps.executions.models import Execution
from apps.schedules.defined import version_of
from apps.schedules.input_fields import Fields
from apps.schedules.job_input import MAX_QUEUE_AGE_S
from apps.schedules.locked import lock_schedule
from apps.schedules.policy import overlap as overlap_of
from apps.schedules.running import FIRED_BY_CHARS, JobNow, Run, make_way, payload_of, run_delay, run_start, share_job
from apps.schedules.timing import spec_from_json
from apps.schedules.timing_spec import CHOICES
from apps.schedules.timing_trigger import read_instant
from apps.tickets import store as tickets
from apps.usage import deltas
from apps.usage.admitting import admit_runs
from apps.usage.figures import SKIPPED, Tally
from kernel.errors import Conflict, Faults, FieldError, InvalidInput, NotFound
from kernel.ids import uuid7
from kernel.transitions import FINAL_STATES
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

FIELDS = ("job", "payload", "run_at", "delay_s", "priority", "max_queue_age_s", "labels", "depends_on")
PAST_TOLERANCE = timedelta(seconds=60)  # a slow request, or a clock that is a little off, does not make it "past"
MAX_DELAY_S = 366 * 86_400
SKIPPED_OVERLAP = "overlap_skipped"


@dataclass(frozen=True, slots=True)
class Submission:
    """A valid wish for a run."""

    job_id: UUID
    payload: str | None
    run_at: datetime | None
    priority: int | None
    max_queue_age_s: int | None
    labels: dict[str, str]


def execution_submit(*, tenant: Tenant, actor: Actor, data: Mapping[str, Any], now: datetime) -> UUID:
    """Submits a run of a job and returns the execution's id. InvalidInput with all faults; QuotaExceeded.

    A run of a paused job waits until the job is resumed.
    """
    wish = read_submission(data, now=now, max_payload_bytes=tenant.plan.max_payload_bytes)

    def work() -> UUID:
        job = _job(tenant, wish.job_id)
        run = Run(
            trigger="api", fired_by=actor.stored, payload=wish.payload, priority=wish.priority, labels=wish.labels,
            payload_from="job" if wish.payload is None else "execution", max_queue_age_s=wish.max_queue_age_s,
        )  # fmt: skip
        admit_runs(door.raw(), tenant, 1, now)
        if wish.run_at is not None and wish.run_at > now:
            execution_id = run_delay(tenant, job, run, run_at=wish.run_at, now=now)
        else:
            execution_id = run_start(tenant, job, run, now=now)
        _record(actor, "execution.submit", execution_id, now, tenant, after={"job": str(job.id)})
        return execution_id

    return in_tenant(tenant, work)


def schedule_trigger(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, overlap: str | None = None
) -> UUID:
    """Runs a schedule's job once, now; returns the execution's id. `overlap` takes the place of the schedule's policy.

    Where the policy leaves no room, the execution is made as skipped. Paused and completed schedules run too.
    InvalidInput for a policy that its runs, which do not wait for one another, can't follow; QuotaExceeded.
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
            make_way(tenant, schedule_id, cancels=decided.cancels, now=now, unguarded=spec.overlap == "allow")
        if not decided.starts:
            execution_id = _skip(tenant, job, run, now)
        else:
            execution_id = run_start(tenant, job, run, now=now)
        record(
            actor=actor, action="schedule.trigger", object_type="schedule", object_id=schedule_id, now=now,
            tenant_id=tenant.pk, after={"execution": str(execution_id), **({"overlap": overlap} if overlap else {})},
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


def execution_rerun(*, tenant: Tenant, actor: Actor, execution_id: UUID, now: datetime) -> UUID:
    """Runs a finished execution again as a new one: new run key, same payload, the job as it is now. QuotaExceeded."""

    def work() -> UUID:
        old = Execution.objects.filter(pk=execution_id).first()
        if old is None:
            raise NotFound("There is no such execution.")
        if old.state not in FINAL_STATES:
            raise Conflict("The execution is not finished; cancel it or wait.", code="not_finished")
        job = share_job(tenant, old.job_id)
        source, payload = payload_of(old)
        run = Run(
            trigger="replay", fired_by=actor.stored, payload=payload, payload_from=source, priority=old.priority,
            nominal_at=old.nominal_at, schedule_id=old.schedule_id, schedule_version=old.schedule_version,
            labels=old.labels, replay_of=old.pk,
        )  # fmt: skip
        admit_runs(door.raw(), tenant, 1, now)
        new_id = run_start(tenant, job, run, now=now)
        _record(actor, "execution.rerun", execution_id, now, tenant, after={"execution": str(new_id)})
        return new_id

    return in_tenant(tenant, work)


def read_submission(data: Mapping[str, Any], *, now: datetime, max_payload_bytes: int) -> Submission:
    """Reads the body of a submission. InvalidInput with all faults."""
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(FIELDS)
    if fields.data.get("depends_on") is not None:
        faults.add("/depends_on", "not_available_yet", "Runs that wait for other runs are not available yet.")
    payload = fields.json("payload", max_bytes=max_payload_bytes)
    wish = Submission(
        job_id=fields.id("job") or UUID(int=0),
        payload=None,
        run_at=_run_at(fields, now),
        priority=fields.whole("priority", 0, 9, None),
        max_queue_age_s=fields.whole("max_queue_age_s", 1, MAX_QUEUE_AGE_S, None),
        labels=fields.labels(),
    )
    faults.raise_if_any()
    if payload is None:
        return wish
    text = orjson.dumps(payload).decode()
    return replace(wish, payload=text)


def _run_at(fields: Fields, now: datetime) -> datetime | None:
    at, delay_s = fields.data.get("run_at"), fields.data.get("delay_s")
    if at is not None and delay_s is not None:
        fields.faults.add("/delay_s", "contradiction", "Give run_at or delay_s, not both.")
        return None
    if delay_s is not None:
        seconds = fields.whole("delay_s", 0, MAX_DELAY_S, 0)
        return now + timedelta(seconds=seconds) if seconds else None
    if at is None:
        return None
    instant = read_instant(at, "/run_at", "UTC", fields.faults)
    if instant is not None and instant < now - PAST_TOLERANCE:
        fields.faults.add("/run_at", "past", "lies in the past; leave it out to run at once.")
    elif instant is not None and instant > now + timedelta(seconds=MAX_DELAY_S):
        fields.faults.add("/run_at", "range", "must be at most a year ahead.")
    return instant


def _job(tenant: Tenant, job_id: UUID) -> JobNow:
    try:
        return share_job(tenant, job_id)
    except NotFound as error:
        raise InvalidInput([FieldError("/job", "not_found", "There is no such job.")]) from error


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
