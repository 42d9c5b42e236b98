"""What can be done to executions."""

from __future__ import annotations

from uuid import UUID

from django.urls import reverse

from apps.archive.erasing import execution_erase
from apps.dispatch.submit import execution_rerun
from apps.executions.reading import ExecutionRow
from apps.outcomes.again import UNCHANGED
from apps.outcomes.cancel import execution_cancel
from apps.portal.executions import access_execution, gone_of
from apps.portal.verbs import REASON, Receipt, Subject, VerbPage
from apps.presenting.fields import Field, Form
from apps.presenting.json_input import read_json
from apps.presenting.shown import look_of, moment
from apps.schedules.names import names_of
from kernel.transitions import FINAL_STATES


class ExecutionVerb(VerbPage):
    """What they share. The services compare the state themselves."""

    section = "executions"
    lead = ""

    def subject(self, execution_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        row = access_execution(self, execution_id).row
        names = names_of(jobs=[row.job_id])
        return Subject(
            name=f"Execution {row.id}", url=reverse("portal:execution", args=[row.id]), lead=self.lead, row=row,
            facts=[("Job", names.jobs.get(row.job_id, "gone")), ("State", look_of(row.state).word),
                   ("Due", moment(row.actual_at)), ("Attempts", row.attempt_count)],
            blocked=self.blocked(row),
        )  # fmt: skip

    def blocked(self, row: ExecutionRow) -> str:
        return ""


class ExecutionCancel(ExecutionVerb):
    """Stopping one."""

    actions = {"GET": "execution.cancel", "POST": "execution.cancel"}
    title, button, kind = "Cancel this execution", "Cancel the execution", "danger"
    lead = "What waits ends at once. What runs is asked to stop, and ends as cancelled when its worker has stopped it."

    def blocked(self, row: ExecutionRow) -> str:
        return f"It is {look_of(row.state).word}: there is nothing to cancel." if row.state in FINAL_STATES else ""

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        done = execution_cancel(tenant=self.tenant, actor=self.actor, execution_id=subject.row.id, now=self.now)
        text = "Cancelled." if done.outcome == "done" else "Its worker was asked to stop."
        return Receipt(text, subject.url)


class ExecutionRerun(ExecutionVerb):
    """Running one again."""

    actions = {"GET": "execution.rerun", "POST": "execution.rerun"}
    title, button = "Run again", "Run it again"
    lead = (
        "This makes a new execution with the same payload, or another one, and the job as it is now. It has a run key "
        "of its own, so its target takes it for new work."
    )

    def blocked(self, row: ExecutionRow) -> str:
        return gone_of(row) if row.state in FINAL_STATES else "It has not ended; cancel it, or wait."

    def fields(self, subject: Subject) -> list[Field]:
        text = "JSON. Leave it empty to send what was sent before."
        return [Field("payload", "Another payload", "code", rows=4, help=text)]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        new_id = execution_rerun(
            tenant=self.tenant, actor=self.actor, execution_id=subject.row.id, now=self.now,
            payload=read_json(form, "payload", default=UNCHANGED),
        )  # fmt: skip
        return Receipt(f"It runs again as a new execution, {new_id}.", reverse("portal:execution", args=[new_id]))


class ExecutionErase(ExecutionVerb):
    """Erasing one everywhere."""

    actions = {"GET": "execution.erase", "POST": "execution.erase"}
    title, button, kind = "Erase this execution", "Erase it for good", "danger"
    lead = (
        "Its payload, labels, answer, errors, attempts, dead letters and events are removed everywhere, from archives "
        "too. That it ran, when, and how it ended stays. This can't be undone."
    )

    def blocked(self, row: ExecutionRow) -> str:
        if row.erased_at is not None:
            return "It was erased."
        return "" if row.state in FINAL_STATES else "It has not ended; cancel it, or wait."

    def fields(self, subject: Subject) -> list[Field]:
        return [
            Field("everything", "Also the workflow's run that it is a step of, and what was run again", "check"),
            Field("reason", "Why", "area", help=REASON, rows=2, required=True),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        done = execution_erase(
            tenant=self.tenant, actor=self.actor, execution_id=subject.row.id, reason=form.text("reason"), now=self.now,
            everything=form.text("everything") != "", files=False,
        )  # fmt: skip
        text = f"Erased, with {len(done.parts) - 1:,} that went with it."
        if done.left:
            text += f" Of {len(done.left):,} something is left; the platform goes on by itself."
        return Receipt(text, subject.url)
