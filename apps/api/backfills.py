"""/backfills, and asking for one of a schedule or a workflow"""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_schedule, access_workflow
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_backfills import (
    BackfillAnswer,
    BackfillInput,
    BackfillItem,
    BackfillOutlook,
    WorkflowBackfillInput,
)
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import tagged
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, Decorator, listing, operation, parameter
from apps.operations.backfill.reading import (
    backfill_find,
    backfill_item,
    backfill_shape,
    backfills,
    outlook_shape,
)
from apps.operations.backfill.services import Rehearsal, backfill_ask, schedule_of_workflow
from apps.operations.states import STATES

TAG = "backfills"
OF_BACKFILLS = [
    parameter("schedule", UUID), parameter("state", choices=STATES), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip


def backfilling(name: str, summary: str, *, body: type) -> Decorator:
    """Describes what asks for a backfill."""
    return operation(
        name, f"{summary}; dry_run only says what it would do", body=body, answer=BackfillAnswer, status=202,
        also={200: BackfillOutlook}, retry_safe=True, rehearsed=False, tag=TAG,
        problems=("invalid_schedule", *OF_ARCHIVES),
    )  # fmt: skip


class BackfillEndpoint(Endpoint):
    """What the views that ask for one share."""

    def asked(self, schedule_id: UUID, data: Any) -> Response:
        """The backfill that the body asks for, or what it would do."""
        found = backfill_ask(tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, data=data, now=self.now)
        if isinstance(found, Rehearsal):
            return Response(outlook_shape(*found))
        shape = backfill_shape(self.tenant, found, now=self.now)
        return Response(shape, status=202, headers={"Location": f"/api/v1/backfills/{found.pk}"})


class ScheduleBackfill(BackfillEndpoint):
    """Past occurrences of a schedule."""

    actions = {"POST": "schedule.backfill"}

    @backfilling("schedules_backfill", "Run past occurrences of a schedule", body=BackfillInput)
    @retry_safe
    def post(self, request: Request, schedule_id: UUID) -> Response:
        access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.backfill")
        return self.asked(schedule_id, self.body)


class WorkflowBackfill(BackfillEndpoint):
    """Past occurrences of a workflow."""

    actions = {"POST": "schedule.backfill"}

    @backfilling("workflows_backfill", "Run past occurrences of a workflow's schedule", body=WorkflowBackfillInput)
    @retry_safe
    def post(self, request: Request, workflow_id: UUID) -> Response:
        access_workflow(actor=self.actor, workflow_id=workflow_id, need="schedule.backfill")
        body = self.body if isinstance(self.body, dict) else {}
        schedule_id = schedule_of_workflow(workflow_id, body.get("schedule"))
        return self.asked(schedule_id, {name: value for name, value in body.items() if name != "schedule"})


class BackfillList(Endpoint):
    """All backfills."""

    actions = {"GET": "schedule.read"}

    @operation("backfills_list", "List backfills, newest first", answer=listing(BackfillItem, "Backfill"),
               parameters=OF_BACKFILLS, tag=TAG)  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("schedule", "state", *PAGING)
        found, states = backfills(query.id("schedule")), query.choices("state", STATES)
        if states:
            found = found.filter(state__in=states)
        return Response(newest(found, query=query, shape=backfill_item))


class BackfillDetail(Endpoint):
    """One backfill."""

    actions = {"GET": "schedule.read"}

    @operation("backfills_read", "Read a backfill and its progress day by day", answer=BackfillAnswer, tag=TAG)
    def get(self, request: Request, backfill_id: UUID) -> Response:
        self.query().finish()
        found = backfill_find(backfill_id)
        return tagged(backfill_shape(self.tenant, found, now=self.now), found.revision)
