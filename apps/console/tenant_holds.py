"""A tenant's legal holds, and the page that erases an execution. What operators hold only operators release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html

from apps.archive.erasing import execution_erase
from apps.archive.holding import REASON_CHARS, hold_place, hold_release
from apps.archive.models import SCOPES, LegalHold
from apps.audit.trail import TrailMixin, actor_of, database_now
from apps.console.filters import choice_filter
from apps.console.middleware import tenant_of
from apps.console.reading import ReadOnlyAdmin
from apps.console.tenant_site import tenant_site
from apps.executions.models import Execution
from kernel.errors import InvalidInput, ShardbeatError

if TYPE_CHECKING:
    HoldModelForm = forms.ModelForm[LegalHold]
else:
    HoldModelForm = forms.ModelForm


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(max_length=REASON_CHARS, widget=forms.Textarea(attrs={"rows": 3}))


class EraseForm(ReasonForm):
    """Why, and how much. The id is typed, since this can't be undone."""

    id = forms.CharField(label="Type the execution's id", max_length=36)
    everything = forms.BooleanField(
        required=False, label="Also the workflow's run that it is a step of, and what was run again"
    )
    field_order = ("id", "everything", "reason")

    def __init__(self, execution: Execution, *args: Any) -> None:
        super().__init__(*args)
        self._key = str(execution.pk)

    def clean_id(self) -> str:
        given: str = self.cleaned_data["id"]
        if given.strip() != self._key:
            raise forms.ValidationError("This is not the id of the execution on this page.")
        return given


class HoldForm(HoldModelForm):
    """A new hold."""

    scope = forms.ChoiceField(choices=[(one, one) for one in SCOPES])
    object_id = forms.UUIDField(required=False, label="Id of the job, schedule, workflow or execution")
    from_at = forms.DateTimeField(required=False, label="Executions made from", help_text="UTC; empty: from the first.")
    until_at = forms.DateTimeField(required=False, label="Executions made before", help_text="UTC; empty: to the last.")
    reason = forms.CharField(max_length=REASON_CHARS, widget=forms.Textarea(attrs={"rows": 3}))

    class Meta:
        model = LegalHold
        fields = ("scope", "object_id", "from_at", "until_at", "reason")

    def data_of(self) -> dict[str, Any]:
        """As `hold_place` takes it."""
        given = self.cleaned_data
        told = {name: given.get(name) for name in ("scope", "from_at", "until_at", "reason")}
        return {**told, "object": str(given["object_id"]) if given.get("object_id") else None}


@admin.register(LegalHold, site=tenant_site)
class LegalHoldAdmin(TrailMixin, ReadOnlyAdmin):
    form = HoldForm
    list_display = ("id", "scope", "object_id", "reason", "created_by", "created_at", "released_at")
    list_filter = (choice_filter("scope", SCOPES),)
    uuid_search = ("id", "object_id")
    search_help_text = "Id of a hold, or of what is held."
    shown = (
        "id", "scope", "object_id", "from_at", "until_at", "reason", "by_operator", "created_by", "created_at", "state",
        "released_by", "released_reason",
    )  # fmt: skip

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("scope", "object_id", "from_at", "until_at", "reason") if obj is None else self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj is None else self.shown

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("archive.add_legalhold")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.release_view)
        return [path("<uuid:key>/release/", view, name="archive_legalhold_release"), *super().get_urls()]

    @admin.display(description="released")
    def state(self, obj: LegalHold) -> str:
        if obj.released_at is not None:
            return f"{obj.released_at:%Y-%m-%d %H:%M} UTC"
        url = reverse("admin:archive_legalhold_release", args=[obj.pk], current_app=tenant_site.name)
        return format_html('open. <a href="{}">Release it</a>', url)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        tenant = tenant_of(request)
        made = hold_place(
            tenant=tenant, actor=actor_of(request), data=form.data_of(), now=database_now(), by_operator=True
        )
        obj.pk = made.pk
        obj._state.adding = False

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        try:
            return super().add_view(request, form_url, extra_context)
        except InvalidInput as error:
            messages.error(request, " ".join(f"{one.pointer.strip('/')}: {one.detail}" for one in error.errors))
        except ShardbeatError as error:
            messages.error(request, error.detail)
        return HttpResponseRedirect(request.path)

    def release_view(self, request: HttpRequest, key: UUID) -> HttpResponse:
        """Asks why, and releases."""
        hold = LegalHold.objects.filter(pk=key).first()
        if hold is None or not request.user.has_perm("archive.change_legalhold"):
            raise Http404
        form = ReasonForm(request.POST if request.method == "POST" else None)
        back = reverse("admin:archive_legalhold_change", args=[key], current_app=tenant_site.name)
        if form.is_bound and form.is_valid():
            tenant = tenant_of(request)
            try:
                hold_release(
                    tenant=tenant, actor=actor_of(request), hold_id=key, reason=form.cleaned_data["reason"],
                    now=database_now(), by_operator=True,
                )  # fmt: skip
                messages.success(request, "The hold is released: what is old enough goes with the next clean-up.")
            except ShardbeatError as error:
                messages.error(request, error.detail)
            return HttpResponseRedirect(back)
        text = f"What the hold on {hold} keeps may be deleted from then on: {hold.reason}"
        return reasoned(self, request, form, title="Release a legal hold", button="Release it", text=text, back=back)

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]  # no LogEntry
        """The service has written the trail."""


def erase_view(model_admin: Any, request: HttpRequest, key: UUID) -> HttpResponse:
    """Asks for the id and for a reason, and erases."""
    found = Execution.objects.filter(pk=key).first()
    if found is None or not request.user.has_perm("executions.delete_execution"):
        raise Http404
    form = EraseForm(found, request.POST if request.method == "POST" else None)
    back = reverse("admin:executions_execution_change", args=[key], current_app=tenant_site.name)
    if form.is_bound and form.is_valid():
        try:
            done = execution_erase(
                tenant=tenant_of(request), actor=actor_of(request), execution_id=key,
                reason=form.cleaned_data["reason"], now=database_now(), everything=form.cleaned_data["everything"],
                files=False,
            )  # fmt: skip
            rest = f" Of {len(done.left):,} something is left; it goes on by itself." if done.left else ""
            messages.success(request, f"Erased, with {len(done.parts) - 1:,} that went with it.{rest}")
        except ShardbeatError as error:
            messages.error(request, error.detail)
        return HttpResponseRedirect(back)
    text = (
        "Payload, labels, answer, errors, attempts, dead letters and events of this execution are removed everywhere, "
        "and this can't be undone. That it ran stays."
    )
    return reasoned(model_admin, request, form, title=f"Erase execution {key}", button="Erase it", text=text, back=back)


def reasoned(
    model_admin: Any, request: HttpRequest, form: forms.Form, *, title: str, button: str, text: str, back: str
) -> HttpResponse:
    """A page with a form that must say why."""
    context = {
        **model_admin.admin_site.each_context(request), "opts": model_admin.opts, "title": title, "button": button,
        "text": text, "form": form, "back": back,
    }  # fmt: skip
    return TemplateResponse(request, "console/reasoned.html", context)
