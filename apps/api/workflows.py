"""/workflows: definitions of workflows, and what starts their runs"""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_workflow
from apps.api.definition_lists import (
    OF_ONE_JOB,
    OF_WORKFLOWS,
    SCHEDULE_PAGE,
    WORKFLOW_PAGE,
    list_schedules,
    list_workflows,
)
from apps.api.documents_runs import NoInput, ReasonInput
from apps.api.documents_workflow_runs import WorkflowRunAnswer
from apps.api.documents_workflows import (
    WorkflowAnswer,
    WorkflowChange,
    WorkflowInput,
    WorkflowReplacement,
    WorkflowRunInput,
)
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.openapi import operation
from apps.api.reading import nothing_of, read_only_dropped, reason_of
from apps.api.workflow_runs import run_answer
from apps.dispatch.workflow_submission import workflow_run
from apps.workflows.definitions import services
from apps.workflows.definitions.defined import DefinedWorkflow, workflow_shape
from apps.workflows.definitions.reading import READ_ONLY

TAG = "workflows"
REFUSED = ("name_taken", "external_id_taken", "secrets_key_unknown")


def workflow_answer(found: DefinedWorkflow, *, status: int = 200, location: str | None = None) -> Response:
    """A workflow with its ETag."""
    return tagged(workflow_shape(found), found.job.revision, status=status, location=location)


class WorkflowList(Endpoint):
    """All workflows."""

    actions = {"GET": "workflow.read", "POST": "workflow.create"}

    @operation("workflows_list", "List workflows", answer=WORKFLOW_PAGE, parameters=OF_WORKFLOWS, tag=TAG)
    def get(self, request: Request) -> Response:
        return list_workflows(self, self.query(*(one.name for one in OF_WORKFLOWS)))

    @operation(
        "workflows_create", "Create a workflow", body=WorkflowInput, answer=WorkflowAnswer, status=201,
        retry_safe=True, tag=TAG, problems=(*REFUSED, "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        made = services.workflow_create(tenant=self.tenant, actor=self.actor, data=self.body, now=self.now)
        return workflow_answer(made, status=201, location=f"{request.path}/{made.job.pk}")


class WorkflowDetail(Endpoint):
    """One workflow."""

    actions = {
        "GET": "workflow.read", "PATCH": "workflow.update", "PUT": "workflow.update", "DELETE": "workflow.delete",
    }  # fmt: skip

    @operation("workflows_read", "Read a workflow", answer=WorkflowAnswer, tag=TAG)
    def get(self, request: Request, workflow_id: UUID) -> Response:
        self.query().finish()
        return workflow_answer(access_workflow(actor=self.actor, workflow_id=workflow_id, need="workflow.read"))

    @operation(
        "workflows_patch", "Change members of a workflow; runs that there are keep their version", body=WorkflowChange,
        answer=WorkflowAnswer, if_match=True, tag=TAG, problems=(*REFUSED, "secret_unreadable"),
    )  # fmt: skip
    def patch(self, request: Request, workflow_id: UUID) -> Response:
        changed = services.workflow_update(
            tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, patch=self.body, now=self.now,
            expect=revisions(request),
        )  # fmt: skip
        return workflow_answer(changed)

    @operation(
        "workflows_replace", "Replace a workflow; runs that there are keep their version", body=WorkflowReplacement,
        answer=WorkflowAnswer, if_match=True, tag=TAG, problems=(*REFUSED, "secret_unreadable"),
    )  # fmt: skip
    def put(self, request: Request, workflow_id: UUID) -> Response:
        changed = services.workflow_replace(
            tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, now=self.now, expect=revisions(request),
            data=read_only_dropped(self.body, READ_ONLY),
        )  # fmt: skip
        return workflow_answer(changed)

    @operation(
        "workflows_delete", "Delete a workflow that no schedule and no other workflow uses", status=204, if_match=True,
        tag=TAG, problems=("workflow_in_use",),
    )  # fmt: skip
    def delete(self, request: Request, workflow_id: UUID) -> Response:
        services.workflow_delete(
            tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)


class WorkflowPause(Endpoint):
    """Stopping a workflow."""

    actions = {"POST": "workflow.pause"}

    @operation(
        "workflows_pause", "Pause a workflow: no new run of it starts, no debt builds up", body=ReasonInput,
        answer=WorkflowAnswer, retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, workflow_id: UUID) -> Response:
        reason = reason_of(self.body)
        return workflow_answer(
            services.workflow_pause(
                tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, now=self.now, reason=reason
            )
        )


class WorkflowResume(Endpoint):
    """Letting a workflow run again."""

    actions = {"POST": "workflow.resume"}

    @operation(
        "workflows_resume", "Resume a workflow; its schedules go on from now", body=NoInput, answer=WorkflowAnswer,
        retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, workflow_id: UUID) -> Response:
        nothing_of(self.body)
        return workflow_answer(
            services.workflow_resume(tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, now=self.now)
        )


class WorkflowStart(Endpoint):
    """Running a workflow."""

    actions = {"POST": "workflow.run"}

    @operation(
        "workflows_run", "Run a workflow at once or later; the answer is the run", body=WorkflowRunInput,
        answer=WorkflowRunAnswer, status=202, retry_safe=True, tag=TAG, problems=("quota_exceeded", "overloaded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, workflow_id: UUID) -> Response:
        run_id = workflow_run(
            tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, data=self.body, now=self.now
        )
        return run_answer(self, run_id, need="workflow.run", status=202)


class WorkflowSchedules(Endpoint):
    """The schedules of a workflow."""

    actions = {"GET": "schedule.read"}

    @operation(
        "workflows_schedules", "List the schedules of a workflow", answer=SCHEDULE_PAGE, parameters=OF_ONE_JOB, tag=TAG
    )
    def get(self, request: Request, workflow_id: UUID) -> Response:
        query = self.query(*(one.name for one in OF_ONE_JOB))
        access_workflow(actor=self.actor, workflow_id=workflow_id, need="schedule.read")
        return list_schedules(self, query, job_id=workflow_id)
