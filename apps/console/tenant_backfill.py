"""Backfill of a tenant's schedule: a page that says first what it would do, and does what was looked at."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.audit.trail import actor_of, database_now
from apps.console.middleware import tenant_of
from apps.operations.backfill.reading import outlook_shape
from apps.operations.backfill.recognising import ONLY
from apps.operations.backfill.services import MAX_REASON_CHARS, Rehearsal, backfill_ask
from apps.operations.backfill.wish import AT_ONCE
from apps.operations.backfill.within import ORDERS
from apps.operations.pacing import WHOLE_MAX
from apps.schedules.models import Schedule
from kernel.errors import InvalidInput, ShardbeatError

PERMISSION = "operations.change_operation"
TIME_CHARS = 40


class BackfillForm(forms.Form):
    """What is to run. `seen` is what was looked at."""

    only = forms.ChoiceField(choices=[(one, one) for one in ONLY], help_text="Those that never ran, failed, or all.")
    order = forms.ChoiceField(choices=[(one, one) for one in ORDERS])
    max_in_flight = forms.IntegerField(
        min_value=1, max_value=WHOLE_MAX, required=False, help_text=f"Runs at once; empty: {AT_ONCE}."
    )
    reason = forms.CharField(max_length=MAX_REASON_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 3}))
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for name, text in (  # "from" is a word of Python's
            ("from", "A date, or a time such as 2026-03-01T08:00, in the schedule's zone."),
            ("to", "The same. It does not belong to the range."),
        ):
            self.fields[name] = forms.CharField(max_length=TIME_CHARS, help_text=text)
        self.order_fields(["from", "to", *self.fields])

    @property
    def meant(self) -> str:
        """What is asked for, as a text to be compared."""
        return "\n".join(f"{name}={value}" for name, value in sorted(self.given.items()))

    @property
    def given(self) -> dict[str, Any]:
        """As the service takes it."""
        return {name: value for name, value in self.cleaned_data.items() if name != "seen" and value not in (None, "")}


def backfill_page(admin: Any, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
    """Shows the form, then what it would do, then does it; whoever may not is told that there is nothing."""
    schedule = Schedule.objects.filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None or not request.user.has_perm(PERMISSION):
        raise Http404("There is no such schedule.")
    form = BackfillForm(request.POST if request.method == "POST" else None)
    outlook: dict[str, Any] | None = None
    if form.is_bound and form.is_valid():
        try:
            found = _asked(request, schedule_id, form)
            if isinstance(found, HttpResponse):
                return found
            outlook = found
            form.data = {**form.cleaned_data, "seen": form.meant if outlook["count"] else ""}
        except InvalidInput as error:
            for fault in error.errors:
                name = fault.pointer.strip("/")
                form.add_error(name if name in form.fields else None, fault.detail)
        except ShardbeatError as error:
            form.add_error(None, error.detail)
    context = {
        **admin.admin_site.each_context(request), "opts": admin.opts, "schedule": schedule, "form": form,
        "outlook": outlook, "title": "Backfill",
    }  # fmt: skip
    return TemplateResponse(request, "console/backfill.html", context)


def _asked(request: HttpRequest, schedule_id: UUID, form: BackfillForm) -> HttpResponse | dict[str, Any]:
    looked = form.cleaned_data["seen"].replace("\r\n", "\n") == form.meant
    found = backfill_ask(
        tenant=tenant_of(request), actor=actor_of(request), schedule_id=schedule_id, now=database_now(),
        data=form.given if looked else {**form.given, "dry_run": True},
    )  # fmt: skip
    if isinstance(found, Rehearsal):
        return outlook_shape(*found)
    messages.success(request, "It was asked for, and begins within moments.")
    return HttpResponseRedirect(reverse("admin:operations_operation_change", args=[found.pk], current_app="tenant"))
