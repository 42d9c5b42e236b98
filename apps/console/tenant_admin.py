"""A tenant's jobs, schedules and history, to read."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import path, reverse
from django.utils.html import format_html

from apps.console.explaining import ExplainedAdmin
from apps.console.filters import WindowFilter, choice_filter
from apps.console.reading import ReadOnlyAdmin, as_uuid
from apps.console.shown import excerpt, json_field, masked
from apps.console.tenant_holds import erase_view
from apps.console.tenant_site import tenant_site
from apps.executions.models import TRIGGERS, Attempt, Erasure, Execution
from apps.schedules.models import POOL_OF_KIND, Job, JobVersion, Schedule, ScheduleVersion
from apps.workflows.models import Run
from kernel.ids import ids_beside
from kernel.masking import masked_target
from kernel.transitions import ATTEMPT_STATES, EXECUTION_STATES


def link(model: type[Model], key: Any, text: object = None) -> str:
    """A link to a row of the same tenant."""
    if key is None:
        return "-"
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return format_html('<a href="{}">{}</a>', reverse(name, args=[key], current_app=tenant_site.name), text or key)


def link_field(name: str, model: type[Model], label: str = "") -> Any:
    """A column with a link, for use in a ModelAdmin's class body."""

    @admin.display(description=label or name.removesuffix("_id").replace("_", " "))
    def shown(self: Any, obj: Any) -> str:
        return link(model, getattr(obj, name))

    return shown


@admin.register(Job, site=tenant_site)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("name", "kind", "version", "paused_at", "external_id", "created_at", "deleted_at")
    list_filter = (choice_filter("kind", tuple(POOL_OF_KIND)),)
    uuid_search = ("id",)
    exact_search = ("name__iexact", "external_id")
    search_help_text = "Id, name or external id."


@admin.register(JobVersion, site=tenant_site)
class JobVersionAdmin(ReadOnlyAdmin):
    list_display = (
        "__str__", "job", "version", "timeout_s", "max_queue_age_s", "total_timeout_s", "priority", "max_concurrency",
        "created_at",
    )  # fmt: skip
    list_select_related = ("job",)
    uuid_search = ("job_id",)
    search_help_text = "Id of a job."
    deferred = ("target", "payload", "retry")
    fields = (
        "job", "version", "timeout_s", "max_queue_age_s", "total_timeout_s", "priority", "max_concurrency",
        "concurrency_key_shown", "rate_limit_shown", "queue", "created_at", "target_shown", "payload_shown",
        "retry_shown",
    )  # fmt: skip
    readonly_fields = ("target_shown", "payload_shown", "retry_shown", "concurrency_key_shown", "rate_limit_shown")
    payload_shown, retry_shown = json_field("payload"), json_field("retry")
    concurrency_key_shown, rate_limit_shown = json_field("concurrency_key"), json_field("rate_limit")

    @admin.display(description="target")
    def target_shown(self, obj: JobVersion) -> str:
        return excerpt(json.dumps(masked(masked_target(obj.target)), indent=1, ensure_ascii=False))


@admin.register(Schedule, site=tenant_site)
class ScheduleAdmin(ExplainedAdmin):
    list_display = ("name", "job", "status", "version", "paused_reason", "external_id", "created_at", "deleted_at")
    list_filter = (choice_filter("status", tuple(Schedule.Status.values)),)
    list_select_related = ("job",)
    uuid_search = ("id", "job_id")
    exact_search = ("name__iexact", "external_id")
    search_help_text = "Id, id of a job, name or external id."
    fields = (
        "id", "why", "page", "name", "job", "status", "paused_reason", "version", "revision", "labels",
        "external_id", "created_at", "updated_at", "deleted_at", "definition",
    )  # fmt: skip
    readonly_fields = ("why", "page", "definition")

    @admin.display(description="its page")
    def page(self, obj: Schedule) -> str:
        """Its next runs, its results, and what can be done to it."""
        if obj.deleted_at is not None:
            return "-"
        return format_html('<a href="{}">Next runs and results</a>', reverse("console:schedule", args=[obj.pk]))

    @admin.display(description="definition")
    def definition(self, obj: Schedule) -> str:
        current = ScheduleVersion.objects.filter(schedule=obj, version=obj.version).first()
        return "-" if current is None else json_field("definition")(self, current)


@admin.register(Execution, site=tenant_site)
class ExecutionAdmin(ExplainedAdmin):
    list_display = (
        "id", "state", "trigger", "job_link", "schedule_link", "nominal_at", "created_at", "started_at", "finished_at",
        "attempt_count", "reason",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("state", EXECUTION_STATES), choice_filter("trigger", TRIGGERS))
    uuid_search = ("id", "job_id")
    exact_search = ("run_key",)
    search_help_text = "Id of an execution or of a job, or a run key. While it is alive, its ticket has its state."
    deferred = ("payload", "result", "error", "labels")
    fields = (
        "id", "why", "run_key", "state", "reason", "trigger", "job_link", "job_version", "schedule_link",
        "schedule_version", "run_link", "step", "dependencies", "priority", "nominal_at", "actual_at", "created_at",
        "queued_at", "started_at", "finished_at", "attempt_count", "attempts", "count", "until_at", "replay_of_link",
        "fired_by", "erased", "labels", "payload_shown", "result_shown", "error_shown",
    )  # fmt: skip
    readonly_fields = (
        "why", "job_link", "schedule_link", "run_link", "dependencies", "replay_of_link", "attempts", "erased",
        "payload_shown", "result_shown", "error_shown",
    )  # fmt: skip
    job_link, schedule_link = link_field("job_id", Job), link_field("schedule_id", Schedule)
    replay_of_link = link_field("replay_of", Execution)
    payload_shown, result_shown, error_shown = json_field("payload"), json_field("result"), json_field("error")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(partial(erase_view, self))
        return [path("<uuid:key>/erase/", view, name="executions_execution_erase"), *super().get_urls()]

    @admin.display(description="erased")
    def erased(self, obj: Execution) -> str:
        found = Erasure.objects.filter(pk=obj.pk).first()
        if found is not None:
            return f"{found.at:%Y-%m-%d %H:%M} UTC: {found.reason}"
        if obj.finished_at is None:
            return "-"
        url = reverse("admin:executions_execution_erase", args=[obj.pk], current_app=tenant_site.name)
        return format_html('no. <a href="{}">Erase it</a>', url)

    @admin.display(description="its attempts")
    def attempts(self, obj: Execution) -> str:
        url = reverse("admin:executions_attempt_changelist", current_app=tenant_site.name)
        return format_html('<a href="{}?q={}">show</a>', url, obj.pk)

    @admin.display(description="run of a workflow")
    def run_link(self, obj: Execution) -> str:
        return link(Run, obj.workflow_run_id)

    @admin.display(description="waits for, waited for by")
    def dependencies(self, obj: Execution) -> str:
        url = reverse("admin:workflows_dependency_changelist", current_app=tenant_site.name)
        return format_html('<a href="{}?q={}">show</a>', url, obj.pk)


@admin.register(Attempt, site=tenant_site)
class AttemptAdmin(ReadOnlyAdmin):
    list_display = ("id", "execution_link", "number", "state", "worker_id", "started_at", "finished_at", "retry_at")
    list_filter = (WindowFilter, choice_filter("state", ATTEMPT_STATES))
    uuid_search = ("id",)
    search_help_text = "Id of an attempt or of an execution."
    deferred = ("error",)
    fields = (
        "id", "execution_link", "number", "fence", "state", "worker_id", "started_at", "finished_at", "retry_at",
        "error_shown",
    )  # fmt: skip
    readonly_fields = ("execution_link", "error_shown")
    execution_link, error_shown = link_field("execution_id", Execution), json_field("error")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An attempt's id begins like its execution's: that finds the attempts of one without an index of their own."""
        key = as_uuid(search_term.strip())
        if key is None:
            return super().get_search_results(request, queryset, search_term)
        first, last = ids_beside(key)
        near = queryset.filter(pk__gte=first, pk__lte=last)
        return near.filter(Q(pk=key) | Q(execution_id=key)), False
