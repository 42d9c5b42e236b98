"""Runs of workflows that somebody asks for: as those of jobs, with an input in the place of a payload."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from apps.audit.services import Actor, record
from apps.dispatch.dependencies import depend, known_parents, missing_parents
from apps.dispatch.submission import read_run_at
from apps.schedules.input_fields import Fields
from apps.schedules.running import Run, Start, runs_start, share_jobs
from apps.usage.admitting import admit_runs
from apps.workflows.dependencies.depending_input import read_depends_on
from kernel.errors import Faults, InvalidInput, NotFound
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

FIELDS = ("input", "run_at", "delay_s", "priority", "labels", "depends_on", "condition")


def workflow_run(*, tenant: Tenant, actor: Actor, workflow_id: UUID, data: Any, now: datetime) -> UUID:
    """Asks for a run of a workflow and returns its id. NotFound; InvalidInput with all faults; QuotaExceeded.

    It begins when the workflow's max_active_runs has room and it is not paused; one that depends on executions is
    blocked until these have ended as it wants.
    """
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(FIELDS)
    given = fields.json("input", max_bytes=tenant.plan.max_payload_bytes)
    run_at = read_run_at(fields, now)
    run = Run(
        trigger="api", fired_by=actor.stored, payload=None if given is None else orjson.dumps(given).decode(),
        payload_from="job" if given is None else "execution", priority=fields.whole("priority", 0, 9, None),
        labels=fields.labels(),
    )  # fmt: skip
    depends_on = read_depends_on(fields)
    faults.raise_if_any()

    def work() -> UUID:
        job = share_jobs(tenant, [workflow_id]).get(workflow_id)
        if job is None or job.word != "workflow":
            raise NotFound("There is no such workflow.")
        missing = missing_parents(depends_on, known_parents(tenant, [depends_on]))
        if missing:
            raise InvalidInput(missing)
        admit_runs(door.raw(), tenant, 1, now)
        later = run_at if run_at is not None and run_at > now else None
        (run_id,) = runs_start(tenant, [Start(job, run, later, blocked=bool(depends_on))], now=now)
        depend(tenant, [(depends_on, run_id)], now)
        record(
            actor=actor, action="workflow.run", object_type="workflow", object_id=workflow_id, now=now,
            tenant_id=tenant.pk, after={"run": str(run_id)},
        )  # fmt: skip
        return run_id

    return in_tenant(tenant, work)
