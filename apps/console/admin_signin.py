"""Tenants' identity providers, for operators: to read, and to switch off where one locks people out."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from apps.console.admin_tenants import SmallAdmin
from apps.signin.models import Provider


@admin.register(Provider)
class ProviderAdmin(SmallAdmin):
    """The client's secret is on no page."""

    list_display = ("tenant", "issuer", "enabled", "default_role", "updated_at")
    list_filter = ("enabled",)
    list_select_related = ("tenant",)
    search_fields = ("tenant__slug", "issuer")
    ordering = ("tenant__slug",)
    verbs = ("provider.switch_off",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
