"""/dead-letters"""

from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_deadletter
from apps.api.documents_runs import DeadLetterAnswer, ExecutionAnswer, NoteInput, ReplayInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.executions import execution_answer
from apps.api.lists import PAGING, page
from apps.api.openapi import CREATED_PARAMETERS, CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import note_of
from apps.api.shapes import deadletter_shape
from apps.deadletters.models import DeadLetter
from apps.outcomes.replay import UNCHANGED, deadletter_replay, deadletter_resolve

TAG = "dead letters"
STATUSES = ("open", "replayed", "resolved")


class DeadLetterList(Endpoint):
    """All dead letters."""

    actions = {"GET": "deadletter.read"}

    @operation(
        "dead_letters_list", "List dead letters, newest first", answer=listing(DeadLetterAnswer, "DeadLetter"), tag=TAG,
        parameters=[
            parameter("status", choices=STATUSES), parameter("job", UUID), parameter("schedule", UUID),
            parameter("execution", UUID), parameter("fingerprint"), *CREATED_PARAMETERS, PAGE_SIZE_PARAMETER,
            CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(
            "status", "job", "schedule", "execution", "fingerprint", "created_after", "created_before", *PAGING
        )
        found: QuerySet[DeadLetter] = DeadLetter.objects.order_by("-pk")
        statuses = query.choices("status", STATUSES)
        exact = {
            "job_id": query.id("job"),
            "schedule_id": query.id("schedule"),
            "execution_id": query.id("execution"),
            "fingerprint": query.text("fingerprint"),
            "created_at__gt": query.instant("created_after"),
            "created_at__lt": query.instant("created_before"),
            "pk__lt": query.before(),
        }
        size = query.page_size()
        query.finish()
        if statuses == ["open"]:
            found = found.filter(resolved_at=None)
        elif statuses:
            found = found.filter(resolution__in=["" if status == "open" else status for status in statuses])
        found = found.filter(**{name: value for name, value in exact.items() if value is not None})
        rows = list(found[: size + 1])
        return Response(page(rows, query=query, size=size, key=lambda row: row.pk, shape=deadletter_shape))


class DeadLetterDetail(Endpoint):
    """One dead letter."""

    actions = {"GET": "deadletter.read"}

    @operation("dead_letters_read", "Read a dead letter", answer=DeadLetterAnswer, tag=TAG)
    def get(self, request: Request, letter_id: UUID) -> Response:
        self.query().finish()
        return Response(
            deadletter_shape(access_deadletter(actor=self.actor, letter_id=letter_id, need="deadletter.read"))
        )


class DeadLetterReplay(Endpoint):
    """Running a dead execution again."""

    actions = {"POST": "deadletter.replay"}

    @operation(
        "dead_letters_replay", "Replay: reopen the execution, or make a new one with another payload",
        body=ReplayInput, answer=ExecutionAnswer, status=202, retry_safe=True, tag=TAG,
        problems=("not_open", "not_dead", "job_deleted", "execution_gone", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, letter_id: UUID) -> Response:
        body = self.body
        note = note_of(body, also=("payload",))
        execution_id = deadletter_replay(
            tenant=self.tenant, actor=self.actor, letter_id=letter_id, now=self.now, note=note,
            payload=body.get("payload", UNCHANGED),
        )  # fmt: skip
        return execution_answer(self, execution_id, status=202)


class DeadLetterResolve(Endpoint):
    """Closing a dead letter."""

    actions = {"POST": "deadletter.resolve"}

    @operation(
        "dead_letters_resolve", "Close a dead letter without a run", body=NoteInput, answer=DeadLetterAnswer,
        retry_safe=True, tag=TAG, problems=("not_open",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, letter_id: UUID) -> Response:
        deadletter_resolve(
            tenant=self.tenant, actor=self.actor, letter_id=letter_id, now=self.now, note=note_of(self.body)
        )
        return Response(
            deadletter_shape(access_deadletter(actor=self.actor, letter_id=letter_id, need="deadletter.resolve"))
        )
