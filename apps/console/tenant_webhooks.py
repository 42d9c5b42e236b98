"""A tenant's events and webhooks, to read. No page holds a secret."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html

from apps.console.filters import WindowFilter, choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import json_field
from apps.console.tenant_admin import link_field
from apps.console.tenant_site import tenant_site
from apps.events.models import Event
from apps.executions.models import Execution
from apps.schedules.models import Job, Schedule
from apps.webhooks.models import Webhook
from kernel.eventtypes import EVENT_TYPES


@admin.register(Event, site=tenant_site)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("id", "type", "at", "job_link", "schedule_link", "execution_link")
    list_filter = (WindowFilter, choice_filter("type", tuple(EVENT_TYPES)))
    uuid_search = ("id",)
    search_help_text = "Id of an event."
    deferred = ("data",)
    fields = ("id", "type", "at", "tx", "job_link", "schedule_link", "execution_link", "data_shown")
    readonly_fields = ("job_link", "schedule_link", "execution_link", "data_shown")
    job_link, schedule_link = link_field("job_id", Job), link_field("schedule_id", Schedule)
    execution_link, data_shown = link_field("execution_id", Execution), json_field("data")


@admin.register(Webhook, site=tenant_site)
class WebhookAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "enabled", "host", "failing_since", "failures", "last_error", "last_success_at", "disabled_reason",
        "created_at", "deleted_at",
    )  # fmt: skip
    list_filter = (choice_filter("replay", ("missing", "all")),)
    uuid_search = ("id",)
    search_help_text = "Id of a webhook."
    fields = (
        "id", "host", "description", "types", "jobs", "schedules", "labels", "enabled", "disabled_at",
        "disabled_reason", "failing_since", "failures", "last_error", "last_success_at", "former_until", "cursor_tx",
        "cursor_id", "replay", "created_at", "updated_at", "deleted_at", "deliveries",
    )  # fmt: skip
    readonly_fields = ("host", "deliveries")

    @admin.display(description="host")
    def host(self, obj: Webhook) -> str:
        """The rest of a URL may be as good as a password."""
        return obj.url.split("/", 3)[2] if obj.url.count("/") > 1 else ""

    @admin.display(description="its deliveries")
    def deliveries(self, obj: Webhook) -> str:
        url = reverse("admin:executions_execution_changelist", current_app=tenant_site.name)
        return format_html('<a href="{}?q={}">show</a>', url, obj.pk)
