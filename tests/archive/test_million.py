"""A million executions: archived, verified, restored, identical; how large the tables are and how fast lists are."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.archive.files import Store
from apps.archive.reading import archived_execution, archived_range
from apps.archive.restoring import batch_restore
from apps.archive.tables import TABLES
from apps.archive.verifying import batch_check
from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import executions_read
from tenants import door
from tests.archive.hands import archive, count, done_batches, history

Conn = psycopg.Connection[Any]
DAYS = 10
A_DAY = 100_000
LISTS_P95_MS = 200
NOWHERE = UUID(int=1)  # a job that there is not: the dearest list

# The sum of a hash of every column of every row: the same rows in any order.
_SUM = "SELECT count(*), sum(('x' || left(md5(e::text), 15))::bit(60)::bigint) FROM {schema}.{table} e"
_SIZE = (
    "SELECT sum(pg_total_relation_size(to_regclass(format('%%I.%%s', %s::text, t))))::bigint FROM unnest(%s::text[]) t"
)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_million_executions_go_and_come_back(conn: Conn, acme: Any, files: Store) -> None:
    schema = acme.schema_name
    told = Told()
    for day in range(DAYS):
        ids = history(conn, schema, A_DAY, at=datetime(2026, 5, 1 + day, tzinfo=UTC), step=timedelta(milliseconds=800))
    told.tables(schema, "before")
    before = {table.name: _sum(conn, schema, table.table) for table in TABLES}
    hot = told.lists("hot lists before", lambda wanted: executions_read(acme, wanted, size=100))

    with told.timed("archived"):
        run = archive(conn, acme, files)
    assert (run.counts["executions"], count(conn, schema)) == (DAYS * A_DAY, 0)
    print(f"files: {run.bytes / 2**20:,.0f} MiB in {run.batches} batches, {run.counts}")
    batches = done_batches(conn, schema)
    with told.timed("verified"):
        assert [batch_check(files, one) for one in batches] == [[]] * len(batches)
    told.tables(schema, "archived, after VACUUM")
    told.lists("hot lists after", lambda wanted: executions_read(acme, wanted, size=100))
    cold = told.lists("archived lists", lambda wanted: archived_range(acme, wanted, size=100))
    with told.timed("one archived execution"):
        assert archived_execution(acme, ids[A_DAY // 2]) is not None

    with told.timed("restored"):
        for batch in batches:
            until = datetime.now(UTC) + timedelta(days=1)
            assert batch_restore(conn, acme, files, batch, keep_until=until).refused == []
    assert {table.name: _sum(conn, schema, table.table) for table in TABLES} == before
    assert (hot < LISTS_P95_MS, cold < 10 * LISTS_P95_MS) == (True, True)


class Told:
    """Prints what was measured; `-s` shows it."""

    def tables(self, schema: str, when: str) -> None:
        names = [table.table for table in TABLES]
        with door.connect("measure", owner=True, guarded=False) as owner:
            for name in names:
                owner.execute(f"VACUUM ANALYZE {schema}.{name}")
            row = owner.execute(_SIZE, [schema, names]).fetchone()
        assert row is not None
        print(f"tables {when}: {row[0] / 2**20:,.0f} MiB")

    def lists(self, what: str, read: Callable[[ExecutionFilter], Any]) -> float:
        """p95 of the first pages of some lists, in ms."""
        filters = [
            ExecutionFilter(), ExecutionFilter(states=("dead",)), ExecutionFilter(labels={"team": "red"}),
            ExecutionFilter(job_ids=[NOWHERE]), ExecutionFilter(created_before=datetime(2026, 5, 4, 12, tzinfo=UTC)),
        ]  # fmt: skip
        taken = []
        for wanted in filters * 8:
            begun = time.perf_counter()
            read(wanted)
            taken.append((time.perf_counter() - begun) * 1_000)
        p95 = statistics.quantiles(taken, n=20)[18]
        print(f"{what}: p50 {statistics.median(taken):.1f} ms, p95 {p95:.1f} ms")
        return p95

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begun, worked = time.perf_counter(), time.process_time()
        yield
        took, cpu = time.perf_counter() - begun, time.process_time() - worked
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{what}: {took:,.2f} s ({cpu:,.2f} s CPU of this process, whose peak is {peak:,.0f} MiB)", flush=True)


def _sum(conn: Conn, schema: str, table: str) -> tuple[Any, ...]:
    row = conn.execute(_SUM.format(schema=schema, table=table)).fetchone()
    assert row is not None
    found: tuple[Any, ...] = row
    return found
