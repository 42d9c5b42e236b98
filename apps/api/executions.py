"""/executions and /attempts"""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.bulk import Batch, BulkEndpoint, Result
from apps.api.documents_bulk import BulkAnswer, ExecutionsBulkInput
from apps.api.documents_runs import AttemptAnswer, ExecutionAnswer, NoInput, SubmitInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.lists import PAGING, page
from apps.api.openapi import (
    CREATED_PARAMETERS,
    CURSOR_PARAMETER,
    LABEL_PARAMETER,
    PAGE_SIZE_PARAMETER,
    listing,
    operation,
    parameter,
)
from apps.api.reading import nothing_of
from apps.api.shapes_runs import attempt_shape, execution_shape
from apps.dispatch.submission import execution_submit, executions_submit
from apps.dispatch.submit import execution_rerun
from apps.executions.models import TRIGGERS
from apps.executions.reading import (
    ExecutionFilter,
    ExecutionRow,
    attempts_of,
    attempts_read,
    execution_read,
    executions_read,
)
from apps.outcomes.cancel import execution_cancel
from apps.schedules.defined import jobs_of
from kernel.errors import NotFound
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES
from tenants.permissions import may

TAG = "executions"


def access_execution(endpoint: Endpoint, execution_id: UUID, *, need: str) -> ExecutionRow:
    """An execution with its live state; the same 404 when it is missing, another tenant's or forbidden."""
    found = execution_read(endpoint.tenant, execution_id)
    if found is None or not may(endpoint.actor, need):
        raise NotFound("There is no such execution.")
    return found


def execution_answer(endpoint: Endpoint, execution_id: UUID, *, status: int = 200) -> Response:
    """The execution as it is now."""
    row = access_execution(endpoint, execution_id, need="execution.read")
    headers = {"Location": f"/api/v1/executions/{row.id}"} if status == 202 else None
    return Response(execution_shape(row, as_of=endpoint.now, payload=True), status=status, headers=headers)


class ExecutionList(Endpoint):
    """All executions."""

    actions = {"GET": "execution.read", "POST": "execution.submit"}

    @operation(
        "executions_list", "List executions, newest first", answer=listing(ExecutionAnswer, "Execution"), tag=TAG,
        parameters=[
            parameter("state", choices=EXECUTION_STATES), parameter("job", UUID), parameter("schedule", UUID),
            parameter("trigger", choices=TRIGGERS), parameter("run_key"), parameter("replay_of", UUID),
            LABEL_PARAMETER, *CREATED_PARAMETERS, PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(
            "state", "job", "schedule", "trigger", "run_key", "replay_of", "label", "created_after", "created_before",
            *PAGING,
        )  # fmt: skip
        job_id, schedule_id = query.id("job"), query.id("schedule")
        wanted = ExecutionFilter(
            states=query.choices("state", EXECUTION_STATES),
            job_ids=_jobs(job_id, schedule_id),
            schedule_id=schedule_id,
            triggers=query.choices("trigger", TRIGGERS),
            run_key=query.text("run_key"),
            replay_of=query.id("replay_of"),
            labels=query.labels(),
            created_after=query.instant("created_after"),
            created_before=query.instant("created_before"),
        )
        before, size = query.before(), query.page_size()
        query.finish()
        rows = executions_read(self.tenant, wanted, before=before, limit=size + 1)
        return Response(
            page(
                rows,
                query=query,
                size=size,
                key=lambda row: row.id,
                shape=lambda row: execution_shape(row, as_of=self.now),
            )
        )

    @operation(
        "executions_submit", "Run a job at once or later", body=SubmitInput, answer=ExecutionAnswer, status=202,
        retry_safe=True, tag=TAG, problems=("quota_exceeded",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        execution_id = execution_submit(tenant=self.tenant, actor=self.actor, data=self.body, now=self.now)
        return execution_answer(self, execution_id, status=202)


class ExecutionBulk(BulkEndpoint):
    """Many runs at a time."""

    actions = {"POST": "execution.submit"}

    @operation(
        "executions_bulk_submit", "Submit up to 1,000 runs; each item has its own result", body=ExecutionsBulkInput,
        answer=BulkAnswer, retry_safe=True, tag=TAG, problems=["batch_refused"],
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.made(self._make, status=202)

    def _make(self, batch: Batch) -> list[Result]:
        return executions_submit(
            tenant=self.tenant, actor=self.actor, items=batch.items, now=self.now, atomic=batch.atomic
        )


class ExecutionDetail(Endpoint):
    """One execution."""

    actions = {"GET": "execution.read"}

    @operation("executions_read", "Read an execution", answer=ExecutionAnswer, tag=TAG)
    def get(self, request: Request, execution_id: UUID) -> Response:
        self.query().finish()
        return execution_answer(self, execution_id)


class ExecutionCancel(Endpoint):
    """Stopping an execution."""

    actions = {"POST": "execution.cancel"}

    @operation(
        "executions_cancel", "Cancel an execution: 200 when it is cancelled, 202 when its worker was asked to stop",
        body=NoInput, answer=ExecutionAnswer, also={202: ExecutionAnswer}, retry_safe=True, tag=TAG,
        problems=("already_finished",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, execution_id: UUID) -> Response:
        nothing_of(self.body)
        done = execution_cancel(tenant=self.tenant, actor=self.actor, execution_id=execution_id, now=self.now)
        return execution_answer(self, execution_id, status=200 if done.outcome == "done" else 202)


class ExecutionRerun(Endpoint):
    """Running an execution again."""

    actions = {"POST": "execution.rerun"}

    @operation(
        "executions_rerun", "Run a finished execution again as a new one", body=NoInput, answer=ExecutionAnswer,
        status=202, retry_safe=True, tag=TAG, problems=("not_finished", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, execution_id: UUID) -> Response:
        nothing_of(self.body)
        new_id = execution_rerun(tenant=self.tenant, actor=self.actor, execution_id=execution_id, now=self.now)
        return execution_answer(self, new_id, status=202)


class ExecutionAttempts(Endpoint):
    """The tries of an execution."""

    actions = {"GET": "execution.read"}

    @operation(
        "executions_attempts", "List the attempts of an execution, newest first",
        answer=listing(AttemptAnswer, "Attempt"), parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER], tag=TAG,
    )  # fmt: skip
    def get(self, request: Request, execution_id: UUID) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        execution = access_execution(self, execution_id, need="execution.read")
        number = before.int if before is not None else None  # this list's cursors hold numbers
        rows = attempts_of(self.tenant, execution, before=number, limit=size + 1)
        return Response(page(rows, query=query, size=size, key=lambda row: UUID(int=row.number), shape=attempt_shape))


class AttemptList(Endpoint):
    """All attempts."""

    actions = {"GET": "execution.read"}

    @operation(
        "attempts_list", "List attempts, newest execution first", answer=listing(AttemptAnswer, "Attempt"),
        parameters=[parameter("state", choices=ATTEMPT_STATES), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER], tag=TAG,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("state", *PAGING)
        states, before, size = query.choices("state", ATTEMPT_STATES), query.before(), query.page_size()
        query.finish()
        rows = attempts_read(self.tenant, states=states, before=before, limit=size + 1)
        return Response(page(rows, query=query, size=size, key=lambda row: row.id, shape=attempt_shape))


def _jobs(job_id: UUID | None, schedule_id: UUID | None) -> list[UUID] | None:
    """The jobs whose executions are looked at; those of a schedule are found through its jobs."""
    if schedule_id is None:
        return None if job_id is None else [job_id]
    jobs = jobs_of(schedule_id)
    return jobs if job_id is None else [one for one in jobs if one == job_id]
