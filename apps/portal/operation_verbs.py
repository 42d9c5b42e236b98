"""What can be done to operations: paused, resumed, cancelled, undone, made faster or slower."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.urls import reverse

from apps.operations import services
from apps.operations.models import Operation
from apps.operations.reading import name_of, operation_access, undo_blocked
from apps.operations.states import sources_of
from apps.portal.operations import state_word
from apps.portal.paces import pace_fields, pace_of
from apps.portal.verbs import Receipt, Subject, VerbPage, reason_field
from apps.presenting.fields import Field, Form


class OperationVerb(VerbPage):
    """What they share. The services compare the state themselves."""

    section = "operations"
    lead: ClassVar[str] = ""
    transition: ClassVar[str]  # of apps.operations.states

    def subject(self, operation_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        one = operation_access(actor=self.actor, operation_id=operation_id, need=self.actions["GET"])
        return Subject(
            name=name_of(one), url=reverse("portal:operation", args=[one.pk]), lead=self.lead, row=one,
            facts=[("State", state_word(one)), ("Items", f"{one.planned:,}"), ("Not begun", f"{one.pending:,}"),
                   ("Running", f"{one.running:,}")],
            blocked=self.blocked(one), revision=one.revision,
        )  # fmt: skip

    def blocked(self, one: Operation) -> str:
        """Why its state does not allow this; empty when it does."""
        return "" if one.state in sources_of(self.transition) else f"It is {state_word(one)}."

    def about(self, subject: Subject, expect: set[int] | None) -> dict[str, Any]:
        """What all services of operations take."""
        return {
            "tenant": self.tenant, "actor": self.actor, "now": self.now, "operation_id": subject.row.pk,
            "expect": expect,
        }  # fmt: skip


class OperationPause(OperationVerb):
    """Letting it wait."""

    actions = {"GET": "operation.pause", "POST": "operation.pause"}
    transition = "pause"
    title, button = "Pause this operation", "Pause it"
    lead = "Nothing more of it is started until somebody resumes it. What runs goes on."

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field()]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.operation_pause(**self.about(subject, expect), reason=self.reason(form))
        return Receipt("It is paused.", subject.url)


class OperationResume(OperationVerb):
    """Letting it go on."""

    actions = {"GET": "operation.resume", "POST": "operation.resume"}
    transition = "resume"
    title, button = "Resume this operation", "Resume it"
    lead = (
        "It goes on where it was. When its first items failed, the others are begun all the same: look at them before."
    )

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.operation_resume(**self.about(subject, expect))
        return Receipt("It goes on.", subject.url)


class OperationCancel(OperationVerb):
    """Ending it."""

    actions = {"GET": "operation.cancel", "POST": "operation.cancel"}
    transition = "cancel"
    title, button, kind = "Cancel this operation", "Cancel the operation", "danger"
    lead = "What is not begun is never begun. What runs goes on. It can't be resumed."

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field()]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.operation_cancel(**self.about(subject, expect), reason=self.reason(form))
        return Receipt("It is cancelled.", subject.url)


class OperationUndo(OperationVerb):
    """Taking it back."""

    actions = {"GET": "operation.undo", "POST": "operation.undo"}
    transition = "undo"
    title, button, kind = "Undo this operation", "Undo it", "danger"
    lead = (
        "What it started and nobody has begun is cancelled; what it changed is put back where nobody changed it since. "
        "For the rest it is too late, and each item says why. What is not begun is never begun."
    )

    def blocked(self, one: Operation) -> str:
        return super().blocked(one) or undo_blocked(one)

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field()]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.operation_undo(**self.about(subject, expect), reason=self.reason(form))
        return Receipt("It is being taken back.", subject.url)


class OperationPace(OperationVerb):
    """Faster, slower."""

    actions = {"GET": "operation.update", "POST": "operation.update"}
    transition = "cancel"  # while it may still be cancelled
    title, button = "Change its pace", "Change it"
    lead = "How fast it goes, and what stops it. An empty field is no limit."

    def fields(self, subject: Subject) -> list[Field]:
        return pace_fields(subject.row)

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.operation_repace(**self.about(subject, expect), given=pace_of(form))
        return Receipt("Its pace is changed.", subject.url)
