"""Tenants' identity providers, for operators: to read, and to switch off where one locks people out."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.audit.services import record
from apps.audit.trail import actor_of, database_now
from apps.console.admin_tenants import SmallAdmin
from apps.console.selecting import ticked
from apps.signin.models import Provider


@admin.register(Provider)
class ProviderAdmin(SmallAdmin):
    """The client's secret is on no page."""

    list_display = ("tenant", "issuer", "enabled", "default_role", "updated_at")
    list_filter = ("enabled",)
    list_select_related = ("tenant",)
    search_fields = ("tenant__slug", "issuer")
    ordering = ("tenant__slug",)
    actions = ("switch_off",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_switch_off_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("signin.change_provider")

    @admin.action(description="Switch the ticked providers off", permissions=["switch_off"])
    def switch_off(self, request: HttpRequest, queryset: QuerySet[Provider]) -> None:
        now, count = database_now(), 0
        for provider in Provider.objects.filter(pk__in=ticked(self, request), enabled=True).order_by("pk"):
            with transaction.atomic():
                changed = Provider.objects.filter(pk=provider.pk, enabled=True, revision=provider.revision).update(
                    enabled=False, revision=provider.revision + 1, updated_at=now
                )
                if not changed:
                    continue
                record(
                    actor=actor_of(request), action="provider.update", object_type="provider", object_id=provider.pk,
                    now=now, tenant_id=provider.tenant_id, before={"enabled": True}, after={"enabled": False},
                )  # fmt: skip
                count += 1
        self.message_user(request, f"{count} switched off.", messages.SUCCESS if count else messages.WARNING)
