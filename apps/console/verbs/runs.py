"""What is done to a tenant's executions, whatever state they are in."""

from __future__ import annotations

from apps.archive.finding import execution_anywhere
from apps.console.roles import RESPOND
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.live import id_of, page_of
from apps.console.verbs.registry import register
from apps.dispatch.submit import execution_rerun
from apps.executions.reading import ExecutionRow
from apps.outcomes.cancel import execution_cancel
from apps.presenting.shown import moment
from apps.schedules.names import names_of
from kernel.errors import NotFound
from kernel.transitions import FINAL_STATES


class ExecutionVerb(Verb):
    """What they share. The services compare the state themselves."""

    level, scope = RESPOND, "tenant"

    def row(self, ask: Ask) -> ExecutionRow:
        found = execution_anywhere(ask.inside, id_of(ask))
        if found is None:
            raise NotFound("There is no such execution.")
        return found.row

    def lines(self, row: ExecutionRow, after: str | None) -> list[Line]:
        job = names_of(jobs=[row.job_id]).jobs.get(row.job_id, "a job that is gone")
        return [
            Line("Execution", str(row.id)),
            Line("Job", job),
            Line("State", row.state, after),
            Line("Due", f"{moment(row.actual_at)} UTC"),
            Line("Attempts", str(row.attempt_count)),
        ]


@register
class CancelExecution(ExecutionVerb):
    """Ends what waits, also for its time, and asks what runs to stop."""

    name, label, key, hard = "execution.cancel", "Cancel", "c", True

    def look(self, ask: Ask) -> Preview:
        row = self.row(ask)
        runs = row.state == "running"
        refused = "It was asked to stop already." if row.cancel_requested else ""
        if row.state in FINAL_STATES:
            refused = f"It has ended: it is {row.state}."
        return Preview(
            f"Cancel execution {row.id}", self.lines(row, "asked to stop" if runs else "cancelled"),
            version_of(row.state, row.attempt_count, row.cancel_requested),
            ["Its worker is asked to stop it: what it has done already is not undone."] if runs else [], refused,
            page_of(ask, row.id),
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        key = id_of(ask)
        done = execution_cancel(tenant=ask.inside, actor=ask.actor, execution_id=key, now=ask.now)
        text = "It is cancelled." if done.outcome == "done" else "Its worker was asked to stop it."
        then = [Step("execution.rerun", str(key), ask.inside.slug)] if done.outcome == "done" else []
        return Receipt(text, page_of(ask, key), then=then)


@register
class RerunExecution(ExecutionVerb):
    """A new execution with the same payload and the job as it is now."""

    name, label, key = "execution.rerun", "Run again", "n"  # r replays its dead letter

    def look(self, ask: Ask) -> Preview:
        row = self.row(ask)
        refused = ""
        if row.state not in FINAL_STATES:
            refused = "It has not ended; cancel it, or wait."
        elif row.erased_at is not None:
            refused = "It was erased: there is nothing left to run again."
        elif row.archived_at is not None:
            refused = "It is archived: restore it first."
        warnings = ["It gets a run key of its own, so its target takes it for new work."]
        if row.state == "succeeded":
            warnings.append("It has succeeded: what it did is done once more.")
        if row.step is not None:
            warnings.append("It was a step of a workflow's run. It runs alone: that run takes no notice.")
        return Preview(
            f"Run execution {row.id} again", [*self.lines(row, None), Line("A new execution", "-", "ready")],
            version_of(row.state, row.attempt_count, row.erased_at), warnings, refused, page_of(ask, row.id),
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        new_id = execution_rerun(tenant=ask.inside, actor=ask.actor, execution_id=id_of(ask), now=ask.now)
        undo = Step("execution.cancel", str(new_id), ask.inside.slug)
        return Receipt(f"It runs again as a new execution, {new_id}.", page_of(ask, new_id), undo=undo)
