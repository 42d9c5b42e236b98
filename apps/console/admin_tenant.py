"""Tenants, and what is done to one as a whole.

A tenant is made with `manage.py tenant_create`: its schema needs the owner's role, which the web does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path

from apps.console.admin_tenants import SmallAdmin, tell_overbooked
from apps.console.bands import band_of
from apps.console.deleting import deletion_page
from apps.console.filters import NamedFilter, SchemaFilter
from apps.console.shown import tenant_link
from apps.console.tenant_life import renaming_page
from kernel.addressrules import plain_rule
from tenants.models import Suspension, Tenant

if TYPE_CHECKING:
    TenantModelForm = forms.ModelForm[Tenant]
else:
    TenantModelForm = forms.ModelForm


class TenantForm(TenantModelForm):
    def clean_network(self) -> list[str]:
        """Rules as the hot paths read them."""
        given = self.cleaned_data["network"]
        try:
            return [plain_rule(one) for one in given]
        except (TypeError, ValueError) as error:
            raise forms.ValidationError(f'A list such as ["10.0.0.0/8", "10.0.0.7/32 25"]: {error}') from error


@admin.register(Tenant)
class TenantAdmin(SmallAdmin):
    """What a verb does is not changed here: its buttons are on the page."""

    form = TenantForm
    change_form_template = "console/tenant_form.html"
    verbs = ("tenant.suspend", "tenant.unsuspend", "tenant.pause", "tenant.resume")
    list_display = (
        "slug", "name", "plan", "worker_group", "status", "delete_after", "dispatch_paused", "schema_version",
        "created_at", "tables",
    )  # fmt: skip
    list_filter = ("status", "plan", ("worker_group", NamedFilter), "dispatch_paused", SchemaFilter)
    list_select_related = ("plan",)
    search_fields = ("slug", "name")
    ordering = ("slug",)
    fields = (
        "slug", "name", "worker_group", "network", "plan", "status", "dispatch_paused", "schema_name",
        "schema_version", "created_at", "tables", "standstill", "delete_after", "delete_note",
    )  # fmt: skip
    readonly_fields = (
        "slug", "plan", "status", "dispatch_paused", "schema_name", "schema_version", "created_at", "tables",
        "standstill", "delete_after", "delete_note",
    )  # fmt: skip

    def keys_of(self, ids: list[Any]) -> Iterable[str]:
        """Verbs name a tenant by its slug."""
        return list(Tenant.objects.filter(pk__in=ids).order_by("slug").values_list("slug", flat=True))

    def render_change_form(
        self, request: HttpRequest, context: Any, add: bool = False, change: bool = False, form_url: str = "",
        obj: Any = None,
    ) -> Any:  # fmt: skip
        """It is about one tenant, and wears its band."""
        around = {**context, **band_of(obj)}
        return super().render_change_form(request, around, add=add, change=change, form_url=form_url, obj=obj)

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

    @admin.display(description="suspended")
    def standstill(self, obj: Tenant) -> str:
        row = Suspension.objects.filter(tenant=obj, ended_at=None).first()
        return "-" if row is None else f"since {row.began_at:%Y-%m-%d %H:%M} UTC {row.reason}".rstrip()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if "worker_group" in form.changed_data:
            tell_overbooked(self, request)

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
