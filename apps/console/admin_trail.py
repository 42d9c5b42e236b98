"""The audit trail, to read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from apps.audit.models import AuditEvent
from apps.console.filters import choice_filter
from apps.console.reading import ReadOnlyAdmin
from apps.console.shown import json_field
from tenants.models import Tenant


class ByTenantAdmin(ReadOnlyAdmin):
    """Rows that carry a tenant's number: the list shows its name, and a word of the search may be its slug."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        slug = Tenant.objects.filter(pk=OuterRef("tenant_id")).values("slug")[:1]
        rows: QuerySet[Any] = super().get_queryset(request).annotate(tenant_slug=Subquery(slug))
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        words = search_term.split()
        slugs = dict(Tenant.objects.filter(slug__in=words[:20]).values_list("slug", "pk")) if words else {}
        for tenant_id in slugs.values():
            queryset = queryset.filter(tenant_id=tenant_id)
        return super().get_search_results(request, queryset, " ".join(word for word in words if word not in slugs))

    @admin.display(description="tenant")
    def tenant(self, obj: Any) -> str:
        return obj.tenant_slug or (f"#{obj.tenant_id}" if obj.tenant_id else "-")


@admin.register(AuditEvent)
class AuditEventAdmin(ByTenantAdmin):
    """Who did what, when, to what. The database refuses changes, too."""

    list_display = ("at", "tenant", "actor", "action", "object_type", "object_id", "allowed", "reason")
    list_filter = (choice_filter("allowed", ("True", "False"), "allowed"),)
    exact_search = ("object_id", "object_type", "action", "actor", "request_id")
    search_help_text = "Tenant, object id, object type, action, actor or request id, exactly."
    deferred = ("before", "after")
    fields = (
        "at", "tenant", "actor", "action", "object_type", "object_id", "allowed", "reason", "request_id",
        "before_shown", "after_shown",
    )  # fmt: skip
    readonly_fields = ("tenant", "before_shown", "after_shown")
    before_shown, after_shown = json_field("before"), json_field("after")
