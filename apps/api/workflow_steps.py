"""/workflow-runs/{id}/steps and /approvals: the steps of a run, and what persons decide on them"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_step, access_workflow_run
from apps.api.documents_runs import ReasonInput
from apps.api.documents_workflow_runs import (
    ApprovalAnswer,
    StepAnswer,
    StepCancelInput,
    StepNoteInput,
    StepRerunInput,
    StepRetryInput,
    StepSkipInput,
)
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, page
from apps.api.openapi import (
    CURSOR_PARAMETER,
    IF_MATCH_OPTIONAL,
    PAGE_SIZE_PARAMETER,
    listing,
    operation,
    parameter,
)
from apps.api.reading import reason_of, text_of
from apps.api.shapes_workflow_runs import step_shape
from apps.api.workflow_runs import REOPENS, RERUN_FIELDS, TAG, Wish, rerun_of
from apps.schedules.input_fields import Fields
from apps.workflows.interventions import verbs
from apps.workflows.interventions.approving import Awaited, approvals_awaited
from apps.workflows.models import STEP_NAME_CHARS, STEP_STATES
from apps.workflows.views.steps_reading import steps_read
from kernel.errors import Faults

MAX_ITEM = 999
UNDECIDED = ("run_not_begun", "undecodable", "not_an_approval", "not_awaiting_approval", "role_needed")
OF_RUN = [
    parameter("state", choices=STEP_STATES), parameter("step", text="name of the step"),
    parameter("items", bool, text="true: also the items of steps with for_each"),
    PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
ITEM = parameter("item", {"type": "integer", "minimum": 0}, text="place in the list of a step with for_each")


class StepList(Endpoint):
    """The steps of a run."""

    actions = {"GET": "workflowrun.read"}

    @operation(
        "workflow_runs_steps", "List the steps of a run, in the order of its definition", parameters=OF_RUN, tag=TAG,
        answer=listing(StepAnswer, "Step"),
    )  # fmt: skip
    def get(self, request: Request, run_id: UUID) -> Response:
        query = self.query(*(one.name for one in OF_RUN))
        states, step = query.choices("state", STEP_STATES), query.text("step", most=STEP_NAME_CHARS)
        items, before, size = query.flag("items"), query.before(), query.page_size()
        query.finish()
        access_workflow_run(tenant=self.tenant, actor=self.actor, run_id=run_id, need="workflowrun.read")
        after = 0 if before is None else before.int  # this list's cursors hold numbers
        rows = steps_read(
            self.tenant, run_id, step=step, states=states, items=items, after=after, limit=size + 1
        )  # fmt: skip
        return Response(page(rows, query=query, size=size, key=lambda row: UUID(int=row.id), shape=step_shape))


class StepDetail(Endpoint):
    """One step of a run."""

    actions = {"GET": "workflowrun.read"}

    @operation("workflow_steps_read", "Read a step of a run", answer=StepAnswer, parameters=[ITEM], tag=TAG)
    def get(self, request: Request, run_id: UUID, step: str) -> Response:
        query = self.query("item")
        item = query.whole("item", -1, least=0, most=MAX_ITEM)
        query.finish()
        return _answer(self, run_id, step, need="workflowrun.read", item=None if item < 0 else item)


class StepSkip(Endpoint):
    """Deciding that a step does not run."""

    actions = {"POST": "workflowrun.skip"}

    @operation(
        "workflow_steps_skip", "Skip a step that waits or failed; the reason is kept", body=StepSkipInput,
        answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=(*REOPENS, "step_finished", "step_running"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.skip")
        reason = reason_of(self.body)
        verbs.step_skip(**wish.values(), step=step, reason=reason)
        return _answer(self, run_id, step, need="workflowrun.skip")


class StepForce(Endpoint):
    """Deciding that a step runs."""

    actions = {"POST": "workflowrun.force"}

    @operation(
        "workflow_steps_force", "Start a step that waits or was skipped, whatever it needs", body=ReasonInput,
        answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=(*REOPENS, "step_not_waiting"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.force")
        reason = reason_of(self.body)
        verbs.step_force(**wish.values(), step=step, reason=reason)
        return _answer(self, run_id, step, need="workflowrun.force")


class StepRetry(Endpoint):
    """Running a failed step again."""

    actions = {"POST": "workflowrun.retry"}

    @operation(
        "workflow_steps_retry", "Run a failed step again, or one item of it, and what follows", body=StepRetryInput,
        answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=(*REOPENS, "step_not_failed"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.retry")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("item", "reason"))
        item, reason = fields.whole("item", 0, MAX_ITEM, None), _reason(fields)
        faults.raise_if_any()
        verbs.step_retry(**wish.values(), step=step, item=item, reason=reason)
        return _answer(self, run_id, step, need="workflowrun.retry", item=item)


class StepRerun(Endpoint):
    """Running a step once more."""

    actions = {"POST": "workflowrun.rerun"}

    @operation(
        "workflow_steps_rerun", "Run a step once more and all that follows from it, in new executions",
        body=StepRerunInput, answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=(*REOPENS, "step_not_finished", "step_skipped"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.rerun")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(RERUN_FIELDS)
        more = rerun_of(fields)
        faults.raise_if_any()
        verbs.run_rerun(**wish.values(), step=step, **more)
        return _answer(self, run_id, step, need="workflowrun.rerun")


class StepCancel(Endpoint):
    """Stopping a step or a branch."""

    actions = {"POST": "workflowrun.cancel"}

    @operation(
        "workflow_steps_cancel", "Cancel a step; with branch also what follows from it alone", body=StepCancelInput,
        answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True, tag=TAG,
        problems=("run_not_begun", "undecodable", "step_finished"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        wish = Wish(self, run_id)
        wish.check("workflowrun.cancel")
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("branch", "reason"))
        branch, reason = fields.flag("branch"), _reason(fields)
        faults.raise_if_any()
        verbs.step_cancel(**wish.values(), step=step, branch=branch, reason=reason)
        return _answer(self, run_id, step, need="workflowrun.cancel")


class StepApprove(Endpoint):
    """Saying yes."""

    actions = {"POST": "workflowrun.approve"}

    @operation(
        "workflow_steps_approve", "Approve: the step succeeds. Its definition says the role that may", tag=TAG,
        body=StepNoteInput, answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True,
        problems=UNDECIDED,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        return _decide(self, run_id, step, verbs.step_approve, need="workflowrun.approve")


class StepReject(Endpoint):
    """Saying no."""

    actions = {"POST": "workflowrun.reject"}

    @operation(
        "workflow_steps_reject", "Reject: the step fails. Its definition says the role that may", tag=TAG,
        body=StepNoteInput, answer=StepAnswer, parameters=[IF_MATCH_OPTIONAL], retry_safe=True,
        problems=UNDECIDED,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        return _decide(self, run_id, step, verbs.step_reject, need="workflowrun.reject")


class ApprovalList(Endpoint):
    """Approvals that wait for somebody, of all runs."""

    actions = {"GET": "workflowrun.read"}

    @operation(
        "approvals_list", "List the approvals that wait for somebody, the longest waiting first", tag=TAG,
        answer=listing(ApprovalAnswer, "Approval"), parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        rows = approvals_awaited(self.tenant, after=0 if before is None else before.int, limit=size + 1)
        return Response(page(rows, query=query, size=size, key=lambda one: UUID(int=one.row.id), shape=_approval))


def _approval(one: Awaited) -> dict[str, Any]:
    return {
        **step_shape(one.row), "workflow": one.workflow_id, "workflow_name": one.workflow_name, "role": one.role,
        "message": one.message or None,
    }  # fmt: skip


def _decide(endpoint: Endpoint, run_id: UUID, step: str, verb: Callable[..., None], *, need: str) -> Response:
    """What a person says to an approval, with a note."""
    wish = Wish(endpoint, run_id)
    wish.check(need)
    verb(**wish.values(), step=step, note=text_of(endpoint.body, "note", most=verbs.NOTE_CHARS))
    return _answer(endpoint, run_id, step, need=need)


def _answer(endpoint: Endpoint, run_id: UUID, step: str, *, need: str, item: int | None = None) -> Response:
    found = access_step(
        tenant=endpoint.tenant, actor=endpoint.actor, run_id=run_id, step=step, item=item, need=need
    )  # fmt: skip
    return Response(step_shape(found))


def _reason(fields: Fields) -> str:
    return fields.text("reason", most=verbs.NOTE_CHARS, lines=True) or ""
