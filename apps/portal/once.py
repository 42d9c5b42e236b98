"""What is shown only once, such as a key's text, and how long what it replaces works on."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpResponse

from apps.portal.pages import Page
from apps.presenting.fields import Field, Form, Option

OVERLAP_S = "86400"
OVERLAPS = (
    Option(OVERLAP_S, "a day"), Option("3600", "an hour"), Option("604800", "a week"), Option("2592000", "30 days"),
    Option("0", "not at all"),
)  # fmt: skip
HINT = "Copy it now: it is not kept and can't be shown again."


def shown_once(page: Page, what: str, text: str, url: str, *, hint: str = HINT) -> HttpResponse:
    """The answer of a POST, never a redirect: the text is in no session and no address."""
    return page.page("portal/once.html", title=what, text=text, url=url, hint=hint)


def overlap_field(label: str) -> Field:
    """How long the present one works on beside its successor."""
    return Field("overlap_s", label, "select", OVERLAP_S, options=OVERLAPS)


def overlap_of(form: Form) -> timedelta:
    """What was chosen; nonsense is the usual."""
    chosen = form.text("overlap_s")
    return timedelta(seconds=int(chosen if chosen in {one.value for one in OVERLAPS} else OVERLAP_S))
