"""/executions/{id}/erase: one execution, everywhere."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_execution
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_holds import EraseInput, ErasureAnswer
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.openapi import operation
from apps.api.reading import MAX_REASON_CHARS
from apps.archive.erasing import Receipt, execution_erase, receipt
from apps.schedules.input_fields import Fields
from kernel.errors import Faults


class ExecutionErase(Endpoint):
    """What an execution was about goes; that it ran stays."""

    actions = {"GET": "execution.erase", "POST": "execution.erase"}

    @operation(
        "executions_erasure", "What was erased with an execution, and what is left of it", answer=ErasureAnswer,
        tag="executions", problems=OF_ARCHIVES,
    )  # fmt: skip
    def get(self, request: Request, execution_id: UUID) -> Response:
        self.query().finish()
        access_execution(tenant=self.tenant, actor=self.actor, execution_id=execution_id, need="execution.erase")
        return Response(erasure_shape(receipt(self.tenant, execution_id)))

    @operation(
        "executions_erase", "Erase an execution everywhere; this can't be undone", body=EraseInput,
        answer=ErasureAnswer, retry_safe=True, tag="executions",
        problems=("not_finished", "held", "too_many_parts", *OF_ARCHIVES),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, execution_id: UUID) -> Response:
        access_execution(tenant=self.tenant, actor=self.actor, execution_id=execution_id, need="execution.erase")
        fields = Fields(self.body, Faults())
        fields.only(("reason", "everything"))
        reason = fields.text("reason", most=MAX_REASON_CHARS, required=True, lines=True) or ""
        everything = fields.flag("everything")
        fields.faults.raise_if_any()
        done = execution_erase(
            tenant=self.tenant, actor=self.actor, execution_id=execution_id, reason=reason, now=self.now,
            everything=everything, files=False,
        )  # fmt: skip
        return Response(erasure_shape(done))


def erasure_shape(found: Receipt) -> dict[str, Any]:
    """What came of a request, as the API answers it."""
    own = next(one for one in found.parts if one.execution_id == found.execution_id)
    return {
        "execution": own.execution_id,
        "erased_at": own.at,
        "reason": own.reason,
        "done": not found.left,
        "executions": [one.execution_id for one in found.parts],
        "left": found.left,
    }
