"""What belongs to tenants: plans, domains, API keys. Tenants themselves are in `admin_tenant`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from apps.audit.seen import SeenMixin
from apps.audit.trail import TrailMixin, actor_of
from apps.console.selecting import refuse_hidden
from apps.console.verbs.ticked import TickedMixin
from apps.dispatch.reserves import overbooked
from tenants import door
from tenants.apikeys import scope_faults
from tenants.keys import apikey_create
from tenants.models import ApiKey, Domain, Plan, PlanPool

if TYPE_CHECKING:
    BaseAdmin = admin.ModelAdmin[Any]
    BaseInline = admin.StackedInline[PlanPool, Plan]
    ApiKeyModelForm = forms.ModelForm[ApiKey]
    PlanModelForm = forms.ModelForm[Plan]
    PlanPoolModelForm = forms.ModelForm[PlanPool]
else:
    BaseAdmin, BaseInline = admin.ModelAdmin, admin.StackedInline
    ApiKeyModelForm = PlanModelForm = PlanPoolModelForm = forms.ModelForm


# The limits of a plan that a verb changes, for all of its tenants.
QUOTAS = (
    "weight", "max_running", "max_live", "max_runs_per_min", "runs_burst", "max_runs_per_day",
    "max_api_requests_per_min", "max_schedules", "max_jobs", "max_webhooks", "max_secrets",
)  # fmt: skip


class SmallAdmin(TickedMixin, SeenMixin, TrailMixin, BaseAdmin):
    """Tables of at most some thousand rows, that operators change."""

    list_per_page = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST":
            refuse_hidden(self, request)
        return super().changelist_view(request, extra_context)


class PlanForm(PlanModelForm):
    def clean(self) -> dict[str, Any]:
        """A burst is one of a rate."""
        given = super().clean() or self.cleaned_data
        if given.get("runs_burst") and not given.get("max_runs_per_min"):
            self.add_error("runs_burst", "Of which rate? Give max_runs_per_min, too.")
        return given


class PlanPoolForm(PlanPoolModelForm):
    def clean(self) -> dict[str, Any]:
        """What is reserved must fit into the maximum."""
        given = super().clean() or self.cleaned_data
        most, reserved = given.get("max_slots"), given.get("reserved_slots") or 0
        if most is not None and most < reserved:
            self.add_error("max_slots", f"At least as many as are reserved: {reserved}.")
        return given


class PlanPoolInline(BaseInline):
    model = PlanPool
    form = PlanPoolForm
    extra = 0
    verbose_name_plural = "slots of each of its tenants, by pool"


@admin.register(Plan)
class PlanAdmin(SmallAdmin):
    """Limits of a plan that there is are changed by the verb whose button is on the page."""

    form = PlanForm
    change_form_template = "console/plan_form.html"
    inlines = (PlanPoolInline,)
    list_display = (
        "name", "weight", "own_queue", "worker_group", "max_schedules", "max_running", "max_live", "max_runs_per_min",
        "runs_burst", "max_runs_per_day", "max_api_requests_per_min", "retention_days", "archive_days",
    )  # fmt: skip
    search_fields = ("name",)
    ordering = ("name",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return QUOTAS if obj is not None else ()

    def seen_besides(self, obj: Any) -> dict[str, Any]:
        return {"slots": _slots_of(obj)}

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """The slots by pool are in the same row of the trail as the plan."""
        before = _slots_of(form.instance) if change else {}
        super().save_related(request, form, formsets, change)
        after = _slots_of(form.instance)
        if before != after:
            was, now, _ = request.trail  # type: ignore[attr-defined]  # the mixin writes it
            was["slots"], now["slots"] = before, after
        tell_overbooked(self, request)


def _slots_of(plan: Plan) -> dict[str, dict[str, int | None]]:
    return {
        one.pool: {"reserved_slots": one.reserved_slots, "max_slots": one.max_slots}
        for one in PlanPool.objects.filter(plan=plan).order_by("pool")
    }


def tell_overbooked(page: SmallAdmin, request: HttpRequest) -> None:
    """Says where more slots are reserved than there are workers for; nothing is refused, workers come and go."""
    for one in overbooked(door.raw()):
        page.message_user(request, str(one), messages.WARNING)


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
    verbs = ("apikey.revoke",)
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
