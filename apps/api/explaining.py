"""/executions/{id}/explain and /schedules/{id}/explain: why is it not running?"""

from datetime import datetime
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_schedule
from apps.api.documents_explaining import ExplainAsk, ExplanationAnswer
from apps.api.documents_runs import NoInput
from apps.api.endpoint import Endpoint
from apps.api.openapi import operation, parameter
from apps.api.reading import nothing_of
from apps.dispatch.explaining.execution import execution_explain
from apps.dispatch.explaining.schedules import schedule_explain
from apps.dispatch.explaining.shape import explanation_shape
from apps.schedules.input_fields import Fields
from apps.schedules.timing import spec_from_json
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults
from tenants.permissions import may

READS_NAMES = "audit.read"  # who may read the trail is told persons by name
AT = parameter("at", OpenApiTypes.DATETIME, text="what became of this instant, or becomes of it")


class ExecutionExplain(Endpoint):
    """Why a run waits, what it is up to, or why it ended so."""

    actions = {"GET": "execution.read", "POST": "execution.read"}

    @operation("executions_explanation", "Explain an execution", answer=ExplanationAnswer, tag="executions")
    def get(self, request: Request, execution_id: UUID) -> Response:
        self.query().finish()
        return self._answer(execution_id)

    @operation(
        "executions_explain", "Explain an execution: why it waits, what it is up to, or why it ended so", body=NoInput,
        answer=ExplanationAnswer, tag="executions",
    )  # fmt: skip
    def post(self, request: Request, execution_id: UUID) -> Response:
        nothing_of(self.body)
        return self._answer(execution_id)

    def _answer(self, execution_id: UUID) -> Response:
        found = execution_explain(
            self.tenant, execution_id, now=self.now, named=may(self.actor, READS_NAMES)
        )  # fmt: skip
        return Response(explanation_shape(found))


class ScheduleExplain(Endpoint):
    """Why a schedule does not run, when it will, or what became of one instant."""

    actions = {"GET": "schedule.read", "POST": "schedule.read"}

    @operation(
        "schedules_explanation", "Explain a schedule, or one instant of it", answer=ExplanationAnswer, parameters=[AT],
        tag="schedules",
    )  # fmt: skip
    def get(self, request: Request, schedule_id: UUID) -> Response:
        query = self.query("at")
        at = query.instant("at")
        query.finish()
        return self._answer(schedule_id, at)

    @operation(
        "schedules_explain", "Explain a schedule: why it does not run, when it will, or what became of one instant",
        body=ExplainAsk, answer=ExplanationAnswer, tag="schedules",
    )  # fmt: skip
    def post(self, request: Request, schedule_id: UUID) -> Response:
        faults = Faults()
        fields = Fields(self.body, faults)
        fields.only(("at",))
        given = fields.data.get("at")
        at = None
        if given is not None:
            found = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.read")
            at = read_instant(given, "/at", spec_from_json(found.definition.spec).zone, faults)
        faults.raise_if_any()
        return self._answer(schedule_id, at)

    def _answer(self, schedule_id: UUID, at: datetime | None) -> Response:
        found = schedule_explain(
            self.tenant, schedule_id, now=self.now, at=at, named=may(self.actor, READS_NAMES)
        )  # fmt: skip
        return Response(explanation_shape(found))
