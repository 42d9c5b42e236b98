"""Lists of dead letters, of all and of one job, schedule or execution."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_job, access_schedule, access_whole
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_runs import DeadLetterAnswer
from apps.api.endpoint import Endpoint
from apps.api.lists import ListQuery, listed
from apps.api.openapi import (
    COUNT_PARAMETER,
    CURSOR_PARAMETER,
    PAGE_SIZE_PARAMETER,
    listing,
    operation,
    parameter,
    time_parameters,
)
from apps.api.shapes import deadletter_shapes
from apps.archive.finding import letters_find
from apps.archive.reading import Archived
from apps.deadletters.reading import ORDERS, STATUSES, deadletters_count, deadletters_read
from apps.operations.filters import letter_filter
from kernel.keyset import Count

TAG = "dead letters"
FILTERS = [
    parameter("status", choices=STATUSES), parameter("fingerprint"), parameter("error_class"),
    *time_parameters("created", "resolved"),
    parameter("order", choices=list(ORDERS), several=False, text="-created_at"),
    COUNT_PARAMETER, PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
OF_ALL = [parameter("job", UUID), parameter("schedule", UUID), parameter("execution", UUID), *FILTERS]
PAGE = listing(DeadLetterAnswer, "DeadLetter", counted=True)


def list_deadletters(
    endpoint: Endpoint, query: ListQuery, *, job_id: UUID | None = None, schedule_id: UUID | None = None,
    execution_id: UUID | None = None,
) -> Response:  # fmt: skip
    """A page of dead letters; what is given here goes beside what the query asks for. InvalidInput."""
    wanted = letter_filter(query, job_id=job_id, schedule_id=schedule_id, execution_id=execution_id)
    order = query.order(list(ORDERS))
    after, size, counted = query.position(ORDERS[order]), query.page_size(), query.counted()
    query.finish()
    page = deadletters_read(endpoint.tenant, wanted, order=order, after=after, size=size)
    count = deadletters_count(endpoint.tenant, wanted) if counted else None
    shown = deadletter_shapes(endpoint.tenant, page.rows)
    return Response(listed(shown, page.after, query=query, count=count, shape=lambda one: one))


class _Nested(Endpoint):
    actions = {"GET": "deadletter.read"}

    def asked(self) -> ListQuery:
        return self.query(*(one.name for one in FILTERS))


class JobDeadLetters(_Nested):
    """The dead letters of a job."""

    @operation("jobs_dead_letters", "List the dead letters of a job", answer=PAGE, parameters=FILTERS, tag="jobs")
    def get(self, request: Request, job_id: UUID) -> Response:
        query = self.asked()
        access_job(actor=self.actor, job_id=job_id, need="deadletter.read")
        return list_deadletters(self, query, job_id=job_id)


class ScheduleDeadLetters(_Nested):
    """The dead letters of a schedule."""

    @operation(
        "schedules_dead_letters", "List the dead letters of a schedule", answer=PAGE, parameters=FILTERS,
        tag="schedules",
    )  # fmt: skip
    def get(self, request: Request, schedule_id: UUID) -> Response:
        query = self.asked()
        access_schedule(actor=self.actor, schedule_id=schedule_id, need="deadletter.read")
        return list_deadletters(self, query, schedule_id=schedule_id)


class ExecutionDeadLetters(_Nested):
    """The dead letters of an execution."""

    @operation(
        "executions_dead_letters", "List the dead letters of an execution: one for each time that it died",
        answer=PAGE, parameters=FILTERS, tag="executions", problems=OF_ARCHIVES,
    )  # fmt: skip
    def get(self, request: Request, execution_id: UUID) -> Response:
        query = self.asked()
        found = access_whole(tenant=self.tenant, actor=self.actor, execution_id=execution_id, need="deadletter.read")
        if found.archived is not None:
            return _of_archived(self, query, found.archived)
        return list_deadletters(self, query, execution_id=execution_id)


def _of_archived(endpoint: Endpoint, query: ListQuery, archived: Archived) -> Response:
    """All of them on one page: an execution has one for each time that it died."""
    wanted = letter_filter(query, execution_id=archived.execution.id)
    order, counted = query.order(list(ORDERS)), query.counted()
    query.position(ORDERS[order]), query.page_size()
    query.finish()
    letters = letters_find(archived, wanted)
    if not ORDERS[order].descending:
        letters.reverse()
    shown = deadletter_shapes(endpoint.tenant, letters)
    count = Count(len(shown), exact=True) if counted else None
    return Response(listed(shown, None, query=query, count=count, shape=lambda one: one))
