"""What can be done to runs of workflows and to their steps."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse

from apps.outcomes.cancel import execution_cancel
from apps.portal.verbs import REASON, Receipt, Subject, VerbPage, reason_field
from apps.presenting.fields import Field, Form
from apps.presenting.shown import look_of, moment
from apps.workflows.interventions import verbs
from apps.workflows.views.runs_reading import ALIVE, RunRow, run_read
from apps.workflows.views.steps_reading import StepRow, step_read
from kernel.errors import NotFound


class RunVerb(VerbPage):
    """What they share. The services compare the state themselves."""

    section = "workflowruns"
    lead = ""

    def subject(self, run_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        run = run_read(self.tenant, run_id)
        if run is None:
            raise NotFound("There is no such run.")
        return Subject(
            name=f"Run {run.id}", url=reverse("portal:workflowrun", args=[run.id]), lead=self.lead, row=run,
            facts=[("Workflow", run.workflow_name), ("State", look_of(run.state).word),
                   ("Started", moment(run.started_at) if run.started_at else "-")],
            blocked=self.blocked(run),
        )  # fmt: skip

    def blocked(self, run: RunRow) -> str:
        return ""

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field()]

    def about(self, subject: Subject) -> dict[str, Any]:
        """What all services of runs take."""
        return {"tenant": self.tenant, "actor": self.actor, "now": self.now, "run_id": subject.row.id}


class RunCancel(RunVerb):
    """Stopping a run."""

    actions = {"GET": "workflowrun.cancel", "POST": "workflowrun.cancel"}
    title, button, kind = "Cancel this run", "Cancel the run", "danger"
    lead = "Nothing more of it starts. Steps that run are asked to stop; when they have, the run ends as cancelled."

    def blocked(self, run: RunRow) -> str:
        return "" if run.state in ALIVE else f"It is {look_of(run.state).word}: there is nothing to cancel."

    def fields(self, subject: Subject) -> list[Field]:
        return []

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        done = execution_cancel(tenant=self.tenant, actor=self.actor, execution_id=subject.row.id, now=self.now)
        return Receipt("Cancelled." if done.outcome == "done" else "Its steps are asked to stop.", subject.url)


class RunPause(RunVerb):
    """Holding a run."""

    actions = {"GET": "workflowrun.pause", "POST": "workflowrun.pause"}
    title, button = "Pause this run", "Pause the run"
    lead = "No further step starts until it is resumed. Steps that run go on to their end."

    def blocked(self, run: RunRow) -> str:
        return "" if run.state == "running" else f"It is {look_of(run.state).word}: only what goes on can be paused."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        verbs.run_pause(**self.about(subject), reason=self.reason(form))
        return Receipt("Paused. Resume takes it back.", subject.url)


class RunResume(RunVerb):
    """Letting a run go on."""

    actions = {"GET": "workflowrun.resume", "POST": "workflowrun.resume"}
    title, button = "Resume this run", "Resume the run"
    lead = "It goes on where it stands: steps whose turn came meanwhile start now."

    def blocked(self, run: RunRow) -> str:
        return "" if run.state == "paused" else "It is not paused."

    def fields(self, subject: Subject) -> list[Field]:
        return []

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        verbs.run_resume(**self.about(subject))
        return Receipt("It goes on.", subject.url)


class RunRetry(RunVerb):
    """Running what failed once more."""

    actions = {"GET": "workflowrun.retry", "POST": "workflowrun.retry"}
    title, button = "Run failed steps again", "Run them again"
    lead = "Steps that failed or were cancelled run again, and what was skipped because of them is decided again."

    def blocked(self, run: RunRow) -> str:
        return "" if run.begun else "It has not begun."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        verbs.run_retry(**self.about(subject), reason=self.reason(form))
        return Receipt("What failed runs again.", subject.url)


class StepVerb(RunVerb):
    """About one step of a run."""

    def subject(self, run_id: UUID, step: str = "") -> Subject:  # type: ignore[override]  # its path has two
        found = super().subject(run_id)
        row = step_read(self.tenant, run_id, step)
        if row is None:
            raise NotFound("The run has no such step.")
        found.facts.append(("Step", f"{row.step} ({look_of(row.state).word})"))
        found.row, found.blocked = row, self.step_blocked(row)
        return found

    def about(self, subject: Subject) -> dict[str, Any]:
        return {**super().about(subject), "run_id": subject.row.run_id, "step": subject.row.step}

    def step_blocked(self, step: StepRow) -> str:
        awaited = step.type == "approval" and step.state == "running"
        return "" if awaited else "This step does not wait for anybody."

    def fields(self, subject: Subject) -> list[Field]:
        return [Field("reason", "Note", "area", help=REASON, rows=2)]


class StepApprove(StepVerb):
    """Saying yes."""

    actions = {"GET": "workflowrun.approve", "POST": "workflowrun.approve"}
    title, button = "Approve", "Approve the step"
    lead = "The step succeeds, and what needs it goes on."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        verbs.step_approve(**self.about(subject), note=self.reason(form))
        return Receipt("Approved.", subject.url)


class StepReject(StepVerb):
    """Saying no."""

    actions = {"GET": "workflowrun.reject", "POST": "workflowrun.reject"}
    title, button, kind = "Reject", "Reject the step", "danger"
    lead = "The step fails, and the run goes on as after any failure."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        verbs.step_reject(**self.about(subject), note=self.reason(form))
        return Receipt("Rejected.", subject.url)


class StepSkip(StepVerb):
    """Going on without a step."""

    actions = {"GET": "workflowrun.skip", "POST": "workflowrun.skip"}
    title, button = "Skip this step", "Skip the step"
    lead = "The step ends as skipped without running. It needs a reason."

    def step_blocked(self, step: StepRow) -> str:
        return "" if step.state == "waiting" else "It does not wait: only what has not started can be skipped."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        verbs.step_skip(**self.about(subject), reason=self.reason(form))
        return Receipt("Skipped.", subject.url)
