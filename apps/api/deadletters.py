"""/dead-letters"""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_deadletter
from apps.api.deadletter_lists import OF_ALL, PAGE, TAG, list_deadletters
from apps.api.documents_runs import DeadLetterAnswer, ExecutionAnswer, NoteInput, ReplayInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.executions import execution_answer
from apps.api.openapi import operation
from apps.api.reading import note_of
from apps.api.shapes import deadletter_shape
from apps.outcomes.replay import UNCHANGED, deadletter_replay, deadletter_resolve


class DeadLetterList(Endpoint):
    """All dead letters."""

    actions = {"GET": "deadletter.read"}

    @operation("dead_letters_list", "List dead letters", answer=PAGE, parameters=OF_ALL, tag=TAG)
    def get(self, request: Request) -> Response:
        return list_deadletters(self, self.query(*(one.name for one in OF_ALL)))


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
        problems=("not_open", "not_dead", "job_deleted", "execution_gone", "quota_exceeded", "overloaded"),
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
