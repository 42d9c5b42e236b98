"""/jobs/by-external-id/{external_id} and the same for schedules and workflows: things by their owner's own ids"""

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_job, access_schedule, access_workflow
from apps.api.documents_jobs import JobAnswer, JobReplacement
from apps.api.documents_schedules import ScheduleAnswer, ScheduleReplacement, ScheduleSaved
from apps.api.documents_workflows import WorkflowAnswer, WorkflowReplacement
from apps.api.endpoint import Endpoint
from apps.api.etags import put_condition, tagged
from apps.api.openapi import IF_MATCH_OPTIONAL, IF_NONE_MATCH_ANY, operation
from apps.api.permissions import need
from apps.api.reading import read_only_dropped
from apps.api.schedules import ScheduleEndpoint
from apps.api.workflows import workflow_answer
from apps.schedules import job_input, schedule_input, services
from apps.schedules.locked_jobs import shown
from apps.schedules.models import Schedule
from apps.schedules.reading import job_shape
from apps.workflows.definitions import reading as workflow_input
from apps.workflows.definitions.upserting import workflow_put
from kernel.errors import NotFound
from kernel.jsonrules import value_faults


class JobByExternalId(Endpoint):
    """One job."""

    actions = {"GET": "job.read", "PUT": "job.update"}

    @operation("jobs_read_by_external_id", "Read a job by your own id", answer=JobAnswer, tag="jobs")
    def get(self, request: Request, external_id: str) -> Response:
        self.query().finish()
        found = access_job(actor=self.actor, job_id=_id_of(shown("job"), external_id, "job"), need="job.read")
        return tagged(job_shape(found), found.job.revision)

    @operation(
        "jobs_put_by_external_id", "Make a job under your own id, or replace the one that has it", body=JobReplacement,
        answer=JobAnswer, also={201: JobAnswer}, parameters=[IF_MATCH_OPTIONAL, IF_NONE_MATCH_ANY], rehearsed=True,
        tag="jobs", problems=(
            "name_taken", "external_id_taken", "kind_is_fixed", "quota_exceeded", "secrets_key_unknown",
            "secret_unreadable",
        ),
    )  # fmt: skip
    def put(self, request: Request, external_id: str) -> Response:
        found, made = services.job_put(
            tenant=self.tenant, actor=self.actor, external_id=external_id, now=self.now, only=put_condition(request),
            data=read_only_dropped(self.body, job_input.READ_ONLY),
            may_create=lambda: need(self, self.actor, "job.create"),
        )  # fmt: skip
        location = f"/api/v1/jobs/{found.job.pk}" if made else None
        return tagged(job_shape(found), found.job.revision, status=201 if made else 200, location=location)


class ScheduleByExternalId(ScheduleEndpoint):
    """One schedule."""

    actions = {"GET": "schedule.read", "PUT": "schedule.update"}

    @operation(
        "schedules_read_by_external_id", "Read a schedule by your own id", answer=ScheduleAnswer, tag="schedules"
    )
    def get(self, request: Request, external_id: str) -> Response:
        self.query().finish()
        schedule_id = _id_of(Schedule.objects.filter(deleted_at=None), external_id, "schedule")
        return self.answer(access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.read"))

    @operation(
        "schedules_put_by_external_id", "Make a schedule under your own id, or replace the one that has it",
        body=ScheduleReplacement, answer=ScheduleSaved, also={201: ScheduleSaved}, rehearsed=True,
        parameters=[IF_MATCH_OPTIONAL, IF_NONE_MATCH_ANY], tag="schedules",
        problems=("name_taken", "external_id_taken", "quota_exceeded"),
    )  # fmt: skip
    def put(self, request: Request, external_id: str) -> Response:
        found, made = services.schedule_put(
            tenant=self.tenant, actor=self.actor, external_id=external_id, now=self.now, only=put_condition(request),
            data=read_only_dropped(self.body, schedule_input.READ_ONLY),
            may_create=lambda: need(self, self.actor, "schedule.create"),
        )  # fmt: skip
        location = f"/api/v1/schedules/{found.schedule.pk}" if made else None
        return self.saved(found, status=201 if made else 200, location=location)


class WorkflowByExternalId(Endpoint):
    """One workflow."""

    actions = {"GET": "workflow.read", "PUT": "workflow.update"}

    @operation(
        "workflows_read_by_external_id", "Read a workflow by your own id", answer=WorkflowAnswer, tag="workflows"
    )
    def get(self, request: Request, external_id: str) -> Response:
        self.query().finish()
        workflow_id = _id_of(shown("workflow"), external_id, "workflow")
        return workflow_answer(access_workflow(actor=self.actor, workflow_id=workflow_id, need="workflow.read"))

    @operation(
        "workflows_put_by_external_id", "Make a workflow under your own id, or replace the one that has it",
        body=WorkflowReplacement, answer=WorkflowAnswer, also={201: WorkflowAnswer}, rehearsed=True,
        parameters=[IF_MATCH_OPTIONAL, IF_NONE_MATCH_ANY], tag="workflows",
        problems=("name_taken", "external_id_taken", "quota_exceeded", "secrets_key_unknown", "secret_unreadable"),
    )  # fmt: skip
    def put(self, request: Request, external_id: str) -> Response:
        found, made = workflow_put(
            tenant=self.tenant, actor=self.actor, external_id=external_id, now=self.now, only=put_condition(request),
            data=read_only_dropped(self.body, workflow_input.READ_ONLY),
            may_create=lambda: need(self, self.actor, "workflow.create"),
        )  # fmt: skip
        location = f"/api/v1/workflows/{found.job.pk}" if made else None
        return workflow_answer(found, status=201 if made else 200, location=location)


def _id_of(alive: "QuerySet[Any]", external_id: str, word: str) -> Any:
    """The id of the one that has this external id. NotFound."""
    found = None
    if not value_faults(external_id):  # the database could not compare it
        found = alive.filter(external_id=external_id).values_list("pk", flat=True).first()
    if found is None:
        raise NotFound(f"There is no such {word}.")
    return found
