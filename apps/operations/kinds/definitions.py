"""Pausing, resuming and labelling jobs and schedules. An undo restores what was, where it still is as it was made."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.operations.filters import JOB_NAMES, SCHEDULE_NAMES, job_filter, kept, query_of, schedule_filter
from apps.operations.kinds.base import Cursor, Done, Kind, Planned, TakenItem, Work
from apps.operations.kinds.paging import frozen, planned_of, position_of
from apps.operations.models import Operation
from apps.schedules.input_fields import Fields
from apps.schedules.listing import jobs_ids, schedules_ids
from apps.schedules.models import Job, Schedule
from apps.schedules.services import job_pause, job_resume, job_update, schedule_pause, schedule_resume, schedule_update
from kernel.errors import Conflict, Faults, NotFound
from tenants.models import Tenant

ALREADY_PAUSED, NOT_PAUSED, UNCHANGED = "already_paused", "not_paused", "unchanged"


class _OfJobs(Kind):
    target = "jobs"

    def filtered(self, given: Any, faults: Faults) -> dict[str, Any]:
        return kept(given, JOB_NAMES, job_filter, faults)

    def planned(self, tenant: Tenant, operation: Operation, *, after: Cursor | None, size: int) -> Planned:
        wanted = frozen(job_filter(query_of(operation.filter, JOB_NAMES)), operation)
        return planned_of(jobs_ids(tenant, wanted, after=position_of(after), size=size))


class _OfSchedules(Kind):
    target = "schedules"

    def filtered(self, given: Any, faults: Faults) -> dict[str, Any]:
        return kept(given, SCHEDULE_NAMES, schedule_filter, faults)

    def planned(self, tenant: Tenant, operation: Operation, *, after: Cursor | None, size: int) -> Planned:
        wanted = frozen(schedule_filter(query_of(operation.filter, SCHEDULE_NAMES)), operation)
        page = schedules_ids(tenant, wanted, now=operation.frozen_at, after=position_of(after), size=size)
        return planned_of(page)


class PauseJobs(_OfJobs):
    """Nothing of them starts; an undo resumes those that are still paused by it."""

    action = "pause"
    permission = "job.pause"

    def apply(self, work: Work, item: TakenItem) -> Done:
        job = _job(item)
        if job.paused_at is not None:
            return Done("skipped", ALREADY_PAUSED)
        job_pause(
            tenant=work.tenant, actor=work.actor, job_id=job.pk, now=work.now, reason=work.operation.reason,
            expect=[job.revision],
        )  # fmt: skip
        return Done("succeeded", before={"paused_at": work.now.isoformat()})

    def undo(self, work: Work, item: TakenItem) -> None:
        job = _job(item)
        _still(job.paused_at == _instant(item.before["paused_at"]))
        job_resume(tenant=work.tenant, actor=work.actor, job_id=job.pk, now=work.now, expect=[job.revision])


class ResumeJobs(_OfJobs):
    """They run again; an undo pauses them again, for the reason that they had."""

    action = "resume"
    permission = "job.resume"

    def apply(self, work: Work, item: TakenItem) -> Done:
        job = _job(item)
        if job.paused_at is None:
            return Done("skipped", NOT_PAUSED)
        job_resume(tenant=work.tenant, actor=work.actor, job_id=job.pk, now=work.now, expect=[job.revision])
        return Done("succeeded", before={"reason": job.paused_reason})

    def undo(self, work: Work, item: TakenItem) -> None:
        job = _job(item)
        _still(job.paused_at is None)
        job_pause(
            tenant=work.tenant, actor=work.actor, job_id=job.pk, now=work.now, reason=item.before["reason"],
            expect=[job.revision],
        )  # fmt: skip


class PauseSchedules(_OfSchedules):
    """They stand still without debt; an undo resumes those that are still paused by it."""

    action = "pause"
    permission = "schedule.pause"

    def apply(self, work: Work, item: TakenItem) -> Done:
        schedule = _schedule(item)
        if schedule.status == Schedule.Status.PAUSED:
            return Done("skipped", ALREADY_PAUSED)
        schedule_pause(
            tenant=work.tenant, actor=work.actor, schedule_id=schedule.pk, now=work.now, reason=work.operation.reason,
            expect=[schedule.revision],
        )  # fmt: skip
        return Done("succeeded", before={"paused_at": work.now.isoformat()})

    def undo(self, work: Work, item: TakenItem) -> None:
        schedule = _schedule(item)
        _still(schedule.paused_at == _instant(item.before["paused_at"]))
        schedule_resume(
            tenant=work.tenant, actor=work.actor, schedule_id=schedule.pk, now=work.now, expect=[schedule.revision]
        )


class ResumeSchedules(_OfSchedules):
    """They go on from now, or with `catch_up` from where they stopped; an undo pauses them as they were."""

    action = "resume"
    permission = "schedule.resume"

    def checked(self, tenant: Tenant, given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
        fields = Fields(given, faults)
        fields.only(("catch_up",))
        return {"catch_up": fields.flag("catch_up")}

    def apply(self, work: Work, item: TakenItem) -> Done:
        schedule = _schedule(item)
        if schedule.status != Schedule.Status.PAUSED:
            return Done("skipped", NOT_PAUSED)
        until = schedule.resume_at
        schedule_resume(
            tenant=work.tenant, actor=work.actor, schedule_id=schedule.pk, now=work.now, expect=[schedule.revision],
            catch_up=work.operation.params["catch_up"],
        )  # fmt: skip
        return Done("succeeded", before={"reason": schedule.paused_reason, "until": until and until.isoformat()})

    def undo(self, work: Work, item: TakenItem) -> None:
        schedule = _schedule(item)
        _still(schedule.status == Schedule.Status.ACTIVE)
        until = _instant(item.before["until"]) if item.before["until"] else None
        schedule_pause(
            tenant=work.tenant, actor=work.actor, schedule_id=schedule.pk, now=work.now, expect=[schedule.revision],
            reason=item.before["reason"], resume_at=until if until is not None and until > work.now else None,
        )  # fmt: skip


class _Labels(Kind):
    """Sets labels, and takes away those that are given as null; an undo restores those that are as it left them."""

    action = "label"

    def checked(self, tenant: Tenant, given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
        labels = given.get("labels")
        if not isinstance(labels, Mapping) or not labels:
            faults.add("/labels", "required", 'must be an object such as {"team": "billing"}; null takes one away.')
            return {}
        texts = {name: "" if text is None else text for name, text in labels.items()}
        fields = Fields({**given, "labels": texts}, faults)
        fields.only(("labels",))
        fields.labels()
        return {"labels": dict(labels)}

    def apply(self, work: Work, item: TakenItem) -> Done:
        wanted = work.operation.params["labels"]
        has, revision = self.labels(item)
        before = {name: has.get(name) for name, text in wanted.items() if has.get(name) != text}
        if not before:
            return Done("skipped", UNCHANGED)
        self.write(work, item, {name: wanted[name] for name in before}, revision)
        return Done("succeeded", before=before)

    def undo(self, work: Work, item: TakenItem) -> None:
        has, revision = self.labels(item)
        wanted = work.operation.params["labels"]
        same = {name: text for name, text in item.before.items() if has.get(name) == wanted[name]}
        _still(bool(same))
        self.write(work, item, same, revision)

    def labels(self, item: TakenItem) -> tuple[dict[str, str], int]:
        """The labels that it has, and its revision."""
        raise NotImplementedError

    def write(self, work: Work, item: TakenItem, labels: dict[str, str | None], revision: int) -> None:
        """Sets these, and takes away those that are None. Stale when the revision is another one."""
        raise NotImplementedError


class LabelJobs(_Labels, _OfJobs):
    """Labels of jobs."""

    permission = "job.update"

    def labels(self, item: TakenItem) -> tuple[dict[str, str], int]:
        job = _job(item)
        return job.labels, job.revision

    def write(self, work: Work, item: TakenItem, labels: dict[str, str | None], revision: int) -> None:
        job_update(
            tenant=work.tenant, actor=work.actor, job_id=_target(item), patch={"labels": labels}, now=work.now,
            expect=[revision],
        )  # fmt: skip


class LabelSchedules(_Labels, _OfSchedules):
    """Labels of schedules."""

    permission = "schedule.update"

    def labels(self, item: TakenItem) -> tuple[dict[str, str], int]:
        schedule = _schedule(item)
        return schedule.labels, schedule.revision

    def write(self, work: Work, item: TakenItem, labels: dict[str, str | None], revision: int) -> None:
        schedule_update(
            tenant=work.tenant, actor=work.actor, schedule_id=_target(item), patch={"labels": labels}, now=work.now,
            expect=[revision],
        )  # fmt: skip


def _job(item: TakenItem) -> Job:
    found = Job.objects.filter(pk=_target(item), deleted_at=None).first()
    if found is None:
        raise NotFound("The job is deleted.")
    return found


def _schedule(item: TakenItem) -> Schedule:
    found = Schedule.objects.filter(pk=_target(item), deleted_at=None).first()
    if found is None:
        raise NotFound("The schedule is deleted.")
    return found


def _target(item: TakenItem) -> UUID:
    assert item.target_id is not None
    return item.target_id


def _still(so: bool) -> None:
    if not so:
        raise Conflict("It was changed since, so it stays as it is.", code="changed_since")


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
