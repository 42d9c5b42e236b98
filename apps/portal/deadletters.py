"""Dead letters: what failed for good, to run again or to close."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode

from apps.deadletters.models import DeadLetter
from apps.deadletters.reading import STATUSES, LetterFilter, deadletters_read
from apps.deadletters.replays import replays_of
from apps.outcomes.again import MAX_REPLAYS, UNCHANGED, How
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.resolve import deadletter_reopen, deadletter_resolve
from apps.portal.pages import Offer, Page
from apps.portal.verbs import Receipt, Subject, VerbPage
from apps.presenting.fields import Field, Form, Option
from apps.presenting.json_input import read_json
from apps.presenting.paging import PAGE_ROWS, as_uuid, paged, position_of
from apps.presenting.shown import error_line, moment
from apps.schedules.names import job_options, names_of
from kernel.errors import NotFound
from tenants import door

NOTE_CHARS = 1_000
FINGERPRINT_CHARS = 64


class DeadLetterList(Page):
    """Open ones first asked for; all of them when wanted."""

    actions = {"GET": "deadletter.read"}
    section = "deadletters"

    def get(self, request: HttpRequest) -> HttpResponse:
        status = request.GET.get("status", "open")
        status = status if status in (*STATUSES, "all") else "open"
        fingerprint = request.GET.get("fingerprint", "").strip()[:FINGERPRINT_CHARS]
        form = Form([Field("job", "Job", "select"), Field("status", "Status", "hidden", status)])
        if fingerprint:
            form.fields["fingerprint"] = Field("fingerprint", "Fingerprint of the cause", value=fingerprint)
        job = as_uuid(request.GET.get("job", ""))
        form["job"].options = [Option("", "any"), *(Option(*one) for one in job_options(also=job))]
        form["job"].value = str(job) if job else ""
        wanted = LetterFilter(
            statuses=[status] if status in STATUSES else [], job_id=job, fingerprint=fingerprint or None
        )
        found = deadletters_read(self.tenant, wanted, after=position_of(request), size=PAGE_ROWS)
        names = names_of(jobs=(row.job_id for row in found.rows))
        lines = [
            {
                "row": row,
                "job": names.jobs.get(row.job_id, "a job that is gone"),
                "state": row.resolution or "open",
                "error": error_line(row.error),
            }
            for row in found.rows
        ]
        return self.page(
            "portal/deadletters.html", title="Dead letters", form=form, chosen=status,
            filtered=job is not None or bool(fingerprint), offers=self._offers(job, fingerprint) if lines else [],
            query=query_of(job=job, fingerprint=fingerprint),
            statuses=[(one, one, one == status) for one in (*STATUSES, "all")],
            listed=paged(request, lines, after=found.after and found.after.id),
        )  # fmt: skip

    def _offers(self, job: UUID | None, fingerprint: str) -> list[Offer]:
        """For all that are open and like this."""
        query = query_of(job=job, fingerprint=fingerprint)
        which = "these" if query else "all"
        return [
            self.offer(f"Replay {which}", "portal:deadletters-replay", "deadletter.replay", query=query),
            self.offer(f"Resolve {which}", "portal:deadletters-resolve", "deadletter.resolve", query=query),
        ]


class DeadLetterDetail(Page):
    """One dead letter."""

    actions = {"GET": "deadletter.read"}
    section = "deadletters"

    def get(self, request: HttpRequest, letter_id: UUID) -> HttpResponse:
        letter = access_letter(letter_id)
        names = names_of(jobs=[letter.job_id], schedules=[letter.schedule_id])
        closed = f"It is {letter.resolution} already." if letter.resolved_at else ""
        same = DeadLetter.objects.filter(fingerprint=letter.fingerprint, resolved_at=None).exclude(pk=letter.pk)
        return self.page(
            "portal/deadletter.html", title="Dead letter", letter=letter, state=letter.resolution or "open",
            job=names.jobs.get(letter.job_id, ""), job_page=letter.job_id in names.pages,
            summary=error_line(letter.error), alike=same[:100].count(), replays=self._replays(letter),
            schedule=names.schedules.get(letter.schedule_id, "") if letter.schedule_id else "",
            offers=[
                self.offer("Replay", "portal:deadletter-replay", "deadletter.replay", letter.pk, kind="primary",
                           blocked=closed),
                self.offer("Reopen", "portal:deadletter-reopen", "deadletter.reopen", letter.pk)
                if letter.resolution == "resolved"
                else self.offer(
                    "Resolve", "portal:deadletter-resolve", "deadletter.resolve", letter.pk, blocked=closed
                ),
            ],
        )  # fmt: skip

    def _replays(self, letter: DeadLetter) -> int:
        found = replays_of(door.raw(), self.tenant.schema_name, [letter.execution_id])
        return found.get(letter.execution_id, 0)


class LetterVerb(VerbPage):
    """What the verbs share. The services refuse what is not open any more."""

    section = "deadletters"
    lead = ""

    def blocked(self, letter: DeadLetter) -> str:
        return f"It is {letter.resolution} already." if letter.resolved_at else ""

    def subject(self, letter_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        letter = access_letter(letter_id)
        names = names_of(jobs=[letter.job_id])
        return Subject(
            name="Dead letter", url=reverse("portal:deadletter", args=[letter.pk]), lead=self.lead, row=letter,
            facts=[("Job", names.jobs.get(letter.job_id, "gone")), ("Failed", moment(letter.created_at)),
                   ("Attempts", letter.attempts), ("Error", error_line(letter.error))],
            blocked=self.blocked(letter),
        )  # fmt: skip

    def fields(self, subject: Subject) -> list[Field]:
        return [Field("note", "Note", "area", rows=2, help="Stays with the dead letter and in the audit trail.")]


class DeadLetterReplay(LetterVerb):
    """Running it again."""

    actions = {"GET": "deadletter.replay", "POST": "deadletter.replay"}
    title, button = "Replay", "Replay it"
    lead = (
        "The execution is opened again with the job as it is now: the same run key, so that its target can tell that "
        "this is the same work; its tries begin anew. With another payload, or when you ask for it, it becomes a new "
        "execution."
    )

    def fields(self, subject: Subject) -> list[Field]:
        return [
            *super().fields(subject),
            Field(
                "payload", "Another payload", "code", rows=4, help="JSON. Leave it empty to send what was sent before."
            ),
            Field(
                "new_key",
                "As a new execution, with a run key of its own",
                "check",
                help="For a target that keeps its failure under the old key and would only answer it again.",
            ),
            Field("force", f"Even when it was replayed {MAX_REPLAYS} times already", "check"),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        payload = read_json(form, "payload", default=UNCHANGED)
        execution_id = deadletter_replay(
            tenant=self.tenant, actor=self.actor, letter_id=subject.row.pk, now=self.now,
            how=How(
                payload=payload, new_key=bool(form["new_key"].value), force=bool(form["force"].value),
                note=form.text("note")[:NOTE_CHARS],
            ),
        )  # fmt: skip
        return Receipt("It runs again.", reverse("portal:execution", args=[execution_id]))


class DeadLetterResolve(LetterVerb):
    """Closing it."""

    actions = {"GET": "deadletter.resolve", "POST": "deadletter.resolve"}
    title, button = "Resolve without a run", "Resolve it"
    lead = "The dead letter is closed and nothing runs. The execution stays dead; it can be run again later."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        deadletter_resolve(
            tenant=self.tenant, actor=self.actor, letter_id=subject.row.pk, now=self.now,
            note=form.text("note")[:NOTE_CHARS],
        )  # fmt: skip
        return Receipt("Resolved.", subject.url)


class DeadLetterReopen(LetterVerb):
    """Opening one that was resolved."""

    actions = {"GET": "deadletter.reopen", "POST": "deadletter.reopen"}
    title, button = "Reopen", "Open it again"
    lead = "The dead letter is open again, as long as its execution is dead. Nothing runs by that."

    def blocked(self, letter: DeadLetter) -> str:
        return "" if letter.resolution == "resolved" else f"It is {letter.resolution or 'open'}."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        deadletter_reopen(
            tenant=self.tenant, actor=self.actor, letter_id=subject.row.pk, now=self.now,
            reason=form.text("note")[:NOTE_CHARS],
        )  # fmt: skip
        return Receipt("It is open again.", subject.url)


def query_of(*, job: UUID | None = None, fingerprint: str = "") -> str:
    """What narrows a list of dead letters, as a query string."""
    given = (("job", str(job) if job else ""), ("fingerprint", fingerprint))
    return urlencode([(name, value) for name, value in given if value])


def access_letter(letter_id: UUID) -> DeadLetter:
    """In the schema of the host's tenant; the same 404 for all that is not there."""
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None:
        raise NotFound("There is no such dead letter.")
    return letter
