"""What operators tell workers to listen to, besides their configuration; the same services as `worker_queues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse

from apps.audit.trail import actor_of, database_now
from apps.console.admin_members import ServiceAdmin
from apps.tickets import listeners, served
from apps.tickets.models import Subscription
from apps.tickets.subscriptions import Scope, subscription_reset, subscription_tell
from kernel.listening import pattern_of
from tenants.door import Line
from tenants.registry import Registry

if TYPE_CHECKING:
    SubscriptionModelForm = forms.ModelForm[Subscription]
else:
    SubscriptionModelForm = forms.ModelForm

TENANTS_SHOWN = 5


class SubscriptionForm(SubscriptionModelForm):
    listens = forms.TypedChoiceField(
        choices=[("yes", "listen to it"), ("no", "do not listen to it")], coerce=lambda text: text == "yes"
    )

    def clean_pattern(self) -> str:
        try:
            return pattern_of(self.cleaned_data["pattern"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def _get_validation_exclusions(self) -> set[str]:
        """The same may be said again, and takes the place of what was said: its constraint is none of the form's."""
        return {*super()._get_validation_exclusions(), "host"}  # type: ignore[misc]  # a constraint needs all its fields


@admin.register(Subscription)
class SubscriptionAdmin(ServiceAdmin):
    """One is said, and taken back; a change is a new word."""

    form = SubscriptionForm
    list_display = ("pattern", "word", "worker_group", "host", "reason", "created_by", "created_at")
    list_filter = ("listens",)
    search_fields = ("pattern", "worker_group", "host")
    ordering = ("-pk",)
    fields = ("pattern", "listens", "worker_group", "host", "reason")

    @admin.display(description="told to")
    def word(self, obj: Subscription) -> str:
        return "listen" if obj.listens else "not listen"

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: forms.ModelForm[Any], change: bool) -> None:
        made = subscription_tell(
            scope=Scope(obj.worker_group, obj.host), pattern=obj.pattern, listens=obj.listens, reason=obj.reason,
            actor=actor_of(request), now=database_now(),
        )  # fmt: skip
        obj.pk = made.pk
        obj._state.adding = False

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        subscription_reset(
            scope=Scope(obj.worker_group, obj.host), pattern=obj.pattern, actor=actor_of(request), now=database_now()
        )

    def get_actions(self, request: HttpRequest) -> Any:
        return {}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        for one in _unserved():
            more = len(one.tenants) - TENANTS_SHOWN
            who = ", ".join(one.tenants[:TENANTS_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
            self.message_user(request, f"Nobody listens to {one.queue}, and {who} wait for it.", messages.WARNING)
        return super().changelist_view(request, extra_context)


def _unserved() -> list[listeners.Unserved]:
    line = Line("admin queues")
    try:
        registry = Registry(line)
        registry.refresh(force=True)
        return listeners.unserved(line.get(), registry, served.processes(line.get()))
    finally:
        line.close()
