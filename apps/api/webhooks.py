"""/webhooks: who is told of events."""

from datetime import timedelta
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_webhook
from apps.api.documents_runs import NoInput
from apps.api.documents_webhooks import (
    DeliveryAnswer,
    NewWebhookAnswer,
    WebhookAnswer,
    WebhookChange,
    WebhookInput,
    WebhookReplacement,
    WebhookReplayInput,
    WebhookRotateInput,
)
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.lists import PAGING, newest, page
from apps.api.openapi import (
    CURSOR_PARAMETER,
    PAGE_SIZE_PARAMETER,
    listing,
    operation,
    parameter,
    time_parameters,
)
from apps.api.reading import nothing_of, read_only_dropped
from apps.schedules.input_fields import Fields
from apps.webhooks.models import Webhook
from apps.webhooks.reading import deliveries_read, delivery_read, delivery_shape, webhook_shape
from apps.webhooks.services import (
    OVERLAP,
    OVERLAP_MAX,
    READ_ONLY,
    webhook_create,
    webhook_delete,
    webhook_replace,
    webhook_rotate,
    webhook_update,
)
from apps.webhooks.services_deliveries import REPLAYS, delivery_replay, webhook_replay, webhook_test
from kernel.errors import Faults, NotFound
from kernel.transitions import EXECUTION_STATES

TAG = "webhooks"
MAX_SECRET_CHARS = 200


def delivery_answer(endpoint: Endpoint, webhook_id: UUID, delivery_id: UUID, *, status: int = 200) -> Response:
    """The delivery as it is now."""
    row = delivery_read(endpoint.tenant, webhook_id, delivery_id)
    if row is None:
        raise NotFound("There is no such delivery.")
    headers = {"Location": f"/api/v1/webhooks/{webhook_id}/deliveries/{row.id}"} if status == 202 else None
    return Response(delivery_shape(row), status=status, headers=headers)


class WebhookList(Endpoint):
    """All webhooks."""

    actions = {"GET": "webhook.read", "POST": "webhook.create"}

    @operation(
        "webhooks_list", "List webhooks, newest first", answer=listing(WebhookAnswer, "Webhook"), tag=TAG,
        parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*PAGING)
        found = Webhook.objects.filter(deleted_at=None)
        return Response(newest(found, query=query, shape=lambda row: webhook_shape(row, now=self.now)))

    @operation(
        "webhooks_create", "Create a webhook; its signing secret is shown only in this answer", body=WebhookInput,
        answer=NewWebhookAnswer, status=201, retry_safe=True, tag=TAG,
        problems=("quota_exceeded", "secrets_key_unknown"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        fields = Fields(self.body, Faults())
        text = fields.text("signing_secret", most=MAX_SECRET_CHARS)
        fields.faults.raise_if_any()
        made = webhook_create(tenant=self.tenant, actor=self.actor, data=self.body, text=text, now=self.now)
        shape = {**webhook_shape(made.webhook, now=self.now), "signing_secret": made.text}
        return tagged(shape, made.webhook.revision, status=201, location=f"{request.path}/{made.webhook.pk}")


class WebhookDetail(Endpoint):
    """One webhook."""

    actions = {"GET": "webhook.read", "PATCH": "webhook.update", "PUT": "webhook.update", "DELETE": "webhook.delete"}

    @operation("webhooks_read", "Read a webhook", answer=WebhookAnswer, tag=TAG)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        self.query().finish()
        found = access_webhook(actor=self.actor, webhook_id=webhook_id, need="webhook.read")
        return tagged(webhook_shape(found, now=self.now), found.revision)

    @operation(
        "webhooks_patch", "Change a webhook; what waits goes to the new URL", body=WebhookChange, answer=WebhookAnswer,
        if_match=True, tag=TAG,
    )  # fmt: skip
    def patch(self, request: Request, webhook_id: UUID) -> Response:
        changed = webhook_update(
            tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, patch=self.body, now=self.now,
            expect=revisions(request),
        )  # fmt: skip
        return tagged(webhook_shape(changed, now=self.now), changed.revision)

    @operation(
        "webhooks_replace", "Replace a webhook; what is missing takes its default", body=WebhookReplacement,
        answer=WebhookAnswer, if_match=True, tag=TAG,
    )  # fmt: skip
    def put(self, request: Request, webhook_id: UUID) -> Response:
        changed = webhook_replace(
            tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, now=self.now, expect=revisions(request),
            data=read_only_dropped(self.body, READ_ONLY),
        )  # fmt: skip
        return tagged(webhook_shape(changed, now=self.now), changed.revision)

    @operation(
        "webhooks_delete", "Delete a webhook; deliveries that wait are ended", status=204, if_match=True, tag=TAG
    )  # fmt: skip
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        webhook_delete(
            tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)


class WebhookRotate(Endpoint):
    """Changing over to another secret."""

    actions = {"POST": "webhook.rotate"}

    @operation(
        "webhooks_rotate", "Make a new signing secret, shown only in this answer; the former signs as well for a while",
        body=WebhookRotateInput, answer=NewWebhookAnswer, retry_safe=True, tag=TAG, problems=("secrets_key_unknown",),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, webhook_id: UUID) -> Response:
        fields = Fields(self.body, Faults())
        fields.only(("overlap_s", "signing_secret"))
        longest_s = int(OVERLAP_MAX.total_seconds())
        overlap_s = fields.whole("overlap_s", 0, longest_s, int(OVERLAP.total_seconds()))
        text = fields.text("signing_secret", most=MAX_SECRET_CHARS)
        fields.faults.raise_if_any()
        made = webhook_rotate(
            tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, now=self.now, text=text,
            overlap=timedelta(seconds=overlap_s),
        )  # fmt: skip
        shape = {**webhook_shape(made.webhook, now=self.now), "signing_secret": made.text}
        return tagged(shape, made.webhook.revision)


class WebhookTest(Endpoint):
    """Trying a webhook out."""

    actions = {"POST": "webhook.test"}

    @operation(
        "webhooks_test", "Send a test, once; also to a webhook that is disabled", body=NoInput, answer=DeliveryAnswer,
        status=202, retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, webhook_id: UUID) -> Response:
        nothing_of(self.body)
        made = webhook_test(tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, now=self.now)
        return delivery_answer(self, webhook_id, made, status=202)


class WebhookReplay(Endpoint):
    """Sending what came since an event once more."""

    actions = {"POST": "webhook.replay"}

    @operation(
        "webhooks_replay", "Send what came after an event once more: what has not arrived, or all of it",
        body=WebhookReplayInput, answer=WebhookAnswer, status=202, retry_safe=True, tag=TAG,
        problems=("webhook_disabled", "replay_in_progress"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, webhook_id: UUID) -> Response:
        access_webhook(actor=self.actor, webhook_id=webhook_id, need="webhook.replay")
        fields = Fields(self.body, Faults())
        fields.only(("after", "replay"))
        after = fields.id("after")
        kind = fields.choice("replay", REPLAYS, REPLAYS[0])
        fields.faults.raise_if_any()
        changed = webhook_replay(
            tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, after=after or UUID(int=0), kind=kind,
            now=self.now,
        )  # fmt: skip
        location = f"/api/v1/webhooks/{webhook_id}"
        return tagged(webhook_shape(changed, now=self.now), changed.revision, status=202, location=location)


class DeliveryList(Endpoint):
    """What was sent to a webhook, and what waits to be."""

    actions = {"GET": "webhook.read"}

    @operation(
        "webhook_deliveries_list", "List the deliveries of a webhook, newest first",
        answer=listing(DeliveryAnswer, "Delivery"), tag=TAG,
        parameters=[
            parameter("state", choices=EXECUTION_STATES), parameter("event", UUID, text="id of the event"),
            *time_parameters("created"), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request, webhook_id: UUID) -> Response:
        query = self.query("state", "event", "created_after", "created_before", *PAGING)
        states, event_id = query.choices("state", EXECUTION_STATES), query.id("event")
        after, until = query.instant("created_after"), query.instant("created_before")
        before, size = query.before(), query.page_size()
        query.finish()
        access_webhook(actor=self.actor, webhook_id=webhook_id, need="webhook.read")
        rows = deliveries_read(
            self.tenant, webhook_id, states=states, event_id=event_id, created_after=after, created_before=until,
            before=before, limit=size + 1,
        )  # fmt: skip
        return Response(page(rows, query=query, size=size, key=lambda row: row.id, shape=delivery_shape))


class DeliveryDetail(Endpoint):
    """One delivery."""

    actions = {"GET": "webhook.read"}

    @operation("webhook_deliveries_read", "Read a delivery", answer=DeliveryAnswer, tag=TAG)
    def get(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        self.query().finish()
        access_webhook(actor=self.actor, webhook_id=webhook_id, need="webhook.read")
        return delivery_answer(self, webhook_id, delivery_id)


class DeliveryReplay(Endpoint):
    """Sending a delivery once more."""

    actions = {"POST": "webhook.replay"}

    @operation(
        "webhook_deliveries_replay", "Send a delivery once more", body=NoInput, answer=DeliveryAnswer, status=202,
        retry_safe=True, tag=TAG, problems=("webhook_disabled", "not_finished", "erased"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        nothing_of(self.body)
        runs = delivery_replay(
            tenant=self.tenant, actor=self.actor, webhook_id=webhook_id, delivery_id=delivery_id, now=self.now
        )
        return delivery_answer(self, webhook_id, runs, status=202)
