"""/executions: submitting, reading and stopping one"""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_whole
from apps.api.bulk import Batch, BulkEndpoint, Result
from apps.api.codes import OF_ARCHIVES
from apps.api.documents_bulk import BulkAnswer, ExecutionsBulkInput
from apps.api.documents_runs import ExecutionAnswer, NoInput, RerunInput, SubmitInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.execution_lists import OF_ALL, PAGE, TAG, list_executions
from apps.api.openapi import operation
from apps.api.reading import nothing_of
from apps.api.shapes_runs import execution_shape
from apps.dispatch.reasons import with_reasons
from apps.dispatch.submission import execution_submit, executions_submit
from apps.dispatch.submit import execution_rerun
from apps.outcomes.again import UNCHANGED
from apps.outcomes.cancel import execution_cancel
from apps.schedules.input_fields import Fields
from apps.workflows.dependencies.depending_reading import parents_of
from kernel.errors import Faults
from tenants import door


def execution_answer(endpoint: Endpoint, execution_id: UUID, *, status: int = 200) -> Response:
    """The execution as it is now."""
    row, archived = access_whole(
        tenant=endpoint.tenant, actor=endpoint.actor, execution_id=execution_id, need="execution.read"
    )
    headers = {"Location": f"/api/v1/executions/{row.id}"} if status == 202 else None
    if archived is None:
        (row,) = with_reasons(endpoint.tenant, [row], now=endpoint.now)
        parents = parents_of(door.raw(), endpoint.tenant.schema_name, row.id)
    else:
        parents = archived.parents
    shape = execution_shape(row, as_of=endpoint.now, payload=True, parents=parents)
    return Response(shape, status=status, headers=headers)


class ExecutionList(Endpoint):
    """All executions."""

    actions = {"GET": "execution.read", "POST": "execution.submit"}

    @operation("executions_list", "List executions", answer=PAGE, parameters=OF_ALL, tag=TAG, problems=OF_ARCHIVES)
    def get(self, request: Request) -> Response:
        return list_executions(self, self.query(*(one.name for one in OF_ALL)))

    @operation(
        "executions_submit", "Run a job at once or later", body=SubmitInput, answer=ExecutionAnswer, status=202,
        retry_safe=True, tag=TAG, problems=("quota_exceeded", "overloaded"),
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
        answer=BulkAnswer, retry_safe=True, tag=TAG, problems=["batch_refused", "overloaded"],
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

    @operation("executions_read", "Read an execution", answer=ExecutionAnswer, tag=TAG, problems=OF_ARCHIVES)
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
        "executions_rerun", "Run a finished execution again as a new one, with its payload or another one",
        body=RerunInput, answer=ExecutionAnswer, status=202, retry_safe=True, tag=TAG,
        problems=("not_finished", "erased", "quota_exceeded", "overloaded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, execution_id: UUID) -> Response:
        new_id = execution_rerun(
            tenant=self.tenant, actor=self.actor, execution_id=execution_id, now=self.now, payload=payload_of(self.body)
        )
        return execution_answer(self, new_id, status=202)


def payload_of(body: Any) -> Any:
    """The payload of a body that may have nothing else; UNCHANGED when it has none. InvalidInput."""
    faults = Faults()
    Fields(body, faults).only(("payload",))
    faults.raise_if_any()
    return body.get("payload", UNCHANGED)
