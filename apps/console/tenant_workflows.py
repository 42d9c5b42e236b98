"""A tenant's runs of workflows with their steps, and executions that wait for others, to read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from apps.console.explaining import ExplainedAdmin
from apps.console.filters import WindowFilter, choice_filter
from apps.console.middleware import tenant_of
from apps.console.reading import ReadOnlyAdmin, bounded
from apps.console.shown import json_field
from apps.console.tenant_admin import link, link_field
from apps.console.tenant_site import tenant_site
from apps.executions.models import Execution
from apps.schedules.models import Job
from apps.workflows.models import RUN_STATES, STEP_STATES, STEP_TYPES, Dependency, Run, StepRun
from apps.workflows.views.drawing import graph_svg
from apps.workflows.views.runs_reading import run_read
from apps.workflows.views.runs_viewing import run_graph, run_states
from kernel.errors import Conflict

SVG = "image/svg+xml"
LOADS_NOTHING = "default-src 'none'; sandbox"  # opened by itself it is a page of its own


@admin.register(Run, site=tenant_site)
class RunAdmin(ExplainedAdmin):
    list_display = (
        "execution_id", "workflow_link", "version", "state", "open", "failed", "reason", "started_at", "finished_at",
        "deadline_at",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("state", RUN_STATES))
    uuid_search = ("execution_id", "workflow_id")
    search_help_text = "Id of a run or of a workflow. A run that has not begun is an execution, and not here."
    deferred = ("input", "output", "error")
    fields = (
        "execution_link", "why", "picture", "steps", "workflow_link", "version", "state", "reason", "open", "failed",
        "root_link", "depth", "deadline_at", "started_at", "finished_at", "paused_at", "paused_by", "paused_reason",
        "generation", "input_shown", "output_shown", "error_shown",
    )  # fmt: skip
    readonly_fields = (
        "execution_link", "why", "picture", "steps", "workflow_link", "root_link", "input_shown", "output_shown",
        "error_shown",
    )  # fmt: skip
    workflow_link, execution_link = link_field("workflow_id", Job), link_field("execution_id", Execution)
    input_shown, output_shown, error_shown = json_field("input"), json_field("output"), json_field("error")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.picture_view)
        return [path("<uuid:key>/picture/", view, name="workflows_run_picture"), *super().get_urls()]

    def picture_view(self, request: HttpRequest, key: UUID) -> HttpResponse:
        """The run's graph with the states of its steps."""
        if not self.has_view_permission(request):
            raise Http404
        return bounded(self, request, lambda: self._picture(request, key))

    def _picture(self, request: HttpRequest, key: UUID) -> HttpResponse:
        tenant = tenant_of(request)
        run = run_read(tenant, key)
        if run is None:
            raise Http404("There is no such run.")
        try:
            workflow = run_graph(tenant, run).workflow
        except Conflict as error:
            raise Http404(error.detail) from error
        title = f"{run.workflow_name}, version {run.version}: {run.state}"
        found = graph_svg(workflow, title=title, states=run_states(tenant, run))
        return HttpResponse(found, content_type=SVG, headers={"Content-Security-Policy": LOADS_NOTHING})

    @admin.display(description="graph")
    def picture(self, obj: Run) -> str:
        url = reverse("admin:workflows_run_picture", args=[obj.pk], current_app=tenant_site.name)
        text = "The graph with the states of its steps; the list of the steps says the same."
        return format_html('<a class="picture" href="{}"><img class="graph" src="{}" alt="{}"></a>', url, url, text)

    @admin.display(description="its steps")
    def steps(self, obj: Run) -> str:
        url = reverse("admin:workflows_steprun_changelist", current_app=tenant_site.name)
        return format_html('<a href="{}?{}">show</a>', url, urlencode({"q": str(obj.pk)}))

    @admin.display(description="root")
    def root_link(self, obj: Run) -> str:
        return "itself" if obj.root_id == obj.pk else link(Run, obj.root_id)


@admin.register(StepRun, site=tenant_site)
class StepRunAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "run_link", "step", "item", "type", "state", "reason", "execution_link", "wake_at", "started_at",
        "finished_at",
    )  # fmt: skip
    list_filter = (choice_filter("state", STEP_STATES), choice_filter("type", STEP_TYPES))
    uuid_search = ("run_id", "execution_id")
    search_help_text = "Id of a run or of an execution."
    deferred = ("error", "value", "output", "used")
    fields = (
        "id", "run_link", "step", "item", "type", "state", "reason", "execution_link", "generation", "pending", "met",
        "failed", "succeeded", "items", "items_open", "items_failed", "wake_at", "started_at", "finished_at", "forced",
        "decided_by", "note", "value_shown", "output_shown", "error_shown", "used_shown",
    )  # fmt: skip
    readonly_fields = ("run_link", "execution_link", "value_shown", "output_shown", "error_shown", "used_shown")
    run_link, execution_link = link_field("run_id", Run), link_field("execution_id", Execution)
    value_shown, output_shown = json_field("value"), json_field("output")
    error_shown, used_shown = json_field("error"), json_field("used")


@admin.register(Dependency, site=tenant_site)
class DependencyAdmin(ReadOnlyAdmin):
    list_display = ("id", "child_link", "parent_link", "on", "met")
    uuid_search = ("parent_id", "child_id")
    search_help_text = "Id of an execution, of either side. The child waits for the parent."
    fields = ("id", "child_link", "parent_link", "on", "met")
    readonly_fields = ("child_link", "parent_link")
    child_link, parent_link = link_field("child_id", Execution), link_field("parent_id", Execution)
