"""Many dead letters at once: by cause, replayed or closed by an operation."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode

from apps.deadletters.groups import groups_read
from apps.deadletters.models import DeadLetter
from apps.deadletters.reading import LetterFilter, deadletters_count
from apps.operations.pacing import Pace
from apps.operations.services import Wish, operation_create
from apps.outcomes.again import MAX_REPLAYS, UNCHANGED
from apps.portal.deadletters import FINGERPRINT_CHARS, query_of
from apps.portal.paces import pace_of
from apps.portal.pages import Page
from apps.portal.verbs import Receipt, Subject, VerbPage, reason_field
from apps.presenting.fields import Field, Form
from apps.presenting.json_input import read_json
from apps.presenting.paging import as_uuid
from apps.presenting.shown import error_line
from apps.schedules.names import names_of
from kernel.errors import Faults

CAUSES = 200  # on the page


class DeadLetterCauses(Page):
    """Open dead letters by their cause, the most frequent first."""

    actions = {"GET": "deadletter.read"}
    section = "deadletters"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = groups_read(self.tenant, size=CAUSES)
        names = names_of(jobs=(group.job_id for group in found.rows))
        lines = [
            {
                "group": group,
                "error": error_line(group.error),
                "job": names.jobs.get(group.job_id, "a job that is gone"),
                "query": query_of(fingerprint=group.fingerprint),
            }
            for group in sorted(found.rows, key=lambda group: (-group.letters, group.fingerprint))
        ]
        return self.page(
            "portal/deadletter_causes.html", title="Causes of dead letters", lines=lines,
            there_are_more=found.after is not None, may_replay=self.may("deadletter.replay"),
        )  # fmt: skip


class ManyLetters(VerbPage):
    """What the verbs share: which letters is in the address, by the names of the list's filters."""

    section = "deadletters"
    lead: ClassVar[str] = ""
    action: ClassVar[str]

    def subject(self) -> Subject:  # type: ignore[override]  # its path has no ids
        wanted = filter_of(self.request)
        job = as_uuid(wanted.get("job", ""))
        count = deadletters_count(
            self.tenant, LetterFilter(statuses=["open"], job_id=job, fingerprint=wanted.get("fingerprint"))
        )
        facts = [("Open now", f"{count.number:,}" if count.exact else f"{count.number:,} or more")]
        if job is not None:
            facts.append(("Job", names_of(jobs=[job]).jobs.get(job, "gone")))
        if "fingerprint" in wanted:
            newest = DeadLetter.objects.filter(fingerprint=wanted["fingerprint"], resolved_at=None).order_by("-pk")
            facts.append(("Cause", error_line(getattr(newest.first(), "error", None)) or wanted["fingerprint"][:16]))
        back = reverse("portal:deadletters")
        return Subject(
            name="Dead letters", url=f"{back}?{urlencode(wanted)}" if wanted else back, lead=self.lead, facts=facts,
            row=wanted or {"all": True}, blocked="" if count.number else "No open dead letter is like this.",
        )  # fmt: skip

    def ask(self, subject: Subject, form: Form, params: dict[str, Any], pace: Pace) -> Receipt:
        wish = Wish(self.action, "dead_letters", subject.row, params, pace, self.reason(form))
        made = operation_create(tenant=self.tenant, actor=self.actor, wish=wish, now=self.now)
        return Receipt("It was asked for, and begins within moments.", reverse("portal:operation", args=[made.pk]))


class DeadLettersReplay(ManyLetters):
    """Running them again."""

    actions = {"GET": "deadletter.replay", "POST": "deadletter.replay"}
    title, button, action = "Replay many", "Replay them", "replay"
    lead = (
        "An operation runs those again that are open when you confirm: under their run keys, with their jobs as they "
        "are now. Live runs go first. It can be paused, cancelled and undone, as far as nothing has started. What was "
        f"replayed {MAX_REPLAYS} times already and died each time is left alone."
    )

    def fields(self, subject: Subject) -> list[Field]:
        return [
            Field("canary", "First only", "number", unit="letters", help="The others only when these succeeded."),
            Field("rate_per_s", "At most", "number", unit="a second"),
            Field("max_in_flight", "At once at most", "number", unit="runs"),
            Field("stop_after_failures", "Stop after", "number", unit="failures"),
            Field("new_key", "As new executions, with run keys of their own", "check",
                  help="For a target that keeps their failures under the old keys."),
            Field("payload", "Another payload for all of them", "code", rows=4, help="JSON. It makes new executions."),
            reason_field(),
        ]  # fmt: skip

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        faults = Faults()
        pace = Pace().changed(pace_of(form), faults)
        faults.raise_if_any()
        params: dict[str, Any] = {"new_key": bool(form["new_key"].value)}
        if (payload := read_json(form, "payload", default=UNCHANGED)) is not UNCHANGED:
            params["payload"] = payload
        return self.ask(subject, form, params, pace)


class DeadLettersResolve(ManyLetters):
    """Closing them."""

    actions = {"GET": "deadletter.resolve", "POST": "deadletter.resolve"}
    title, button, action, kind = "Resolve many without a run", "Resolve them", "resolve", "danger"
    lead = "An operation closes those that are open when you confirm; nothing runs. It can't be undone."

    def fields(self, subject: Subject) -> list[Field]:
        return [reason_field()]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        return self.ask(subject, form, {}, Pace())


def filter_of(request: HttpRequest) -> dict[str, str]:
    """Which letters an address means, by the names of the list's filters; nonsense is left out."""
    job, fingerprint = as_uuid(request.GET.get("job", "")), request.GET.get("fingerprint", "").strip()
    found = {"job": str(job)} if job is not None else {}
    if fingerprint.isalnum() and len(fingerprint) <= FINGERPRINT_CHARS:
        found["fingerprint"] = fingerprint
    return found
