"""One tenant floods a pool: what another asks for goes in the next pass, each time; nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg

from apps.dispatch.pace import kept_for_newcomers
from apps.dispatch.release import ReleaseService
from kernel.ids import uuid7
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import count, live_worker, make_job, make_ticket, queue_of, release

Conn = psycopg.Connection[object]
FLOOD = 400
SLOTS = 10
CAPACITY = 2 * SLOTS  # with a prefetch of two
ENDED = 8  # runs that end between two passes

COPY = """
INSERT INTO tickets_ticket SELECT (jsonb_populate_record(t, jsonb_build_object('execution_id', m.id))).*
FROM tickets_ticket t CROSS JOIN unnest(%s::uuid[]) AS m(id) WHERE t.execution_id = %s
"""
END = """
DELETE FROM tickets_ticket WHERE execution_id IN (
    SELECT execution_id FROM tickets_ticket WHERE state = 'queued' ORDER BY queued_at, execution_id LIMIT %s)
"""


def test_a_flood_moves_nobody_else(
    releaser: Callable[..., ReleaseService], conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    flood = [make_ticket(acme)]
    copies = [uuid7() for _ in range(FLOOD - 1)]
    conn.execute(COPY, [copies, flood[0]])
    flood += copies
    job = make_job(globex)
    live_worker(conn, slots=SLOTS, queues=sorted({queue_of(registry, one) for one in (acme, globex)}))
    service = releaser()
    went: list[UUID] = []
    asked: list[UUID] = []
    room = CAPACITY
    while len(went) < FLOOD + len(asked):
        if len(asked) < 20:
            asked.append(make_ticket(globex, job))
        ready = FLOOD + len(asked) - len(went)
        messages = release(service)
        new = [one for message in messages for one in message.ids]
        assert set(asked) <= {*went, *new}, f"it waited behind the flood in pass {len(asked)}"
        went += new
        assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'") <= CAPACITY
        assert len(new) == min(room, ready), "all room was used"
        room = ENDED
        conn.execute(END, [ENDED])
    assert sorted(went) == sorted([*flood, *asked])


def test_who_comes_new_finds_a_place_though_a_flood_holds_them_all(
    releaser: Callable[..., ReleaseService], conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    for _ in range(2 * CAPACITY):
        make_ticket(acme)
    live_worker(conn, slots=SLOTS, queues=sorted({queue_of(registry, one) for one in (acme, globex)}))
    service = releaser()
    first = release(service)
    assert sum(len(one.ids) for one in first) == CAPACITY, "the flood has the room, and no place of newcomers"
    assert release(service) == []
    new = [make_ticket(globex) for _ in range(SLOTS)]
    went = [one for message in release(service) for one in message.ids]
    assert went and set(went) <= set(new)
    assert len(went) == kept_for_newcomers(capacity=CAPACITY, slots=SLOTS), "and no more than there are places"
    assert release(service) == [], "who holds something waits for room like everybody"
