"""Tenants, and what is done to one as a whole.

A tenant is made with `manage.py tenant_create`: its schema needs the owner's role, which the web does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path

from apps.console.admin_tenants import SmallAdmin, tell_overbooked
from apps.console.deleting import deletion_page
from apps.console.filters import NamedFilter, SchemaFilter
from apps.console.selecting import ticked
from apps.console.shown import tenant_link
from apps.console.tenant_life import REASON_CHARS, renaming_page, set_all, set_status
from kernel.addressrules import plain_rule
from kernel.errors import Conflict
from tenants.models import Suspension, Tenant

if TYPE_CHECKING:
    TenantModelForm = forms.ModelForm[Tenant]
else:
    TenantModelForm = forms.ModelForm


class TenantForm(TenantModelForm):
    reason = forms.CharField(
        max_length=REASON_CHARS, required=False, help_text="Why its status changes: for the audit trail and the list."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "status" in self.fields:
            kept = {Tenant.Status.ACTIVE, Tenant.Status.SUSPENDED, self.instance.status}
            status: Any = self.fields["status"]
            status.choices = [choice for choice in Tenant.Status.choices if choice[0] in kept]

    def clean_network(self) -> list[str]:
        """Rules as the hot paths read them."""
        given = self.cleaned_data["network"]
        try:
            return [plain_rule(one) for one in given]
        except (TypeError, ValueError) as error:
            raise forms.ValidationError(f'A list such as ["10.0.0.0/8", "10.0.0.7/32 25"]: {error}') from error


@admin.register(Tenant)
class TenantAdmin(SmallAdmin):
    form = TenantForm
    change_form_template = "console/tenant_form.html"
    actions = ("suspend", "let_go_on")
    list_display = (
        "slug", "name", "plan", "worker_group", "status", "delete_after", "dispatch_paused", "schema_version",
        "created_at", "tables",
    )  # fmt: skip
    list_filter = ("status", "plan", ("worker_group", NamedFilter), "dispatch_paused", SchemaFilter)
    list_select_related = ("plan",)
    search_fields = ("slug", "name")
    ordering = ("slug",)
    fields = (
        "slug", "name", "plan", "worker_group", "status", "reason", "dispatch_paused", "network", "schema_name",
        "schema_version", "created_at", "tables", "standstill", "delete_after", "delete_note",
    )  # fmt: skip
    readonly_fields = (
        "slug", "schema_name", "schema_version", "created_at", "tables", "standstill", "delete_after", "delete_note",
    )  # fmt: skip

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def get_urls(self) -> list[Any]:
        rename = self.admin_site.admin_view(self.rename_view)
        return [path("<int:tenant_id>/rename/", rename, name="tenants_tenant_rename"), *super().get_urls()]

    def rename_view(self, request: HttpRequest, tenant_id: int) -> HttpResponse:
        tenant = self.get_object(request, str(tenant_id))
        if tenant is None or not self.has_change_permission(request, tenant):
            raise Http404
        return renaming_page(self, request, tenant)

    def save_model(self, request: HttpRequest, obj: Any, form: forms.ModelForm[Any], change: bool) -> None:
        """The status is no field like others: what waits and what is owed depend on when it changes."""
        status = obj.status if "status" in form.changed_data else None
        reason = form.cleaned_data.get("reason", "")
        form.changed_data[:] = [name for name in form.changed_data if name not in ("status", "reason")]
        super().save_model(request, obj, form, change)
        if status is not None:
            try:
                set_status(request, obj, status, reason)
                tell_overbooked(self, request)
            except Conflict as error:
                self.message_user(request, error.detail, messages.ERROR)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]  # as the mixin
        if request.trail[0]:  # type: ignore[attr-defined]  # else nothing but its status, which has a row of its own
            super().log_change(request, obj, message)

    @admin.action(description="Suspend the ticked tenants", permissions=["change"])
    def suspend(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        set_all(self, request, ticked(self, request), Tenant.Status.SUSPENDED)

    @admin.action(description="Let the ticked tenants go on", permissions=["change"])
    def let_go_on(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        set_all(self, request, ticked(self, request), Tenant.Status.ACTIVE)

    @admin.display(description="suspended")
    def standstill(self, obj: Tenant) -> str:
        row = Suspension.objects.filter(tenant=obj, ended_at=None).first()
        return "-" if row is None else f"since {row.began_at:%Y-%m-%d %H:%M} UTC {row.reason}".rstrip()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if {"plan", "worker_group"} & set(form.changed_data):
            tell_overbooked(self, request)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        marked = obj is not None and obj.status == Tenant.Status.DELETING
        return (*self.readonly_fields, "status") if marked else self.readonly_fields

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Marks the tenant, or takes the mark away; nothing is deleted in a request."""
        tenant = self.get_object(request, object_id)
        if tenant is None or not self.has_delete_permission(request, tenant):
            raise Http404
        return deletion_page(self, request, tenant)

    @admin.display(description="its own tables")
    def tables(self, obj: Tenant) -> str:
        return tenant_link(obj.slug, "", "open")
