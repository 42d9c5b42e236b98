"""What can be done to webhooks besides making and editing them."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse

from apps.portal.once import overlap_field, overlap_of, shown_once
from apps.portal.verbs import Receipt, Subject, VerbPage
from apps.portal.webhooks import access_webhook
from apps.presenting.fields import Field, Form, Option
from apps.presenting.paging import as_uuid
from apps.presenting.shown import look_of
from apps.webhooks.reading import delivery_read, delivery_shape
from apps.webhooks.services import webhook_delete, webhook_rotate
from apps.webhooks.services_deliveries import REPLAYS, delivery_replay, webhook_replay, webhook_test
from kernel.errors import FieldError, InvalidInput, NotFound
from kernel.masking import masked_url

SECRET_HINT = "Give it to the receiver now: it verifies what comes with it, and it can't be shown again."


class WebhookVerb(VerbPage):
    """What they share."""

    section = "webhooks"
    lead = ""

    def subject(self, webhook_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        found = access_webhook(webhook_id)
        return Subject(
            name=found.description or masked_url(found.url), url=reverse("portal:webhook", args=[found.pk]),
            lead=self.lead,
            facts=[("URL", masked_url(found.url)), ("Events", ", ".join(found.types)),
                   ("State", "enabled" if found.enabled else "disabled")],
            row=found, revision=found.revision,
        )  # fmt: skip


class WebhookTest(WebhookVerb):
    """Trying it out."""

    actions = {"GET": "webhook.test", "POST": "webhook.test"}
    title, button = "Send a test", "Send it"
    lead = "One event of the type webhook.test is sent, signed like any other. It is tried once."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        webhook_test(tenant=self.tenant, actor=self.actor, webhook_id=subject.row.pk, now=self.now)
        return Receipt("A test is on its way; look at the first delivery.", subject.url)


class WebhookReplay(WebhookVerb):
    """Sending what came since an event once more."""

    actions = {"GET": "webhook.replay", "POST": "webhook.replay"}
    title, button = "Send again", "Send again"
    lead = "What came after an event is sent once more. Receivers tell repeats by the id of the event."

    def fields(self, subject: Subject) -> list[Field]:
        words = {"missing": "what has not arrived", "all": "all of it"}
        return [
            Field("after", "After the event", required=True, help="Id of an event, as the deliveries show it."),
            Field(
                "replay", "What", "select", REPLAYS[0], options=[Option(one, words.get(one, one)) for one in REPLAYS]
            ),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        after = as_uuid(form.text("after"))
        if after is None:
            raise InvalidInput([FieldError("/after", "type", "must be the id of an event.")])
        kind = form.text("replay") if form.text("replay") in REPLAYS else REPLAYS[0]
        webhook_replay(
            tenant=self.tenant, actor=self.actor, webhook_id=subject.row.pk, after=after, kind=kind, now=self.now
        )
        return Receipt("It is being sent again, in the order of the events.", subject.url)


class WebhookRotate(WebhookVerb):
    """Another secret."""

    actions = {"GET": "webhook.rotate", "POST": "webhook.rotate"}
    title, button = "New signing secret", "Make it"
    lead = "A new secret signs from now on and is shown once. The present one signs as well for a while."

    def fields(self, subject: Subject) -> list[Field]:
        return [overlap_field("The present secret signs as well for")]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> HttpResponse:
        made = webhook_rotate(
            tenant=self.tenant, actor=self.actor, webhook_id=subject.row.pk, overlap=overlap_of(form), now=self.now
        )
        return shown_once(self, "The new signing secret", made.text, subject.url, hint=SECRET_HINT)


class WebhookDelete(WebhookVerb):
    """Taking it away."""

    actions = {"GET": "webhook.delete", "POST": "webhook.delete"}
    title, button, kind = "Delete", "Delete the webhook", "danger"
    lead = "Nothing is sent to it any more, and what waits is ended. This can't be taken back."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        webhook_delete(tenant=self.tenant, actor=self.actor, webhook_id=subject.row.pk, now=self.now, expect=expect)
        return Receipt("The webhook is deleted.", reverse("portal:webhooks"))


class DeliveryReplay(VerbPage):
    """Sending one delivery once more."""

    actions = {"GET": "webhook.replay", "POST": "webhook.replay"}
    section = "webhooks"
    title, button = "Send once more", "Send it"

    def subject(self, webhook_id: UUID, delivery_id: UUID) -> Subject:  # type: ignore[override]  # its path has two ids
        found = access_webhook(webhook_id)
        row = delivery_read(self.tenant, webhook_id, delivery_id)
        if row is None:
            raise NotFound("There is no such delivery.")
        shape = delivery_shape(row)
        return Subject(
            name=found.description or masked_url(found.url), url=reverse("portal:webhook", args=[webhook_id]), row=row,
            lead="The same event goes to the webhook's present URL, under the same id.",
            facts=[("Event", shape["type"]), ("State", look_of(shape["state"]).word), ("URL", masked_url(found.url))],
        )  # fmt: skip

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        row = subject.row
        delivery_replay(
            tenant=self.tenant, actor=self.actor, webhook_id=row.webhook_id, delivery_id=row.id, now=self.now
        )
        return Receipt("It is sent once more.", subject.url)
