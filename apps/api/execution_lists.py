"""Lists of executions and attempts, of all and of one job, schedule or execution."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_execution, access_job, access_schedule, access_whole
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_runs import AttemptAnswer, ExecutionAnswer
from apps.api.endpoint import Endpoint
from apps.api.lists import COUNTED, PAGING, ListQuery, listed
from apps.api.openapi import (
    COUNT_PARAMETER,
    CURSOR_PARAMETER,
    LABEL_PARAMETER,
    PAGE_SIZE_PARAMETER,
    listing,
    operation,
    parameter,
    time_parameters,
)
from apps.api.shapes_runs import attempt_shape, execution_shape
from apps.archive.finding import attempts_find, executions_find
from apps.dispatch.reasons import with_reasons
from apps.executions.filtering import NEED_SCHEDULE, ORDERS
from apps.executions.models import TRIGGERS
from apps.executions.reading import executions_count, executions_read
from apps.executions.reading_attempts import AttemptFilter, attempts_count, attempts_of, attempts_read
from apps.operations.filters import execution_filter
from kernel.keyset import Position
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES

TAG = "executions"
NEWEST = "-created_at"
FILTERS = [
    parameter("state", choices=EXECUTION_STATES),
    parameter("trigger", choices=TRIGGERS),
    parameter("name", text="part of the name of the job, case does not count"),
    parameter("run_key"),
    parameter("replay_of", UUID, text="reruns and replays of this execution"),
    parameter("depends_on", UUID, text="those that wait for this execution, or have waited for it"),
    parameter("workflow_run", UUID, text="those of this run of a workflow, and the run itself"),
    parameter("error_class", text="class of the error that it ended with"),
    LABEL_PARAMETER,
    *time_parameters("created", "nominal", "started", "finished"),
    parameter("archived", bool, text="true: instead those that are in archives; newest first, not counted"),
    parameter("order", choices=list(ORDERS), several=False, text="-created_at; by nominal_at only of one schedule"),
    COUNT_PARAMETER, PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
OF_JOB = [parameter("schedule", UUID), *FILTERS]
OF_ALL = [parameter("job", UUID), *OF_JOB]
ATTEMPT_FILTERS = [
    parameter("state", choices=ATTEMPT_STATES), parameter("execution", UUID), parameter("job", UUID),
    parameter("schedule", UUID), parameter("worker", UUID), parameter("error_class"),
    *time_parameters("started", "finished"), COUNT_PARAMETER, PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
PAGE = listing(ExecutionAnswer, "Execution", counted=True)
ATTEMPT_PAGE = listing(AttemptAnswer, "Attempt")


def list_executions(
    endpoint: Endpoint, query: ListQuery, *, job_id: UUID | None = None, schedule_id: UUID | None = None,
    replay_of: UUID | None = None,
) -> Response:  # fmt: skip
    """A page of executions; what is given here goes beside what the query asks for. InvalidInput."""
    order = query.order(list(ORDERS))
    if order in NEED_SCHEDULE and schedule_id is None and query.given("schedule") is None:
        query.fault("order", "needs_schedule", "Only the runs of one schedule have a nominal order.")
    archived = query.flag("archived")
    after, size, counted = query.position(ORDERS[order]), query.page_size(), query.counted()
    if archived and counted:
        query.fault("count", "contradiction", "What is archived is not counted.")
    if archived and order != NEWEST:
        query.fault("order", "contradiction", f"What is archived comes in the order {NEWEST} only.")
    found = execution_filter(query, job_id=job_id, schedule_id=schedule_id, replay_of=replay_of)
    if archived:
        cold = executions_find(endpoint.tenant, found, after=after, size=size)
        now = endpoint.now
        return Response(
            listed(
                cold.rows, cold.after, query=query, count=None,
                shape=lambda row: execution_shape(row, as_of=now, archived=True),
            )
        )  # fmt: skip
    page = executions_read(endpoint.tenant, found, order=order, after=after, size=size)
    count = executions_count(endpoint.tenant, found, order=order) if counted else None
    now = endpoint.now
    rows = with_reasons(endpoint.tenant, page.rows, now=now)
    return Response(
        listed(rows, page.after, query=query, count=count, shape=lambda row: execution_shape(row, as_of=now))
    )


class JobExecutions(Endpoint):
    """The runs of a job."""

    actions = {"GET": "execution.read"}

    @operation(
        "jobs_executions", "List the executions of a job", answer=PAGE, parameters=OF_JOB, tag="jobs",
        problems=OF_ARCHIVES,
    )  # fmt: skip
    def get(self, request: Request, job_id: UUID) -> Response:
        query = self.query(*(one.name for one in OF_JOB))
        access_job(actor=self.actor, job_id=job_id, need="execution.read")
        return list_executions(self, query, job_id=job_id)


class ScheduleExecutions(Endpoint):
    """The runs of a schedule."""

    actions = {"GET": "execution.read"}

    @operation(
        "schedules_executions", "List the executions of a schedule", answer=PAGE, parameters=FILTERS, tag="schedules",
        problems=OF_ARCHIVES,
    )  # fmt: skip
    def get(self, request: Request, schedule_id: UUID) -> Response:
        query = self.query(*(one.name for one in FILTERS))
        access_schedule(actor=self.actor, schedule_id=schedule_id, need="execution.read")
        return list_executions(self, query, schedule_id=schedule_id)


class ExecutionReruns(Endpoint):
    """What was run again of an execution."""

    actions = {"GET": "execution.read"}

    @operation(
        "executions_reruns", "List the executions that ran an execution again", answer=PAGE, tag=TAG,
        problems=OF_ARCHIVES, parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER, COUNT_PARAMETER],
    )  # fmt: skip
    def get(self, request: Request, execution_id: UUID) -> Response:
        query = self.query(*COUNTED)
        access_execution(tenant=self.tenant, actor=self.actor, execution_id=execution_id, need="execution.read")
        return list_executions(self, query, replay_of=execution_id)


class ExecutionAttempts(Endpoint):
    """The tries of an execution."""

    actions = {"GET": "execution.read"}

    @operation(
        "executions_attempts", "List the attempts of an execution, newest first", answer=ATTEMPT_PAGE, tag=TAG,
        problems=OF_ARCHIVES,
        parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER],
    )  # fmt: skip
    def get(self, request: Request, execution_id: UUID) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        execution, archived = access_whole(
            tenant=self.tenant, actor=self.actor, execution_id=execution_id, need="execution.read"
        )
        number = before.int if before is not None else None  # this list's cursors hold numbers
        if archived is not None:
            page = attempts_find(archived, before=number, size=size)
        else:
            page = attempts_of(self.tenant, execution, before=number, size=size)
        return Response(listed(page.rows, page.after, query=query, count=None, shape=attempt_shape))


class AttemptList(Endpoint):
    """All attempts."""

    actions = {"GET": "execution.read"}

    @operation(
        "attempts_list", "List attempts, newest execution first", parameters=ATTEMPT_FILTERS, tag=TAG,
        answer=listing(AttemptAnswer, "CountedAttempt", counted=True),
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*(one.name for one in ATTEMPT_FILTERS))
        wanted = AttemptFilter(
            states=query.choices("state", ATTEMPT_STATES),
            execution_id=query.id("execution"),
            job_id=query.id("job"),
            schedule_id=query.id("schedule"),
            worker_id=query.id("worker"),
            error_class=query.text("error_class"),
            started_after=query.instant("started_after"),
            started_before=query.instant("started_before"),
            finished_after=query.instant("finished_after"),
            finished_before=query.instant("finished_before"),
        )
        before, size, counted = query.before(), query.page_size(), query.counted()
        query.finish()
        page = attempts_read(self.tenant, wanted, after=None if before is None else Position(before), size=size)
        count = attempts_count(self.tenant, wanted) if counted else None
        return Response(listed(page.rows, page.after, query=query, count=count, shape=attempt_shape))
