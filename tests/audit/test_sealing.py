"""The sealer: every row once, in whatever order transactions end, whatever happens to the sealer."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from apps.audit import sealing
from apps.audit.sealing import seal
from tenants import door
from tenants.models import Tenant
from tests.audit.hands import as_owner, kinds, seal_all, seals, verified, whole, write
from tests.fixtures_flow import count

Conn = psycopg.Connection[Any]


def test_rows_are_linked_once_by_tenant(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    ours, theirs, nobodys = write(conn, acme, 3), write(conn, globex, 2), write(conn, None, 1)
    assert seal_all(conn) == 6
    assert seal_all(conn) == 0
    rows = conn.execute("SELECT tenant_id, number, event_id FROM audit_seal ORDER BY tenant_id, number").fetchall()
    expected = [(acme.pk, n + 1, one) for n, one in enumerate(ours)]
    expected += [(globex.pk, n + 1, one) for n, one in enumerate(theirs)]
    assert rows == sorted([*expected, (0, 1, nobodys[0])])
    for tenant in (acme, globex, None):
        assert kinds(conn, tenant) == []
    assert whole(conn) == []


def test_a_quiet_system_writes_nothing(conn: Conn, acme: Tenant) -> None:
    write(conn, acme)
    seal_all(conn)
    before = conn.execute("SELECT step, xmin::text FROM audit_sealstate").fetchone()
    for _ in range(3):
        assert seal(conn).count == 0
    assert conn.execute("SELECT step, xmin::text FROM audit_sealstate").fetchone() == before


def test_what_commits_late_is_sealed_late(conn: Conn, second: Conn, acme: Tenant) -> None:
    """A transaction that began first and ends last holds up nobody, and is not forgotten."""
    with second.transaction():
        early = write(second, acme)  # a lower id, a lower transaction
        for _ in range(3):
            later = write(conn, acme)
            assert seal_all(conn) == 1
            assert verified(conn, acme).findings == []
    assert early[0] < later[0]
    assert seal_all(conn) == 1
    last = conn.execute("SELECT event_id FROM audit_seal ORDER BY number DESC LIMIT 1").fetchone()
    assert last == (early[0],)
    assert kinds(conn, acme) == [] and whole(conn) == []


def test_what_is_rolled_back_leaves_no_gap(conn: Conn, second: Conn, acme: Tenant) -> None:
    with pytest.raises(ZeroDivisionError), second.transaction():
        write(second, acme)
        write(conn, acme)
        seal_all(conn)
        raise ZeroDivisionError
    write(conn, acme)
    seal_all(conn)
    assert verified(conn, acme).links == 2 and kinds(conn, acme) == []


def test_late_and_new_rows_in_small_batches(conn: Conn, second: Conn, acme: Tenant, globex: Tenant) -> None:
    with second.transaction():
        write(second, acme, 7)
        write(conn, globex, 11)
        assert seal_all(conn, batch=3) == 11
    write(conn, acme, 5)
    assert seal_all(conn, batch=3) == 12
    for tenant, links in ((acme, 12), (globex, 11)):
        assert verified(conn, tenant).links == links and kinds(conn, tenant) == []


def test_many_transactions_end_in_any_order(conn: Conn, acme: Tenant) -> None:
    """Eight writers at once, and a sealer all the while: nothing is missed, nothing twice."""

    def work() -> None:
        with door.connect("test writer") as mine:
            for number in range(15):
                write(mine, acme, 1 + number % 3)

    writers = [threading.Thread(target=work) for _ in range(8)]
    for one in writers:
        one.start()
    done = 0
    while any(one.is_alive() for one in writers):
        done += seal(conn, batch=10).count
    for one in writers:
        one.join()
    done += seal_all(conn, batch=10)
    assert done == 8 * 30 == seals(conn)
    assert kinds(conn, acme) == [] and whole(conn) == []


def test_two_sealers_seal_each_row_once(conn: Conn, second: Conn, acme: Tenant, globex: Tenant) -> None:
    for tenant in (acme, globex):
        write(conn, tenant, 60)
    done: list[int] = []
    barrier = threading.Barrier(2)

    def work(mine: Conn) -> None:
        barrier.wait()
        done.append(seal_all(mine, batch=7))

    threads = [threading.Thread(target=work, args=(one,)) for one in (conn, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) == 120 == seals(conn)
    assert kinds(conn, acme) == kinds(conn, globex) == [] and whole(conn) == []


class Mortal:
    """A connection whose process dies before its nth statement (a COPY counts as one)."""

    def __init__(self, inner: Conn, lives: int) -> None:
        self._inner, self._lives = inner, lives

    def __getattr__(self, name: str) -> Any:
        if name in ("execute", "cursor"):
            self._lives -= 1
            if self._lives < 0:
                self._inner.close()
                raise psycopg.OperationalError("killed")
        return getattr(self._inner, name)


@pytest.mark.parametrize("lives", range(7))
def test_a_sealer_that_dies_at_any_step_leaves_a_whole_chain(conn: Conn, acme: Tenant, lives: int) -> None:
    write(conn, acme, 2)
    seal_all(conn)
    write(conn, acme, 3)
    mortal: Any = Mortal(door.connect("test mortal"), lives)
    with pytest.raises(psycopg.OperationalError):
        while True:  # whatever the number of its statements, its life ends
            seal(mortal)
            write(conn, acme)
    seal_all(conn)
    events = count(conn, "SELECT count(*) FROM audit_auditevent")
    assert seals(conn) == events and kinds(conn, acme) == [] and whole(conn) == []


def test_a_database_that_numbers_transactions_anew_is_looked_through_again(conn: Conn, acme: Tenant) -> None:
    """As after a dump is restored elsewhere: rows are from transactions that are yet to come there."""
    write(conn, acme, 5)
    seal_all(conn)
    unsealed = write(conn, acme, 2)
    with as_owner() as owner:  # the dump came from a busier place
        owner.execute("UPDATE audit_auditevent SET txid = txid + 1000000 WHERE id = ANY(%s)", [unsealed])
        _set_state(owner, "at_txid = at_txid + 1000000")
    assert seal_all(conn, batch=3) == 2
    write(conn, acme, 2)
    assert seal_all(conn, batch=3) == 2
    assert seals(conn) == 9 and kinds(conn, acme) == [] and whole(conn) == []


def test_a_state_that_was_changed_is_an_alarm_that_stays(conn: Conn, acme: Tenant) -> None:
    write(conn, acme, 3)
    seal_all(conn)
    conn.execute("UPDATE audit_sealstate SET total = 2")
    assert whole(conn) == ["state_changed"]
    write(conn, acme)
    assert seal(conn).alarm
    seal_all(conn)
    assert whole(conn) == ["alarm"] and kinds(conn, acme) == []


def test_the_key_is_wrapped_and_none_is_made_twice(conn: Conn, acme: Tenant, settings: Any) -> None:
    write(conn, acme)
    seal_all(conn)
    first = conn.execute("SELECT wrapped, kek_id FROM audit_sealstate").fetchone()
    assert first is not None and len(first[0]) == 12 + 32 + 16
    write(conn, acme)
    seal_all(conn)
    assert conn.execute("SELECT wrapped, kek_id FROM audit_sealstate").fetchone() == first


def test_passes_are_bounded(conn: Conn, acme: Tenant) -> None:
    write(conn, acme, 10)
    assert seal(conn, batch=4) == sealing.Sealed(4, True)


def _set_state(owner: Conn, change: str) -> None:
    """A change that the sealer itself could have made: with its signature."""
    from dataclasses import replace

    from apps.audit.chain import STATE_COLUMNS, chain_key, state_of

    owner.execute(f"UPDATE audit_sealstate SET {change}")
    row = owner.execute(f"SELECT {STATE_COLUMNS} FROM audit_sealstate").fetchone()
    key = chain_key(owner)
    assert row is not None and key is not None
    state = replace(state_of(row))
    owner.execute("UPDATE audit_sealstate SET mac = %s", [state.signed(key)])
