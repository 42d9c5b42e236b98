"""What follows for a webhook when attempts of its deliveries end. Called by whoever settles, in that transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.audit.services import SYSTEM, Entry, record_by_system
from apps.events import store as events
from apps.webhooks.jobs import TEST_VERSION

Conn = psycopg.Connection[Any]
DISABLE_AFTER = timedelta(days=3)  # no attempt has succeeded for so long
DISABLE_FAILURES = 5  # and at least so many have failed
SUCCESS_STEP = timedelta(minutes=1)  # last_success_at is exact to this
ERROR_CHARS = 500
GONE = "The receiver answered 410 Gone."


class Delivered(NamedTuple):
    """An attempt of a delivery that has ended."""

    webhook_id: UUID
    job_version: int
    succeeded: bool
    gone: bool  # the receiver said that it will never want any
    error: str
    at: datetime


@dataclass(slots=True)
class _Of:
    """All that a batch says of one webhook, in the order of time."""

    succeeded_at: datetime | None = None
    failed_at: datetime | None = None  # the first failure after the last success
    failed_last: datetime | None = None
    failures: int = 0
    gone_at: datetime | None = None
    error: str = ""


# Rows of several webhooks are locked in the order of their ids, after the tickets.
_LOCK = "SELECT id FROM {schema}.webhooks_webhook WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"

_WELL = """
UPDATE {schema}.webhooks_webhook SET failing_since = NULL, failures = 0, last_error = '', last_success_at = %(at)s
WHERE id = %(id)s AND (failures > 0 OR last_success_at IS NULL OR last_success_at < %(before)s)
"""

_BADLY = """
UPDATE {schema}.webhooks_webhook SET failing_since = coalesce(failing_since, %(since)s),
       failures = least(failures + %(failures)s, 1000000000), last_error = %(error)s
WHERE id = %(id)s RETURNING enabled, failing_since, failures, url
"""

_DISABLE = """
UPDATE {schema}.webhooks_webhook
SET enabled = false, disabled_at = %(at)s, disabled_reason = %(reason)s, revision = revision + 1, updated_at = %(at)s
WHERE id = %(id)s AND enabled RETURNING types
"""

# The time in which nothing was tried says nothing of the receiver.
_RESTED = """
UPDATE {schema}.webhooks_webhook SET failing_since = failing_since + (%(until)s - greatest(%(since)s, failing_since))
WHERE id = ANY(ARRAY(SELECT id FROM {schema}.webhooks_webhook WHERE failing_since < %(until)s ORDER BY id
                     FOR NO KEY UPDATE))
"""


def note(conn: Conn, schema: str, *, tenant_id: int, ended: Iterable[Delivered]) -> int:
    """Notes successes and failures of a tenant's webhooks; disables those that fail persistently. How many it did."""
    found = _by_webhook(ended)
    if not found:
        return 0
    if len(found) > 1:
        conn.execute(_in(_LOCK, schema), [sorted(found)])
    return sum(_note(conn, schema, tenant_id, webhook_id, of) for webhook_id, of in sorted(found.items()))


def _note(conn: Conn, schema: str, tenant_id: int, webhook_id: UUID, of: _Of) -> bool:
    if of.succeeded_at is not None:
        before = of.succeeded_at - SUCCESS_STEP
        conn.execute(_in(_WELL, schema), {"id": webhook_id, "at": of.succeeded_at, "before": before})
    if not of.failures or of.failed_at is None or of.failed_last is None:
        return False
    values = {"id": webhook_id, "since": of.failed_at, "failures": of.failures, "error": of.error[:ERROR_CHARS]}
    row = conn.execute(_in(_BADLY, schema), values).fetchone()
    if row is None or not row[0]:
        return False
    since, failures = row[1], row[2]
    if of.gone_at is not None:
        return disable(conn, schema, tenant_id=tenant_id, webhook_id=webhook_id, reason=GONE, now=of.gone_at)
    if of.failed_last - since < DISABLE_AFTER or failures < DISABLE_FAILURES:
        return False
    reason = f"No attempt has succeeded since {events.instant_text(since)}; {failures:,} have failed. Last: {of.error}"
    return disable(conn, schema, tenant_id=tenant_id, webhook_id=webhook_id, reason=reason, now=of.failed_last)


def disable(conn: Conn, schema: str, *, tenant_id: int, webhook_id: UUID, reason: str, now: datetime) -> bool:
    """enabled -> disabled by the platform, with an event and an audit row; False when it was not enabled."""
    reason = reason[:ERROR_CHARS]
    row = conn.execute(_in(_DISABLE, schema), {"id": webhook_id, "at": now, "reason": reason}).fetchone()
    if row is None:
        return False
    # What the tenant's webhooks ask for together is brought up to date by the fan-out, for which this rings: the
    # tenant's row comes before tickets in the order of locks.
    events.emit(conn, schema, tenant_id, [disabled_event(webhook_id, reason, now, by=SYSTEM)])
    record_by_system(conn, Entry("webhook.disable", "webhook", webhook_id, reason=reason), tenant_id=tenant_id)
    return True


def disabled_event(webhook_id: UUID, reason: str, now: datetime, *, by: str) -> events.NewEvent:
    """What the other webhooks are told."""
    return events.new_event("webhook.disabled", now, {"webhook": str(webhook_id), "reason": reason, "by": by})


def go_on(conn: Conn, schema: str, *, since: datetime, until: datetime) -> None:
    """A tenant stood still for this time: none of it counts for disabling webhooks that fail."""
    conn.execute(_in(_RESTED, schema), {"since": since, "until": until})


def _by_webhook(ended: Iterable[Delivered]) -> dict[UUID, _Of]:
    found: dict[UUID, _Of] = {}
    tried: Sequence[Delivered] = sorted(ended, key=lambda one: one.at)
    for one in tried:
        if one.job_version == TEST_VERSION:  # what somebody tries out says nothing of the webhook's health
            continue
        of = found.setdefault(one.webhook_id, _Of())
        if one.succeeded:
            of.succeeded_at, of.failed_at, of.failed_last, of.failures, of.gone_at = one.at, None, None, 0, None
            continue
        of.failed_at = of.failed_at or one.at
        of.failed_last, of.error = one.at, one.error
        of.failures += 1
        if one.gone:
            of.gone_at = one.at
    return found


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(schema))
