"""What is alive of a job follows its concurrency key and its rate: due entries first, then tickets, then its bucket.

The caller holds the locks of the job and of its schedules' entries, and has written the job as it is from now on.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from apps.due import delayed, entries
from apps.due.entries import Entry
from apps.executions.models import Execution
from apps.schedules.defined import DefinedJob
from apps.schedules.keyed import CHUNK, flows_of_executions, flows_of_schedules
from apps.tickets import filling, gates
from kernel.limitrules import Flow
from tenants import door
from tenants.models import Tenant


def follow_key(
    tenant: Tenant, new: DefinedJob, found: Sequence[Entry], *, was: Mapping[str, Any] | None,
    labels_were: Mapping[str, str],
) -> None:  # fmt: skip
    """What its schedules fire from now on, and what is alive where the key itself or a label of the job has changed.

    Runs that are queued or running stay so, whatever the new key allows; the payload of a run never changes.
    """
    key, conn, job_id = new.definition.concurrency_key, door.raw(), new.job.pk
    if key is None and was is None:
        return
    schedules = [entry.key for entry in found]
    entries.set_flows(conn, _flows(job_id, schedules, flows_of_schedules(conn, tenant.schema_name, schedules)))
    if key == was and not (key is not None and "label" in key and labels_were != new.job.labels):
        return
    waiting = list(Execution.objects.filter(job_id=job_id, state="scheduled").values_list("pk", flat=True))
    for some in _chunks(waiting):
        delayed.set_flows(conn, _flows(job_id, some, flows_of_executions(conn, tenant.schema_name, some)))
    for some in _chunks(gates.live_of_job(conn, tenant_id=tenant.pk, job_id=job_id)):
        gates.set_flows(conn, _flows(job_id, some, flows_of_executions(conn, tenant.schema_name, some)))


def follow_rate(tenant: Tenant, new: DefinedJob, *, was: Mapping[str, int] | None) -> None:
    """The job's bucket is as its rate says, after the locks of tickets."""
    rate, conn = new.definition.rate_limit, door.raw()
    if rate == was:
        return
    if rate is None:
        filling.drop(conn, tenant.pk, [new.job.pk])
    else:
        filling.put(conn, tenant.pk, [filling.rate_of(new.job.pk, rate)])


def _flows(job_id: UUID, ids: Sequence[UUID], keyed: Mapping[UUID, Flow]) -> dict[UUID, Flow]:
    """Those that have no key queue behind their job."""
    return {one: keyed.get(one, Flow(job_id)) for one in ids}


def _chunks(ids: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK)]
