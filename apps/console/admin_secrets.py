"""A tenant's secrets: what is known of them, and a field to set a value that is never shown again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from apps.audit.trail import TrailMixin, actor_of, database_now
from apps.console.middleware import tenant_of
from apps.console.reading import ReadOnlyAdmin
from apps.console.tenant_site import tenant_site
from apps.secrets.models import Secret
from apps.secrets.services import secret_change, secret_create, value_faults
from kernel.secretrules import is_name

if TYPE_CHECKING:
    SecretModelForm = forms.ModelForm[Secret]
else:
    SecretModelForm = forms.ModelForm


class SecretForm(SecretModelForm):
    """The value goes in and never comes out; `revision` is that of the page that was looked at."""

    value = forms.CharField(
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}), strip=False, required=False,
        help_text="Empty keeps what there is. A value of several lines can be set over the API.",
    )  # fmt: skip
    seen = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Secret
        fields = ("name", "description")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_new = self.instance._state.adding
        self.fields["seen"].initial = None if self._is_new else self.instance.revision

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not is_name(name):
            raise forms.ValidationError("1 to 64 letters, digits and _ . - that begin with a letter or _.")
        if self._is_new and Secret.objects.filter(name=name).exists():
            raise forms.ValidationError("There is already a secret of this name.")
        return name

    def clean_value(self) -> str:
        value: str = self.cleaned_data["value"]
        if self._is_new or value:
            for fault in value_faults(value):
                raise forms.ValidationError(fault.detail)
        return value

    def clean(self) -> dict[str, Any]:
        seen = self.cleaned_data.get("seen") or 0
        if not self._is_new and not Secret.objects.filter(pk=self.instance.pk, revision=seen).exists():
            raise forms.ValidationError("The secret has changed since this page was made; open it again.")
        return self.cleaned_data


@admin.register(Secret, site=tenant_site)
class SecretAdmin(TrailMixin, ReadOnlyAdmin):
    """Metadata of what jobs may name. What the platform keeps for itself is not listed."""

    form = SecretForm
    list_display = ("name", "version", "value_set_at", "last_used_at", "description", "created_at")
    uuid_search = ("id",)
    exact_search = ("name",)
    search_help_text = "Id or name."
    deferred = ("nonce", "ciphertext")
    shown = ("version", "value_set_at", "last_used_at", "created_at", "updated_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(purpose=Secret.Purpose.JOB)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name", "description", "value", "seen", *(self.shown if obj is not None else ()))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name", *self.shown) if obj is not None else ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("secrets.add_secret")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("secrets.change_secret")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        tenant = tenant_of(request)
        actor, now, value = actor_of(request), database_now(), form.cleaned_data["value"]
        if change:
            secret_change(
                tenant=tenant, actor=actor, secret_id=obj.pk, now=now, expect={form.cleaned_data["seen"]},
                value=value or None, description=obj.description,
            )  # fmt: skip
        else:
            made = secret_create(
                tenant=tenant, actor=actor, name=obj.name, value=value, description=obj.description, now=now
            )
            obj.pk = made.pk
            obj._state.adding = False

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]  # no LogEntry
        """The service has written the trail."""

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]  # no LogEntry
        """The service has written the trail."""
