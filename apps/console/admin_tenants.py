"""Tenants and what belongs to them.

A tenant is made with `manage.py tenant_create`: its schema needs the owner's role, which the web does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from apps.audit.services import record
from apps.audit.trail import TrailMixin, actor_of, database_now
from apps.console.deleting import deletion_page
from apps.console.selecting import ticked
from apps.console.shown import tenant_link
from kernel.addressrules import plain_rule
from tenants.apikeys import scope_faults
from tenants.keys import apikey_create, apikey_revoke
from tenants.models import ApiKey, Domain, Plan, Tenant

if TYPE_CHECKING:
    BaseAdmin = admin.ModelAdmin[Any]
    TenantModelForm = forms.ModelForm[Tenant]
    ApiKeyModelForm = forms.ModelForm[ApiKey]
else:
    BaseAdmin, TenantModelForm, ApiKeyModelForm = admin.ModelAdmin, forms.ModelForm, forms.ModelForm


class SmallAdmin(TrailMixin, BaseAdmin):
    """Tables of at most some thousand rows, that operators change."""

    list_per_page = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER


@admin.register(Plan)
class PlanAdmin(SmallAdmin):
    list_display = (
        "name", "weight", "own_queue", "max_schedules", "max_running", "max_live", "max_runs_per_min",
        "max_runs_per_day", "max_api_requests_per_min",
        "retention_days",
    )  # fmt: skip
    search_fields = ("name",)
    ordering = ("name",)


class TenantForm(TenantModelForm):
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
    list_display = (
        "slug", "name", "plan", "status", "delete_after", "dispatch_paused", "schema_version", "created_at", "tables",
    )  # fmt: skip
    list_filter = ("status", "plan", "dispatch_paused")
    list_select_related = ("plan",)
    search_fields = ("slug", "name")
    ordering = ("slug",)
    fields = (
        "slug", "name", "plan", "status", "dispatch_paused", "network", "schema_name", "schema_version", "created_at",
        "tables", "delete_after", "delete_note",
    )  # fmt: skip
    readonly_fields = (
        "slug", "schema_name", "schema_version", "created_at", "tables", "delete_after", "delete_note",
    )  # fmt: skip

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

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


@admin.register(Domain)
class DomainAdmin(SmallAdmin):
    list_display = ("domain", "tenant", "is_primary")
    list_select_related = ("tenant",)
    search_fields = ("domain", "tenant__slug")
    autocomplete_fields = ("tenant",)
    ordering = ("domain",)

    def saved_besides(self, form: forms.ModelForm[Any]) -> Iterable[str]:
        return ("is_primary",)


class ApiKeyForm(ApiKeyModelForm):
    def clean_scopes(self) -> Any:
        """Scopes that name something."""
        given = self.cleaned_data["scopes"]
        if given is not None and not (isinstance(given, list) and all(isinstance(one, str) for one in given)):
            raise forms.ValidationError('A list such as ["schedule.*", "*.read"], or nothing.')
        faults = scope_faults(given)
        if faults:
            raise forms.ValidationError([fault.detail for fault in faults])
        return given


@admin.register(ApiKey)
class ApiKeyAdmin(SmallAdmin):
    """The text of a key is on the page that follows its making, and nowhere else."""

    form = ApiKeyForm
    list_display = ("name", "prefix", "tenant", "role", "created_at", "expires_at", "revoked_at", "last_used_at")
    list_filter = ("role",)
    list_select_related = ("tenant",)
    search_fields = ("prefix", "name", "tenant__slug")
    autocomplete_fields = ("tenant",)
    ordering = ("-pk",)
    actions = ("revoke",)
    shown = (
        "tenant", "name", "role", "scopes", "prefix", "created_at", "created_by", "expires_at", "rotated_at",
        "revoked_at", "last_used_at",
    )  # fmt: skip

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return self.shown if obj is not None else ("tenant", "name", "role", "scopes", "expires_at")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tenants.change_apikey")

    def save_model(self, request: HttpRequest, obj: Any, form: forms.ModelForm[Any], change: bool) -> None:
        request.trail = self._differences(form)  # type: ignore[attr-defined]  # the mixin writes it
        key, text = apikey_create(
            tenant=obj.tenant, name=obj.name, role=obj.role, scopes=obj.scopes, expires_at=obj.expires_at,
            created_by=actor_of(request).stored,
        )  # fmt: skip
        obj.pk, obj.prefix = key.pk, key.prefix
        obj._state.adding = False
        request.new_key = text  # type: ignore[attr-defined]  # for the page below

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request), "title": "The new key", "opts": self.opts, "key": obj,
            "text": request.new_key,  # type: ignore[attr-defined]  # set above
        }  # fmt: skip
        response = TemplateResponse(request, "console/apikey_created.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @admin.action(description="Revoke the ticked keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        now, count = database_now(), 0
        for key in ApiKey.objects.filter(pk__in=ticked(self, request)).order_by("pk"):
            if apikey_revoke(key, now=now):
                count += 1
                record(
                    actor=actor_of(request), action="apikey.revoke", object_type="apikey", object_id=key.pk, now=now,
                    tenant_id=key.tenant_id, after={"prefix": key.prefix},
                )  # fmt: skip
        self.message_user(request, f"{count} revoked.", messages.SUCCESS if count else messages.WARNING)
