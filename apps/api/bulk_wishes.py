"""Bulk requests by filter: executions cancelled or run again, jobs and schedules paused, resumed, labelled."""

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_operations import OperationAnswer, RehearsedAnswer, wish_input
from apps.api.endpoint import retry_safe
from apps.api.openapi import Decorator, operation
from apps.api.wishes import WishEndpoint
from apps.operations.filters import EXECUTION_NAMES, JOB_NAMES, SCHEDULE_NAMES

ExecutionsWishInput = wish_input("ExecutionsWishInput", EXECUTION_NAMES, "job")
JobsWishInput = wish_input("JobsWishInput", JOB_NAMES, "name")
JobsLabelWishInput = wish_input("JobsLabelWishInput", JOB_NAMES, "name", ("labels",))
SchedulesWishInput = wish_input("SchedulesWishInput", SCHEDULE_NAMES, "job")
SchedulesResumeWishInput = wish_input("SchedulesResumeWishInput", SCHEDULE_NAMES, "job", ("catch_up",))
SchedulesLabelWishInput = wish_input("SchedulesLabelWishInput", SCHEDULE_NAMES, "job", ("labels",))


def bulk(name: str, summary: str, *, body: type, tag: str) -> Decorator:
    """Describes a bulk request by filter."""
    return operation(
        name, f"{summary}; 200 with dry_run", body=body, answer=OperationAnswer, status=202, tag=tag, retry_safe=True,
        also={200: RehearsedAnswer}, rehearsed=False, problems=("too_many_items",),
    )  # fmt: skip


class ExecutionsBulkCancel(WishEndpoint):
    """Cancelling many executions."""

    actions = {"POST": "execution.cancel"}
    action, target = "cancel", "executions"

    @bulk("executions_bulk_cancel", "Cancel executions by filter", body=ExecutionsWishInput, tag="executions")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class ExecutionsBulkRerun(WishEndpoint):
    """Running many executions again."""

    actions = {"POST": "execution.rerun"}
    action, target = "rerun", "executions"

    @bulk("executions_bulk_rerun", "Run executions again by filter", body=ExecutionsWishInput, tag="executions")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class JobsBulkPause(WishEndpoint):
    """Pausing many jobs."""

    actions = {"POST": "job.pause"}
    action, target = "pause", "jobs"

    @bulk("jobs_bulk_pause", "Pause jobs by filter", body=JobsWishInput, tag="jobs")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class JobsBulkResume(WishEndpoint):
    """Resuming many jobs."""

    actions = {"POST": "job.resume"}
    action, target = "resume", "jobs"

    @bulk("jobs_bulk_resume", "Resume jobs by filter", body=JobsWishInput, tag="jobs")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class JobsBulkLabel(WishEndpoint):
    """Labelling many jobs."""

    actions = {"POST": "job.update"}
    action, target = "label", "jobs"

    @bulk("jobs_bulk_label", "Set or take away labels of jobs by filter", body=JobsLabelWishInput, tag="jobs")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class SchedulesBulkPause(WishEndpoint):
    """Pausing many schedules."""

    actions = {"POST": "schedule.pause"}
    action, target = "pause", "schedules"

    @bulk("schedules_bulk_pause", "Pause schedules by filter", body=SchedulesWishInput, tag="schedules")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class SchedulesBulkResume(WishEndpoint):
    """Resuming many schedules."""

    actions = {"POST": "schedule.resume"}
    action, target = "resume", "schedules"

    @bulk("schedules_bulk_resume", "Resume schedules by filter", body=SchedulesResumeWishInput, tag="schedules")
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()


class SchedulesBulkLabel(WishEndpoint):
    """Labelling many schedules."""

    actions = {"POST": "schedule.update"}
    action, target = "label", "schedules"

    @bulk(
        "schedules_bulk_label", "Set or take away labels of schedules by filter", body=SchedulesLabelWishInput,
        tag="schedules",
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.asked()
