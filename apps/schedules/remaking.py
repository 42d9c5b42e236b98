"""Due entries of schedules: made from a version and the job as it is now, strictly from now on."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Q

from apps.due import entries
from apps.due.entries import Entry
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.policy import first_due
from apps.schedules.running import JobNow
from apps.schedules.timing import TimingInvalid, spec_from_json, spec_to_json
from apps.schedules.timing_runs import rebased
from tenants import door
from tenants.models import Tenant


def entry_for(
    tenant: Tenant, job: JobNow, version: ScheduleVersion, *, labels: Mapping[str, str], now: datetime
) -> Entry | None:  # fmt: skip
    """The due entry of a schedule version that starts at `now`; None when it has no further instant.

    `labels` are the schedule's.
    """
    key = version.schedule_id
    first = first_due(spec_from_json(version.spec), key=str(key), after=now)
    if first is None:
        return None
    return entry_at(tenant, job, version, labels=labels, nominal_at=first[0], due_at=first[1])


class Version(Protocol):
    """What a due entry takes from a schedule's version."""

    @property
    def schedule_id(self) -> UUID: ...
    @property
    def version(self) -> int: ...
    @property
    def definition(self) -> Mapping[str, Any]: ...
    @property
    def spec(self) -> str: ...
    @property
    def payload(self) -> Any: ...
    @property
    def own_payload(self) -> bool: ...


def entry_at(
    tenant: Tenant, job: JobNow, version: Version, *, labels: Mapping[str, str], nominal_at: datetime, due_at: datetime
) -> Entry:  # fmt: skip
    """The due entry of a schedule version at an instant. `labels` are the schedule's."""
    key = version.schedule_id
    return Entry(
        key=key, shard=entries.shard_for(key), kind="schedule", tenant_id=tenant.pk, due_at=due_at,
        nominal_at=nominal_at, version=version.version, spec=version.spec, job_id=job.id, job_version=job.version,
        pool=job.pool, queue=job.queue, priority=job.priority, timeout_s=job.timeout_s,
        max_concurrency=job.max_concurrency, own_payload=version.own_payload, max_queue_age_s=job.max_queue_age_s,
        own_max_queue_age_s=version.definition.get("max_queue_age_s"), total_timeout_s=job.total_timeout_s,
        **entries.keyed(job.flow(labels, version.payload, own_payload=version.own_payload)),
    )  # fmt: skip


def version_copy(
    version: ScheduleVersion, *, now: datetime, spec: str | None = None, from_at: datetime | None = None
) -> ScheduleVersion:
    """The next version with the same definition, not saved: from its time on each occurrence is accounted for.

    With `from_at` from an earlier time on.
    """
    return ScheduleVersion(
        schedule_id=version.schedule_id, version=version.version + 1, definition=version.definition,
        spec=version.spec if spec is None else spec, payload=version.payload, own_payload=version.own_payload,
        created_at=now, from_at=from_at or now,
    )  # fmt: skip


def rebased_text(version: ScheduleVersion, *, stopped_at: datetime | None, now: datetime) -> str:
    """The spec of a version that goes on after it stood still: what is left of max_runs it has from now on."""
    if stopped_at is None or '"max_runs"' not in version.spec:
        return version.spec
    try:
        return spec_to_json(rebased(spec_from_json(version.spec), stopped_at=stopped_at, now=now))
    except TimingInvalid:
        return version.spec


def remake_all(tenant: Tenant, job: JobNow, *, now: datetime, stopped_at: datetime | None = None) -> None:
    """The active schedules of a job go on from now, each with a new version; those that are over are completed.

    Those that are paused until a time go on from then. The caller holds the locks of their rows.
    """
    goes_on = Q(status=Schedule.Status.ACTIVE) | Q(status=Schedule.Status.PAUSED, resume_at__isnull=False)
    schedules = list(Schedule.objects.filter(goes_on, job_id=job.id, deleted_at=None))
    begins = {one.pk: max(now, one.resume_at) if one.resume_at is not None else now for one in schedules}
    numbers = {schedule.pk: schedule.version for schedule in schedules}
    labels = {schedule.pk: schedule.labels for schedule in schedules}
    found = ScheduleVersion.objects.filter(schedule_id__in=numbers)
    copies = [
        version_copy(version, now=begin, spec=rebased_text(version, stopped_at=stopped_at, now=begin))
        for version in found.order_by("schedule_id")
        if version.version == numbers[version.schedule_id]
        for begin in [begins[version.schedule_id]]
    ]
    made = {}
    for copy in copies:
        try:
            key = copy.schedule_id
            made[key] = entry_for(tenant, job, copy, labels=labels[key], now=begins[key])
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
