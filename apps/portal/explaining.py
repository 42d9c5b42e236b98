"""Why is it not running? The answer about one execution or schedule, on a page of its own."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.dispatch.explaining.execution import execution_explain
from apps.dispatch.explaining.schedules import schedule_explain
from apps.dispatch.explaining.values import Explanation, Thing
from apps.dispatch.explaining.words import words_of
from apps.portal.pages import Page
from apps.schedules.timing_trigger import instant_asked

READS_NAMES = "audit.read"  # who may read the trail is told persons by name
PAGES = {
    "job": ("portal:job", "To the job"), "schedule": ("portal:schedule", "To the schedule"),
    "execution": ("portal:execution", "To the run"), "deadletter": ("portal:deadletter", "To the dead letter"),
    "workflow_run": ("portal:workflowrun", "To the run"), "usage": ("portal:usage", "To the limits"),
}  # fmt: skip


class ExplainPage(Page):
    """What both have in common."""

    def shown(self, found: Explanation, *, back: str, asked: str = "", fault: str = "") -> HttpResponse:
        words = words_of(found.verdict.code)
        return self.page(
            "portal/explain.html", title="Why?", found=found, verdict=found.verdict, words=words, back=back,
            place=place_of(found.verdict.thing),
            refused=[(one, words_of(one.code).title) for one in found.refused() if one.code != found.verdict.check],
            delays=[(one, words_of(one.code).title) for one in found.delays], asked=asked,
            fault=fault,
        )  # fmt: skip


class ExecutionExplain(ExplainPage):
    """Why a run waits, what it is up to, or why it ended so."""

    actions = {"GET": "execution.read"}
    section = "executions"

    def get(self, request: HttpRequest, execution_id: UUID) -> HttpResponse:
        found = execution_explain(self.tenant, execution_id, now=self.now, named=self.may(READS_NAMES))
        return self.shown(found, back=reverse("portal:execution", args=[execution_id]))


class ScheduleExplain(ExplainPage):
    """Why a schedule does not run, when it will, or what became of one instant."""

    actions = {"GET": "schedule.read"}
    section = "schedules"

    def get(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
        asked = request.GET.get("at", "").strip()[:40]
        at, fault = instant_asked(asked)
        found = schedule_explain(self.tenant, schedule_id, now=self.now, at=at, named=self.may(READS_NAMES))
        return self.shown(found, back=reverse("portal:schedule", args=[schedule_id]), asked=asked, fault=fault)


def place_of(thing: Thing | None) -> tuple[str, str] | None:
    """(address, label) of the page where a remedy is done; None where there is none here."""
    found = PAGES.get(thing.kind) if thing is not None else None
    if found is None or thing is None:
        return None
    name, label = found
    return reverse(name, args=[thing.key] if thing.key else []), label
