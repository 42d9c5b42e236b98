"""Verbs: a page that says what will happen, asks for a reason, does it, and leaves a receipt on the page it came from.

The form carries the revision that was looked at; what has changed since is shown before anything is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from apps.portal.pages import Page
from apps.presenting.fields import Field, Form
from kernel.errors import Conflict, Faults, Forbidden, InvalidInput, Overloaded, QuotaExceeded, Stale

REASON_CHARS = 500
REASON = "Kept in the audit trail, for everybody who asks later."
SINCE = "It has changed since you looked. Here is how it is now; look again before you go on."


@dataclass(slots=True)
class Subject:
    """What a verb is about. `revision` is None where its state alone is compared."""

    name: str
    url: str
    lead: str
    facts: list[tuple[str, Any]] = field(default_factory=list)
    revision: int | None = None
    blocked: str = ""
    row: Any = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done, and where that is to be seen."""

    text: str
    url: str


class VerbPage(Page):
    """GET says what will happen, POST does it."""

    title: ClassVar[str]
    button: ClassVar[str]
    kind: ClassVar[str] = "primary"
    template: ClassVar[str] = "portal/verb.html"

    def subject(self, **ids: Any) -> Subject:
        raise NotImplementedError

    def fields(self, subject: Subject) -> list[Field]:
        """What it asks for."""
        return []

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt | HttpResponse:
        """Does it, or raises what the services raise. A page instead of a receipt is for what is shown only once."""
        raise NotImplementedError

    def extra(self, subject: Subject) -> dict[str, Any]:
        """What a template of its own needs."""
        return {}

    def reason(self, form: Form) -> str:
        """What was said. InvalidInput."""
        faults = Faults()
        reason = reason_of(form, faults)
        faults.raise_if_any()
        return reason

    def get(self, request: HttpRequest, **ids: Any) -> HttpResponse:
        subject = self.subject(**ids)
        if subject.blocked:
            raise Conflict(subject.blocked)
        return self._ask(subject, self._form(subject))

    def post(self, request: HttpRequest, **ids: Any) -> HttpResponse:
        subject = self.subject(**ids)
        form = self._form(subject)
        form.take(request.POST)
        try:
            receipt = self.do(subject, form, form.seen() if subject.revision is not None else None)
        except Stale as error:
            self.refused(error)
            now = self.subject(**ids)
            form["revision"].value = str(now.revision)
            return self._ask(now, form, status=409, stale=SINCE)
        except InvalidInput as error:
            form.blame(error.errors)
            return self._ask(subject, form, status=400)
        except (Conflict, Forbidden, QuotaExceeded, Overloaded) as error:
            if error.extra.get("schedules"):  # named with links
                raise
            self.refused(error)
            form.refuse(error)
            return self._ask(subject, form, status=error.status)
        if isinstance(receipt, HttpResponse):
            return receipt
        messages.success(request, receipt.text)
        response = HttpResponseRedirect(receipt.url)
        response.status_code = 303
        return response

    def _form(self, subject: Subject) -> Form:
        fields = self.fields(subject)
        if subject.revision is not None:
            fields.append(Field("revision", "Revision", "hidden", str(subject.revision)))
        return Form(fields)

    def _ask(self, subject: Subject, form: Form, *, status: int = 200, stale: str = "") -> HttpResponse:
        return self.page(
            self.template, status=status, title=self.title, subject_name=subject.name, back=subject.url,
            lead=subject.lead, facts=subject.facts, form=form, button=self.button, kind=self.kind, stale=stale,
            **self.extra(subject),
        )  # fmt: skip


def reason_field() -> Field:
    """Some words for the trail."""
    return Field("reason", "Why", "area", help=REASON, rows=2)


def reason_of(form: Form, faults: Faults) -> str:
    """What was said; it may be nothing."""
    reason = form.text("reason")
    if len(reason) > REASON_CHARS:
        faults.add("/reason", "too_long", f"has {len(reason):,} characters; {REASON_CHARS} are allowed.")
    return reason
