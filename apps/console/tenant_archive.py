"""The catalogue of a tenant's archive, to read: which days are in files, and how each batch stands."""

from __future__ import annotations

from django.contrib import admin

from apps.archive.models import STATES, ArchiveBatch
from apps.console.filters import choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import json_field
from apps.console.tenant_site import tenant_site


@admin.register(ArchiveBatch, site=tenant_site)
class ArchiveBatchAdmin(ReadOnlyAdmin):
    list_display = ("day", "seq", "state", "executions", "bytes", "created_at", "done_at", "ended_at", "note")
    list_filter = (choice_filter("state", STATES),)
    uuid_search = ("id",)
    search_help_text = "Id of a batch, which is the last part of its folder."
    deferred = ("kept_back",)
    ordering = ("-day", "-seq")
    fields = (
        "id", "day", "seq", "state", "path", "counts_shown", "bytes", "manifest_sha256", "format", "min_id", "max_id",
        "nominal_from", "nominal_to", "replaces", "keep_until", "note", "created_at", "touched_at", "verified_at",
        "done_at", "ended_at",
    )  # fmt: skip
    readonly_fields = ("counts_shown",)
    counts_shown = json_field("counts")

    @admin.display(description="executions")
    def executions(self, obj: ArchiveBatch) -> int:
        return int(obj.counts.get("executions", 0))
