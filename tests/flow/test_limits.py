"""Limits that jobs set themselves, as release keeps them: so many of one customer, so many in a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.fixtures_flow import (
    actor,
    count,
    execution_of,
    live_worker,
    make_job,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
)

if TYPE_CHECKING:
    from apps.dispatch.release import ReleaseService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
BY_CUSTOMER = {"payload": "/customer/id", "max": 1}
RATE = {"runs": 60, "per_s": 60, "burst": 5}


@pytest.fixture
def service(releaser: Callable[..., ReleaseService], conn: Conn, registry: Registry, acme: Tenant) -> ReleaseService:
    """Release, with a worker that has room for all."""
    live_worker(conn, queues=[queue_of(registry, acme)])
    return releaser()


def released(service: ReleaseService) -> list[UUID]:
    """What one pass hands over."""
    return [one for message in release(service) for one in message.ids]


def of_customers(tenant: Tenant, job: UUID, customers: Sequence[int]) -> dict[UUID, int]:
    return {make_ticket(tenant, job, payload={"customer": {"id": number}}): number for number in customers}


def test_one_of_each_customer_at_a_time_and_both_at_once(
    service: ReleaseService, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    worker = uuid4()
    runs = of_customers(acme, make_job(acme, concurrency_key=BY_CUSTOMER), [1, 1, 1, 2, 2])
    seen: list[list[int]] = []
    while count(conn, "SELECT count(*) FROM tickets_ticket"):
        begun = start(conn, release(service), worker)
        assert released(service) == [], "each customer's next one waits"
        seen.append(sorted(runs[one.execution_id] for one in begun))
        settle_as(conn, registry, begun)
    assert seen == [[1, 2], [1, 2], [1]]
    assert {execution_of(conn, acme, one)["state"] for one in runs} == {"succeeded"}


def test_a_key_and_the_limit_of_the_job_hold_both(service: ReleaseService, conn: Conn, acme: Tenant) -> None:
    job = make_job(acme, concurrency_key={**BY_CUSTOMER, "max": 2}, max_concurrency=3)
    runs = of_customers(acme, job, [1, 1, 1, 2, 2, 2])
    free = make_ticket(acme, job)
    first = released(service)
    assert len(first) == 3
    assert max(Counter(runs.get(one) for one in first).values()) <= 2
    assert free not in first or len(first) == 3


def test_an_edit_lets_more_of_a_customer_go(service: ReleaseService, conn: Conn, acme: Tenant) -> None:
    from apps.schedules.services import job_update
    from kernel.clock import utc_now

    job = make_job(acme, concurrency_key=BY_CUSTOMER)
    of_customers(acme, job, [1, 1, 1])
    assert len(released(service)) == 1
    for most, more in ({"max": 2}, 1), (None, 1):
        job_update(tenant=acme, actor=actor(acme), job_id=job, patch={"concurrency_key": most}, now=utc_now())
        assert len(released(service)) == more


def test_never_more_than_burst_and_rate_times_t(service: ReleaseService, conn: Conn, acme: Tenant) -> None:
    job = make_job(acme, rate_limit=RATE)
    for _ in range(20):
        make_ticket(acme, job)
    begun_at = count(conn, "SELECT extract(epoch FROM clock_timestamp()) * 1000000")
    gone, shifted_s = len(released(service)), 0.0
    assert gone == 5
    for step_s in (0.0, 0.5, 0.5, 3.0, 100.0):
        conn.execute("UPDATE tickets_bucket SET at = at - %s * interval '1 second'", [step_s])
        shifted_s += step_s
        gone += len(released(service))
        now = count(conn, "SELECT extract(epoch FROM clock_timestamp()) * 1000000")
        passed_s = shifted_s + (now - begun_at) / 1e6
        assert gone <= 5 + passed_s, "burst and what came back"
        assert gone >= min(5 + int(shifted_s), 20) or step_s == 100.0
    assert gone == 5 + 4 + 5, "an hour's worth is no more than the burst"
    plain = make_ticket(acme)
    assert released(service) == [plain], "others do not wait for it"
