"""From events to deliveries: each once, whoever does it, and whatever crashes in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import wait_until
from tests.fixtures_flow import (
    at_every_crash,
    at_once,
    count,
    make_job,
    make_schedule,
    make_ticket,
    settle_as,
    ticket_of,
)
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

Conn = psycopg.Connection[Any]


def event_ids(found: list[dict[str, Any]]) -> list[UUID]:
    """Which events these deliveries carry."""
    return [UUID(one["payload"]["id"]) for one in found]


def test_each_event_makes_one_delivery_of_each_webhook(conn: Conn, acme: Tenant, registry: Registry) -> None:
    first, second = make_webhook(acme).webhook, make_webhook(acme, registry).webhook
    ids = [emit(conn, acme) for _ in range(3)]
    carry(conn, registry, acme)
    for webhook in (first, second):
        made = deliveries_of(conn, acme, webhook)
        assert event_ids(made) == ids
        assert [one["run_key"] for one in made] == [f"{one.hex}.{webhook.pk.hex}" for one in ids]
        for one in made:
            ticket = ticket_of(conn, one["id"])
            assert (ticket["state"], ticket["pool"], ticket["trigger"]) == ("ready", "http", "webhook")
            assert ticket["flow"] == webhook.pk
    carry(conn, registry, acme)
    assert len(deliveries_of(conn, acme)) == 6


def test_what_was_before_a_webhook_is_not_sent_to_it(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.events import store

    old = emit(conn, acme)
    wait_until(lambda: store.horizon(conn) > events_of(conn, acme)[0]["tx"], "the event to be settled")
    make_webhook(acme, registry)
    new = emit(conn, acme)
    carry(conn, registry, acme)
    assert event_ids(deliveries_of(conn, acme)) == [new] and old != new


def test_an_event_that_commits_late_is_carried_out(
    conn: Conn, second: Conn, acme: Tenant, registry: Registry
) -> None:  # fmt: skip
    from apps.webhooks.fanout import fan_out

    make_webhook(acme, registry)
    with second.transaction():
        early = emit(second, acme)
        late = emit(conn, acme)
        assert fan_out(conn, tenancy_of(registry, acme)).made == 0
    carry(conn, registry, acme)
    assert event_ids(deliveries_of(conn, acme)) == [early, late]


def test_two_dispatchers_at_once(conn: Conn, second: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.webhooks.fanout import fan_out

    for _ in range(3):
        make_webhook(acme)
    tenancy = tenancy_of(registry, acme)
    ids = [emit(conn, acme) for _ in range(40)]
    for _ in range(4):
        at_once(*[lambda one=one: fan_out(one, tenancy, batch=7) for one in (conn, second)])
    carry(conn, registry, acme)
    made = event_ids(deliveries_of(conn, acme))
    assert sorted(made) == sorted(ids * 3)


def test_a_webhook_that_somebody_holds_is_carried_out_later(
    conn: Conn, second: Conn, acme: Tenant, registry: Registry
) -> None:  # fmt: skip
    from apps.webhooks.fanout import fan_out

    held, free = make_webhook(acme).webhook, make_webhook(acme, registry).webhook
    tenancy = tenancy_of(registry, acme)
    emit(conn, acme)
    with second.transaction():
        second.execute("SELECT 1 FROM t_acme.webhooks_webhook WHERE id = %s FOR UPDATE", [held.pk])
        second.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        wait_until(lambda: fan_out(conn, tenancy).made, "the other one's delivery")
        assert len(deliveries_of(conn, acme, free)) == 1 and deliveries_of(conn, acme, held) == []
    wait_until(lambda: fan_out(conn, tenancy).made, "the held one's delivery")
    assert len(deliveries_of(conn, acme, held)) == 1 and len(deliveries_of(conn, acme, free)) == 1


def test_every_crash_between_event_and_delivery(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.events import store
    from apps.webhooks.fanout import fan_out

    make_webhook(acme, registry)
    tenancy = tenancy_of(registry, acme)
    wanted: list[UUID] = []

    def prepare() -> None:
        carry(conn, registry, acme)
        wanted.append(emit(conn, acme))
        newest = events_of(conn, acme)[-1]["tx"]
        wait_until(lambda: store.horizon(conn) > newest, "the event to be settled")

    def check(where: str) -> None:
        carry(conn, registry, acme)
        assert event_ids(deliveries_of(conn, acme)) == wanted, where
        alive = count(conn, "SELECT count(*) FROM tickets_ticket WHERE tenant_id = %s", acme.pk)
        assert alive == len(wanted), where
        prepare()

    prepare()
    crashes = at_every_crash(lambda broken: fan_out(broken, tenancy), check)
    assert crashes > 10


def test_every_crash_between_a_run_and_its_event(conn: Conn, acme: Tenant, registry: Registry) -> None:
    """The outcome, its event and the bell are one: a settlement that is done again tells nothing twice."""
    from tests.fixtures_flow import settlement

    make_webhook(acme, registry, types=["run.succeeded"])
    runs = [begin(conn, make_ticket(acme))]

    def check(where: str) -> None:
        settle_as(conn, registry, [runs[-1]])
        assert [one["execution_id"] for one in events_of(conn, acme)] == [one.execution_id for one in runs], where
        runs.append(begin(conn, make_ticket(acme)))

    crashes = at_every_crash(lambda broken: _settle(broken, registry, settlement(conn, registry, runs[-1])), check)
    assert crashes > 5


def _settle(conn: Conn, registry: Registry, item: Any) -> None:
    from apps.outcomes.settle import settle

    if settle(conn, registry, [item]).failed:
        raise psycopg.OperationalError("the batch is tried again")


def test_filters(conn: Conn, acme: Tenant, registry: Registry) -> None:
    job = make_job(acme, labels={"team": "billing", "env": "prod"})
    schedule = make_schedule(acme, job, labels={"env": "test"})
    other = make_schedule(acme)
    about = {"job_id": job, "schedule_id": schedule}
    hooks = {
        "types": make_webhook(acme, types=["schedule.paused"]).webhook,
        "job": make_webhook(acme, jobs=[str(job)]).webhook,
        "schedule": make_webhook(acme, schedules=[str(schedule)]).webhook,
        "label": make_webhook(acme, labels={"team": "billing", "env": "test"}).webhook,
        "not this label": make_webhook(acme, labels={"env": "prod"}).webhook,
    }
    ids = {
        "paused": emit(conn, acme, "schedule.paused", **about),
        "resumed": emit(conn, acme, "schedule.resumed", **about),
        "other": emit(conn, acme, "schedule.resumed", schedule_id=other),
        "nothing": emit(conn, acme, "quota.near"),
        "of the job": emit(conn, acme, "run.late", job_id=job),
    }
    carry(conn, registry, acme)
    names = {value: name for name, value in ids.items()}
    got = {name: [names[one] for one in event_ids(deliveries_of(conn, acme, hook))] for name, hook in hooks.items()}
    assert got == {
        "types": ["paused"],
        "job": ["paused", "resumed", "of the job"],
        "schedule": ["paused", "resumed"],
        "label": ["paused", "resumed"],
        "not this label": ["of the job"],
    }


def test_a_receiver_that_is_slow_does_not_fill_the_table_of_tickets(
    conn: Conn, acme: Tenant, registry: Registry
) -> None:
    from apps.webhooks.fanout import fan_out

    webhook = make_webhook(acme, registry).webhook
    ids = [emit(conn, acme) for _ in range(5)]
    tenancy = tenancy_of(registry, acme)
    wait_until(lambda: fan_out(conn, tenancy, live_max=2).made == 2, "the first two")
    bell = "SELECT count(*) FROM due_eventbell WHERE available_at > clock_timestamp()"
    conn.execute("UPDATE due_eventbell SET available_at = clock_timestamp() WHERE tenant_id = %s", [acme.pk])
    wait_until(lambda: fan_out(conn, tenancy, live_max=2).again_s, "the fan-out to put it off")
    assert len(deliveries_of(conn, acme)) == 2 and count(conn, bell) == 1
    settle_as(conn, registry, [begin(conn, one["id"]) for one in deliveries_of(conn, acme, webhook)])
    conn.execute("UPDATE due_eventbell SET available_at = clock_timestamp() WHERE tenant_id = %s", [acme.pk])
    wait_until(lambda: fan_out(conn, tenancy, live_max=2).made == 2, "the next two")
    assert event_ids(deliveries_of(conn, acme)) == ids[:4]


def test_deliveries_make_no_events_and_no_dead_letters(conn: Conn, acme: Tenant, registry: Registry) -> None:
    """Neither one that succeeds, nor one that is tried again, nor one that fails for good."""
    webhook = make_webhook(acme, registry).webhook
    for _ in range(3):
        emit(conn, acme)
    carry(conn, registry, acme)
    well, again, badly = [begin(conn, one["id"]) for one in deliveries_of(conn, acme, webhook)]
    settle_as(conn, registry, [well])
    settle_as(conn, registry, [again], "failed")
    settle_as(conn, registry, [badly], "failed", retryable=False)
    assert len(events_of(conn, acme)) == 3
    assert count(conn, "SELECT count(*) FROM t_acme.deadletters_deadletter") == 0
    assert [one["state"] for one in deliveries_of(conn, acme)] == ["succeeded", "ready", "dead"]
    carry(conn, registry, acme)
    assert len(deliveries_of(conn, acme)) == 3


def test_a_delivery_that_is_given_up_between_its_tries_tells_nothing(
    conn: Conn, acme: Tenant, registry: Registry
) -> None:
    from apps.outcomes.expire import expire_batch
    from apps.webhooks.jobs import GIVE_UP_S
    from tests.fixtures_flow import NOW, timedelta

    make_webhook(acme, registry)
    emit(conn, acme)
    carry(conn, registry, acme)
    [one] = deliveries_of(conn, acme)
    started = begin(conn, one["id"])
    settle_as(conn, registry, [started], "failed")
    later = started.first_started_at + timedelta(seconds=GIVE_UP_S + 1)
    assert expire_batch(conn, registry, now=later, limit=10)["given_up"] == 1
    assert later > NOW and len(events_of(conn, acme)) == 1
    assert count(conn, "SELECT count(*) FROM t_acme.deadletters_deadletter") == 0
    assert deliveries_of(conn, acme)[0]["state"] == "dead"


def test_disabled_and_enabled_again(conn: Conn, acme: Tenant, registry: Registry) -> None:
    """What waits is ended; what happens meanwhile is not sent; afterwards it goes on."""
    from apps.events import store

    webhook = make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    change_webhook(acme, webhook, enabled=False)
    [one] = deliveries_of(conn, acme)
    assert (one["state"], one["reason"]) == ("cancelled", "webhook_gone")
    assert tenancy_of(registry, acme).wants == frozenset()
    emit(conn, acme)
    carry(conn, registry, acme)
    newest = events_of(conn, acme)[-1]["tx"]
    wait_until(lambda: store.horizon(conn) > newest, "the events to be settled")
    change_webhook(acme, webhook, enabled=True)
    last = emit(conn, acme)
    carry(conn, registry, acme)
    assert event_ids(deliveries_of(conn, acme))[1:] == [last]


def test_the_fan_out_ends_what_a_crashed_deletion_left(conn: Conn, acme: Tenant, registry: Registry) -> None:
    webhook = make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    conn.execute("UPDATE t_acme.webhooks_webhook SET enabled = false, deleted_at = clock_timestamp()")
    emit(conn, acme)
    carry(conn, registry, acme)
    [one] = deliveries_of(conn, acme, webhook)
    assert one["state"] == "cancelled" and ticket_of(conn, one["id"]) is None


def test_no_webhook_is_held_while_the_tickets_of_another_are_waited_for(
    conn: Conn, second: Conn, acme: Tenant, registry: Registry
) -> None:
    """Tickets come before webhooks in the order of locks: who settles holds them and asks for the webhooks."""
    from apps.events import store
    from apps.webhooks.fanout import fan_out

    off, on = make_webhook(acme).webhook, make_webhook(acme, registry).webhook
    emit(conn, acme)
    carry(conn, registry, acme)
    conn.execute("UPDATE t_acme.webhooks_webhook SET enabled = false WHERE id = %s", [off.pk])
    [left] = deliveries_of(conn, acme, off)
    last = emit(conn, acme)
    newest = events_of(conn, acme)[-1]["tx"]
    wait_until(lambda: store.horizon(conn) > newest, "the event to be settled")
    with second.transaction():
        second.execute("SELECT 1 FROM tickets_ticket WHERE execution_id = %s FOR UPDATE", [left["id"]])
        conn.execute("SET lock_timeout = 50")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            fan_out(conn, tenancy_of(registry, acme))
        conn.execute("RESET lock_timeout")
        assert event_ids(deliveries_of(conn, acme, on))[1:] == [last]
    carry(conn, registry, acme)  # a bell was rung before
    [left] = deliveries_of(conn, acme, off)
    assert left["state"] == "cancelled"


def test_what_is_wanted_follows_a_webhook_that_the_platform_disabled(
    conn: Conn, acme: Tenant, registry: Registry
) -> None:
    from apps.webhooks.outcome import disable
    from tests.fixtures_flow import NOW

    webhook = make_webhook(acme, registry, types=["run.succeeded"]).webhook
    assert tenancy_of(registry, acme).wants == {"run.succeeded"}
    with conn.transaction():
        assert disable(conn, acme.schema_name, tenant_id=acme.pk, webhook_id=webhook.pk, reason="gone", now=NOW)
    carry(conn, registry, acme)
    assert tenancy_of(registry, acme).wants == frozenset()
    assert webhook_row(conn, acme, webhook)["disabled_reason"] == "gone"


def test_a_tenant_that_is_gone_leaves_no_bell(conn: Conn, acme: Tenant, leader: Any) -> None:
    from apps.dispatch.fanout import FanOutService
    from apps.due import bells
    from tests.fixtures_flow import OneLine

    bells.ring(conn, 987_654)
    service = FanOutService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives
    service.run_once()
    assert count(conn, "SELECT count(*) FROM due_eventbell WHERE tenant_id = 987654") == 0


def test_a_tenant_whose_schema_does_not_answer_holds_up_nobody(
    conn: Conn, second: Conn, acme: Tenant, globex: Tenant, registry: Registry, leader: Any
) -> None:
    from apps.dispatch.fanout import FanOutService
    from tests.fixtures_flow import OneLine

    for tenant in (acme, globex):
        make_webhook(tenant)
        emit(conn, tenant)
    service = FanOutService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives
    with second.transaction():
        second.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        second.execute("LOCK TABLE t_acme.webhooks_webhook")
        # The lock gives its transaction no number, so what others have written can be read meanwhile.
        wait_until(lambda: (service.run_once(), deliveries_of(conn, globex))[1], "globex's delivery")
        assert acme.pk in service._failing and deliveries_of(conn, acme) == []
    service._failing.clear()
    wait_until(lambda: (service.run_once(), deliveries_of(conn, acme))[1], "acme's delivery")
