"""Is each occurrence of a schedule accounted for, and what is done about those that are not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.dispatch.completeness.checking import Completeness, completeness_of
from apps.dispatch.completeness.repairing import completeness_repair
from apps.portal.pages import Page
from apps.portal.schedule_verbs import ScheduleVerb
from apps.portal.schedules import access_schedule
from apps.portal.verbs import Receipt, Subject
from apps.presenting.fields import Field, Form, Option
from apps.schedules.timing_trigger import instant_asked
from apps.schedules.timing_triggers import instant_text
from kernel.errors import InvalidInput

LOOKS_BACK = timedelta(days=7)
MOST = 20_000  # occurrences on a page
GAPS_SHOWN = 50
UNKNOWN = {
    "not_kept": "executions of that time are deleted",
    "history_unknown": "when its versions began and ended was not written down then",
    "zone_data_changed": "the time zone's rules were others then",
    "unreadable": "its definition of that time can't be read",
}


class ScheduleCompleteness(Page):
    """What it had to account for in a range, and what became of it."""

    actions = {"GET": "schedule.read"}
    section = "schedules"

    def get(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
        schedule = access_schedule(schedule_id).schedule
        asked = {name: request.GET.get(name, "").strip()[:40] for name in ("from", "to")}
        (since, fault), (until, later_fault) = instant_asked(asked["from"]), instant_asked(asked["to"])
        until = until or self.now.replace(microsecond=0)
        since = since or until - LOOKS_BACK
        found: Completeness | None = None
        fault = fault or later_fault or ("The range ends before it begins." if until < since else "")
        if not fault:
            try:
                found = completeness_of(self.tenant, schedule_id, since=since, until=until, now=self.now, most=MOST)
            except InvalidInput as error:
                fault = error.errors[0].detail
        repair = reverse("portal:schedule-repair", args=[schedule_id])
        return self.page(
            "portal/completeness.html", title="Completeness", schedule=schedule, found=found, fault=fault,
            asked={"since": instant_text(since), "until": instant_text(until)},
            gaps=found.found.gaps[:GAPS_SHOWN] if found is not None else [],
            skipped=found.found.skipped.most_common() if found is not None else [],
            skipped_total=sum(found.found.skipped.values()) if found is not None else 0,
            unknown=[(one, UNKNOWN[one.reason]) for one in found.expected.unknown] if found is not None else [],
            repair=f"{repair}?from={instant_text(since)}&to={instant_text(until)}",
            lacks=self.lacks("schedule.repair"),
        )  # fmt: skip


class ScheduleRepair(ScheduleVerb):
    """Accounting for what is missing."""

    actions = {"GET": "schedule.repair", "POST": "schedule.repair"}
    title, button = "Account for what is missing", "Account for it"
    lead = "Each occurrence that nothing is written of gets a run, or a row that says why it does not run."

    def fields(self, subject: Subject) -> list[Field]:
        given = {name: self.request.GET.get(name, "")[:40] for name in ("from", "to")}
        policy = (subject.row.definition.definition.get("misfire") or "fire_once").replace("_", " ")
        how = [
            Option("policy", f"by its policies of that time (now: {policy})"),
            Option("skip", "all recorded as skipped"),
        ]
        return [
            Field("from", "From", value=given["from"], required=True, help="UTC, such as 2027-03-01T08:00Z."),
            Field("to", "To", value=given["to"], required=True, help="It does not belong to the range."),
            Field("how", "How", "select", options=how),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        times: dict[str, Any] = {name: instant_asked(form.text(name)) for name in ("from", "to")}
        for name, (at, fault) in times.items():
            if at is None:
                form[name].errors.append(fault or "A time is needed.")
        if any(at is None for at, _ in times.values()) or times["to"][0] < times["from"][0]:
            raise InvalidInput([])
        since, until = times["from"][0], times["to"][0]
        done = completeness_repair(
            tenant=self.tenant, actor=self.actor, schedule_id=subject.row.schedule.pk, since=since, until=until,
            now=self.now, how="skip" if form.text("how") == "skip" else "policy", most=MOST,
        )  # fmt: skip
        back = reverse("portal:schedule-completeness", args=[subject.row.schedule.pk])
        missing = done.before.found.missing
        text = f"{missing:,} were missing: {done.made:,} run now, {done.skipped:,} are recorded as skipped."
        if done.put_back:
            text += " Its due entry was put right; the dispatcher goes on from there."
        return Receipt(text, f"{back}?from={instant_text(since)}&to={instant_text(until)}")
