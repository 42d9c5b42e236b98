"""What can be done to jobs besides editing them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import reverse

from apps.dispatch.submission import execution_submit
from apps.portal.jobs import access_job, target_line
from apps.portal.verbs import Receipt, Subject, VerbPage, reason_field
from apps.presenting.fields import Field, Form
from apps.presenting.json_input import read_json
from apps.schedules import services
from apps.schedules.reading import job_shape


class JobVerb(VerbPage):
    """What they share."""

    section = "jobs"
    lead = ""

    def subject(self, job_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        found = access_job(job_id)
        shape = job_shape(found)
        return Subject(
            name=found.job.name, url=reverse("portal:job", args=[job_id]), lead=self.lead, row=found,
            facts=[("Status", shape["status"]), ("Kind", shape["kind"]), ("Target", target_line(shape))],
            revision=found.job.revision, blocked=self.blocked(shape),
        )  # fmt: skip

    def blocked(self, shape: dict[str, Any]) -> str:
        return ""


class JobPause(JobVerb):
    """Stopping it."""

    actions = {"GET": "job.pause", "POST": "job.pause"}
    title, button = "Pause", "Pause the job"
    lead = (
        "Nothing of it starts until it is resumed: its schedules stand still and build up no debt, what was submitted "
        "waits. What runs now goes on."
    )

    def blocked(self, shape: dict[str, Any]) -> str:
        return "It is paused already." if shape["status"] == "paused" else ""

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field()]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.job_pause(
            tenant=self.tenant, actor=self.actor, job_id=subject.row.job.pk, now=self.now, reason=self.reason(form),
            expect=expect,
        )  # fmt: skip
        return Receipt("Paused. Resume takes it back.", subject.url)


class JobResume(JobVerb):
    """Letting it run again."""

    actions = {"GET": "job.resume", "POST": "job.resume"}
    title, button = "Resume", "Resume the job"
    lead = "Its schedules go on from now, and what waits for it starts."

    def blocked(self, shape: dict[str, Any]) -> str:
        return "" if shape["status"] == "paused" else "It is not paused."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.job_resume(
            tenant=self.tenant, actor=self.actor, job_id=subject.row.job.pk, now=self.now, expect=expect
        )
        return Receipt("Resumed.", subject.url)


class JobRun(JobVerb):
    """Submitting a run."""

    actions = {"GET": "execution.submit", "POST": "execution.submit"}
    title, button = "Run now", "Run the job"
    lead = "It runs once, as soon as there is a place for it. While the job is paused, it waits."

    def fields(self, subject: Subject) -> list[Field]:
        return [
            Field("payload", "Payload", "code", rows=5, help="JSON. Empty: the job's own."),
            Field("run_at", "At", help="Such as 2026-03-01T08:00 in UTC. Empty: at once."),
            Field("priority", "Priority", "number", help="0 to 9, 9 first. Empty: the job's own."),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        data: dict[str, Any] = {"job": str(subject.row.job.pk)}
        payload = read_json(form, "payload")
        if payload is not None:
            data["payload"] = payload
        if form.text("run_at"):
            data["run_at"] = form.text("run_at")
        if text := form.text("priority"):
            data["priority"] = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
        execution_id = execution_submit(tenant=self.tenant, actor=self.actor, data=data, now=self.now)
        return Receipt("It was submitted.", reverse("portal:execution", args=[execution_id]))


class JobDelete(JobVerb):
    """Taking it away."""

    actions = {"GET": "job.delete", "POST": "job.delete"}
    title, button, kind = "Delete", "Delete the job", "danger"
    lead = "Its history stays, and what was submitted still runs. This can't be taken back."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        services.job_delete(
            tenant=self.tenant, actor=self.actor, job_id=subject.row.job.pk, now=self.now, expect=expect
        )
        return Receipt(f"{subject.name} is deleted.", reverse("portal:jobs"))
