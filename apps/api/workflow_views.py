"""What a workflow looks like: previews, graphs and versions, in JSON and as a picture"""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_workflow
from apps.api.documents_workflows import (
    WorkflowGraphAnswer,
    WorkflowInput,
    WorkflowPreviewAnswer,
    WorkflowPreviewAsk,
    WorkflowVersionAnswer,
    WorkflowVersionItem,
)
from apps.api.endpoint import Endpoint
from apps.api.lists import PAGING
from apps.api.openapi import listing, operation, parameter
from apps.api.renderers import AnswerRenderer
from apps.api.versions import MAX_VERSION, PAGE_PARAMETERS, number_of, only_version, version_page
from apps.schedules.models import JobVersion
from apps.workflows.definitions import selecting, services
from apps.workflows.definitions.defined import DefinedWorkflow, workflow_as_given, workflow_defined
from apps.workflows.definitions.definition import Workflow
from apps.workflows.views.drawing import graph_json, graph_svg

TAG = "workflows"
SVG = "image/svg+xml"
OF_VERSION = [parameter("version", {"type": "integer", "minimum": 1}, text="another one than the current version")]
# A picture that is opened by itself runs and loads nothing, whatever is in it.
SVG_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff"}
_OF_WORKFLOW = ("name", "labels", "external_id")  # not of a version


class SvgRenderer(AnswerRenderer):
    """Lets callers accept pictures; problems are JSON as everywhere."""

    media_type = SVG
    format = "svg"


class WorkflowPreviewUnsaved(Endpoint):
    """A workflow that is not saved."""

    actions = {"POST": "workflow.preview"}

    @operation(
        "workflows_preview_unsaved", "Preview a workflow before saving it: what would run in which order",
        body=WorkflowInput, answer=WorkflowPreviewAnswer, tag=TAG,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        form = services.workflow_rehearse(tenant=self.tenant, data=self.body)
        return Response(selecting.preview_of(self.tenant, form))


class WorkflowPreview(Endpoint):
    """A workflow, or what a change would make of it."""

    actions = {"POST": "workflow.preview"}

    @operation(
        "workflows_preview", "Preview a workflow, or a change of it: what would run in which order",
        body=WorkflowPreviewAsk, answer=WorkflowPreviewAnswer, tag=TAG,
    )  # fmt: skip
    def post(self, request: Request, workflow_id: UUID) -> Response:
        found = access_workflow(actor=self.actor, workflow_id=workflow_id, need="workflow.preview")
        form = services.workflow_rehearse(tenant=self.tenant, data=self.body, changes=found)
        return Response(selecting.preview_of(self.tenant, form))


class WorkflowGraph(Endpoint):
    """The graph in JSON."""

    actions = {"GET": "workflow.read"}

    @operation(
        "workflows_graph", "Read a workflow as a graph", answer=WorkflowGraphAnswer, parameters=OF_VERSION, tag=TAG
    )
    def get(self, request: Request, workflow_id: UUID) -> Response:
        found, version = _version(self, workflow_id)
        return Response({"version": version.version, **graph_json(found)})


class WorkflowPicture(Endpoint):
    """The graph as a picture."""

    actions = {"GET": "workflow.read"}
    renderer_classes = [AnswerRenderer, SvgRenderer]

    @operation(
        "workflows_picture", "Read a workflow as a picture", media=SVG, parameters=OF_VERSION, tag=TAG,
        answer=OpenApiResponse({"type": "string", "format": "svg"}, "A picture that loads and runs nothing."),
    )  # fmt: skip
    def get(self, request: Request, workflow_id: UUID) -> HttpResponse:
        found, version = _version(self, workflow_id)
        title = f"{version.job.name}, version {version.version}"
        return HttpResponse(graph_svg(found, title=title), content_type=SVG, headers=SVG_HEADERS)


class WorkflowVersions(Endpoint):
    """What a workflow has been."""

    actions = {"GET": "workflow.read"}

    @operation(
        "workflows_versions", "List the versions of a workflow, newest first",
        answer=listing(WorkflowVersionItem, "WorkflowVersion"), parameters=PAGE_PARAMETERS, tag=TAG,
    )  # fmt: skip
    def get(self, request: Request, workflow_id: UUID) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        job = access_workflow(actor=self.actor, workflow_id=workflow_id, need="workflow.read").job
        rows = selecting.versions_read(job, before=number_of(before), limit=size + 1)
        return version_page(rows, size, query, _version_item)


class WorkflowVersionDetail(Endpoint):
    """One version of a workflow."""

    actions = {"GET": "workflow.read"}

    @operation("workflows_version", "Read a version of a workflow", answer=WorkflowVersionAnswer, tag=TAG)
    def get(self, request: Request, workflow_id: UUID, version: int) -> Response:
        self.query().finish()
        job = access_workflow(actor=self.actor, workflow_id=workflow_id, need="workflow.read").job
        row = only_version(selecting.versions_read(job, before=min(version, MAX_VERSION) + 1, limit=1), version)
        given = workflow_as_given(workflow_defined(job, row), masked=True)
        shape = {name: value for name, value in given.items() if name not in _OF_WORKFLOW}
        return Response({**shape, "version": row.version, "created_at": row.created_at})


def _version(endpoint: Endpoint, workflow_id: UUID) -> tuple[Workflow, JobVersion]:
    """The values of the version that is asked for."""
    query = endpoint.query("version")
    wanted = query.whole("version", 0, least=1, most=MAX_VERSION)
    query.finish()
    found = access_workflow(actor=endpoint.actor, workflow_id=workflow_id, need="workflow.read")
    if wanted:
        row = only_version(selecting.versions_read(found.job, before=wanted + 1, limit=1), wanted)
        found = DefinedWorkflow(found.job, row)
    return found.workflow, found.definition


def _version_item(row: JobVersion) -> dict[str, Any]:
    return {
        "version": row.version,
        "step_count": len(row.target["steps"]),
        "description": row.target.get("description"),
        "created_at": row.created_at,
    }
