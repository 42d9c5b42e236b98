"""/schedules"""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_schedule
from apps.api.bulk import Batch, BulkEndpoint, Result
from apps.api.definition_lists import OF_SCHEDULES, SCHEDULE_PAGE, list_schedules
from apps.api.documents_bulk import BulkAnswer, SchedulesBulkInput
from apps.api.documents_runs import ExecutionAnswer
from apps.api.documents_schedules import (
    ScheduleAnswer,
    ScheduleChange,
    ScheduleInput,
    ScheduleReplacement,
    ScheduleSaved,
)
from apps.api.documents_time import SchedulePauseInput, ScheduleResumeInput, ScheduleTriggerInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.executions import execution_answer
from apps.api.openapi import (
    operation,
)
from apps.api.reading import MAX_REASON_CHARS, read_only_dropped
from apps.api.shapes import load_hint_shape, schedule_shapes
from apps.dispatch.submit import schedule_trigger
from apps.schedules import services
from apps.schedules.input_fields import Fields
from apps.schedules.schedule_input import READ_ONLY
from apps.schedules.services import DefinedSchedule
from apps.schedules.timing import spec_from_json
from apps.schedules.timing_spec import CHOICES
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults, ShardbeatError

TAG = "schedules"


class ScheduleEndpoint(Endpoint):
    """What the views of schedules share."""

    def answer(self, found: DefinedSchedule) -> Response:
        (shape,) = schedule_shapes(self.tenant, [found], now=self.now)
        return tagged(shape, found.schedule.revision)

    def saved(self, found: DefinedSchedule, *, status: int = 200, location: str | None = None) -> Response:
        """One that was made or changed, with what its runs meet."""
        (shape,) = schedule_shapes(self.tenant, [found], now=self.now)
        hint = load_hint_shape(found, shape["status"], now=self.now)
        shape |= {} if hint is None else {"load_hint": hint}
        return tagged(shape, found.schedule.revision, status=status, location=location)


class ScheduleList(ScheduleEndpoint):
    """All schedules."""

    actions = {"GET": "schedule.read", "POST": "schedule.create"}

    @operation("schedules_list", "List schedules", answer=SCHEDULE_PAGE, parameters=OF_SCHEDULES, tag=TAG)
    def get(self, request: Request) -> Response:
        return list_schedules(self, self.query(*(one.name for one in OF_SCHEDULES)))

    @operation(
        "schedules_create", "Create a schedule; it is due from now on", body=ScheduleInput, answer=ScheduleSaved,
        status=201, retry_safe=True, tag=TAG, problems=("name_taken", "external_id_taken", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        made = services.schedule_create(tenant=self.tenant, actor=self.actor, data=self.body, now=self.now)
        return self.saved(made, status=201, location=f"{request.path}/{made.schedule.pk}")


class ScheduleBulk(BulkEndpoint):
    """Many schedules at a time."""

    actions = {"POST": "schedule.create"}

    @operation(
        "schedules_bulk_create", "Create up to 1,000 schedules; each item has its own result", body=SchedulesBulkInput,
        answer=BulkAnswer, retry_safe=True, tag=TAG, problems=["batch_refused"],
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.made(self._make, status=201)

    def _make(self, batch: Batch) -> list[Result]:
        found = services.schedules_create(
            tenant=self.tenant, actor=self.actor, items=batch.items, now=self.now, atomic=batch.atomic
        )
        return [one if isinstance(one, ShardbeatError) else one.row.id for one in found]


class ScheduleDetail(ScheduleEndpoint):
    """One schedule."""

    actions = {
        "GET": "schedule.read",
        "PATCH": "schedule.update",
        "PUT": "schedule.update",
        "DELETE": "schedule.delete",
    }

    @operation("schedules_read", "Read a schedule", answer=ScheduleAnswer, tag=TAG)
    def get(self, request: Request, schedule_id: UUID) -> Response:
        self.query().finish()
        return self.answer(access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.read"))

    @operation(
        "schedules_patch", "Change members of a schedule; it never fires by that", body=ScheduleChange,
        answer=ScheduleSaved, if_match=True, tag=TAG, problems=("name_taken", "external_id_taken"),
    )  # fmt: skip
    def patch(self, request: Request, schedule_id: UUID) -> Response:
        changed = services.schedule_update(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, patch=self.body, now=self.now,
            expect=revisions(request),
        )  # fmt: skip
        return self.saved(changed)

    @operation(
        "schedules_replace",
        "Replace a schedule",
        body=ScheduleReplacement,
        answer=ScheduleSaved,
        if_match=True,
        tag=TAG,
        problems=("name_taken", "external_id_taken"),
    )
    def put(self, request: Request, schedule_id: UUID) -> Response:
        changed = services.schedule_replace(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, now=self.now, expect=revisions(request),
            data=read_only_dropped(self.body, READ_ONLY),
        )  # fmt: skip
        return self.saved(changed)

    @operation("schedules_delete", "Delete a schedule; its history stays", status=204, if_match=True, tag=TAG)
    def delete(self, request: Request, schedule_id: UUID) -> Response:
        services.schedule_delete(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)


class SchedulePause(ScheduleEndpoint):
    """Stopping a schedule."""

    actions = {"POST": "schedule.pause"}

    @operation(
        "schedules_pause", "Pause a schedule; no debt builds up", body=SchedulePauseInput, answer=ScheduleAnswer,
        retry_safe=True, tag=TAG, problems=("schedule_completed",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, schedule_id: UUID) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("reason", "resume_at"))
        reason = fields.text("reason", most=MAX_REASON_CHARS, lines=True) or ""
        given, zone = fields.data.get("resume_at"), "UTC"
        if given is not None:
            found = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.pause")
            zone = spec_from_json(found.definition.spec).zone
        resume_at = None if given is None else read_instant(given, "/resume_at", zone, faults)
        if resume_at is not None and resume_at <= self.now:
            faults.add("/resume_at", "past", "lies in the past; leave it out to resume it yourself.")
        faults.raise_if_any()
        paused = services.schedule_pause(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, now=self.now, reason=reason,
            resume_at=resume_at,
        )  # fmt: skip
        return self.answer(paused)


class ScheduleResume(ScheduleEndpoint):
    """Letting a schedule go on."""

    actions = {"POST": "schedule.resume"}

    @operation(
        "schedules_resume", "Resume a schedule from now on", body=ScheduleResumeInput, answer=ScheduleAnswer,
        retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, schedule_id: UUID) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("catch_up",))
        catch_up = fields.flag("catch_up")
        faults.raise_if_any()
        found = services.schedule_resume(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, now=self.now, catch_up=catch_up
        )
        return self.answer(found)


class ScheduleTrigger(Endpoint):
    """Running a schedule now."""

    actions = {"POST": "schedule.trigger"}

    @operation(
        "schedules_trigger", "Run a schedule's job once, now; skipped where its overlap policy leaves no room",
        body=ScheduleTriggerInput, answer=ExecutionAnswer, status=202, retry_safe=True, tag=TAG,
        problems=("quota_exceeded", "overloaded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, schedule_id: UUID) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("overlap",))
        given = fields.data.get("overlap")
        overlap = None if given is None else fields.choice("overlap", CHOICES["overlap"])
        faults.raise_if_any()
        execution_id = schedule_trigger(
            tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, now=self.now, overlap=overlap
        )
        return execution_answer(self, execution_id, status=202)
