"""Asking for an operation: a list's filters, what fits them now, why and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.urls import reverse

from apps.operations import filters, pacing
from apps.operations.pacing import Pace
from apps.operations.services import Wish, operation_create, operation_rehearse
from apps.portal.paces import pace_fields, pace_of
from apps.portal.pages import Offer, Page
from apps.portal.verbs import Receipt, Subject, VerbPage, reason_field, reason_of
from apps.presenting.fields import Field, Form
from kernel.errors import Faults
from kernel.transitions import LIVE_STATES

ALIVE = ",".join(LIVE_STATES)
NAMES: Mapping[str, tuple[str, ...]] = {
    "executions": filters.EXECUTION_NAMES, "jobs": filters.JOB_NAMES, "schedules": filters.SCHEDULE_NAMES,
}  # fmt: skip


class WishPage(VerbPage):
    """`action` on `target`: the address holds the filters, by the names of the API's list."""

    action: ClassVar[str]
    target: ClassVar[str]
    lead: ClassVar[str]
    pace: ClassVar[tuple[str, ...]] = ("rate_per_s", "stop_after_failures")

    @property
    def section(self) -> str:  # type: ignore[override]  # that of the list it comes from
        return self.target

    def subject(self) -> Subject:  # type: ignore[override]  # its path has no id
        given = self._given()
        wish = Wish(self.action, self.target, given or {filters.ALL: True}, {}, Pace())
        found = operation_rehearse(tenant=self.tenant, actor=self.actor, wish=wish, now=self.now)
        shown = [(name, value if isinstance(value, str) else ", ".join(value)) for name, value in given.items()]
        return Subject(
            name=self.target.capitalize(), url=reverse(f"portal:{self.target}"), lead=self.lead, row=wish,
            facts=[("Fits now", f"{found.count:,} {self.target}"), *shown],
            blocked="" if found.count else f"There are no {self.target} like this.",
        )  # fmt: skip

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field(), *pace_fields(names=self.pace)]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        faults = Faults()
        pace, reason = Pace().changed(pace_of(form), faults), reason_of(form, faults)
        faults.raise_if_any()
        wish = replace(subject.row, pace=pace, reason=reason)
        made = operation_create(tenant=self.tenant, actor=self.actor, wish=wish, now=self.now)
        return Receipt("It is being done.", reverse("portal:operation", args=[made.pk]))

    def _given(self) -> dict[str, str | list[str]]:
        found: dict[str, str | list[str]] = {}
        for name in NAMES[self.target]:
            values = [value for value in self.request.GET.getlist(name) if value]
            if values:
                found[name] = values if name == "label" else values[-1]
        return found


class ExecutionsCancel(WishPage):
    """Stopping many."""

    actions = {"GET": "execution.cancel", "POST": "execution.cancel"}
    action, target = "cancel", "executions"
    title, button, kind = "Cancel these executions", "Cancel them", "danger"
    lead = "What waits ends at once, what runs is asked to stop. It is done in the background, and can't be taken back."


class ExecutionsRerun(WishPage):
    """Running many again."""

    actions = {"GET": "execution.rerun", "POST": "execution.rerun"}
    action, target = "rerun", "executions"
    title, button = "Run these again", "Run them again"
    lead = "Each becomes a new execution with the same payload and the job as it is now, with a run key of its own."
    pace = pacing.NAMES


class JobsPause(WishPage):
    """Stopping many jobs."""

    actions = {"GET": "job.pause", "POST": "job.pause"}
    action, target = "pause", "jobs"
    title, button = "Pause these jobs", "Pause them"
    lead = "Nothing of them starts until they are resumed, and no debt builds up. An undo resumes them."


class JobsResume(WishPage):
    """Letting many jobs go on."""

    actions = {"GET": "job.resume", "POST": "job.resume"}
    action, target = "resume", "jobs"
    title, button = "Resume these jobs", "Resume them"
    lead = "They run again; their schedules go on from now."


class SchedulesPause(WishPage):
    """Stopping many schedules."""

    actions = {"GET": "schedule.pause", "POST": "schedule.pause"}
    action, target = "pause", "schedules"
    title, button = "Pause these schedules", "Pause them"
    lead = "They stand still until they are resumed, and no debt builds up. An undo resumes them."


class SchedulesResume(WishPage):
    """Letting many schedules go on."""

    actions = {"GET": "schedule.resume", "POST": "schedule.resume"}
    action, target = "resume", "schedules"
    title, button = "Resume these schedules", "Resume them"
    lead = "They go on from now."


def offer_for(page: Page, wish: type[WishPage], given: Mapping[str, Any], **preset: str) -> Offer:
    """A link from a list to a wish, with the list's filters; `preset` where the list has none of that name."""
    query = {name: str(value) for name, value in {**preset, **{k: v for k, v in given.items() if v}}.items()}
    url_name = f"portal:{wish.target}-bulk-{wish.action}"
    return page.offer(wish.title, url_name, wish.actions["GET"], query=urlencode(query))
