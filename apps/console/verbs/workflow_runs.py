"""What is done to runs of workflows and to their steps."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.console.reading import as_uuid
from apps.console.roles import OPERATE, RESPOND
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.registry import register
from apps.outcomes.cancel import execution_cancel
from apps.workflows.interventions import verbs
from apps.workflows.models import STEP_ENDS
from apps.workflows.views.runs_reading import ALIVE, RunRow, run_read
from apps.workflows.views.steps_reading import StepRow, step_counts, step_read
from kernel.errors import NotFound


class RunVerb(Verb):
    """What they share. The services compare state and revision under the root's lock."""

    level, scope = RESPOND, "tenant"
    becomes: str  # the state after
    title: str

    def look(self, ask: Ask) -> Preview:
        run = run_of(ask)
        counts = step_counts(ask.inside, run.id) if run.begun else {}
        lines = [
            Line("Workflow", f"{run.workflow_name}, version {run.version}"),
            Line("Run", str(run.id)),
            Line("State", run.state, self.becomes),
            Line("Steps", ", ".join(f"{count:,} {state}" for state, count in counts.items() if count) or "none yet"),
        ]
        return Preview(
            f"{self.title} of {run.workflow_name}", lines, version_of(run.state, run.revision), self.warnings(run),
            self.refused(run), link_of(ask),
        )  # fmt: skip

    def warnings(self, run: RunRow) -> list[str]:
        return []

    def refused(self, run: RunRow) -> str:
        return ""

    def about(self, ask: Ask) -> dict[str, Any]:
        """What all services of runs take."""
        run = run_of(ask)
        more = {"revision": run.revision} if run.begun else {}
        return {"tenant": ask.inside, "actor": ask.actor, "now": ask.now, "run_id": run.id, **more}


@register
class CancelRun(RunVerb):
    """Nothing more of it starts; steps that run are asked to stop."""

    name, label, key, hard = "workflowrun.cancel", "Cancel", "c", True
    becomes, title = "cancelled", "Cancel the run"

    def warnings(self, run: RunRow) -> list[str]:
        return ["Steps that run are asked to stop; when they have, the run ends as cancelled."]

    def refused(self, run: RunRow) -> str:
        if run.state == "cancelling":
            return "It was asked to stop already."
        return "" if run.state in ALIVE else f"It is {run.state}: there is nothing to cancel."

    def do(self, ask: Ask) -> Receipt:
        key = run_id_of(ask)
        done = execution_cancel(tenant=ask.inside, actor=ask.actor, execution_id=key, now=ask.now)
        text = "It is cancelled." if done.outcome == "done" else "Its steps are asked to stop."
        return Receipt(text, link_of(ask), then=[Step("workflowrun.retry", str(key), ask.inside.slug)])


@register
class PauseRun(RunVerb):
    """No further step starts."""

    name, label, key = "workflowrun.pause", "Pause", "p"
    becomes, title = "paused", "Pause the run"

    def warnings(self, run: RunRow) -> list[str]:
        return ["Steps that run go on to their end."]

    def refused(self, run: RunRow) -> str:
        return "" if run.state == "running" else f"It is {run.state}: only what goes on can be paused."

    def do(self, ask: Ask) -> Receipt:
        verbs.run_pause(**self.about(ask), reason=ask.reason)
        undo = Step("workflowrun.resume", ask.target, ask.inside.slug)
        return Receipt("It is paused: no further step starts.", link_of(ask), undo=undo)


@register
class ResumeRun(RunVerb):
    """It goes on where it stands."""

    name, label, key = "workflowrun.resume", "Resume", "r"
    becomes, title = "running", "Resume the run"

    def refused(self, run: RunRow) -> str:
        return "" if run.state == "paused" else "It is not paused."

    def do(self, ask: Ask) -> Receipt:
        verbs.run_resume(**self.about(ask))
        undo = Step("workflowrun.pause", ask.target, ask.inside.slug)
        return Receipt("It goes on: steps whose turn came meanwhile start now.", link_of(ask), undo=undo)


@register
class RetryRun(RunVerb):
    """What failed runs again, and what was skipped because of it is decided again."""

    name, label, key = "workflowrun.retry", "Retry failed and downstream", "f"
    becomes, title = "running", "Retry what failed"

    def warnings(self, run: RunRow) -> list[str]:
        return ["Steps that failed or were cancelled run again, and what was skipped because of them is decided again."]

    def refused(self, run: RunRow) -> str:
        if not run.begun:
            return "It has not begun."
        return "" if run.state in ("failed", "cancelled") else f"It is {run.state}: nothing of it has failed for good."

    def do(self, ask: Ask) -> Receipt:
        verbs.run_retry(**self.about(ask), reason=ask.reason)
        undo = Step("workflowrun.cancel", ask.target, ask.inside.slug)
        return Receipt("What failed runs again.", link_of(ask), undo=undo)


class StepVerb(Verb):
    """About one step of a run: the target is the run's id and the step's name."""

    level, scope = OPERATE, "tenant"
    becomes: str
    title: str
    warned: str

    def look(self, ask: Ask) -> Preview:
        run, step = run_of(ask), step_of(ask)
        lines = [
            Line("Workflow", f"{run.workflow_name}, version {run.version}"),
            Line("Run", f"{run.id}, {run.state}"),
            Line("Step", step.step),
            Line("State", step.state, self.becomes),
        ]
        version = version_of(run.state, run.revision, step.state, step.generation)
        refused = self.refused(run, step)
        return Preview(f"{self.title} {step.step}", lines, version, [self.warned], refused, link_of(ask))

    def refused(self, run: RunRow, step: StepRow) -> str:
        raise NotImplementedError

    def about(self, ask: Ask) -> dict[str, Any]:
        """What services of steps take."""
        run, step = run_of(ask), step_of(ask)
        return {
            "tenant": ask.inside, "actor": ask.actor, "now": ask.now, "run_id": run.id, "step": step.step,
            "reason": ask.reason, "revision": run.revision,
        }  # fmt: skip


@register
class SkipStep(StepVerb):
    """The step ends without running; the reason stands with it."""

    name, label, key, hard = "workflowstep.skip", "Skip", "s", True
    becomes, title = "skipped", "Skip the step"
    warned = "It ends as skipped without running, and what needs it is decided by that."

    def refused(self, run: RunRow, step: StepRow) -> str:
        if run.state not in ("running", "paused"):
            return f"The run is {run.state}."
        return "" if step.state == "waiting" else f"It is {step.state}: only what has not started can be skipped."

    def do(self, ask: Ask) -> Receipt:
        verbs.step_skip(**self.about(ask))
        return Receipt("It is skipped.", link_of(ask))


@register
class RerunStep(StepVerb):
    """The step runs once more, and all that follows from it is decided again."""

    name, label, key = "workflowstep.rerun", "Rerun from here", "g"
    becomes, title = "running", "Run again the step"
    warned = "It runs in a new execution, and all steps that follow from it are decided again."

    def refused(self, run: RunRow, step: StepRow) -> str:
        return "" if step.state in STEP_ENDS else f"It is {step.state}: it has not ended."

    def do(self, ask: Ask) -> Receipt:
        verbs.run_rerun(**self.about(ask), downstream=True)
        undo = Step("workflowrun.cancel", str(run_id_of(ask)), ask.inside.slug)
        return Receipt("It runs again.", link_of(ask), undo=undo)


def run_id_of(ask: Ask) -> UUID:
    """The id that the target names, alone or with a step. NotFound when it is none."""
    key = as_uuid(ask.target.partition("/")[0])
    if key is None:
        raise NotFound("There is no such run.")
    return key


def run_of(ask: Ask) -> RunRow:
    """The run that the target names. NotFound."""
    run = run_read(ask.inside, run_id_of(ask))
    if run is None:
        raise NotFound("There is no such run.")
    return run


def step_of(ask: Ask) -> StepRow:
    """The step that the target names. NotFound."""
    name = ask.target.partition("/")[2]
    found = step_read(ask.inside, run_id_of(ask), name) if name else None
    if found is None:
        raise NotFound("The run has no such step.")
    return found


def link_of(ask: Ask) -> str:
    """The run's page."""
    return f"/t/{ask.inside.slug}/admin/workflow-runs/{run_id_of(ask)}/"
