"""What a run of a workflow looks like, where its time went, and why it or a step of it does not go on"""

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_workflow_run
from apps.api.documents_explaining import ExplanationAnswer
from apps.api.documents_runs import NoInput
from apps.api.documents_workflow_runs import RunGraphAnswer, TimelineAnswer
from apps.api.endpoint import Endpoint
from apps.api.explaining import READS_NAMES
from apps.api.openapi import operation
from apps.api.reading import nothing_of
from apps.api.renderers import AnswerRenderer
from apps.api.shapes_workflow_runs import timeline_shape
from apps.api.workflow_runs import TAG
from apps.api.workflow_steps import ITEM, MAX_ITEM
from apps.api.workflow_views import SVG, SVG_HEADERS, SvgRenderer
from apps.dispatch.explaining.shape import explanation_shape
from apps.dispatch.explaining.workflow_runs import run_explain, step_explain
from apps.workflows.views.drawing import graph_json, graph_svg
from apps.workflows.views.runs_viewing import run_graph, run_states, run_timeline
from tenants.permissions import may

UNREADABLE = ("undecodable",)


class RunGraph(Endpoint):
    """The graph of a run in JSON."""

    actions = {"GET": "workflowrun.read"}

    @operation(
        "workflow_runs_graph", "Read a run as a graph, with the states of its steps", answer=RunGraphAnswer, tag=TAG,
        problems=UNREADABLE,
    )  # fmt: skip
    def get(self, request: Request, run_id: UUID) -> Response:
        self.query().finish()
        run = access_workflow_run(tenant=self.tenant, actor=self.actor, run_id=run_id, need="workflowrun.read")
        workflow = run_graph(self.tenant, run).workflow
        return Response({"version": run.version, **graph_json(workflow, run_states(self.tenant, run))})


class RunPicture(Endpoint):
    """The graph of a run as a picture."""

    actions = {"GET": "workflowrun.read"}
    renderer_classes = [AnswerRenderer, SvgRenderer]

    @operation(
        "workflow_runs_picture", "Read a run as a picture, with the states of its steps", media=SVG, tag=TAG,
        answer=OpenApiResponse({"type": "string", "format": "svg"}, "A picture that loads and runs nothing."),
        problems=UNREADABLE,
    )  # fmt: skip
    def get(self, request: Request, run_id: UUID) -> HttpResponse:
        self.query().finish()
        run = access_workflow_run(tenant=self.tenant, actor=self.actor, run_id=run_id, need="workflowrun.read")
        title = f"{run.workflow_name}, version {run.version}: {run.state}"
        found = graph_svg(run_graph(self.tenant, run).workflow, title=title, states=run_states(self.tenant, run))
        return HttpResponse(found, content_type=SVG, headers=SVG_HEADERS)


class RunTimeline(Endpoint):
    """Bars and the critical path."""

    actions = {"GET": "workflowrun.read"}

    @operation(
        "workflow_runs_timeline", "Read where the time of a run went: a bar for each step, and the critical path",
        answer=TimelineAnswer, tag=TAG, problems=UNREADABLE,
    )  # fmt: skip
    def get(self, request: Request, run_id: UUID) -> Response:
        self.query().finish()
        run = access_workflow_run(tenant=self.tenant, actor=self.actor, run_id=run_id, need="workflowrun.read")
        found = run_timeline(self.tenant, run, now=self.now)
        return Response(
            timeline_shape(found, started_at=run.started_at, finished_at=run.finished_at, as_of=self.now)
        )  # fmt: skip


class RunExplain(Endpoint):
    """What holds a run."""

    actions = {"GET": "workflowrun.read", "POST": "workflowrun.read"}

    @operation("workflow_runs_explanation", "Explain a run of a workflow", answer=ExplanationAnswer, tag=TAG)
    def get(self, request: Request, run_id: UUID) -> Response:
        self.query().finish()
        return self._answer(run_id)

    @operation(
        "workflow_runs_explain", "Explain a run of a workflow: what it is at, or what holds it", body=NoInput,
        answer=ExplanationAnswer, tag=TAG,
    )  # fmt: skip
    def post(self, request: Request, run_id: UUID) -> Response:
        nothing_of(self.body)
        return self._answer(run_id)

    def _answer(self, run_id: UUID) -> Response:
        found = run_explain(self.tenant, run_id, now=self.now, named=may(self.actor, READS_NAMES))
        return Response(explanation_shape(found))


class StepExplain(Endpoint):
    """Why a step waits, or ended so."""

    actions = {"GET": "workflowrun.read", "POST": "workflowrun.read"}

    @operation(
        "workflow_steps_explanation", "Explain a step of a run, or one item of its list", answer=ExplanationAnswer,
        parameters=[ITEM], tag=TAG,
    )  # fmt: skip
    def get(self, request: Request, run_id: UUID, step: str) -> Response:
        query = self.query("item")
        item = query.whole("item", -1, least=0, most=MAX_ITEM)
        query.finish()
        return self._answer(run_id, step, None if item < 0 else item)

    @operation(
        "workflow_steps_explain", "Explain a step: which step, limit or person it waits for, or why it ended so",
        body=NoInput, answer=ExplanationAnswer, tag=TAG,
    )  # fmt: skip
    def post(self, request: Request, run_id: UUID, step: str) -> Response:
        nothing_of(self.body)
        return self._answer(run_id, step, None)

    def _answer(self, run_id: UUID, step: str, item: int | None) -> Response:
        found = step_explain(
            self.tenant, run_id, step, item=item, now=self.now, named=may(self.actor, READS_NAMES)
        )  # fmt: skip
        return Response(explanation_shape(found))
