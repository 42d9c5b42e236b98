"""A tenant's dead letters, to read."""

from __future__ import annotations

from django.contrib import admin

from apps.console.filters import WindowFilter, choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import json_field
from apps.console.tenant_admin import link_field
from apps.console.tenant_site import tenant_site
from apps.deadletters.models import DeadLetter
from apps.executions.models import Execution
from apps.schedules.models import Job


@admin.register(DeadLetter, site=tenant_site)
class DeadLetterAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "execution_link", "job_link", "attempts", "fingerprint", "created_at", "resolved_at", "resolution",
        "resolved_by",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("resolution", ("replayed", "resolved")))
    uuid_search = ("id", "execution_id")
    exact_search = ("fingerprint",)
    search_help_text = "Id of a dead letter or of an execution, or a fingerprint."
    deferred = ("error",)
    fields = (
        "id", "execution_link", "job_link", "fingerprint", "attempts", "created_at", "resolved_at", "resolution",
        "note", "resolved_by", "error_shown",
    )  # fmt: skip
    readonly_fields = ("execution_link", "job_link", "error_shown")
    execution_link, job_link = link_field("execution_id", Execution), link_field("job_id", Job)
    error_shown = json_field("error")
