"""A tenant's operations, with what became of their items; operators pause, resume, cancel and undo them."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html, format_html_join

from apps.console.filters import WindowFilter, choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import json_field
from apps.console.tenant_admin import link
from apps.console.tenant_site import tenant_site
from apps.console.verbs.ticked import TickedMixin
from apps.executions.models import Execution
from apps.operations.models import Item, Operation
from apps.operations.reading import COUNTS, items_read
from apps.operations.states import STATES

SHOWN_ITEMS = 50


@admin.register(Operation, site=tenant_site)
class OperationAdmin(TickedMixin, ReadOnlyAdmin):
    list_display = (
        "id", "action", "target", "state", "waits_for", *COUNTS, "created_by", "created_at", "started_at",
        "finished_at",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("state", STATES))
    uuid_search = ("id",)
    search_help_text = "Id of an operation."
    deferred = ("filter", "params", "actor", "cursor")
    verbs = ("operation.pause", "operation.resume", "operation.cancel", "operation.undo")
    fields = (
        "id", "action", "target", "state", "waits_for", "paused_reason", "error", *COUNTS, "filter_shown",
        "params_shown", "frozen_at", "rate_per_s", "max_in_flight", "canary", "canary_passed", "stop_after_failures",
        "next_at", "reason", "created_by", "created_at", "started_at", "finished_at", "bad", "first",
    )  # fmt: skip
    readonly_fields = ("filter_shown", "params_shown", "bad", "first")
    filter_shown, params_shown = json_field("filter"), json_field("params")

    @admin.display(description="skipped and failed items, the first of them")
    def bad(self, obj: Operation) -> str:
        return _lines(items_read(obj, states=["skipped", "failed"], after=0, size=SHOWN_ITEMS).rows)

    @admin.display(description="all items, the first of them")
    def first(self, obj: Operation) -> str:
        return _lines(items_read(obj, states=[], after=0, size=SHOWN_ITEMS).rows)


def _lines(items: list[Item]) -> str:
    if not items:
        return "-"
    rows = ((one.n, one.state, one.code or "-", one.target_id or one.nominal_at, _made(one)) for one in items)
    return format_html("<ol>{}</ol>", format_html_join("", '<li value="{}">{}, {}: {} {}</li>', rows))


def _made(item: Item) -> str:
    return format_html("({})", link(Execution, item.made_id)) if item.made_id else ""
