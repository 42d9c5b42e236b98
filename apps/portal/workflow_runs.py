"""Runs of workflows: what runs, what one looks like, and who waits for a person."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.dispatch.explaining.workflow_runs import run_explain, step_explain
from apps.portal.explaining import READS_NAMES, ExplainPage
from apps.portal.pages import Offer, Page
from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.paging import PAGE_ROWS, paged, position_of
from apps.presenting.timeline import loaded
from apps.workflows.interventions.approving import approvals_awaited
from apps.workflows.views.drawing import graph_svg
from apps.workflows.views.runs_reading import ALIVE, STATES, RunFilter, RunRow, run_read, runs_read
from apps.workflows.views.runs_viewing import run_graph, run_states
from apps.workflows.views.steps_reading import StepRow, steps_read
from kernel.errors import NotFound

SHOWN_STEPS = 200
SHOWN_APPROVALS = 100
SVG = "image/svg+xml"
LOADS_NOTHING = "default-src 'none'; sandbox"  # opened by itself it is a page of its own
READ = {"GET": "workflowrun.read"}


class RunPage(Page):
    """What they share."""

    actions = READ
    section = "workflowruns"

    def run(self, run_id: UUID) -> RunRow:
        """A run of the host's tenant; the same 404 for all that is not there."""
        found = run_read(self.tenant, run_id)
        if found is None:
            raise NotFound("There is no such run.")
        return found


class RunList(RunPage):
    """All runs, newest first."""

    def get(self, request: HttpRequest) -> HttpResponse:
        form = Form([Field("state", "State", "select", options=[Option("", "any"), *choices(STATES)])])
        form.take(request.GET)
        state = form.text("state")
        wanted = RunFilter(states=[state] if state in STATES else [])
        found = runs_read(self.tenant, wanted, after=position_of(request), size=PAGE_ROWS)
        listed = paged(request, found.rows, after=found.after and found.after.id)
        return self.page(
            "portal/workflow_runs.html", title="Workflow runs", form=form, listed=listed, filtered=bool(state)
        )


class RunDetail(RunPage):
    """One run with its steps."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        steps = steps_read(self.tenant, run_id, limit=SHOWN_STEPS + 1) if run.begun else []
        return self.page(
            "portal/workflow_run.html", title="Workflow run", run=run, steps=steps[:SHOWN_STEPS],
            more=len(steps) > SHOWN_STEPS, error=loaded(run.error), input=loaded(run.input), output=loaded(run.output),
            offers=self._offers(run), asking=[(one, self._answers(one)) for one in steps if _asks(one)],
            may_skip=self.may("workflowrun.skip"),
        )  # fmt: skip

    def _offers(self, run: RunRow) -> list[Offer]:
        found = [self.offer("Why?", "portal:workflowrun-explain", "workflowrun.read", run.id)]
        if run.state in ALIVE:
            if run.state == "running":
                found.append(self.offer("Pause", "portal:workflowrun-pause", "workflowrun.pause", run.id))
            elif run.state == "paused":
                found.append(
                    self.offer("Resume", "portal:workflowrun-resume", "workflowrun.resume", run.id, kind="primary")
                )
            asked = "It was asked to stop already." if run.state == "cancelling" else ""
            cancel = self.offer(
                "Cancel", "portal:workflowrun-cancel", "workflowrun.cancel", run.id, kind="danger", blocked=asked
            )
            return [*found, cancel]
        if run.begun and run.state in ("failed", "cancelled"):
            found.append(
                self.offer("Run failed steps again", "portal:workflowrun-retry", "workflowrun.retry", run.id,
                           kind="primary")
            )  # fmt: skip
        return found

    def _answers(self, step: StepRow) -> list[Offer]:
        at = (step.run_id, step.step)
        return [
            self.offer("Approve", "portal:workflowstep-approve", "workflowrun.approve", *at, kind="primary"),
            self.offer("Reject", "portal:workflowstep-reject", "workflowrun.reject", *at, kind="danger"),
        ]


class RunPicture(RunPage):
    """The run's graph with the states of its steps; the list of steps says the same."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        run = self.run(run_id)
        title = f"{run.workflow_name}, version {run.version}: {run.state}"
        found = graph_svg(run_graph(self.tenant, run).workflow, title=title, states=run_states(self.tenant, run))
        return HttpResponse(found, content_type=SVG, headers={"Content-Security-Policy": LOADS_NOTHING})


class Approvals(RunPage):
    """Steps that wait for a person, the longest waiting first."""

    def get(self, request: HttpRequest) -> HttpResponse:
        found = approvals_awaited(self.tenant, limit=SHOWN_APPROVALS)
        return self.page("portal/approvals.html", title="Approvals", awaited=found)


class RunExplain(RunPage, ExplainPage):
    """Why a run does not go on."""

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        found = run_explain(self.tenant, run_id, now=self.now, named=self.may(READS_NAMES))
        return self.shown(found, back=reverse("portal:workflowrun", args=[run_id]))


class StepExplain(RunExplain):
    """Why a step waits, or ended so."""

    def get(self, request: HttpRequest, run_id: UUID, step: str = "") -> HttpResponse:
        found = step_explain(self.tenant, run_id, step, now=self.now, named=self.may(READS_NAMES))
        return self.shown(found, back=reverse("portal:workflowrun", args=[run_id]))


def _asks(step: StepRow) -> bool:
    """Whether it waits for a person."""
    return step.type == "approval" and step.state == "running"
