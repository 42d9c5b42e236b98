"""What can be done to webhooks. Each service is one transaction with its audit row.

The tenant's row is locked first, then the webhook's: what all webhooks ask for together follows from one state of them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.due import bells
from apps.events import store as events
from apps.events.store import LAST, Position
from apps.secrets.models import Secret
from apps.secrets.store import put_value
from apps.webhooks import deliveries, wanted
from apps.webhooks.fanout import LIVE_MAX
from apps.webhooks.jobs import job_make
from apps.webhooks.models import Webhook
from apps.webhooks.outcome import disabled_event
from apps.webhooks.rules import WebhookForm, as_given, read_webhook, url_restored
from kernel.errors import FieldError, InvalidInput, NotFound, Stale
from kernel.ids import uuid7
from kernel.jsonrules import patched
from kernel.webhooksign import BadSigningSecret, hmac_key, new_hmac_secret
from tenants import door
from tenants.limits import quota_error
from tenants.models import Tenant
from tenants.registry import reach_of
from tenants.work import in_tenant

WEBHOOKS_MAX = 20  # of a tenant, whatever its plan allows: each event is held against each of them
OVERLAP = timedelta(days=1)
OVERLAP_MAX = timedelta(days=30)
READ_ONLY = (
    "id", "status", "disabled_at", "disabled_reason", "failing_since", "failures", "last_error", "last_success_at",
    "former_secret_until", "replaying", "created_at", "updated_at",
)  # fmt: skip
SHOWN_ONCE = "signing_secret"


@dataclass(frozen=True, slots=True)
class Made:
    """A webhook with the text of its new secret, which is shown once."""

    webhook: Webhook
    text: str


def webhook_create(*, tenant: Tenant, actor: Actor, data: Any, now: datetime, text: str | None = None) -> Made:
    """Makes a webhook; `text` is its secret, or one is made here. InvalidInput, QuotaExceeded.

    It is told of what happens from now on.
    """
    chosen = _chosen(text)
    form = read_webhook(url_restored(data, ""), network=reach_of(tenant.network), also=(SHOWN_ONCE,))

    def work() -> Webhook:
        conn = door.raw()
        wanted.lock(conn, tenant.pk)
        most = Tenant.objects.filter(pk=tenant.pk).values_list("plan__max_webhooks", flat=True).get()
        most = WEBHOOKS_MAX if most is None else min(most, WEBHOOKS_MAX)
        use = Webhook.objects.filter(deleted_at=None).count()
        if use >= most:
            raise quota_error(quota="max_webhooks", limit=most, use=use, what="webhooks")
        made = Webhook(id=uuid7(), created_at=now, updated_at=now, enabled=form.enabled)
        _take(made, form)
        if not form.enabled:
            made.disabled_at = now
        made.secret = _secret_make(tenant, made.pk, chosen, now)
        _from_now(made)
        job_make(made.pk, now=now)
        made.save(force_insert=True)
        _heard(tenant)
        _record(actor, "webhook.create", made, now, tenant, after=as_given(made))
        return made

    return Made(in_tenant(tenant, work), chosen)


def webhook_update(
    *, tenant: Tenant, actor: Actor, webhook_id: UUID, patch: Any, now: datetime, expect: Collection[int] | None = None
) -> Webhook:
    """Applies a JSON merge patch. NotFound, Stale, InvalidInput."""
    return _change(
        tenant=tenant, actor=actor, webhook_id=webhook_id, now=now, expect=expect,
        make=lambda given: patched(given, patch),
    )  # fmt: skip


def webhook_replace(
    *, tenant: Tenant, actor: Actor, webhook_id: UUID, data: Any, now: datetime, expect: Collection[int] | None = None
) -> Webhook:
    """Replaces the webhook's members; what is missing takes its default. NotFound, Stale, InvalidInput."""
    return _change(
        tenant=tenant, actor=actor, webhook_id=webhook_id, now=now, expect=expect, make=lambda _: data
    )  # fmt: skip


def webhook_delete(
    *, tenant: Tenant, actor: Actor, webhook_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Deletes a webhook with its secrets. Deliveries that wait are ended; a call that is under way comes to its end."""

    def work() -> None:
        webhook = lock(tenant, webhook_id, expect)
        webhook.enabled, webhook.deleted_at, webhook.disabled_at = False, now, now
        _end_replay(webhook)
        _save(webhook, now, "enabled", "deleted_at", "disabled_at", "replay", "replay_tx", "replay_id")
        Secret.objects.filter(name__in=[name for name in (webhook.secret, webhook.former_secret) if name]).delete()
        _heard(tenant)
        _record(actor, "webhook.delete", webhook, now, tenant, before={"url": as_given(webhook)["url"]})

    in_tenant(tenant, work)
    _end_waiting(tenant, webhook_id, now)


def webhook_rotate(
    *, tenant: Tenant, actor: Actor, webhook_id: UUID, now: datetime, overlap: timedelta = OVERLAP,
    text: str | None = None,
) -> Made:  # fmt: skip
    """A new secret, `text` or one that is made here. Its forerunner signs as well until `overlap` is over."""
    chosen = _chosen(text)

    def work() -> Webhook:
        webhook = lock(tenant, webhook_id, None)
        going = [webhook.former_secret] if webhook.former_secret else []
        if overlap > timedelta(0):
            webhook.former_secret, webhook.former_until = webhook.secret, now + overlap
        else:
            going.append(webhook.secret)
            webhook.former_secret, webhook.former_until = "", None
        webhook.secret = _secret_make(tenant, webhook.pk, chosen, now)
        _save(webhook, now, "secret", "former_secret", "former_until")
        Secret.objects.filter(name__in=going, purpose=Secret.Purpose.WEBHOOK).delete()
        after = {"overlap_s": int(overlap.total_seconds())}
        _record(actor, "webhook.rotate", webhook, now, tenant, after=after)
        return webhook

    return Made(in_tenant(tenant, work), chosen)


def lock(tenant: Tenant, webhook_id: UUID, expect: Collection[int] | None) -> Webhook:
    """The tenant's row and the webhook's, locked. NotFound, Stale."""
    wanted.lock(door.raw(), tenant.pk)
    found = Webhook.objects.select_for_update(no_key=True).filter(pk=webhook_id, deleted_at=None).first()
    if found is None:
        raise NotFound("There is no such webhook.")
    if expect is not None and found.revision not in expect:
        raise Stale("The webhook has changed since; read it again.")
    return found


def _change(
    *, tenant: Tenant, actor: Actor, webhook_id: UUID, now: datetime, expect: Collection[int] | None,
    make: Callable[[dict[str, Any]], Any],
) -> Webhook:  # fmt: skip
    def work() -> tuple[Webhook, bool]:
        webhook = lock(tenant, webhook_id, expect)
        given, was_enabled, old_url = as_given(webhook), webhook.enabled, webhook.url
        form = read_webhook(url_restored(make(given), old_url), network=reach_of(tenant.network))
        _take(webhook, form)
        if form.enabled and not was_enabled:
            _enable(webhook)
        elif was_enabled and not form.enabled:
            _disable(tenant, actor, webhook, now)
        after = as_given(webhook)
        names = [name for name in after if after[name] != given[name] or (name == "url" and form.url != old_url)]
        if names:
            _save(
                webhook, now, "url", "description", "types", "jobs", "schedules", "labels", "enabled", "disabled_at",
                "disabled_reason", "failing_since", "failures", "last_error", "cursor_tx", "cursor_id", "replay",
                "replay_tx", "replay_id",
            )  # fmt: skip
            _heard(tenant)
            _record(
                actor, "webhook.update", webhook, now, tenant, before={name: given[name] for name in names},
                after={name: after[name] for name in names},
            )  # fmt: skip
        return webhook, was_enabled and not webhook.enabled

    webhook, ended = in_tenant(tenant, work)
    if ended:
        _end_waiting(tenant, webhook_id, now)
    return webhook


def _take(webhook: Webhook, form: WebhookForm) -> None:
    webhook.url, webhook.description, webhook.types = form.url, form.description, form.types
    webhook.jobs, webhook.schedules, webhook.labels = form.jobs, form.schedules, form.labels


def _enable(webhook: Webhook) -> None:
    """It goes on from now; what it missed is sent when somebody asks for a replay."""
    webhook.enabled, webhook.disabled_at, webhook.disabled_reason = True, None, ""
    webhook.failing_since, webhook.failures, webhook.last_error = None, 0, ""
    _from_now(webhook)


def _disable(tenant: Tenant, actor: Actor, webhook: Webhook, now: datetime) -> None:
    webhook.enabled, webhook.disabled_at, webhook.disabled_reason = False, now, ""
    _end_replay(webhook)
    event = disabled_event(webhook.pk, "Somebody disabled it.", now, by=actor.stored)
    events.emit(door.raw(), tenant.schema_name, tenant.pk, [event])


def _end_replay(webhook: Webhook) -> None:
    webhook.replay, webhook.replay_tx, webhook.replay_id = "", None, None


def _from_now(webhook: Webhook) -> None:
    """Behind all that is committed for sure. What was under way at that moment may come, too."""
    here = Position(events.horizon(door.raw()) - 1, LAST)
    webhook.cursor_tx, webhook.cursor_id = here


def _end_waiting(tenant: Tenant, webhook_id: UUID, now: datetime) -> None:
    """In a transaction of its own: tickets come before webhooks in the order of locks.

    Should this process end before it, the fan-out does it, for which a bell has been rung.
    """
    in_tenant(
        tenant,
        lambda: deliveries.cancel_waiting(door.raw(), tenant.schema_name, webhook_id, now=now, limit=LIVE_MAX),
    )


def _heard(tenant: Tenant) -> None:
    """What is asked for has changed. Processes that do not know it yet write events without ringing for a moment."""
    conn = door.raw()
    wanted.refresh(conn, tenant.schema_name, tenant.pk)
    bells.ring(conn, tenant.pk)
    bells.ring(conn, tenant.pk, in_s=wanted.HEARD_S)


def _chosen(text: str | None) -> str:
    if text is None:
        return new_hmac_secret()
    try:
        hmac_key(text)
    except BadSigningSecret as error:
        raise InvalidInput([FieldError(f"/{SHOWN_ONCE}", "bad_secret", str(error))]) from None
    return text


def _secret_make(tenant: Tenant, webhook_id: UUID, text: str, now: datetime) -> str:
    made = Secret(purpose=Secret.Purpose.WEBHOOK, created_at=now, updated_at=now)
    made.name = f"@hook.{made.pk.hex}"
    put_value(made, text, tenant_id=tenant.pk, now=now)
    made.save(force_insert=True)
    return str(made.name)


def _save(webhook: Webhook, now: datetime, *names: str) -> None:
    webhook.revision += 1
    webhook.updated_at = now
    webhook.save(update_fields=[*names, "revision", "updated_at"])


def _record(actor: Actor, action: str, webhook: Webhook, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="webhook", object_id=webhook.pk, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
