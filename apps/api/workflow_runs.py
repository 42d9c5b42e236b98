"""/workflow-runs: what became of workflows, and stopping, pausing and repeating a whole run"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_workflow, access_workflow_run
from apps.api.documents_runs import NoInput, ReasonInput
from apps.api.documents_workflow_runs import RunRerunInput, WorkflowRunAnswer, WorkflowRunItem
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.lists import ListQuery, listed
from apps.api.openapi import (
    COUNT_PARAMETER,
    CURSOR_PARAMETER,
    IF_MATCH_OPTIONAL,
    LABEL_PARAMETER,
    PAGE_SIZE_PARAMETER,
    listing,
    operation,
    parameter,
    time_parameters,
)
from apps.api.reading import nothing_of, reason_of
from apps.api.shapes_workflow_runs import run_item, run_shape
from apps.dispatch.reasons import reasons_of
from apps.executions.models import TRIGGERS
from apps.outcomes.cancel import execution_cancel
from apps.schedules.input_fields import Fields
from apps.workflows.interventions import verbs
from apps.workflows.models import STEP_NAME_CHARS, STEP_STATES
from apps.workflows.views.runs_reading import ORDERS, STATES, RunFilter, RunRow, runs_count, runs_read
from apps.workflows.views.steps_reading import step_counts
from kernel.errors import Conflict, Faults
from tenants import door

TAG = "workflow runs"
OF_WORKFLOW = [
    parameter("state", choices=STATES), parameter("trigger", choices=TRIGGERS), parameter("schedule", UUID),
    LABEL_PARAMETER, *time_parameters("created"),
    parameter("order", choices=list(ORDERS), several=False, text="-created_at"),
    COUNT_PARAMETER, PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
OF_ALL = [parameter("workflow", UUID), *OF_WORKFLOW]
PAGE = listing(WorkflowRunItem, "WorkflowRun", counted=True)
REOPENS = (
    "run_not_begun", "run_paused", "run_cancelling", "run_compensated", "run_superseded", "undecodable", "erased",
    "quota_exceeded", "job_deleted",
)  # fmt: skip
RERUN_FIELDS = ("downstream", "reason")
NO_STEPS = dict.fromkeys(STEP_STATES, 0)


def list_runs(endpoint: Endpoint, query: ListQuery, *, workflow_id: UUID | None = None) -> Response:
    """A page of runs. InvalidInput."""
    wanted = RunFilter(
        workflow_id=workflow_id or query.id("workflow"), states=query.choices("state", STATES),
        triggers=query.choices("trigger", TRIGGERS), schedule_id=query.id("schedule"), labels=query.labels(),
        created_after=query.instant("created_after"), created_before=query.instant("created_before"),
    )  # fmt: skip
    order = query.order(list(ORDERS))
    after, size, counted = query.position(ORDERS[order]), query.page_size(), query.counted()
    query.finish()
    page = runs_read(endpoint.tenant, wanted, order=order, after=after, size=size)
    count = runs_count(endpoint.tenant, wanted) if counted else None
    rows = _with_reasons(endpoint, page.rows)
    return Response(
        listed(rows, page.after, query=query, count=count, shape=lambda row: run_item(row, as_of=endpoint.now))
    )


def run_answer(endpoint: Endpoint, run_id: UUID, *, need: str = "workflowrun.read", status: int = 200) -> Response:
    """A run as it is now, with its ETag; with 202 also where it is."""
    row = access_workflow_run(tenant=endpoint.tenant, actor=endpoint.actor, run_id=run_id, need=need)
    (row,) = _with_reasons(endpoint, [row])
    counts = step_counts(endpoint.tenant, run_id) if row.begun else NO_STEPS
    location = f"/api/v1/workflow-runs/{run_id}" if status == 202 else None
    return tagged(run_shape(row, counts, as_of=endpoint.now), row.revision, status=status, location=location)


@dataclass(frozen=True, slots=True)
class Wish:
    """What verbs of a run have in common."""

    endpoint: Endpoint
    run_id: UUID

    def values(self) -> dict[str, Any]:
        """Their arguments. Of several ETags the newest counts, since revisions only grow. Conflict before it began."""
        one, request = self.endpoint, self.endpoint.request
        given = revisions(request) if "If-Match" in request.headers else None
        return {
            "tenant": one.tenant, "actor": one.actor, "run_id": self.run_id, "now": one.now,
            "revision": None if given is None else max(given, default=-1),
        }  # fmt: skip

    def check(self, need: str) -> None:
        """NotFound; Conflict of a run that has not begun: it has no steps."""
        one = self.endpoint
        row = access_workflow_run(tenant=one.tenant, actor=one.actor, run_id=self.run_id, need=need)
        if not row.begun:
            raise Conflict(f"The run has not begun: it is {row.state}.", code="run_not_begun")


class RunList(Endpoint):
    """All runs."""

    actions = {"GET": "workflowrun.read"}

    @operation("workflow_runs_list", "List runs of workflows", answer=PAGE, parameters=OF_ALL, tag=TAG)
    def get(self, request: Request) -> Response:
        return list_runs(self, self.query(*(one.name for one in OF_ALL)))


class RunsOfWorkflow(Endpoint):
    """The runs of a workflow."""

    actions = {"GET": "workflowrun.read"}

    @operation("workflows_runs", "List the runs of a workflow", answer=PAGE, parameters=OF_WORKFLOW, tag="workflows")
    def get(self, request: Request, workflow_id: UUID) -> Response:
        query = self.query(*(one.name for one in OF_WORKFLOW))
        access_workflow(actor=self.actor, workflow_id=workflow_id, need="workflowrun.read")
        return list_runs(self, query, workflow_id=workflow_id)


class RunDetail(Endpoint):
    """One run."""

    actions = {"GET": "workflowrun.read"}

    @operation("workflow_runs_read", "Read a run of a workflow", answer=WorkflowRunAnswer, tag=TAG)
    def get(self, request: Request, run_id: UUID) -> Response:
        self.query().finish()
        return run_answer(self, run_id)


class RunCancel(Endpoint):
    """Stopping a run."""

    actions = {"POST": "workflowrun.cancel"}

    @operation(
        "workflow_runs_cancel",
        "Cancel a run: 200 when it is cancelled, 202 when steps of it were asked to stop; nothing more of it starts",
        body=ReasonInput, answer=WorkflowRunAnswer, also={202: WorkflowRunAnswer}, retry_safe=True, tag=TAG,
        problems=("already_finished",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID) -> Response:
        reason = reason_of(self.body)
        access_workflow_run(tenant=self.tenant, actor=self.actor, run_id=run_id, need="workflowrun.cancel")
        done = execution_cancel(
            tenant=self.tenant, actor=self.actor, execution_id=run_id, now=self.now, thing="workflow_run", reason=reason
        )  # fmt: skip
        return run_answer(self, run_id, need="workflowrun.cancel", status=200 if done.outcome == "done" else 202)


class RunPause(Endpoint):
    """Holding a run."""

    actions = {"POST": "workflowrun.pause"}

    @operation(
        "workflow_runs_pause", "Pause a run: nothing of it starts any more, what runs goes on to its end",
        body=ReasonInput, answer=WorkflowRunAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=("run_not_begun", "run_not_running", "undecodable"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.pause")
        reason = reason_of(self.body)
        verbs.run_pause(**wish.values(), reason=reason)
        return run_answer(self, run_id, need="workflowrun.pause")


class RunResume(Endpoint):
    """Letting a run go on."""

    actions = {"POST": "workflowrun.resume"}

    @operation(
        "workflow_runs_resume", "Resume a paused run", body=NoInput, answer=WorkflowRunAnswer,
        parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=("run_not_begun", "run_not_paused", "undecodable"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.resume")
        nothing_of(self.body)
        verbs.run_resume(**wish.values())
        return run_answer(self, run_id, need="workflowrun.resume")


class RunRetry(Endpoint):
    """Running again what failed."""

    actions = {"POST": "workflowrun.retry"}

    @operation(
        "workflow_runs_retry", "Run the failed and cancelled steps of a run again, and what follows from them",
        body=ReasonInput, answer=WorkflowRunAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=(*REOPENS, "nothing_to_retry"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.retry")
        reason = reason_of(self.body)
        verbs.run_retry(**wish.values(), reason=reason)
        return run_answer(self, run_id, need="workflowrun.retry")


class RunRerun(Endpoint):
    """Running a part of a run once more."""

    actions = {"POST": "workflowrun.rerun"}

    @operation(
        "workflow_runs_rerun", "Run a step once more and all that follows from it, in new executions",
        body=RunRerunInput, answer=WorkflowRunAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=(*REOPENS, "step_not_finished", "step_skipped"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.rerun")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("step", *RERUN_FIELDS))
        step = fields.text("step", most=STEP_NAME_CHARS, required=True) or ""
        more = rerun_of(fields)
        faults.raise_if_any()
        verbs.run_rerun(**wish.values(), step=step, **more)
        return run_answer(self, run_id, need="workflowrun.rerun")


def rerun_of(fields: Fields) -> dict[str, Any]:
    """Of a body: whether what follows runs once more, and why."""
    return {
        "downstream": fields.data.get("downstream") is None or fields.flag("downstream"),
        "reason": fields.text("reason", most=verbs.NOTE_CHARS, lines=True) or "",
    }


def _with_reasons(endpoint: Endpoint, rows: list[RunRow]) -> list[RunRow]:
    """What runs wait for that are due."""
    asked = [row.id for row in rows if row.state == "ready" and row.wait_reason is None]
    found = reasons_of(door.raw(), endpoint.tenant.pk, asked, now=endpoint.now) if asked else {}
    return [row._replace(wait_reason=found[row.id]) if row.id in found else row for row in rows]
