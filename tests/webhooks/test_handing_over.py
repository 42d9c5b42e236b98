"""What a worker makes of a delivery, what the receiver gets, and what follows for the webhook."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from kernel.clock import utc_now
from tests.conftest import wait_until
from tests.fixtures_flow import actor, count, live_worker, make_job, make_ticket, queue_of, settle_as, settlement
from tests.flow.hands import Hands
from tests.webhooks.hands import (
    begin,
    carry,
    change_webhook,
    deliveries_of,
    emit,
    events_of,
    make_webhook,
    tenancy_of,
    webhook_row,
)

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry
    from workers.runtime import Runtime

Conn = psycopg.Connection[Any]


@pytest.fixture
def hands() -> Hands:
    return Hands(slots=20)


@pytest.fixture
def runtime(database: None, hands: Hands) -> Iterator[Runtime]:
    from workers.runtime import Runtime as Real

    made = Real({"http": hands}, queues=list)
    yield made
    made._line.close()
    made.settling.close()


def take(runtime: Runtime, conn: Conn) -> None:
    """Everything that is ready is released and taken by the worker."""
    from apps.tickets import releasing

    ids = [row[0] for row in conn.execute("SELECT execution_id FROM tickets_ticket WHERE state = 'ready'")]
    number = releasing.next_release(conn)
    releasing.release(conn, ids, release=number, now=utc_now())
    runtime.take("http", ids, number)


def settled(runtime: Runtime) -> None:
    def empty() -> bool:
        runtime.settling.run_once()
        return not runtime.settling.pending()

    wait_until(empty, "the attempts to be settled")


def test_a_delivery_is_a_signed_post_of_the_event(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands
) -> None:
    from standardwebhooks import Webhook as Receiver

    from workers.executors.http_request import PlanCache, make_request

    made = make_webhook(acme, registry)
    event = emit(conn, acme, "schedule.paused")
    carry(conn, registry, acme)
    take(runtime, conn)
    [work] = hands.works
    plan = PlanCache().plan_for(work)
    request = make_request(plan, work, utc_now())
    assert (request.method, str(request.url)) == ("POST", made.webhook.url)
    assert request.headers["webhook-id"] == f"{event.hex}.{made.webhook.pk.hex}"
    assert request.headers["Content-Type"] == "application/json"
    assert "Shardbeat-Completion" not in request.headers  # its answer is its end
    body = Receiver(made.text).verify(request.body or b"", dict(request.headers))
    assert body["id"] == str(event) and body["type"] == "schedule.paused" and body["data"] == {"n": 1}
    assert body["timestamp"].endswith("Z")
    hands.end_all()
    settled(runtime)
    assert webhook_row(conn, acme, made.webhook)["last_success_at"] is not None


def test_a_webhook_signs_with_its_own_secret_and_while_it_changes_with_both(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands
) -> None:
    from apps.secrets.signing import signing_rotate
    from apps.webhooks.services import webhook_rotate

    signing_rotate(tenant=acme, actor=actor(acme), now=utc_now())
    made = make_webhook(acme, registry)
    new = webhook_rotate(tenant=acme, actor=actor(acme), webhook_id=made.webhook.pk, now=utc_now())
    emit(conn, acme)
    carry(conn, registry, acme)
    take(runtime, conn)
    [work] = hands.works
    assert work.signing_secrets == (new.text, made.text)
    hands.end_all("failed")
    settled(runtime)
    conn.execute("UPDATE t_acme.webhooks_webhook SET former_until = clock_timestamp() - interval '1 s'")
    conn.execute("UPDATE tickets_ticket SET rank = available_at")
    take(runtime, conn)
    [work] = hands.works
    assert work.signing_secrets == (new.text,)
    hands.end_all()
    settled(runtime)


def test_what_waits_goes_where_the_webhook_points_now(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands
) -> None:
    webhook = make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    change_webhook(acme, webhook, url="http://127.0.0.1:9999/moved")
    take(runtime, conn)
    [work] = hands.works
    assert work.target["url"].endswith("/moved")
    hands.end_all()
    settled(runtime)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_delivery_that_was_queued_when_its_webhook_went_is_not_sent(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands, deleted: bool
) -> None:
    """The worker looks at the webhook when it takes the attempt, whatever the message said."""
    make_webhook(acme, registry)
    emit(conn, acme)
    carry(conn, registry, acme)
    gone = ", deleted_at = clock_timestamp()" if deleted else ""
    conn.execute(f"UPDATE t_acme.webhooks_webhook SET enabled = false{gone}")
    take(runtime, conn)
    assert hands.works == []
    settled(runtime)
    [one] = deliveries_of(conn, acme)
    assert one["state"] == "cancelled"


def test_a_tenant_deletes_a_webhook_with_deliveries_alive(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands
) -> None:
    """What waits ends; a call that is under way comes to its end and is settled."""
    from apps.webhooks.services import webhook_delete

    webhook = make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    take(runtime, conn)
    assert len(hands.works) == 1
    for _ in range(3):
        emit(conn, acme)
    carry(conn, registry, acme)
    webhook_delete(tenant=acme, actor=actor(acme), webhook_id=webhook.pk, now=utc_now())
    assert [one["state"] for one in deliveries_of(conn, acme)] == ["ready", *["cancelled"] * 3]
    hands.end_all("failed")
    settled(runtime)
    carry(conn, registry, acme)  # what would be tried again is found by the fan-out, for which the deletion rang
    conn.execute("UPDATE due_eventbell SET available_at = clock_timestamp()")
    carry(conn, registry, acme)
    assert [one["state"] for one in deliveries_of(conn, acme)] == ["cancelled"] * 4
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0
    assert count(conn, "SELECT count(*) FROM t_acme.secrets_secret") == 0


def test_a_secret_that_can_not_be_read_is_told(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands
) -> None:
    make_webhook(acme, registry)
    conn.execute("UPDATE t_acme.secrets_secret SET ciphertext = '\\x00'")
    emit(conn, acme)
    carry(conn, registry, acme)
    take(runtime, conn)
    assert hands.works == []
    settled(runtime)
    [one] = deliveries_of(conn, acme)
    assert one["state"] == "dead" and one["error"]["class"] == "secret_unreadable"


def test_a_python_job_of_the_same_batch_is_not_touched(
    conn: Conn, acme: Tenant, registry: Registry, runtime: Runtime, hands: Hands
) -> None:
    make_webhook(acme, registry, types=["schedule.resumed"])
    emit(conn, acme)
    carry(conn, registry, acme)
    target = {"url": "http://127.0.0.1:9999/job"}
    run = make_ticket(acme, make_job(acme, kind="http", target=target), payload={"n": 1})
    take(runtime, conn)
    work = hands.work_of(run)
    assert work.target == target and work.completion and len(hands.works) == 2
    hands.end_all()
    settled(runtime)


@pytest.mark.parametrize("address", ["10.0.0.7", "169.254.169.254", "::ffff:192.168.0.1", "fd00::1"])
def test_a_name_that_leads_inside_is_not_called(
    conn: Conn, acme: Tenant, registry: Registry, address: str
) -> None:  # fmt: skip
    """It was public when it was saved: the address is judged at the last step before the connection, as for jobs."""
    from workers.executors.http import HttpExecutor
    from workers.runtime import Runtime as Real

    async def lookup(host: str) -> list[str]:
        return [address]

    webhook = make_webhook(acme, registry, url="https://hooks.example.test/in").webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    executor = HttpExecutor(slots=4, lookup=lookup)
    runtime = Real({"http": executor}, queues=list)
    executor.start()
    try:
        take(runtime, conn)
        wait_until(lambda: runtime.settling.pending(), "the attempt to end")
        settled(runtime)
    finally:
        executor.stop(0)
        runtime._line.close()
        runtime.settling.close()
    [one] = deliveries_of(conn, acme)
    assert one["state"] == "dead" and one["error"]["class"] == "address_blocked" and address not in str(one["error"])
    assert webhook_row(conn, acme, webhook)["last_error"] == "The target leads to an address that is not public."


# --- failures in a row ---


def fail(conn: Conn, registry: Registry, tenant: Tenant, execution: Any, **report: Any) -> None:
    """An attempt of a delivery fails."""
    conn.execute("UPDATE tickets_ticket SET rank = available_at, state = 'ready' WHERE execution_id = %s", [execution])
    settle_as(conn, registry, [begin(conn, execution)], "failed", **report)


def test_a_success_ends_a_row_of_failures(conn: Conn, acme: Tenant, registry: Registry) -> None:
    webhook = make_webhook(acme, registry).webhook
    for _ in range(2):
        emit(conn, acme)
    carry(conn, registry, acme)
    first, second = [one["id"] for one in deliveries_of(conn, acme)]
    fail(conn, registry, acme, first)
    fail(conn, registry, acme, first)
    row = webhook_row(conn, acme, webhook)
    assert row["failures"] == 2 and row["failing_since"] and row["last_error"] == "it went wrong" and row["enabled"]
    settle_as(conn, registry, [begin(conn, second)])
    row = webhook_row(conn, acme, webhook)
    assert (row["failures"], row["failing_since"], row["last_error"]) == (0, None, "")


def test_a_webhook_that_fails_persistently_is_disabled_with_notice(
    conn: Conn, acme: Tenant, registry: Registry
) -> None:
    from apps.webhooks.outcome import DISABLE_AFTER, DISABLE_FAILURES

    webhook = make_webhook(acme, registry).webhook
    other = make_webhook(acme, registry, types=["webhook.disabled"]).webhook
    for _ in range(2):
        emit(conn, acme)
    carry(conn, registry, acme)
    first, second = [one["id"] for one in deliveries_of(conn, acme, webhook)]
    for _ in range(DISABLE_FAILURES - 1):
        fail(conn, registry, acme, first)
    conn.execute(
        "UPDATE t_acme.webhooks_webhook SET failing_since = clock_timestamp() - %s WHERE id = %s",
        [DISABLE_AFTER + timedelta(minutes=1), webhook.pk],
    )
    assert webhook_row(conn, acme, webhook)["enabled"]
    fail(conn, registry, acme, first)
    row = webhook_row(conn, acme, webhook)
    assert not row["enabled"] and row["disabled_at"] and "No attempt has succeeded since" in row["disabled_reason"]
    [event] = [one for one in events_of(conn, acme) if one["type"] == "webhook.disabled"]
    assert event["data"]["webhook"] == str(webhook.pk) and event["data"]["by"] == "system"
    noted = conn.execute("SELECT actor, action FROM audit_auditevent WHERE action = 'webhook.disable'").fetchall()
    assert noted == [("system", "webhook.disable")]
    carry(conn, registry, acme)
    assert [one["state"] for one in deliveries_of(conn, acme, webhook)] == ["cancelled", "cancelled"]
    [told] = deliveries_of(conn, acme, other)
    assert told["payload"]["type"] == "webhook.disabled" and second
    assert tenancy_of(registry, acme).wants == {"webhook.disabled"}


def test_a_receiver_that_is_gone_is_not_called_again(conn: Conn, acme: Tenant, registry: Registry) -> None:
    webhook = make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    [one] = deliveries_of(conn, acme)
    error = {"class": "http_status", "message": "The target answered 410.", "status": 410}
    fail(conn, registry, acme, one["id"], error=error, retryable=False, pause_schedule=True)
    row = webhook_row(conn, acme, webhook)
    assert not row["enabled"] and row["disabled_reason"] == "The receiver answered 410 Gone."


def test_what_somebody_tries_out_says_nothing_of_the_health(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.webhooks.services_deliveries import webhook_test

    webhook = make_webhook(acme, registry).webhook
    test = webhook_test(tenant=acme, actor=actor(acme), webhook_id=webhook.pk, now=utc_now())
    fail(conn, registry, acme, test)
    assert webhook_row(conn, acme, webhook)["failures"] == 0
    [one] = deliveries_of(conn, acme)
    assert one["state"] == "dead" and one["attempt_count"] == 1  # tried once


def test_workers_that_die_and_breakers_that_are_open_are_not_the_receivers_failures(
    conn: Conn, acme: Tenant, registry: Registry
) -> None:
    webhook = make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    [one] = deliveries_of(conn, acme)
    for outcome in ("lost", "returned"):
        conn.execute("UPDATE tickets_ticket SET rank = available_at")
        settle_as(conn, registry, [begin(conn, one["id"])], outcome)
    assert webhook_row(conn, acme, webhook)["failures"] == 0


def test_a_time_out_is_tried_again(conn: Conn, acme: Tenant, registry: Registry) -> None:
    """For other POSTs it is not: nobody knows whether they had their effect. Receivers know a webhook-id again."""
    make_webhook(acme, registry)
    emit(conn, acme)
    carry(conn, registry, acme)
    [one] = deliveries_of(conn, acme)
    started = begin(conn, one["id"])
    error = {"class": "timeout", "message": "no answer", "outcome_unknown": True}
    item = settlement(conn, registry, started, "timed_out", error=error)
    from apps.outcomes.settle import settle

    assert settle(conn, registry, [item]).counts == {"retry": 1}


def test_retries_last_for_about_a_day() -> None:
    from apps.schedules.retry import retry_from_json
    from apps.webhooks.jobs import RETRY

    policy = retry_from_json({**RETRY, "jitter": "none"})
    waits = [policy.wait_s(number) for number in range(1, policy.max_attempts)]
    assert waits[:4] == [10, 40, 160, 640] and 20 * 3_600 < sum(waits) < 26 * 3_600


def test_a_slow_receiver_has_a_bounded_share_of_the_workers(
    conn: Conn, acme: Tenant, registry: Registry, releaser: Any
) -> None:
    from apps.webhooks.jobs import IN_FLIGHT_MAX
    from tests.fixtures_flow import release

    make_webhook(acme, registry)
    for _ in range(IN_FLIGHT_MAX + 10):
        emit(conn, acme)
    carry(conn, registry, acme)
    live_worker(conn, slots=200, queues=[queue_of(registry, acme, "http")], pool="http")
    messages = release(releaser("http"), passes=3)
    assert sum(len(one.ids) for one in messages) == IN_FLIGHT_MAX


def test_old_events_and_deleted_webhooks_are_forgotten(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.webhooks.services import webhook_delete
    from workers.retention import forget

    kept, gone = make_webhook(acme, registry).webhook, make_webhook(acme, registry).webhook
    emit(conn, acme)
    webhook_delete(tenant=acme, actor=actor(acme), webhook_id=gone.pk, now=utc_now())
    later = utc_now() + timedelta(days=1)
    counts = forget(conn, acme.schema_name, before=later, more=lambda: True)
    assert (counts["events"], counts["webhooks"]) == (1, 1)
    assert conn.execute("SELECT id FROM t_acme.webhooks_webhook").fetchall() == [(kept.pk,)]
    assert conn.execute("SELECT id FROM t_acme.schedules_job").fetchall() == [(kept.pk,)]
