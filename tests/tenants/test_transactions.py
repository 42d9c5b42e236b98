"""A transaction whose BEGIN and COMMIT ride with other statements."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from tenants.transactions import transaction

Conn = psycopg.Connection[Any]
SET = "SELECT pg_notify('shardbeat_test_riding', '')"


def open_one(conn: Conn) -> bool:
    return conn.info.transaction_status != TransactionStatus.IDLE


@pytest.mark.parametrize("commits", [True, False])
def test_it_ends_with_its_last_statement_or_with_the_block(conn: Conn, second: Conn, commits: bool) -> None:
    second.execute("LISTEN shardbeat_test_riding")
    with transaction(conn) as within:
        with conn.pipeline():
            within.begin()
            conn.execute(SET)
        assert open_one(conn) and list(second.notifies(timeout=0.02)) == []
        with conn.pipeline():
            conn.execute("SELECT 1")
            if commits:
                within.commit()
        assert open_one(conn) is not commits
    assert not open_one(conn)
    assert len(list(second.notifies(timeout=10, stop_after=1))) == 1


@pytest.mark.parametrize("where", ["in the pipeline", "after it", "before it is begun"])
def test_after_an_error_nothing_of_it_stands(conn: Conn, second: Conn, where: str) -> None:
    second.execute("LISTEN shardbeat_test_riding")
    with pytest.raises((psycopg.Error, ZeroDivisionError)), transaction(conn) as within:
        if where == "before it is begun":
            raise ZeroDivisionError
        with conn.pipeline():
            within.begin()
            conn.execute(SET)
            if where == "in the pipeline":
                conn.execute("SELECT 1 / 0")
        raise ZeroDivisionError
    assert not open_one(conn) and list(second.notifies(timeout=0.02)) == []
    assert conn.execute("SELECT 1").fetchone() == (1,), "the connection goes on"


def test_inside_another_one_that_decides(conn: Conn) -> None:
    with conn.transaction(force_rollback=True):
        with transaction(conn) as within:
            within.begin()
            conn.execute("CREATE TEMP TABLE riding (one int)")
            within.commit()
        assert open_one(conn)
        with pytest.raises(ZeroDivisionError), transaction(conn):
            conn.execute("INSERT INTO riding VALUES (1)")
            raise ZeroDivisionError
        assert conn.execute("SELECT count(*) FROM riding").fetchone() == (0,)
    assert conn.execute("SELECT to_regclass('riding')").fetchone() == (None,)
