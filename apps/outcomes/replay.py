"""Dead letters: replayed (the same execution, or a new one with another payload) or resolved with a note."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from psycopg import sql

from apps.audit.services import Actor, record
from apps.deadletters import store as deadletters
from apps.deadletters.models import DeadLetter
from apps.executions import store as executions
from apps.executions.models import Execution
from apps.schedules.input_fields import json_bytes
from apps.schedules.models import ScheduleVersion
from apps.schedules.running import JobNow, Run, payload_of, run_start, share_job, ticket_add
from apps.schedules.timing import TimingInvalid, spec_from_json
from apps.usage.admitting import admit_runs
from apps.workflows.interventions.verbs import run_retry
from apps.workflows.models import Run as WorkflowRun
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound
from kernel.jsonrules import value_faults
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

UNCHANGED = object()

_NEW_VERSION = "UPDATE {schema}.executions_execution SET job_version = %s WHERE id = %s"


def deadletter_replay(
    *, tenant: Tenant, actor: Actor, letter_id: UUID, now: datetime, payload: Any = UNCHANGED, note: str = ""
) -> UUID:
    """Runs a dead execution again with the job as it is now; returns the id of the execution that runs.

    With its payload unchanged the execution is reopened: same run key, attempts go on, the retry policy starts anew. Of
    a workflow's run what failed runs again. Another payload makes a new execution with a new run key. NotFound;
    Conflict when the letter is not open; QuotaExceeded.
    """
    if payload is not UNCHANGED:
        _check_payload(payload, tenant.plan.max_payload_bytes)

    def work() -> UUID:
        if payload is UNCHANGED and (run_id := _workflow_run(letter_id)) is not None:
            run_retry(tenant=tenant, actor=actor, run_id=run_id, now=now, reason=note)  # closes the letter
            _record(actor, "deadletter.replay", letter_id, now, tenant, after={"execution": str(run_id)}, reason=note)
            return run_id
        execution_id = _close(tenant, actor, letter_id, now, "replayed", note)
        old = Execution.objects.filter(pk=execution_id).first()
        if old is None:
            raise Conflict("The execution of this dead letter is not kept any more.", code="execution_gone")
        job = _job(tenant, old)
        admit_runs(door.raw(), tenant, 1, now)
        if payload is UNCHANGED:
            _reopen(tenant, job, old, now)
            runs = execution_id
        else:
            runs = run_start(tenant, job, _edited(actor, old, payload), now=now)
        _record(actor, "deadletter.replay", letter_id, now, tenant, after={"execution": str(runs)}, reason=note)
        return runs

    return in_tenant(tenant, work)


def deadletter_resolve(*, tenant: Tenant, actor: Actor, letter_id: UUID, now: datetime, note: str = "") -> None:
    """Closes a dead letter without a run. NotFound; Conflict when it is not open."""

    def work() -> None:
        _close(tenant, actor, letter_id, now, "resolved", note)
        _record(actor, "deadletter.resolve", letter_id, now, tenant, reason=note)

    in_tenant(tenant, work)


def _close(tenant: Tenant, actor: Actor, letter_id: UUID, now: datetime, resolution: str, note: str) -> UUID:
    execution_id = deadletters.resolve(
        door.raw(), tenant.schema_name, letter_id, resolution=resolution, now=now, note=note, by=actor.stored
    )
    if execution_id is None:
        letter = DeadLetter.objects.filter(pk=letter_id).only("resolution").first()
        if letter is None:
            raise NotFound("There is no such dead letter.")
        raise Conflict(f"The dead letter is not open: it was {letter.resolution}.", code="not_open")
    return execution_id


def _workflow_run(letter_id: UUID) -> UUID | None:
    """The run that an open letter is of, when it is one of a workflow that has begun."""
    letter = DeadLetter.objects.filter(pk=letter_id, resolved_at=None).only("execution_id").first()
    if letter is None or not WorkflowRun.objects.filter(pk=letter.execution_id).exists():
        return None
    return letter.execution_id


def _job(tenant: Tenant, old: Execution) -> JobNow:
    try:
        return share_job(tenant, old.job_id, inside=True)
    except NotFound as error:
        raise Conflict("The job of this execution is deleted; it can only be resolved.", code="job_deleted") from error


def _reopen(tenant: Tenant, job: JobNow, old: Execution, now: datetime) -> None:
    conn, schema = door.raw(), tenant.schema_name
    found = executions.reopen(conn, schema, old.pk)
    if found is None:
        raise Conflict(f"The execution is not dead: it is {old.state}.", code="not_dead")
    attempts = found[8]
    conn.execute(sql.SQL(_NEW_VERSION).format(schema=sql.Identifier(schema)), [job.version, old.pk])
    source, _ = payload_of(old)
    run = Run(
        trigger=old.trigger, fired_by=old.fired_by, payload_from=source, priority=old.priority,
        nominal_at=old.nominal_at, schedule_id=old.schedule_id, schedule_version=old.schedule_version,
        guarded=_guarded(old),
    )  # fmt: skip
    ticket_add(tenant, job, run, execution_id=old.pk, run_key=old.run_key, now=now, attempt=attempts)


def _guarded(old: Execution) -> bool:
    """Whether the schedule's overlap policy counts this run."""
    if old.schedule_id is None or old.schedule_version is None:
        return False
    version = ScheduleVersion.objects.filter(schedule_id=old.schedule_id, version=old.schedule_version).first()
    try:
        return version is not None and spec_from_json(version.spec).overlap != "allow"
    except TimingInvalid:
        return False


def _edited(actor: Actor, old: Execution, payload: Any) -> Run:
    text = None if payload is None else orjson.dumps(payload).decode()
    return Run(
        trigger="replay", fired_by=actor.stored, payload=text, payload_from="job" if text is None else "execution",
        priority=old.priority, nominal_at=old.nominal_at, schedule_id=old.schedule_id,
        schedule_version=old.schedule_version, labels=old.labels, replay_of=old.pk,
    )  # fmt: skip


def _check_payload(payload: Any, most: int) -> None:
    faults = value_faults(payload, "/payload")
    size = json_bytes(payload)
    if size > most:
        faults.append(FieldError("/payload", "too_large", f"has {size:,} bytes; the plan allows {most:,}."))
    if faults:
        raise InvalidInput(faults)


def _record(actor: Actor, action: str, letter_id: UUID, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="dead_letter", object_id=letter_id, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
