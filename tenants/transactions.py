"""A transaction whose BEGIN and COMMIT travel with other statements, on an autocommit connection.

For what is waited for: each of them is a round trip less, and on a busy machine each round trip waits for a processor.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

Conn = psycopg.Connection[Any]


class Riding:
    """Begins and commits by the caller's word, each inside a pipeline with the statements before or after it."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn

    def begin(self) -> None:
        self._conn.execute("BEGIN")

    def commit(self) -> None:
        self._conn.execute("COMMIT")


class Nested(Riding):
    """Inside another transaction, whose end decides."""

    def begin(self) -> None:
        pass

    def commit(self) -> None:
        pass


@contextmanager
def transaction(conn: Conn) -> Iterator[Riding]:
    """What is begun inside is committed at the end, where that was not done yet, and taken back after an error."""
    if conn.info.transaction_status != TransactionStatus.IDLE:
        with conn.transaction():
            yield Nested(conn)
        return
    try:
        yield Riding(conn)
    except BaseException:
        if not conn.closed:
            conn.rollback()
        raise
    if conn.info.transaction_status != TransactionStatus.IDLE:
        conn.commit()
