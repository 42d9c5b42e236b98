"""Webhooks: who outside is told of what, whether it arrives, and what was sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.portal.pages import Page
from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.paging import PAGE_ROWS, as_uuid, cursor_of, listed, newest
from apps.presenting.shown import error_line
from apps.schedules.names import names_of
from apps.webhooks.models import Webhook
from apps.webhooks.reading import deliveries_read, delivery_shape, webhook_find, webhook_shape
from kernel.errors import NotFound
from kernel.transitions import EXECUTION_STATES, FINAL_STATES


class WebhookList(Page):
    """All webhooks, newest first."""

    actions = {"GET": "webhook.read"}
    section = "webhooks"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = Webhook.objects.filter(deleted_at=None)
        rows = [webhook_shape(one, now=self.now) for one in newest(request, found)]
        return self.page(
            "portal/webhooks.html", title="Webhooks", listed=listed(request, rows, key=lambda one: one["id"]),
            offers=[self.offer("New webhook", "portal:webhook-new", "webhook.create", kind="primary")],
        )  # fmt: skip


class WebhookDetail(Page):
    """One webhook and its deliveries."""

    actions = {"GET": "webhook.read"}
    section = "webhooks"

    def get(self, request: HttpRequest, webhook_id: UUID) -> HttpResponse:
        shape = webhook_shape(access_webhook(webhook_id), now=self.now)
        form = Form([Field("state", "State", "select", options=[Option("", "any"), *choices(EXECUTION_STATES)])])
        form.take(request.GET)
        states = [form.text("state")] if form.text("state") in EXECUTION_STATES else []
        rows = deliveries_read(
            self.tenant, webhook_id, states=states, before=cursor_of(request), limit=PAGE_ROWS + 1
        )  # fmt: skip
        names = names_of(jobs=map(as_uuid, shape["jobs"]), schedules=map(as_uuid, shape["schedules"]))
        off = "" if shape["enabled"] else "It is disabled; enable it first."
        return self.page(
            "portal/webhook.html", title="Webhook", shape=shape, form=form, filtered=bool(states), names=names,
            listed=listed(request, [self._line(delivery_shape(row)) for row in rows], key=lambda one: one["id"]),
            offers=[
                self.offer("Edit", "portal:webhook-edit", "webhook.update", webhook_id),
                self.offer("Send a test", "portal:webhook-test", "webhook.test", webhook_id),
                self.offer("Send again", "portal:webhook-replay", "webhook.replay", webhook_id, blocked=off),
                self.offer("New secret", "portal:webhook-rotate", "webhook.rotate", webhook_id),
                self.offer("Delete", "portal:webhook-delete", "webhook.delete", webhook_id),
            ],
        )  # fmt: skip

    def _line(self, shape: dict[str, Any]) -> dict[str, Any]:
        again = self.may("webhook.replay") and shape["state"] in FINAL_STATES
        return {**shape, "line": error_line(shape["error"]), "again": again}


def access_webhook(webhook_id: UUID) -> Webhook:
    """In the schema of the host's tenant; the same 404 for all that is not there."""
    found = webhook_find(webhook_id)
    if found is None:
        raise NotFound("There is no such webhook.")
    return found
