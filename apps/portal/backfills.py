"""Backfills: past occurrences of a schedule that run, and how far that is."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.operations.backfill.reading import backfill_find, backfill_shape, backfills, outlook_shape, schedule_of
from apps.operations.backfill.recognising import ONLY
from apps.operations.backfill.services import Rehearsal, backfill_ask
from apps.operations.backfill.wish import AT_ONCE
from apps.operations.backfill.within import ORDERS
from apps.portal.operations import OperationDetail
from apps.portal.paces import pace_of
from apps.portal.pages import Page
from apps.portal.schedule_verbs import ScheduleVerb
from apps.portal.verbs import Receipt, Subject, reason_field
from apps.presenting.fields import Field, Form, Option
from apps.presenting.paging import as_uuid, listed, newest
from apps.presenting.progress import bar
from apps.schedules.models import Schedule
from apps.schedules.timing import spec_from_json

WORDS = {
    "missing": "those that never ran", "failed": "those that have failed", "all": "all of them, once more",
    "asc": "the oldest first", "desc": "the newest first",
}  # fmt: skip
GIVEN = ("from", "to", "only", "order", "max_in_flight", "reason")


class ScheduleBackfill(ScheduleVerb):
    """Asking for one: the first time it says what would happen, and what was looked at so is then done."""

    actions = {"GET": "schedule.backfill", "POST": "schedule.backfill"}
    title, button = "Backfill", "Show what it would do"
    template = "portal/backfill_form.html"
    lead = "Past occurrences run, once more or for the first time. Live work goes first."

    def fields(self, subject: Subject) -> list[Field]:
        zone = spec_from_json(subject.row.definition.spec).zone
        return [
            Field("from", "From", required=True, help=f"A date, or a time such as 2026-03-01T08:00, in {zone}."),
            Field("to", "To", required=True, help="The same. It does not belong to the range."),
            Field("only", "Which", "select", options=[Option(one, WORDS[one]) for one in ONLY]),
            Field("order", "Order", "select", options=[Option(one, WORDS[one]) for one in ORDERS]),
            Field("max_in_flight", "At once", "number", unit="runs", help=f"Empty: {AT_ONCE}."),
            reason_field(),
            Field("seen", "Seen", "hidden"),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt | HttpResponse:
        given = {name: form.text(name) for name in GIVEN if form.text(name)}
        meant = "\n".join(f"{name}={value}" for name, value in given.items())
        data = {**given, **pace_of(form)}
        looked = form.text("seen") == meant
        found = backfill_ask(
            tenant=self.tenant, actor=self.actor, schedule_id=subject.row.schedule.pk, now=self.now,
            data=data if looked else {**data, "dry_run": True},
        )  # fmt: skip
        if not isinstance(found, Rehearsal):
            return Receipt("It was asked for, and begins within moments.", reverse("portal:backfill", args=[found.pk]))
        seen = outlook_shape(*found)
        form["seen"].value = meant if seen["count"] else ""
        button = f"Run {seen['count']:,} occurrences" if seen["count"] else self.button
        return self.page(
            self.template, title=self.title, subject_name=subject.name, back=subject.url, lead=subject.lead,
            facts=[], form=form, button=button, kind=self.kind, outlook=seen,
        )  # fmt: skip


class BackfillList(Page):
    """All backfills, or those of a schedule."""

    actions = {"GET": "schedule.read"}
    section = "schedules"

    def get(self, request: HttpRequest) -> HttpResponse:
        rows = newest(request, backfills(as_uuid(request.GET.get("schedule", ""))))
        names = dict(Schedule.objects.filter(pk__in={row.filter["schedule"] for row in rows}).values_list("pk", "name"))
        shown = [(row, names.get(UUID(row.filter["schedule"])), bar(row)) for row in rows]
        return self.page(
            "portal/backfills.html", title="Backfills", listed=listed(request, shown, key=lambda one: one[0].pk)
        )


class BackfillDetail(OperationDetail):
    """One backfill, day by day; its items are on the page of its operation, which offers the same verbs."""

    actions = {"GET": "schedule.read"}
    section = "schedules"

    def get(self, request: HttpRequest, backfill_id: UUID) -> HttpResponse:
        found = backfill_find(backfill_id)
        schedule = schedule_of(found)
        shape = backfill_shape(self.tenant, found, now=self.now, schedule=schedule)
        return self.page(
            "portal/backfill.html", title="Backfill", one=found, shape=shape, schedule=schedule, bar=bar(found),
            words=(WORDS[shape["only"]], WORDS[shape["order"]]), since=shape["from"], offers=self._offers(found),
        )  # fmt: skip
