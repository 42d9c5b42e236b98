"""Runs that a worker's runtime takes."""

from __future__ import annotations

from functools import partial
from typing import Any, cast
from uuid import UUID

import psycopg

from apps.dispatch.reconcile import end_lost
from apps.schedules.definitions import Definitions
from apps.tickets import releasing
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import NOW, at_once, execution_of, make_job, make_ticket
from workers.runtime import Runtime

Conn = psycopg.Connection[Any]
QUEUES = ["python.own.acme"]  # that the runtimes of tests listen to


def queued(conn: Conn, tenant: Tenant, number: int = 1, job: UUID | None = None, **more: Any) -> tuple[list[UUID], int]:
    job = job or make_job(tenant)
    ids = [make_ticket(tenant, job, **more) for _ in range(number)]
    return ids, release_now(conn, ids)


def release_now(conn: Conn, ids: list[UUID]) -> int:
    number = releasing.next_release(conn)
    assert len(releasing.release(conn, ids, release=number, now=NOW)) == len(ids)
    return number


def take(runtime: Runtime, ids: list[UUID], number: int) -> dict[str, int]:
    """As the batch task calls it, in a thread of its own; its connection is closed."""
    return cast("dict[str, int]", at_once(partial(_take, runtime, ids, number))[0])


def _take(runtime: Runtime, ids: list[UUID], number: int) -> dict[str, int]:
    try:
        return runtime.take("python", ids, number)
    finally:
        runtime._line.close()


def settled(conn: Conn, tenant: Tenant, execution_id: UUID) -> bool:
    return execution_of(conn, tenant, execution_id)["finished_at"] is not None


def as_lost(conn: Conn, registry: Registry) -> None:
    end_lost(conn, registry, Definitions())
    conn.execute("UPDATE tickets_ticket SET available_at = now() - interval '1 s'")
