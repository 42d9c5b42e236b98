"""Sending something by hand: a test, a delivery once more, everything since an event once more."""

from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.due import bells
from apps.events import store as events
from apps.events.store import Position
from apps.executions.erasures import refuse_erased
from apps.executions.models import Execution
from apps.schedules.running import FIRED_BY_CHARS
from apps.webhooks import deliveries
from apps.webhooks.deliveries import Delivery
from apps.webhooks.jobs import TEST_VERSION, queue_of
from apps.webhooks.models import Webhook
from apps.webhooks.services import lock
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound
from kernel.eventtypes import DELIVERY, TEST_TYPE
from kernel.ids import uuid7
from kernel.transitions import FINAL_STATES
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

REPLAYS = ("missing", "all")


def webhook_test(*, tenant: Tenant, actor: Actor, webhook_id: UUID, now: datetime) -> UUID:
    """Sends a test once, also to a webhook that is disabled; the delivery's id. NotFound."""

    def work() -> UUID:
        _read(webhook_id)
        test_id = uuid7()
        body = {
            "id": str(test_id),
            "type": TEST_TYPE,
            "timestamp": events.instant_text(now),
            "data": {"webhook": str(webhook_id), "message": "This is a test."},
        }
        wanted = Delivery(webhook_id, f"{test_id.hex}.{webhook_id.hex}", body, now, job_version=TEST_VERSION)
        made = _make(tenant, wanted, actor, now)
        _record(actor, "webhook.test", webhook_id, now, tenant, after={"delivery": str(made)})
        return made

    return in_tenant(tenant, work)


def delivery_replay(*, tenant: Tenant, actor: Actor, webhook_id: UUID, delivery_id: UUID, now: datetime) -> UUID:
    """Sends a delivery once more; the id of the delivery that runs.

    One that failed for good is opened again under its webhook-id; of any other that has ended a new one is made, with a
    webhook-id of its own. NotFound; Conflict while it is alive or the webhook is disabled.
    """

    def work() -> UUID:
        webhook = _read(webhook_id)
        old = Execution.objects.filter(pk=delivery_id, job_id=webhook_id, trigger=DELIVERY).first()
        if old is None:
            raise NotFound("There is no such delivery.")
        if old.state not in FINAL_STATES:
            raise Conflict("The delivery has not ended; it is tried until it has.", code="not_finished")
        _check_enabled(webhook, test=old.job_version == TEST_VERSION)
        refuse_erased(door.raw(), tenant.schema_name, [delivery_id])
        runs = delivery_id
        if old.state != "dead" or not _reopen(tenant, delivery_id, now):
            key = f"{old.run_key.rpartition('~')[0] or old.run_key}~{uuid7().hex[-12:]}"
            wanted = Delivery(
                webhook_id, key, dict(old.payload or {}), old.nominal_at, job_version=old.job_version, replay_of=old.pk
            )  # fmt: skip
            runs = _make(tenant, wanted, actor, now)
        _record(actor, "webhook.replay", webhook_id, now, tenant, after={"delivery": str(runs)})
        return runs

    return in_tenant(tenant, work)


def webhook_replay(
    *, tenant: Tenant, actor: Actor, webhook_id: UUID, after: UUID, kind: str, now: datetime
) -> Webhook:  # fmt: skip
    """Sends the events that came after the event `after` once more, as far as they fit the webhook as it is now.

    "missing": those that have not arrived; "all": every one, under a new webhook-id. NotFound; InvalidInput for an
    event that there is not; Conflict when the webhook is disabled or a replay is under way.
    """

    def work() -> Webhook:
        conn, schema = door.raw(), tenant.schema_name
        webhook = lock(tenant, webhook_id, None)
        _check_enabled(webhook)
        if webhook.replay:
            raise Conflict("A replay of this webhook is under way; wait for its end.", code="replay_in_progress")
        event = events.read_one(conn, schema, after)
        if event is None:
            detail = "There is no such event, or it is not kept any more."
            raise InvalidInput([FieldError("/after", "not_found", detail)])
        here = Position(webhook.cursor_tx, webhook.cursor_id)
        if event.position < here:
            webhook.replay, webhook.replay_tx, webhook.replay_id = kind, here.tx, here.id
            webhook.cursor_tx, webhook.cursor_id = event.position
            webhook.generation += 1
            webhook.revision += 1
            webhook.updated_at = now
            webhook.save(
                update_fields=[
                    "replay", "replay_tx", "replay_id", "cursor_tx", "cursor_id", "generation", "revision", "updated_at"
                ]
            )  # fmt: skip
        bells.ring(conn, tenant.pk)
        _record(actor, "webhook.replay", webhook_id, now, tenant, after={"after": str(after), "replay": kind})
        return webhook

    return in_tenant(tenant, work)


def _read(webhook_id: UUID) -> Webhook:
    found = Webhook.objects.filter(pk=webhook_id, deleted_at=None).first()
    if found is None:
        raise NotFound("There is no such webhook.")
    return found


def _check_enabled(webhook: Webhook, *, test: bool = False) -> None:
    if not webhook.enabled and not test:
        raise Conflict("The webhook is disabled; enable it first.", code="webhook_disabled")


def _make(tenant: Tenant, wanted: Delivery, actor: Actor, now: datetime) -> UUID:
    made = deliveries.make(
        door.raw(), tenant.schema_name, tenant_id=tenant.pk, queue=queue_of(tenant), wanted=[wanted], now=now,
        by=actor.stored[:FIRED_BY_CHARS],
    )  # fmt: skip
    return made[0]


def _reopen(tenant: Tenant, delivery_id: UUID, now: datetime) -> bool:
    return deliveries.reopen(
        door.raw(), tenant.schema_name, delivery_id, tenant_id=tenant.pk, queue=queue_of(tenant), now=now
    )


def _record(actor: Actor, action: str, webhook_id: UUID, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="webhook", object_id=webhook_id, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
