"""Limits and orders that hold over pools: of a job that moves between pools, and of a schedule that changes its job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from tests.fixtures_flow import (
    NOW,
    actor,
    at_once,
    count,
    live_worker,
    make_job,
    make_schedule,
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
Make = Callable[..., "ReleaseService"]
DELIVERED = {"delivery": "queue", "url": "amqp://user@127.0.0.1:25672/prod", "queue": "jobs"}
HTTP = {"url": "https://example.com/"}
IN_FLIGHT = "SELECT count(*) FROM tickets_ticket WHERE state IN ('queued', 'running')"


def test_a_job_that_moves_between_pools_keeps_its_limits(
    releaser: Make, conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    from apps.dispatch.pull import lease
    from apps.schedules.services import job_update

    ask = partial(lease, tenant=acme, queue="work", most=9, lease_s=60, holder="one", now=NOW)
    live_worker(conn, queues=[queue_of(registry, acme, "queue")], pool="queue")
    service = releaser("queue", on=second)
    for limits in ({"max_concurrency": 2}, {"concurrency_key": {"payload": "/customer", "max": 2}}):
        job = make_job(acme, kind="pull", target={}, queue="work", **limits)
        for _ in range(3):
            make_ticket(acme, job, payload={"customer": 1})
        assert len(ask(most=1)) == 1
        patch = {"target": DELIVERED, "queue": None}
        job_update(tenant=acme, actor=actor(acme), job_id=job, patch=patch, now=NOW)
        for _ in range(3):
            make_ticket(acme, job, payload={"customer": 1})
        at_once(ask, lambda: release(service))
        assert count(conn, IN_FLIGHT) == 2, f"{limits}: of both pools"
        assert release(service) == [] == ask()
        conn.execute("DELETE FROM tickets_ticket")


def test_a_schedule_that_runs_one_at_a_time_does_so_over_pools(
    releaser: Make, conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    first, other = make_job(acme), make_job(acme, kind="http", target=HTTP)
    schedule = make_schedule(acme, first, overlap="buffer_all")
    tickets = [make_ticket(acme, job) for job in (first, other)]
    conn.execute("UPDATE tickets_ticket SET guarded = true, schedule_id = %s", [schedule])
    for pool in ("python", "http"):
        live_worker(conn, queues=[queue_of(registry, acme, pool)], pool=pool)
    python, http = releaser("python", on=second), releaser("http")
    with second.transaction():  # as a release of the other pool that has not committed
        second.execute("SELECT 1 FROM tickets_ticket WHERE execution_id = %s FOR UPDATE", [tickets[0]])
        assert release(http) == []
    begun = start(conn, release(python), uuid4())
    assert [one.execution_id for one in begun] == tickets[:1]
    assert release(http) == []
    settle_as(conn, registry, begun)
    assert [one for message in release(http) for one in message.ids] == tickets[1:]
