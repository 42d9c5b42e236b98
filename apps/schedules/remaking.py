"""Due entries of schedules: made from a version and the job as it is now, strictly from now on."""

from datetime import datetime

from apps.due import entries
from apps.due.entries import Entry
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.policy import first_due
from apps.schedules.running import JobNow
from apps.schedules.timing import TimingInvalid, spec_from_json
from tenants import door
from tenants.models import Tenant


def entry_for(
    tenant: Tenant, job: JobNow, version: ScheduleVersion, *, now: datetime, created: bool = False
) -> Entry | None:
    """The due entry of a schedule version that starts at `now`; None when it has no further instant."""
    key = version.schedule_id
    first = first_due(spec_from_json(version.spec), key=str(key), after=now, created=created)
    if first is None:
        return None
    return entry_at(tenant, job, version, nominal_at=first[0], due_at=first[1])


def entry_at(tenant: Tenant, job: JobNow, version: ScheduleVersion, *, nominal_at: datetime, due_at: datetime) -> Entry:
    """The due entry of a schedule version at an instant."""
    key = version.schedule_id
    return Entry(
        key=key, shard=entries.shard_for(key), kind="schedule", tenant_id=tenant.pk, due_at=due_at,
        nominal_at=nominal_at, version=version.version, spec=version.spec, job_id=job.id, job_version=job.version,
        pool=job.pool, queue=job.queue, priority=job.priority, timeout_s=job.timeout_s,
        max_concurrency=job.max_concurrency, own_payload=version.own_payload,
    )  # fmt: skip


def version_copy(version: ScheduleVersion, *, now: datetime) -> ScheduleVersion:
    """The next version with the same definition, not saved: from its time on each occurrence is accounted for."""
    return ScheduleVersion(
        schedule_id=version.schedule_id, version=version.version + 1, definition=version.definition,
        spec=version.spec, payload=version.payload, own_payload=version.own_payload, created_at=now,
    )  # fmt: skip


def remake_all(tenant: Tenant, job: JobNow, *, now: datetime) -> None:
    """The active schedules of a job go on from now, each with a new version; those that are over are completed.

    The caller holds the locks of their rows.
    """
    schedules = list(Schedule.objects.filter(job_id=job.id, deleted_at=None, status=Schedule.Status.ACTIVE))
    numbers = {schedule.pk: schedule.version for schedule in schedules}
    found = ScheduleVersion.objects.filter(schedule_id__in=numbers)
    copies = [
        version_copy(version, now=now)
        for version in found.order_by("schedule_id")
        if version.version == numbers[version.schedule_id]
    ]
    made = {}
    for copy in copies:
        try:
            made[copy.schedule_id] = entry_for(tenant, job, copy, now=now)
        except TimingInvalid:  # reconcile reports what can't be read; the others go on
            made[copy.schedule_id] = None
    for schedule in schedules:
        schedule.version += 1
        schedule.revision += 1
        schedule.updated_at = now
        if made.get(schedule.pk) is None:
            schedule.status = Schedule.Status.COMPLETED
    ScheduleVersion.objects.bulk_create(copies, batch_size=500)
    Schedule.objects.bulk_update(schedules, ["version", "revision", "updated_at", "status"], batch_size=500)
    conn = door.raw()
    with conn.pipeline():
        for entry in made.values():
            if entry is not None:
                entries.put(conn, entry, now=now)
