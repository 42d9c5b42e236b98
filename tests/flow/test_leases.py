"""Shard leases, the rows: who serves a slice, by term."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from apps.due import leases
from tests.conftest import wait_until
from tests.fixtures_flow import at_once
from tests.flow.leasing import FIRE_0, SOME, TTL_S, heartbeat, is_there, run_out, take

Conn = psycopg.Connection[Any]


def test_of_two_takers_at_a_barrier_one_gets_each_lease(conn: Conn, second: Conn) -> None:
    run_out(conn)
    one, other = uuid.uuid4(), uuid.uuid4()
    for _ in range(20):
        seen = {(lease.kind, lease.shard): lease.term for lease in leases.read(conn) if lease.kind == "fire"}
        mine, theirs = at_once(
            partial(leases.take, conn, owner=one, seen=seen, ttl_s=TTL_S),
            partial(leases.take, second, owner=other, seen=seen, ttl_s=TTL_S),
        )
        assert not set(mine) & set(theirs)
        assert set(mine) | set(theirs) == set(seen)
        assert all(term == seen[slice_] + 1 for slice_, term in {**mine, **theirs}.items())
        run_out(conn)


def test_a_valid_lease_can_not_be_taken(conn: Conn) -> None:
    assert take(conn, uuid.uuid4())
    assert take(conn, uuid.uuid4()) == {}


def test_renewing_names_owner_and_term(conn: Conn) -> None:
    holder = uuid.uuid4()
    held = take(conn, holder)
    assert leases.renew(conn, owner=holder, held=held, ttl_s=TTL_S) == held
    assert leases.renew(conn, owner=uuid.uuid4(), held=held, ttl_s=TTL_S) == {}
    assert leases.renew(conn, owner=holder, held={FIRE_0: held[FIRE_0] - 1}, ttl_s=TTL_S) == {}


def test_a_lease_that_was_taken_over_is_not_renewed_nor_given_up_by_its_former_owner(conn: Conn) -> None:
    former, successor = uuid.uuid4(), uuid.uuid4()
    held = take(conn, former)
    run_out(conn)
    new = take(conn, successor)
    assert new[FIRE_0] == held[FIRE_0] + 1
    assert leases.renew(conn, owner=former, held=held, ttl_s=TTL_S) == {}
    leases.give_up(conn, owner=former, held=held)
    assert leases.renew(conn, owner=successor, held=new, ttl_s=TTL_S) == new


def test_the_former_owner_can_not_come_back_under_its_old_term(conn: Conn) -> None:
    """The same process takes the lease again after a stranger had it: a new term, so that its old work is refused."""
    former = uuid.uuid4()
    held = take(conn, former)
    run_out(conn)
    take(conn, uuid.uuid4())
    run_out(conn)
    again = take(conn, former)
    assert again[FIRE_0] == held[FIRE_0] + 2
    assert leases.still_held(conn, kind="fire", shard=0, owner=former, term=again[FIRE_0])
    assert not leases.still_held(conn, kind="fire", shard=0, owner=former, term=held[FIRE_0])


def test_giving_up_frees_at_once(conn: Conn) -> None:
    holder = uuid.uuid4()
    leases.give_up(conn, owner=holder, held=take(conn, holder, SOME), why="drained")
    assert set(take(conn, uuid.uuid4(), SOME)) == set(SOME)


def test_each_takeover_says_why(conn: Conn) -> None:
    def why() -> str:
        take(conn, uuid.uuid4())
        row = conn.execute("SELECT taken_why FROM due_shardlease WHERE kind = 'fire' AND shard = 0").fetchone()
        return leases.WHY[row[0]] if row else ""

    holder = uuid.uuid4()
    leases.give_up(conn, owner=holder, held=take(conn, holder), why="stuck")
    assert why() == "holder's loop stuck"
    run_out(conn)
    assert why() == "not renewed in time"


def test_terms_only_grow(conn: Conn) -> None:
    terms = []
    for _ in range(5):
        run_out(conn)
        terms.append(take(conn, uuid.uuid4())[FIRE_0])
    assert terms == list(range(terms[0], terms[0] + 5))


def test_whoever_admits_holds_the_lease_row_for_its_transaction(conn: Conn, second: Conn) -> None:
    """A successor's take waits until the sums that were computed under the old term are written."""
    holder = uuid.uuid4()
    term = take(conn, holder)[FIRE_0]
    run_out(conn)
    second.execute("SET lock_timeout = '50 ms'")
    with conn.transaction():
        assert leases.still_held(conn, kind="fire", shard=0, owner=holder, term=term)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take(second, uuid.uuid4())
    assert take(second, uuid.uuid4())[FIRE_0] == term + 1
    with conn.transaction():
        assert not leases.still_held(conn, kind="fire", shard=0, owner=holder, term=term)


def test_a_dead_owners_sessions_are_ended_and_nobody_elses(conn: Conn, second: Conn) -> None:
    dead, alive = uuid.uuid4(), uuid.uuid4()
    for owner in (dead, alive):
        heartbeat(conn, owner)
    with session_of(dead) as of_dead, session_of(alive) as of_alive:
        assert leases.end_backends(conn, [dead]) == 1
        wait_until(lambda: not is_there(conn, of_dead.info.backend_pid), "the session to end")
        assert of_alive.execute("SELECT 1").fetchone() == (1,)
        assert second.execute("SELECT 1").fetchone() == (1,)


@contextmanager
def session_of(dispatcher: uuid.UUID) -> Iterator[Conn]:
    from tenants import door

    opened = door.connect(f"{str(dispatcher)[:8]} fire")
    try:
        yield opened
    finally:
        opened.close()
