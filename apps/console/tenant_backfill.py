"""Backfill of a tenant's schedule: a page that says first what it would do, and does what was looked at."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse

from apps.audit.trail import actor_of, database_now
from apps.console.confirming import PERMISSION, ConfirmedForm, asked_for, confirmed_page
from apps.console.middleware import tenant_of
from apps.operations.backfill.reading import outlook_shape
from apps.operations.backfill.recognising import ONLY
from apps.operations.backfill.services import MAX_REASON_CHARS, Rehearsal, backfill_ask
from apps.operations.backfill.wish import AT_ONCE
from apps.operations.backfill.within import ORDERS
from apps.operations.pacing import WHOLE_MAX
from apps.schedules.models import Schedule

TIME_CHARS = 40


class BackfillForm(ConfirmedForm):
    """What is to run."""

    only = forms.ChoiceField(choices=[(one, one) for one in ONLY], help_text="Those that never ran, failed, or all.")
    order = forms.ChoiceField(choices=[(one, one) for one in ORDERS])
    max_in_flight = forms.IntegerField(
        min_value=1, max_value=WHOLE_MAX, required=False, help_text=f"Runs at once; empty: {AT_ONCE}."
    )
    reason = forms.CharField(max_length=MAX_REASON_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 3}))

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for name, text in (  # "from" is a word of Python's
            ("from", "A date, or a time such as 2026-03-01T08:00, in the schedule's zone."),
            ("to", "The same. It does not belong to the range."),
        ):
            self.fields[name] = forms.CharField(max_length=TIME_CHARS, help_text=text)
        self.order_fields(["from", "to", *self.fields])


def backfill_page(admin: Any, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
    """Shows the form, then what it would do, then does it; whoever may not is told that there is nothing."""
    schedule = Schedule.objects.filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None or not request.user.has_perm(PERMISSION):
        raise Http404("There is no such schedule.")
    form = BackfillForm(request.POST if request.method == "POST" else None)

    def ask() -> HttpResponse | tuple[int, Any]:
        found = backfill_ask(
            tenant=tenant_of(request), actor=actor_of(request), schedule_id=schedule_id, now=database_now(),
            data=form.given if form.was_seen else {**form.given, "dry_run": True},
        )  # fmt: skip
        if not isinstance(found, Rehearsal):
            return asked_for(request, found.pk)
        outlook = outlook_shape(*found)
        return outlook["count"], outlook

    return confirmed_page(
        admin, request, form, ask, template="console/backfill.html", title="Backfill", schedule=schedule
    )
