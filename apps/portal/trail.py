"""The audit trail: who did what, when and why, and what was refused; with its links of the chain."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse

from apps.audit.chain import head_of
from apps.audit.reading import cursor_key, events_page, of_cursor_key
from apps.audit.shown import Shown
from apps.portal.pages import Page
from apps.presenting.fields import Field, Form, Option
from apps.presenting.paging import PAGE_ROWS, as_uuid, cursor_of, listed
from tenants import door

TEXT_CHARS = 200
PAGES = {
    "job": "portal:job", "schedule": "portal:schedule", "execution": "portal:execution",
    "deadletter": "portal:deadletter", "apikey": "portal:key", "member": "portal:member", "webhook": "portal:webhook",
}  # fmt: skip


class Trail(Page):
    """What was done and refused, newest first."""

    actions = {"GET": "audit.read"}
    section = "trail"

    def get(self, request: HttpRequest) -> HttpResponse:
        form = Form([
            Field("action", "Action", help="Such as job.update"), Field("object", "Id of what it was done to"),
            Field("request_id", "Request id"),
            Field("allowed", "Outcome", "select",
                  options=[Option("", "any"), Option("true", "done"), Option("false", "refused")]),
        ])  # fmt: skip
        form.take(request.GET)
        for one in form.fields.values():
            one.value = one.value.strip()[:TEXT_CHARS]
        filters: dict[str, Any] = {
            name: value
            for name, value in (
                ("action", form.text("action")),
                ("object_id", form.text("object")),
                ("request_id", form.text("request_id")),
            )
            if value
        }
        if form.text("allowed") in ("true", "false"):
            filters["allowed"] = form.text("allowed") == "true"
        cursor = cursor_of(request)
        before = of_cursor_key(cursor) if cursor is not None else None
        rows = events_page(tenant_id=self.tenant.pk, filters=filters, before=before, size=PAGE_ROWS + 1)
        return self.page(
            "portal/trail.html", title="Audit trail", form=form, filtered=bool(filters),
            head=head_of(door.raw(), self.tenant.pk),
            listed=listed(request, [(one, _url(one)) for one in rows], key=lambda one: cursor_key(one[0].event.pk)),
        )  # fmt: skip


def _url(row: Shown) -> str:
    """The page of what it is about, where there is one."""
    name, key = PAGES.get(row.event.object_type), as_uuid(row.event.object_id)
    if name is None or key is None:
        return ""
    try:
        return reverse(name, args=[key])
    except NoReverseMatch:
        return ""
