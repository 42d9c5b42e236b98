"""/dead-letters"""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_deadletter
from apps.api.deadletter_lists import OF_ALL, PAGE, TAG, list_deadletters
from apps.api.documents_runs import DeadLetterAnswer, ExecutionAnswer, NoteInput, ReplayInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.executions import execution_answer
from apps.api.openapi import operation
from apps.api.reading import MAX_NOTE_CHARS, note_of
from apps.api.shapes import deadletter_shape
from apps.outcomes.again import UNCHANGED, How
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.resolve import deadletter_reopen, deadletter_resolve
from apps.schedules.input_fields import Fields
from kernel.errors import Faults


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
        letter = access_deadletter(actor=self.actor, letter_id=letter_id, need="deadletter.read")
        return Response(deadletter_shape(self.tenant, letter))


class DeadLetterReplay(Endpoint):
    """Running a dead execution again."""

    actions = {"POST": "deadletter.replay"}

    @operation(
        "dead_letters_replay", "Replay: reopen the execution, or make a new one with another payload",
        body=ReplayInput, answer=ExecutionAnswer, status=202, retry_safe=True, tag=TAG,
        problems=("not_open", "not_dead", "job_deleted", "execution_gone", "replayed_too_often", "quota_exceeded",
                  "overloaded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, letter_id: UUID) -> Response:
        execution_id = deadletter_replay(
            tenant=self.tenant, actor=self.actor, letter_id=letter_id, now=self.now, how=how_of(self.body)
        )
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
        letter = access_deadletter(actor=self.actor, letter_id=letter_id, need="deadletter.resolve")
        return Response(deadletter_shape(self.tenant, letter))


class DeadLetterReopen(Endpoint):
    """Opening one that was resolved."""

    actions = {"POST": "deadletter.reopen"}

    @operation(
        "dead_letters_reopen", "Open a dead letter again that was resolved", body=NoteInput, answer=DeadLetterAnswer,
        retry_safe=True, tag=TAG, problems=("not_resolved", "not_dead"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, letter_id: UUID) -> Response:
        deadletter_reopen(
            tenant=self.tenant, actor=self.actor, letter_id=letter_id, now=self.now, reason=note_of(self.body)
        )
        letter = access_deadletter(actor=self.actor, letter_id=letter_id, need="deadletter.reopen")
        return Response(deadletter_shape(self.tenant, letter))


def how_of(body: Any) -> How:
    """How a letter is to be replayed, from a body. InvalidInput."""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only(("note", "payload", "new_key", "force"))
    note = fields.text("note", most=MAX_NOTE_CHARS, lines=True)
    new_key, force = fields.flag("new_key"), fields.flag("force")
    faults.raise_if_any()
    return How(payload=body.get("payload", UNCHANGED), new_key=new_key, force=force, note=note or "")
