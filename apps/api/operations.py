"""/operations: what was asked for over many things, how far it is, and its receipt."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_operations import OperationAnswer, OperationChange, OperationItemAnswer
from apps.api.documents_runs import NoInput, ReasonInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import nothing_of, reason_of
from apps.api.renderers import encode
from apps.api.wishes import operation_shape
from apps.operations import services
from apps.operations.models import Item, Operation
from apps.operations.reading import items_all, items_read, operation_access
from apps.operations.states import ITEM_STATES, STATES
from apps.schedules.input_fields import Fields
from kernel.errors import Faults

TAG = "operations"
LINES = "application/x-ndjson"
FILTERS = [
    parameter("state", choices=STATES), parameter("action", text="cancel, rerun, pause, resume, label, ..."),
    parameter("target", text="executions, jobs, schedules, ..."), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
]  # fmt: skip
ITEM_FILTERS = [parameter("state", choices=ITEM_STATES), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER]


def operation_answer(one: Operation) -> Response:
    """The operation with its ETag."""
    return tagged(operation_shape(one), one.revision)


class OperationList(Endpoint):
    """All operations."""

    actions = {"GET": "operation.read"}

    @operation(
        "operations_list", "List operations, newest first", answer=listing(OperationAnswer, "Operation"),
        parameters=FILTERS, tag=TAG,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("state", "action", "target", *PAGING)
        states, action, target = query.choices("state", STATES), query.text("action"), query.text("target")
        found = Operation.objects.all()
        if states:
            found = found.filter(state__in=states)
        found = found if action is None else found.filter(action=action)
        found = found if target is None else found.filter(target=target)
        return Response(newest(found, query=query, shape=operation_shape))


class OperationDetail(Endpoint):
    """One operation."""

    actions = {"GET": "operation.read", "PATCH": "operation.update"}

    @operation("operations_read", "Read an operation", answer=OperationAnswer, tag=TAG)
    def get(self, request: Request, operation_id: UUID) -> Response:
        self.query().finish()
        return operation_answer(operation_access(actor=self.actor, operation_id=operation_id, need="operation.read"))

    @operation(
        "operations_patch", "Change how fast an operation goes, and what stops it", body=OperationChange,
        answer=OperationAnswer, if_match=True, tag=TAG, problems=("operation_not_open",),
    )  # fmt: skip
    def patch(self, request: Request, operation_id: UUID) -> Response:
        operation_access(actor=self.actor, operation_id=operation_id, need="operation.update")
        faults = Faults()
        given = Fields(self.body, faults).data
        faults.raise_if_any()
        return operation_answer(
            services.operation_repace(
                tenant=self.tenant, actor=self.actor, operation_id=operation_id, now=self.now, given=given,
                expect=revisions(request),
            )
        )  # fmt: skip


class OperationPause(Endpoint):
    """Letting an operation wait."""

    actions = {"POST": "operation.pause"}

    @operation(
        "operations_pause", "Pause an operation: nothing more of it is started", body=ReasonInput,
        answer=OperationAnswer, retry_safe=True, tag=TAG, problems=("operation_not_open",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, operation_id: UUID) -> Response:
        operation_access(actor=self.actor, operation_id=operation_id, need="operation.pause")
        return operation_answer(
            services.operation_pause(
                tenant=self.tenant, actor=self.actor, operation_id=operation_id, now=self.now,
                reason=reason_of(self.body),
            )
        )  # fmt: skip


class OperationResume(Endpoint):
    """Letting it go on."""

    actions = {"POST": "operation.resume"}

    @operation(
        "operations_resume", "Resume an operation, also after its canary failed", body=NoInput, answer=OperationAnswer,
        retry_safe=True, tag=TAG, problems=("operation_not_open",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, operation_id: UUID) -> Response:
        operation_access(actor=self.actor, operation_id=operation_id, need="operation.resume")
        nothing_of(self.body)
        return operation_answer(
            services.operation_resume(tenant=self.tenant, actor=self.actor, operation_id=operation_id, now=self.now)
        )


class OperationCancel(Endpoint):
    """Ending it."""

    actions = {"POST": "operation.cancel"}

    @operation(
        "operations_cancel", "Cancel an operation: what is pending is never started, what runs goes on",
        body=ReasonInput, answer=OperationAnswer, retry_safe=True, tag=TAG, problems=("operation_not_open",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, operation_id: UUID) -> Response:
        operation_access(actor=self.actor, operation_id=operation_id, need="operation.cancel")
        return operation_answer(
            services.operation_cancel(
                tenant=self.tenant, actor=self.actor, operation_id=operation_id, now=self.now,
                reason=reason_of(self.body),
            )
        )  # fmt: skip


class OperationUndo(Endpoint):
    """Taking back what can be taken back."""

    actions = {"POST": "operation.undo"}

    @operation(
        "operations_undo", "Undo an operation: what has not begun is cancelled, what it changed is put back",
        body=ReasonInput, answer=OperationAnswer, status=202, retry_safe=True, tag=TAG,
        problems=("operation_not_open", "no_undo", "nothing_to_undo"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, operation_id: UUID) -> Response:
        operation_access(actor=self.actor, operation_id=operation_id, need="operation.undo")
        done = services.operation_undo(
            tenant=self.tenant, actor=self.actor, operation_id=operation_id, now=self.now, reason=reason_of(self.body)
        )
        return tagged(operation_shape(done), done.revision, status=202)


class OperationItems(Endpoint):
    """What became of each item."""

    actions = {"GET": "operation.read"}

    @operation(
        "operations_items", "List the items of an operation, in their order",
        answer=listing(OperationItemAnswer, "OperationItem"), parameters=ITEM_FILTERS, tag=TAG,
    )  # fmt: skip
    def get(self, request: Request, operation_id: UUID) -> Response:
        query = self.query(*(one.name for one in ITEM_FILTERS))
        states = query.choices("state", ITEM_STATES)
        after, size = query.before(), query.page_size()
        query.finish()
        one = operation_access(actor=self.actor, operation_id=operation_id, need="operation.read")
        page = items_read(one, states=states, after=0 if after is None else after.int, size=size)
        following = None if page.after is None else query.cursor_of(UUID(int=page.after))  # its cursors hold numbers
        return Response({"items": [item_shape(row) for row in page.rows], "next_cursor": following})


class OperationReceipt(Endpoint):
    """All items as a file."""

    actions = {"GET": "operation.read"}

    @operation(
        "operations_receipt", "Download the receipt of an operation as JSON lines, one an item", tag=TAG,
        answer=OpenApiResponse({"type": "string", "format": "json-lines"}, "One `OperationItemAnswer` a line."),
        media=LINES,
    )  # fmt: skip
    def get(self, request: Request, operation_id: UUID) -> StreamingHttpResponse:
        self.query().finish()
        one = operation_access(actor=self.actor, operation_id=operation_id, need="operation.read")
        headers = {"Content-Disposition": f'attachment; filename="operation-{one.pk}.jsonl"'}
        return StreamingHttpResponse(self._lines(one), content_type=LINES, headers=headers)

    def _lines(self, one: Operation) -> Iterator[bytes]:
        for rows in items_all(self.tenant, one):
            yield b"".join(encode(item_shape(row)) + b"\n" for row in rows)


def item_shape(row: Item) -> dict[str, Any]:
    """An item as the API answers it."""
    return {
        "n": row.n, "target": row.target_id, "nominal_at": row.nominal_at, "state": row.state,
        "code": row.code or None, "detail": row.detail or None, "execution": row.made_id, "done_at": row.done_at,
    }  # fmt: skip
