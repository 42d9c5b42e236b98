"""Lists of jobs and schedules, and of the schedules of one job."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_job
from apps.api.documents_jobs import JobAnswer
from apps.api.documents_schedules import ScheduleAnswer
from apps.api.documents_workflows import WorkflowItem
from apps.api.endpoint import Endpoint
from apps.api.lists import ListQuery, listed
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
from apps.api.shapes import job_shape, schedule_shapes
from apps.operations.filters import JOB_STATUSES, SCHEDULE_STATUSES, job_filter, schedule_filter, workflow_filter
from apps.schedules.job_input import KINDS
from apps.schedules.listing import (
    ORDERS,
    jobs_count,
    jobs_read,
    schedules_count,
    schedules_read,
    workflows_read,
)
from apps.workflows.definitions.defined import workflow_item

_COMMON = [
    parameter("name", text="part of the name, case does not count"), parameter("external_id"), LABEL_PARAMETER,
    *time_parameters("created"),
    parameter("order", choices=list(ORDERS), several=False, text="-created_at"),
    COUNT_PARAMETER, PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
OF_JOBS = [parameter("kind", choices=KINDS), parameter("status", choices=JOB_STATUSES), *_COMMON]
OF_ONE_JOB = [parameter("status", choices=SCHEDULE_STATUSES), *_COMMON]
OF_SCHEDULES = [parameter("job", UUID), parameter("workflow", UUID), *OF_ONE_JOB]
OF_WORKFLOWS = [parameter("status", choices=JOB_STATUSES), *_COMMON]
WORKFLOW_PAGE = listing(WorkflowItem, "Workflow", counted=True)
JOB_PAGE = listing(JobAnswer, "Job", counted=True)
SCHEDULE_PAGE = listing(ScheduleAnswer, "Schedule", counted=True)


def list_jobs(endpoint: Endpoint, query: ListQuery) -> Response:
    """A page of jobs. InvalidInput."""
    wanted, order = job_filter(query), query.order(list(ORDERS))
    after, size, counted = query.position(ORDERS[order]), query.page_size(), query.counted()
    query.finish()
    page = jobs_read(endpoint.tenant, wanted, order=order, after=after, size=size)
    count = jobs_count(endpoint.tenant, wanted) if counted else None
    return Response(listed(page.rows, page.after, query=query, count=count, shape=job_shape))


def list_workflows(endpoint: Endpoint, query: ListQuery) -> Response:
    """A page of workflows. InvalidInput."""
    wanted, order = workflow_filter(query), query.order(list(ORDERS))
    after, size, counted = query.position(ORDERS[order]), query.page_size(), query.counted()
    query.finish()
    page = workflows_read(endpoint.tenant, wanted, order=order, after=after, size=size)
    count = jobs_count(endpoint.tenant, wanted) if counted else None
    return Response(listed(page.rows, page.after, query=query, count=count, shape=workflow_item))


def list_schedules(endpoint: Endpoint, query: ListQuery, *, job_id: UUID | None = None) -> Response:
    """A page of schedules. InvalidInput."""
    wanted, order = schedule_filter(query, job_id=job_id), query.order(list(ORDERS))
    after, size, counted = query.position(ORDERS[order]), query.page_size(), query.counted()
    query.finish()
    page = schedules_read(endpoint.tenant, wanted, now=endpoint.now, order=order, after=after, size=size)
    count = schedules_count(endpoint.tenant, wanted, now=endpoint.now) if counted else None
    shapes = schedule_shapes(endpoint.tenant, page.rows, now=endpoint.now)
    return Response(listed(shapes, page.after, query=query, count=count, shape=lambda shape: shape))


class JobSchedules(Endpoint):
    """The schedules of a job."""

    actions = {"GET": "schedule.read"}

    @operation("jobs_schedules", "List the schedules of a job", answer=SCHEDULE_PAGE, parameters=OF_ONE_JOB, tag="jobs")
    def get(self, request: Request, job_id: UUID) -> Response:
        query = self.query(*(one.name for one in OF_ONE_JOB))
        access_job(actor=self.actor, job_id=job_id, need="schedule.read")
        return list_schedules(self, query, job_id=job_id)
