"""Tickets that are released: made, told from messages, counted, come back."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.capacity import Message
from apps.dispatch.keeper import Keeper
from apps.tickets import releasing
from kernel.pools import POOL_NUMBER
from tenants.models import Tenant
from tests.fixtures_flow import make_job, make_ticket

Conn = psycopg.Connection[Any]


def ids_of(messages: list[Message]) -> list[UUID]:
    return [one for message in messages for one in message.ids]


def tickets(tenant: Tenant, number: int, job: UUID | None = None, **more: Any) -> list[UUID]:
    job = job or make_job(tenant)
    return [make_ticket(tenant, job, **more) for _ in range(number)]


def states(conn: Conn) -> Counter[str]:
    return Counter(row[0] for row in conn.execute("SELECT state FROM tickets_ticket"))


class Former:
    """The keeper of a process that does not know yet that its lease was taken over."""

    def __init__(self, real: Keeper, term: int) -> None:
        self.id, self._term = real.id, term

    def held(self, kind: str) -> dict[int, int]:
        return {POOL_NUMBER["python"]: self._term}


def aged(conn: Conn, *ids: UUID) -> None:
    """As if these had been queued for longer than a worker may take to start them."""
    conn.execute(
        "UPDATE tickets_ticket SET queued_at = queued_at - interval '1 hour' WHERE execution_id = ANY(%s)", [list(ids)]
    )


def release_again(conn: Conn) -> None:
    releasing.release_again(conn, pools=["python"], now=database_now(conn), bound_s=10, limit=100)


def database_now(conn: Conn) -> datetime:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found
