"""What is done to operations, backfills among them: paused, resumed, made faster or slower, cancelled, taken back."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.console.roles import OPERATE
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.live import id_of
from apps.console.verbs.registry import register
from apps.operations import services
from apps.operations.models import Operation
from apps.operations.outlined import BACKFILL
from apps.operations.pacing import RATE_MAX, RATE_MIN, WHOLE_MAX
from apps.operations.reading import name_of, undo_blocked
from apps.operations.states import sources_of
from kernel.errors import NotFound

NO_LIMIT = "no limit"


class PaceForm(forms.Form):
    """How fast it goes; what is empty is no limit."""

    rate_per_s = forms.FloatField(
        label="Items a second, at most", required=False, min_value=RATE_MIN, max_value=RATE_MAX
    )
    max_in_flight = forms.IntegerField(
        label="Runs at a time, at most", required=False, min_value=1, max_value=WHOLE_MAX
    )
    stop_after_failures = forms.IntegerField(
        label="Stop after so many failures", required=False, min_value=1, max_value=WHOLE_MAX
    )


class OperationVerb(Verb):
    """What they share. The services compare state and revision under the operation's locks."""

    level, scope = OPERATE, "tenant"
    transition: str  # of apps.operations.states
    title: str

    def look(self, ask: Ask) -> Preview:
        one = found(ask)
        lines = [
            Line("Operation", name_of(one)),
            Line("Asked for by", one.created_by),
            Line("Why", one.reason or "-"),
            self.change(one, ask),
            Line("Items", f"{one.planned:,}"),
            Line("Not begun", f"{one.pending:,}"),
            Line("Running", f"{one.running:,}"),
        ]
        refused = "" if one.state in sources_of(self.transition) else f"It is {one.state}."
        return Preview(
            f"{self.title}: {name_of(one)}", [*lines, *self.more(one, ask)],
            version_of(one.state, one.revision), self.warnings(one), refused or self.refused(one), link_of(ask, one),
        )  # fmt: skip

    def change(self, one: Operation, ask: Ask) -> Line:
        """The line of its state."""
        raise NotImplementedError

    def more(self, one: Operation, ask: Ask) -> list[Line]:
        return []

    def warnings(self, one: Operation) -> list[str]:
        return []

    def refused(self, one: Operation) -> str:
        return ""

    def about(self, ask: Ask) -> dict[str, Any]:
        """What all services of operations take: the revision is the one of the version that was compared just now."""
        one = found(ask)
        return {
            "tenant": ask.inside, "actor": ask.actor, "operation_id": one.pk, "now": ask.now, "expect": {one.revision},
        }  # fmt: skip


@register
class PauseOperation(OperationVerb):
    """Nothing more of it is started until somebody resumes it."""

    name, label, key, transition, title = "operation.pause", "Pause", "p", "pause", "Pause"

    def change(self, one: Operation, ask: Ask) -> Line:
        return Line("State", one.state, "paused")

    def warnings(self, one: Operation) -> list[str]:
        return [f"{one.running:,} run, and go on."] if one.running else []

    def do(self, ask: Ask) -> Receipt:
        one = services.operation_pause(**self.about(ask), reason=ask.reason)
        text = f"It is paused: {one.pending:,} are not begun."
        return Receipt(text, link_of(ask, one), undo=Step("operation.resume", ask.target, ask.inside.slug))


@register
class ResumeOperation(OperationVerb):
    """It goes on where it was."""

    name, label, key, transition, title = "operation.resume", "Resume", "r", "resume", "Resume"

    def change(self, one: Operation, ask: Ask) -> Line:
        return Line("State", one.state, "running" if one.is_planned else "planning")

    def warnings(self, one: Operation) -> list[str]:
        failed = f"{one.failed:,} items have failed: the others are begun all the same. Look at them before."
        return [failed] if one.failed else []

    def do(self, ask: Ask) -> Receipt:
        one = services.operation_resume(**self.about(ask))
        text = f"It goes on with {one.pending:,} that are not begun."
        return Receipt(text, link_of(ask, one), undo=Step("operation.pause", ask.target, ask.inside.slug))


@register
class CancelOperation(OperationVerb):
    """What is not begun is never begun."""

    name, label, key, transition, title, hard = "operation.cancel", "Cancel", "c", "cancel", "Cancel", True

    def change(self, one: Operation, ask: Ask) -> Line:
        return Line("State", one.state, "cancelled")

    def warnings(self, one: Operation) -> list[str]:
        return ["It can't be resumed. What runs goes on."]

    def do(self, ask: Ask) -> Receipt:
        one = services.operation_cancel(**self.about(ask), reason=ask.reason)
        text = f"It is cancelled: {one.pending:,} are never begun, {one.running:,} run to their end."
        undo = Step("operation.undo", ask.target, ask.inside.slug)
        return Receipt(text, link_of(ask, one), then=[] if undo_blocked(one) else [undo])


@register
class UndoOperation(OperationVerb):
    """Takes back what can be."""

    name, label, key, transition, title, hard = "operation.undo", "Undo", "u", "undo", "Take back", True

    def change(self, one: Operation, ask: Ask) -> Line:
        return Line("State", one.state, "undone")

    def more(self, one: Operation, ask: Ask) -> list[Line]:
        return [Line("To take back", f"{one.running + one.succeeded:,}")]

    def warnings(self, one: Operation) -> list[str]:
        return ["What nobody has begun is cancelled, what was changed is put back. For the rest it is too late."]

    def refused(self, one: Operation) -> str:
        return undo_blocked(one)

    def do(self, ask: Ask) -> Receipt:
        one = services.operation_undo(**self.about(ask), reason=ask.reason)
        return Receipt(f"It is being taken back, {one.running + one.succeeded:,} items.", link_of(ask, one))


@register
class PaceOperation(OperationVerb):
    """Faster, slower."""

    name, label, key, transition, title = "operation.pace", "Change its pace", "e", "cancel", "Change the pace"
    form, look_first = PaceForm, True

    def change(self, one: Operation, ask: Ask) -> Line:
        return Line("State", one.state)

    def more(self, one: Operation, ask: Ask) -> list[Line]:
        return [
            Line(str(PaceForm.base_fields[name].label), _shown(getattr(one, name)),
                 _shown(ask.given[name]) if name in ask.given else None)
            for name in PaceForm.base_fields
        ]  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        given = {name: ask.given.get(name) for name in PaceForm.base_fields}
        before = {name: getattr(found(ask), name) for name in PaceForm.base_fields}
        one = services.operation_repace(**self.about(ask), given=given)
        was = {name: "" if value is None else str(value) for name, value in before.items()}
        undo = Step(self.name, ask.target, ask.inside.slug, given=was)
        return Receipt("Its pace is changed, from now on.", link_of(ask, one), undo=undo)


def found(ask: Ask) -> Operation:
    """The operation. In its tenant's schema; NotFound."""
    one: Operation | None = Operation.objects.filter(pk=id_of(ask)).first()
    if one is None:
        raise NotFound("There is no such operation.")
    return one


def link_of(ask: Ask, one: Operation) -> str:
    """Its page: of a backfill the one with its days."""
    kind = "backfills" if one.action == BACKFILL else "operations"
    return f"/t/{ask.inside.slug}/admin/{kind}/{one.pk}/"


def _shown(value: float | None) -> str:
    return NO_LIMIT if value is None else f"{value:g}"
