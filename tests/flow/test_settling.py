"""The settle buffer: many at once, nothing forgotten, and a tenant that does not answer keeps nobody waiting."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.tickets.values import Started
from kernel.clock import monotonic_s
from tenants.models import Tenant
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    assert_exactly_one_outcome,
    at_once,
    count,
    end_backend,
    execution_of,
    make_job,
    make_ticket,
    settlement,
    started_now,
)
from tests.flow.test_fire_faults import table_lock
from workers.batching import SHARE
from workers.settling import BATCH, GATHER_S, SettleBuffer

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
SOON_S = 2.0


@pytest.fixture
def buffer(database: None) -> Iterator[SettleBuffer]:
    """A buffer whose loop the test starts, or that it drives by hand."""
    made = SettleBuffer()
    yield made
    made.loop.stop()
    assert made.loop.join(10)
    made.close()


@pytest.fixture
def running(conn: Conn) -> Callable[..., list[Started]]:
    """Runs that have begun, of one job per tenant."""
    jobs: dict[int, UUID] = {}

    def make(tenant: Tenant, number: int = 1) -> list[Started]:
        job = jobs.setdefault(tenant.pk, make_job(tenant))
        return started_now(conn, [make_ticket(tenant, job) for _ in range(number)], WORKER)

    return make


def is_settled(conn: Conn, tenant: Tenant, some: list[Started]) -> bool:
    return all(execution_of(conn, tenant, one.execution_id)["finished_at"] for one in some)


def test_many_are_settled_together(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    items = {tenant: running(tenant, 20) for tenant in (acme, globex)}
    for some in items.values():
        for one in some:
            buffer.add(settlement(conn, registry, one))
    assert len(buffer.pending()) == 40
    assert buffer.run_once().counts == {"succeeded": 40}
    assert buffer.pending() == set() and buffer.drain(0)
    for tenant, some in items.items():
        for one in some:
            assert_exactly_one_outcome(conn, tenant, one.run_key, state="succeeded")


def test_an_empty_buffer_rests(buffer: SettleBuffer) -> None:
    done = buffer.run_once()
    assert done.counts == {} and not done.full


def test_adding_from_many_threads_loses_nothing(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    items = [settlement(conn, registry, one) for one in running(acme, 40)]
    buffer.loop.start()

    def add(some: list[Any]) -> None:
        for item in some:
            buffer.add(item)

    at_once(*(partial(add, items[number::8]) for number in range(8)))
    assert buffer.drain(30)
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0
    assert buffer.loop.totals["succeeded"] == 40


def test_a_batch_is_bounded(buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant) -> None:
    [one] = running(acme)
    item = settlement(conn, registry, one)
    for _ in range(BATCH + 5):  # the same attempt again and again: it counts once
        buffer.add(item)
    done = buffer.run_once()
    assert done.counts == {"succeeded": 1, "stale": BATCH - 1} and done.full
    assert buffer.run_once().counts == {"stale": 5}


def test_ends_that_follow_each_other_are_settled_together(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause the first end waits as good as not; the next one as long as is worth it for what it took."""
    monkeypatch.setattr("workers.batching.MOST_S", 60.0)
    waits: list[float] = []
    monkeypatch.setattr(buffer._enough, "wait", waits.append)
    for one in running(acme, 3):
        item = settlement(conn, registry, one)
        started_at = item.report.finished_at - timedelta(seconds=200)
        buffer.add(replace(item, report=replace(item.report, started_at=started_at)))
        assert buffer.run_once().counts == {"succeeded": 1}
    assert waits[0] == GATHER_S and all(SHARE * 200 / 2 < wait <= SHARE * 200 for wait in waits[1:])


def test_an_outage_delays_settlements_and_loses_none(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    some = running(acme, 5)
    buffer.run_once()
    pid = buffer._line.get().info.backend_pid
    for one in some:
        buffer.add(settlement(conn, registry, one))
    end_backend(pid)
    with pytest.raises(psycopg.OperationalError):
        buffer.run_once()
    assert len(buffer.pending()) == 5
    assert buffer.run_once().counts == {"succeeded": 5}
    for one in some:
        assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")


def test_a_lost_answer_is_settled_once(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Committed, but nobody told us: the second time everything is stale."""
    from tests.fixtures_flow import OneLine, fragile

    some = running(acme, 3)
    whole, at, lost = buffer._line, 1, 0
    while True:
        for one in some:
            buffer.add(settlement(conn, registry, one))
        buffer._line = OneLine(fragile(at, after=True))  # type: ignore[assignment]  # it stands for a line
        try:
            buffer.run_once()
        except psycopg.OperationalError:
            lost += 1
        else:
            break
        buffer._line = whole
        done = buffer.run_once()
        assert done.counts in ({"succeeded": 3}, {"stale": 3})
        for one in some:
            assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")
        some = running(acme, 3)
        at += 1
    buffer._line = whole
    assert lost >= 4


def test_a_locked_tenant_waits_alone(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    """However many attempts it has: the others are settled at once, and go on while it stays locked."""
    buffer.loop.start()
    locked, late = running(acme, 60), running(acme, 2)
    first, second, third = (running(globex, 3) for _ in range(3))
    items = {one: settlement(conn, registry, one) for one in [*locked, *late, *first, *second, *third]}
    with table_lock(acme):
        for one in [*locked, *first]:
            buffer.add(items[one])
        began = monotonic_s()
        wait_until(lambda: is_settled(conn, globex, first), "the others")
        assert monotonic_s() - began < SOON_S
        for number, some in enumerate((second, third)):
            for one in [late[number], *some]:
                buffer.add(items[one])
            began = monotonic_s()
            wait_until(partial(is_settled, conn, globex, some), "the others, again")
            assert monotonic_s() - began < SOON_S
        assert len(buffer.pending()) == 62
        assert not buffer.drain(0.05)
    assert buffer.drain(30), "all of it when the lock is gone"
    for one in [*locked, *late]:
        assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")


def test_a_dropped_schema_waits_alone(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant, new_tenant: Any, as_owner: Any
) -> None:
    from tenants.provisioning import schema_drop

    broken = new_tenant()
    registry.refresh(force=True)
    lost, good = running(broken, 20), running(acme, 3)
    items = [settlement(conn, registry, one) for one in [*lost, *good]]
    with as_owner():
        schema_drop(broken.schema_name)
    for item in items:
        buffer.add(item)
    assert buffer.run_once().counts == {"succeeded": 3}
    assert len(buffer.pending()) == 20
    more = running(acme, 2)
    for one in more:
        buffer.add(settlement(conn, registry, one))
    assert buffer.run_once().counts == {"succeeded": 2}, "they are not tried with every batch"
    for one in [*good, *more]:
        assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")


def test_a_tenant_apart_is_tried_later_each_time(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    [one] = running(acme)
    buffer.add(settlement(conn, registry, one))
    waits = []
    with table_lock(acme):
        for _ in range(3):
            buffer.run_once()
            waits.append(buffer._apart[acme.pk].not_before - monotonic_s())
            buffer._apart[acme.pk].not_before = float("-inf")
    assert waits[0] < waits[1] < waits[2] < 2
    assert buffer.run_once().counts == {"succeeded": 1}


def test_one_attempt_that_can_not_be_settled_does_not_hold_up_its_tenant(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it, even a fault of our own."""
    from apps.outcomes import settle as settle_module

    some = running(acme, 7)
    note = settle_module._note

    def faulty(item: Any, *more: Any) -> None:
        if item.started.execution_id == some[3].execution_id:
            raise ZeroDivisionError
        note(item, *more)

    monkeypatch.setattr(settle_module, "_note", faulty)
    for one in some:
        buffer.add(settlement(conn, registry, one))
    assert buffer.run_once().counts == {"succeeded": 6}
    assert buffer.pending() == {(some[3].execution_id, some[3].fence)}
    monkeypatch.undo()
    buffer._apart[acme.pk].not_before = float("-inf")
    assert buffer.run_once().counts == {"succeeded": 1}
    for one in some:
        assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")


def test_stale_ones_are_not_kept(
    buffer: SettleBuffer, running: Any, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    [one] = running(acme)
    buffer.add(settlement(conn, registry, one._replace(fence=one.fence + 10**9)))
    buffer.add(settlement(conn, registry, one._replace(execution_id=uuid.uuid4())))
    assert buffer.run_once().counts == {"stale": 2}
    assert buffer.pending() == set()
