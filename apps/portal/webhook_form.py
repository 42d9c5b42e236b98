"""Making and editing a webhook. A new one's signing secret is on the page that follows, once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.portal.once import shown_once
from apps.portal.pages import Page, go
from apps.portal.webhook_verbs import SECRET_HINT
from apps.portal.webhooks import access_webhook
from apps.presenting.fields import Field, Form, Option
from apps.presenting.schedule_fields import labels_of
from apps.webhooks.models import Webhook
from apps.webhooks.rules import as_given
from apps.webhooks.services import webhook_create, webhook_replace
from kernel.errors import Conflict, Faults, InvalidInput, QuotaExceeded, Stale
from kernel.eventtypes import EVENT_TYPES, EVERYTHING

STALE = "Somebody changed this webhook since you opened it. What you wrote is still here; saving now takes its place."


class WebhookNew(Page):
    """A new one."""

    actions = {"GET": "webhook.create", "POST": "webhook.create"}
    section = "webhooks"

    def get(self, request: HttpRequest) -> HttpResponse:
        return shown(self, webhook_form(), title="New webhook")

    def post(self, request: HttpRequest) -> HttpResponse:
        form = webhook_form()
        form.take(request.POST)
        try:
            made = webhook_create(tenant=self.tenant, actor=self.actor, data=definition_of(form), now=self.now)
        except InvalidInput as error:
            form.blame(error.errors)
            return shown(self, form, title="New webhook", status=400)
        except (Conflict, QuotaExceeded) as error:
            self.refused(error)
            form.refuse(error)
            return shown(self, form, title="New webhook", status=error.status)
        url = reverse("portal:webhook", args=[made.webhook.pk])
        return shown_once(self, "The webhook is made: its signing secret", made.text, url, hint=SECRET_HINT)


class WebhookEdit(Page):
    """Changing one."""

    actions = {"GET": "webhook.update", "POST": "webhook.update"}
    section = "webhooks"

    def get(self, request: HttpRequest, webhook_id: UUID) -> HttpResponse:
        found = access_webhook(webhook_id)
        return shown(self, webhook_form(found), title="Edit webhook", found=found)

    def post(self, request: HttpRequest, webhook_id: UUID) -> HttpResponse:
        found = access_webhook(webhook_id)
        form = webhook_form(found)
        form.take(request.POST)
        try:
            webhook_replace(
                tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, data=definition_of(form), now=self.now,
                expect=form.seen(),
            )  # fmt: skip
        except Stale as error:
            self.refused(error)
            found = access_webhook(webhook_id)
            form["revision"].value = str(found.revision)
            form.errors.append(STALE)
            return shown(self, form, title="Edit webhook", found=found, status=409)
        except InvalidInput as error:
            form.blame(error.errors)
            return shown(self, form, title="Edit webhook", found=found, status=400)
        messages.success(request, "Saved. What waits goes to the new URL.")
        return go("portal:webhook", webhook_id)


def webhook_form(found: Webhook | None = None) -> Form:
    """Empty, or with what a webhook says."""
    given: dict[str, Any] = as_given(found) if found else {}
    types = [Option(EVERYTHING, "all, also those of later versions")]
    types += [Option(one, f"{one}: {words}") for one, words in EVENT_TYPES.items()]
    return Form([
        Field("url", "URL", value=given.get("url") or "", required=True, help="Where events are POSTed to, signed."),
        Field("description", "Description", value=given.get("description") or ""),
        Field("types", "Events", "checks", options=types,
              chosen=list(given.get("types") or [])),
        Field("jobs", "Only of these jobs", "area", "\n".join(given.get("jobs") or []), rows=2,
              help="Ids, one a line. Empty: of any."),
        Field("schedules", "Only of these schedules", "area", "\n".join(given.get("schedules") or []), rows=2,
              help="Ids, one a line. Empty: of any."),
        Field("labels", "Only of what has these labels", "area", rows=2, help="One a line, such as team: billing.",
              value="\n".join(f"{name}: {value}" for name, value in (given.get("labels") or {}).items())),
        Field("enabled", "Enabled", "check", "on" if given.get("enabled", True) else "",
              help="While it is disabled nothing is sent; what it missed can be sent again."),
        Field("revision", "Revision", "hidden", str(found.revision) if found else ""),
    ])  # fmt: skip


def definition_of(form: Form) -> dict[str, Any]:
    """What the service reads."""
    faults = Faults()
    data = {
        "url": form.text("url"), "description": form.text("description") or None, "types": form["types"].chosen,
        "jobs": form.text("jobs").split(), "schedules": form.text("schedules").split(),
        "labels": labels_of(form, faults), "enabled": bool(form.text("enabled")),
    }  # fmt: skip
    faults.raise_if_any()
    return data


def shown(page: Page, form: Form, *, title: str, found: Webhook | None = None, status: int = 200) -> HttpResponse:
    """The form, with what is wrong in it."""
    return page.page("portal/webhook_form.html", status=status, title=title, form=form, found=found)
