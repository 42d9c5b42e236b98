"""The trail of what people change in the Django admin: an audit row in the transaction of the change.

It takes the place of Django's LogEntry, which knows no tenant and can be altered.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import connection
from django.db.models import Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode

from apps.audit.actors import Actor, at_request, operator
from apps.audit.plain import plain
from apps.audit.services import record

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object

MASK = "(masked)"


def actor_of(request: HttpRequest) -> Actor:
    """The operator as the trail names them."""
    name = f"admin:{request.user.get_username()}"
    return at_request(Actor(name=name, role="admin", subject=operator(int(request.user.pk or 0))), request)


def database_now() -> datetime:
    """The database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now


class TrailMixin(Base):
    """For a ModelAdmin: writes the trail, and saves no field but those that the form changed."""

    trail_masked: tuple[str, ...] = ()
    trail_personal: tuple[str, ...] = ()  # what identifies the person of `trail_about`

    def trail_about(self, obj: Model) -> str:
        """The subject of the person that a row is of; empty when it is of none."""
        return ""

    def saved_besides(self, form: ModelForm[Any]) -> Iterable[str]:
        """Fields that the model's own save() or form sets besides those that were changed."""
        return ()

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm[Any], change: bool) -> None:
        request.trail = self._differences(form)  # type: ignore[attr-defined]  # for log_addition and log_change below
        if not change:
            super().save_model(request, obj, form, change)
            return
        known = {field.name for field in obj._meta.concrete_fields}
        fields = [name for name in form.changed_data if name in known]
        if fields:
            besides = [name for name in self.saved_besides(form) if name not in fields]
            obj.save(update_fields=[*fields, *besides])

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]  # no LogEntry
        self._record(request, obj, "create")

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]  # no LogEntry
        self._record(request, obj, "update")

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # type: ignore[override]  # no LogEntry
        for obj in queryset:
            self._record(request, obj, "delete")

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The object's rows in the trail."""
        query = urlencode({"q": f"{self.opts.model_name} {object_id}"})
        return HttpResponseRedirect(f"{reverse('admin:audit_auditevent_changelist')}?{query}")

    def _record(self, request: HttpRequest, obj: Model, verb: str) -> None:
        before, after, personal = getattr(request, "trail", (None, None, {}))
        if not personal:  # who it was that was deleted
            personal = {name: str(getattr(obj, name, "") or "") for name in self.trail_personal}
        tenant_id = obj.pk if self.opts.label == "tenants.Tenant" else getattr(obj, "tenant_id", None)
        record(
            actor=actor_of(request), action=f"{self.opts.model_name}.{verb}", object_type=str(self.opts.model_name),
            object_id=obj.pk, now=database_now(), tenant_id=tenant_id, before=before or None, after=after or None,
            about=self.trail_about(obj), personal=personal,
        )  # fmt: skip

    def _differences(self, form: ModelForm[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
        before, after, personal = {}, {}, {}
        for name in form.changed_data:
            if name in self.trail_personal:
                personal[f"{name} before"] = str(form.initial.get(name) or "")
                personal[name] = str(form.cleaned_data.get(name) or "")
                continue
            masked = name in self.trail_masked
            before[name] = MASK if masked else plain(form.initial.get(name))
            after[name] = MASK if masked else plain(form.cleaned_data.get(name))
        return before, after, personal
