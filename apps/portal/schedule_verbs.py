"""What can be done to schedules besides editing them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse

from apps.dispatch.submit import schedule_trigger
from apps.portal.schedules import access_schedule
from apps.portal.verbs import Receipt, Subject, VerbPage, reason_field, reason_of
from apps.presenting.fields import Field, Form, Option
from apps.presenting.shown import look_of, moment
from apps.schedules import services
from apps.schedules.reading import schedule_shapes
from apps.schedules.timing import TimingInvalid, spec_from_json
from apps.schedules.timing_preview import preview
from apps.schedules.timing_spec import CHOICES
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults

NEXT = 3


class ScheduleVerb(VerbPage):
    """What they share: how the schedule stands, and what comes next."""

    section = "schedules"
    lead = ""

    def subject(self, schedule_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        found = access_schedule(schedule_id)
        (shape,) = schedule_shapes(self.tenant, [found], now=self.now)
        facts: list[tuple[str, Any]] = [("Status", look_of(shape["status"]).word), ("Job", found.schedule.job.name)]
        facts += [(f"Next run {number}", text) for number, text in enumerate(self._next(found), 1)]
        return Subject(
            name=found.schedule.name, url=reverse("portal:schedule", args=[schedule_id]), lead=self.lead, facts=facts,
            revision=found.schedule.revision, row=found, blocked=self.blocked(shape["status"]),
        )  # fmt: skip

    def blocked(self, status: str) -> str:
        return ""

    def _next(self, found: Any) -> list[str]:
        try:
            spec = spec_from_json(found.definition.spec)
            runs = preview(spec, after=self.now, count=NEXT, key=str(found.schedule.pk))
        except TimingInvalid:
            return []
        return [f"{moment(one.at)} UTC" for one in runs]


class SchedulePause(ScheduleVerb):
    """Stopping it for a while."""

    actions = {"GET": "schedule.pause", "POST": "schedule.pause"}
    title, button = "Pause", "Pause the schedule"
    lead = "Nothing of it runs until it is resumed, and no debt builds up. What runs now goes on."

    def blocked(self, status: str) -> str:
        return "It is completed: there is nothing to pause." if status == "completed" else ""

    def fields(self, subject: Subject) -> list[Field]:
        zone = spec_from_json(subject.row.definition.spec).zone
        return [
            reason_field(),
            Field(
                "resume_at",
                "Resume by itself at",
                help=f"Such as 2026-03-01T08:00 in {zone}. Empty: by hand.",
            ),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        faults, given = Faults(), form.text("resume_at")
        zone = spec_from_json(subject.row.definition.spec).zone
        resume_at = read_instant(given, "/resume_at", zone, faults) if given else None
        if resume_at is not None and resume_at <= self.now:
            faults.add("/resume_at", "past", "lies in the past; leave it empty to resume it yourself.")
        reason = reason_of(form, faults)
        faults.raise_if_any()
        services.schedule_pause(
            tenant=self.tenant, actor=self.actor, schedule_id=subject.row.schedule.pk, now=self.now, reason=reason,
            resume_at=resume_at, expect=expect,
        )  # fmt: skip
        return Receipt("Paused. Resume takes it back.", subject.url)


class ScheduleResume(ScheduleVerb):
    """Letting it go on."""

    actions = {"GET": "schedule.resume", "POST": "schedule.resume"}
    title, button = "Resume", "Resume the schedule"
    lead = "It goes on from now. What it missed while it was paused is left out, unless you say otherwise."

    def blocked(self, status: str) -> str:
        return "" if status == "paused" else "It is not paused."

    def fields(self, subject: Subject) -> list[Field]:
        policy = subject.row.definition.definition.get("misfire") or "fire_once"
        text = f"Its misfire policy ({policy.replace('_', ' ')}) decides how many runs that makes."
        return [Field("catch_up", "Catch up on what it missed", "check", help=text)]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.schedule_resume(
            tenant=self.tenant, actor=self.actor, schedule_id=subject.row.schedule.pk, now=self.now,
            catch_up=bool(form.text("catch_up")), expect=expect,
        )  # fmt: skip
        return Receipt("Resumed. It goes on from now.", subject.url)


class ScheduleTrigger(ScheduleVerb):
    """Running it once, now."""

    actions = {"GET": "schedule.trigger", "POST": "schedule.trigger"}
    title, button = "Run now", "Run it once, now"
    lead = "Its job runs once, now, with the schedule's payload. The next runs stay as they are."

    def fields(self, subject: Subject) -> list[Field]:
        own = subject.row.definition.definition.get("overlap") or "allow"
        options = [Option("", f"as the schedule says ({own.replace('_', ' ')})")]
        options += [Option(one, one.replace("_", " ")) for one in CHOICES["overlap"]]
        return [Field("overlap", "When runs of it are alive", "select", options=options)]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        execution_id = schedule_trigger(
            tenant=self.tenant, actor=self.actor, schedule_id=subject.row.schedule.pk, now=self.now,
            overlap=form.text("overlap") or None,
        )  # fmt: skip
        return Receipt("It was started.", reverse("portal:execution", args=[execution_id]))


class ScheduleDelete(ScheduleVerb):
    """Taking it away."""

    actions = {"GET": "schedule.delete", "POST": "schedule.delete"}
    title, button, kind = "Delete", "Delete the schedule", "danger"
    lead = "It never runs again. Its history stays, and what runs now goes on. This can't be taken back."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.schedule_delete(
            tenant=self.tenant, actor=self.actor, schedule_id=subject.row.schedule.pk, now=self.now, expect=expect
        )
        return Receipt(f"{subject.name} is deleted.", reverse("portal:schedules"))
