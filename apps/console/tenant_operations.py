"""A tenant's operations, with what became of their items; operators pause, resume, cancel and undo them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from apps.audit.trail import actor_of
from apps.console.confirming import PERMISSION
from apps.console.filters import WindowFilter, choice_filter
from apps.console.middleware import tenant_of
from apps.console.reading import ReadOnlyAdmin
from apps.console.selecting import ticked
from apps.console.shown import json_field
from apps.console.tenant_admin import link
from apps.console.tenant_site import tenant_site
from apps.executions.models import Execution
from apps.operations import services
from apps.operations.models import Item, Operation
from apps.operations.reading import COUNTS, items_read
from apps.operations.states import STATES
from kernel.errors import ShardbeatError
from tenants.work import database_now

SHOWN_ITEMS = 50


@admin.register(Operation, site=tenant_site)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "action", "target", "state", "waits_for", *COUNTS, "created_by", "created_at", "started_at",
        "finished_at",
    )  # fmt: skip
    list_filter = (WindowFilter, choice_filter("state", STATES))
    uuid_search = ("id",)
    search_help_text = "Id of an operation."
    deferred = ("filter", "params", "actor", "cursor")
    actions = ("pause", "resume", "cancel", "undo")
    fields = (
        "id", "action", "target", "state", "waits_for", "paused_reason", "error", *COUNTS, "filter_shown",
        "params_shown", "frozen_at", "rate_per_s", "max_in_flight", "canary", "canary_passed", "stop_after_failures",
        "next_at", "reason", "created_by", "created_at", "started_at", "finished_at", "bad", "first",
    )  # fmt: skip
    readonly_fields = ("filter_shown", "params_shown", "bad", "first")
    filter_shown, params_shown = json_field("filter"), json_field("params")

    def has_work_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(PERMISSION)

    @admin.display(description="skipped and failed items, the first of them")
    def bad(self, obj: Operation) -> str:
        return _lines(items_read(obj, states=["skipped", "failed"], after=0, size=SHOWN_ITEMS).rows)

    @admin.display(description="all items, the first of them")
    def first(self, obj: Operation) -> str:
        return _lines(items_read(obj, states=[], after=0, size=SHOWN_ITEMS).rows)

    @admin.action(description="Pause the ticked operations", permissions=["work"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Operation]) -> None:
        self._each(request, services.operation_pause, "paused")

    @admin.action(description="Resume the ticked operations", permissions=["work"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Operation]) -> None:
        self._each(request, services.operation_resume, "resumed")

    @admin.action(description="Cancel the ticked operations: what is pending is never begun", permissions=["work"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Operation]) -> None:
        self._each(request, services.operation_cancel, "cancelled")

    @admin.action(description="Undo the ticked operations", permissions=["work"])
    def undo(self, request: HttpRequest, queryset: QuerySet[Operation]) -> None:
        self._each(request, services.operation_undo, "being undone")

    def _each(self, request: HttpRequest, service: Any, word: str) -> None:
        """Each on its own; what a service refuses is told."""
        tenant = tenant_of(request)
        done = 0
        for operation_id in ticked(self, request):
            try:
                service(tenant=tenant, actor=actor_of(request), operation_id=operation_id, now=database_now())
                done += 1
            except ShardbeatError as error:
                self.message_user(request, f"{operation_id}: {error.detail}", messages.WARNING)
        if done:
            self.message_user(request, f"{done} {word}.", messages.SUCCESS)


def _lines(items: list[Item]) -> str:
    if not items:
        return "-"
    rows = ((one.n, one.state, one.code or "-", one.target_id or one.nominal_at, _made(one)) for one in items)
    return format_html("<ol>{}</ol>", format_html_join("", '<li value="{}">{}, {}: {} {}</li>', rows))


def _made(item: Item) -> str:
    return format_html("({})", link(Execution, item.made_id)) if item.made_id else ""
