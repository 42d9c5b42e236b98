"""Twelve thousand dead letters of three tenants, replayed by real dispatchers: killed, paused, cancelled."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.operations.models import Operation
from apps.operations.services import operation_cancel, operation_pause, operation_resume
from apps.schedules.running import Run, Start, runs_start, share_job
from kernel.clock import monotonic_s
from tenants.models import Tenant
from tenants.registry import Registry
from tenants.work import database_now, in_tenant
from tests.conftest import wait_until
from tests.executors.receiver import Receiver
from tests.fixtures_flow import NOW, actor, executions_of, make_job, rows_of, settle_as, started_now
from tests.operations.fixtures import ask, read
from tests.processes import Processes, kill

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
LETTERS = 4_000  # of each tenant
BATCH = 500
LONG_S = 240


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_of_twelve_thousand_letters_reaches_its_target_at_most_once(
    processes: Processes, conn: Conn, registry: Registry, receiver: Receiver, acme: Tenant, globex: Tenant,
    new_tenant: Callable[..., Tenant],
) -> None:  # fmt: skip
    third = new_tenant()
    third.network = ["127.0.0.0/8"]  # where the receiver is
    third.save(update_fields=["network"])
    registry.refresh(force=True)
    dead = {tenant.slug: deaths(conn, registry, tenant, receiver.url()) for tenant in (acme, globex, third)}
    began = monotonic_s()
    victim, other = processes.dispatcher(), processes.dispatcher()
    processes.worker()
    paces: list[tuple[Tenant, dict[str, Any]]] = [
        (acme, {}), (globex, {"max_in_flight": 200}), (third, {"rate_per_s": 100}),
    ]  # fmt: skip
    asked = {tenant.slug: ask(tenant, "replay", "dead_letters", {"all": True}, **pace).pk for tenant, pace in paces}
    for tenant in (acme, globex, third):
        wait_until(partial(has_begun, tenant, asked), "the first of each", timeout_s=LONG_S)
    kill(victim)
    operation_pause(tenant=globex, actor=actor(globex), operation_id=asked["globex"], now=database_now())
    operation_cancel(tenant=third, actor=actor(third), operation_id=asked[third.slug], now=database_now())
    wait_until(lambda: now_of(globex, asked).running == 0, "what ran to end", timeout_s=LONG_S)
    left = now_of(globex, asked).pending
    assert left, "it was paused on its way"
    processes.dispatcher()
    kill(other)
    before = now_of(acme, asked).succeeded
    wait_until(lambda: now_of(acme, asked).succeeded > min(LETTERS - 1, before), "the other to go on", timeout_s=LONG_S)
    assert now_of(globex, asked).pending == left, "and the paused one to stand"
    operation_resume(tenant=globex, actor=actor(globex), operation_id=asked["globex"], now=database_now())

    for tenant in (acme, globex, third):
        wait_until(partial(has_ended, tenant, asked), "the end", timeout_s=LONG_S)
    took_s = monotonic_s() - began
    came = Counter(request.headers["idempotency-key"] for request in receiver.requests)
    log.warning("%d of %d letters were replayed in %.0f s", len(came), 3 * LETTERS, took_s)
    assert set(came.values()) == {1}, "each at most once at its target"
    for tenant in (acme, globex, third):
        one = read(tenant, asked[tenant.slug])  # its counts are those of its items
        runs = {run["id"]: run for run in executions_of(conn, tenant)}
        assert (one.planned, one.failed, one.skipped, set(runs)) == (LETTERS, 0, 0, set(dead[tenant.slug]))
        assert one.succeeded + one.pending == LETTERS
        assert Counter(run["state"] for run in runs.values()) == Counter(succeeded=one.succeeded, dead=one.pending)
        assert {run["run_key"] for run in runs.values() if run["state"] == "succeeded"} <= set(came)
        assert {run["attempt_count"] for run in runs.values() if run["state"] == "succeeded"} == {2}
        letters = rows_of(conn, tenant, "deadletters_deadletter")
        assert sum(letter["resolved_at"] is None for letter in letters) == one.pending
        assert (one.state, one.pending > 0) == (("cancelled", True) if tenant == third else ("completed", False))
    assert sum(came.values()) == sum(now_of(tenant, asked).succeeded for tenant in (acme, globex, third))


def deaths(conn: Conn, registry: Registry, tenant: Tenant, url: str) -> list[UUID]:
    """So many executions that died at their target, with nothing of that at the receiver."""
    job_id = make_job(tenant, kind="http", target={"url": url}, retry={"max_attempts": 1})
    found: list[UUID] = []
    while len(found) < LETTERS:
        job_starts = in_tenant(
            tenant,
            lambda: runs_start(
                tenant, [Start(share_job(tenant, job_id), Run(trigger="api", fired_by="test"))] * BATCH, now=NOW
            ),
        )
        error = {"class": "http", "status": 500, "message": "down"}
        settle_as(conn, registry, started_now(conn, job_starts, UUID(int=1)), "failed", retryable=False, error=error)
        found += job_starts
    return found


def now_of(tenant: Tenant, asked: dict[str, UUID]) -> Operation:
    """Its operation while dispatchers work on it."""
    found: Operation = in_tenant(tenant, lambda: Operation.objects.get(pk=asked[tenant.slug]))
    return found


def has_begun(tenant: Tenant, asked: dict[str, UUID]) -> bool:
    return now_of(tenant, asked).succeeded > 100


def has_ended(tenant: Tenant, asked: dict[str, UUID]) -> bool:
    return now_of(tenant, asked).finished_at is not None
