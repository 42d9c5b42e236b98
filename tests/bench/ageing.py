"""What keeps a tenant's history small: deleting old rows in batches, or partitions by time that are dropped.

The same rows twice: in the tenant's own table, and in a copy of it that is partitioned by day of the id, which is when
it was made. In both, days pass: new rows come in batches as fire writes them, and the oldest day goes. Lists are read
in both ways by the API's own statements.
"""

import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tests.bench import history

DAYS = 3  # that pass
BATCH = 1_000
REPEATS = 40
PARTED = "parted"  # the schema of the copy
TABLE = "executions_execution"


class Aged(NamedTuple):
    """One way, measured."""

    name: str
    insert_per_s: float
    forget_s: float  # one day's rows
    longest_ms: float  # one transaction of it
    before_mb: float
    after_mb: float  # with VACUUM, as autovacuum would
    p95_before_ms: float
    p95_after_ms: float
    plan_ms: float  # planning the list of the newest


def run(*, slug: str, executions: int) -> list[Aged]:
    """Fills the history when there is none; makes the copy, measures both, removes the copy."""
    from kernel.clock import utc_now
    from tenants import door
    from tenants.models import Tenant

    tenant = Tenant.objects.get(slug=slug)
    conn = door.connect("bench ageing", owner=True, guarded=False)
    conn.execute(f'SET search_path TO "{tenant.schema_name}", public')
    now = utc_now()
    if not _number(conn, f"SELECT count(*) FROM {TABLE}"):
        history.fill(conn, schema=tenant.schema_name, tenant_id=tenant.pk, executions=executions, now=now)
    a_day = executions // history.DAYS
    first = datetime.combine(now.date(), datetime.min.time(), tzinfo=UTC) - timedelta(days=history.DAYS)
    _copy(conn, tenant.schema_name, first)
    other = Tenant(pk=tenant.pk, slug=slug, schema_name=PARTED)
    try:
        return [
            _age("batches", conn, tenant, a_day, _forget_in_batches(conn, tenant.schema_name, first)),
            _age("partitions", conn, other, a_day, _drop_partitions(conn, first)),
        ]
    finally:
        conn.execute(f"DROP SCHEMA {PARTED} CASCADE")


def _age(name: str, conn: Any, tenant: Any, a_day: int, forget: Callable[[int], list[float]]) -> Aged:
    before_mb, p95_before = _size_mb(conn, tenant.schema_name), _lists_p95_ms(tenant)
    inserted_s, forgotten, longest = 0.0, [], 0.0
    for day in range(DAYS):
        inserted_s += _insert(conn, tenant.schema_name, a_day)
        taken = forget(day)
        forgotten.append(sum(taken))
        longest = max(longest, *taken)
    conn.execute(f'VACUUM ANALYZE "{tenant.schema_name}".{TABLE}')
    return Aged(
        name, DAYS * a_day / inserted_s, statistics.mean(forgotten), longest * 1_000, before_mb,
        _size_mb(conn, tenant.schema_name), p95_before, _lists_p95_ms(tenant), _plan_ms(conn, tenant.schema_name),
    )  # fmt: skip


def _copy(conn: Any, schema: str, first: datetime) -> None:
    """The table by day. A unique index of it would have to hold the id: run keys and occurrences would be unique in
    each day only, so here they are plain indexes."""
    conn.execute(f"DROP SCHEMA IF EXISTS {PARTED} CASCADE; CREATE SCHEMA {PARTED}")
    conn.execute(f'CREATE TABLE {PARTED}.{TABLE} (LIKE "{schema}".{TABLE} INCLUDING DEFAULTS) PARTITION BY RANGE (id)')
    for day in range(history.DAYS + DAYS + 2):
        low, high = (_first_id(first + timedelta(days=number)) for number in (day, day + 1))
        conn.execute(
            f"CREATE TABLE {PARTED}.day_{day} PARTITION OF {PARTED}.{TABLE} FOR VALUES FROM ('{low}') TO ('{high}')"
        )
    others = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> %s"
    for (name,) in conn.execute(others, [schema, TABLE]).fetchall():  # what the lists read beside it
        conn.execute(f'CREATE VIEW {PARTED}.{name} AS SELECT * FROM "{schema}".{name}')
    conn.execute(f"CREATE TABLE {PARTED}.day_other PARTITION OF {PARTED}.{TABLE} DEFAULT")
    conn.execute(f'INSERT INTO {PARTED}.{TABLE} SELECT * FROM "{schema}".{TABLE}')
    indexes = conn.execute(
        "SELECT pg_get_indexdef(indexrelid), indisprimary FROM pg_index WHERE indrelid = to_regclass(%s)",
        [f'"{schema}".{TABLE}'],
    )
    for text, primary in indexes.fetchall():
        if primary:
            conn.execute(f"ALTER TABLE {PARTED}.{TABLE} ADD PRIMARY KEY (id)")
        else:
            plain = text.replace("CREATE UNIQUE INDEX", "CREATE INDEX")
            conn.execute(plain.replace(f" ON {schema}.{TABLE}", f" ON {PARTED}.{TABLE}"))
    conn.execute(f"VACUUM ANALYZE {PARTED}.{TABLE}")


def _forget_in_batches(conn: Any, schema: str, first: datetime) -> Callable[[int], list[float]]:
    """Seconds of each transaction that deletes the rows of a day, by the statement of retention."""
    from apps.archive import rules
    from kernel.ids import first_id_at
    from workers import retention

    def forget(day: int) -> list[float]:
        before = first + timedelta(days=day + 1)
        values = {
            **rules.parameters(conn, schema, before=before), "bound": first_id_at(before), "archived": False,
            "after": UUID(int=0), "limit": BATCH,
        }  # fmt: skip
        taken: list[float] = []
        counts = {"executions": 0, "attempts": 0}
        while True:
            begun = time.perf_counter()
            with conn.transaction():
                gone = retention._executions(conn, schema, values, counts)
            taken.append(time.perf_counter() - begun)
            if len(gone) < BATCH:
                return taken
            values["after"] = max(gone)

    return forget


def _drop_partitions(conn: Any, first: datetime) -> Callable[[int], list[float]]:
    def forget(day: int) -> list[float]:
        begun = time.perf_counter()
        conn.execute(f"DROP TABLE {PARTED}.day_{day}")
        return [time.perf_counter() - begun]

    return forget


def _insert(conn: Any, schema: str, rows: int) -> float:
    """Seconds to add a day's rows, BATCH at a time: copies of the newest under new ids and keys, of no schedule."""
    names = [
        row[0]
        for row in conn.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 ORDER BY attnum",
            [f'"{schema}".{TABLE}'],
        )
    ]
    made = {
        "id": "(left(id::text, 24) || lpad(to_hex(%(salt)s + row_number() OVER ()), 12, '0'))::uuid",
        "run_key": "'aged ' || %(salt)s + row_number() OVER ()", "schedule_id": "NULL::uuid",
    }  # fmt: skip
    quoted = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(made.get(name, f'"{name}"') for name in names)
    newest = f'SELECT * FROM "{schema}".{TABLE} WHERE finished_at IS NOT NULL ORDER BY id DESC LIMIT %(limit)s'
    query = f'INSERT INTO "{schema}".{TABLE} ({quoted}) SELECT {values} FROM ({newest}) e'
    base = random.randrange(1 << 46)  # the database of an earlier run is used again
    begun = time.perf_counter()
    for start in range(0, rows, BATCH):
        conn.execute(query, {"salt": base + start, "limit": min(BATCH, rows - start)})
    return time.perf_counter() - begun


def _lists_p95_ms(tenant: Any) -> float:
    """First pages of lists that are read by different indexes, by the statements of the API."""
    from apps.executions.filtering import ExecutionFilter
    from apps.executions.reading import executions_read

    row = executions_read(tenant, ExecutionFilter(), size=1).rows[0]
    filters = [
        ExecutionFilter(), ExecutionFilter(states=("dead",)), ExecutionFilter(job_ids=[row.job_id]),
        ExecutionFilter(run_key=row.run_key), ExecutionFilter(triggers=("manual",)),
        ExecutionFilter(labels={"customer": "c7"}),
    ]  # fmt: skip
    taken = []
    for wanted in filters * REPEATS:
        begun = time.perf_counter()
        executions_read(tenant, wanted, size=100)
        taken.append((time.perf_counter() - begun) * 1_000)
    return statistics.quantiles(taken, n=20)[18]


def _plan_ms(conn: Any, schema: str) -> float:
    query = f'EXPLAIN (SUMMARY, FORMAT JSON) SELECT * FROM "{schema}".{TABLE} ORDER BY id DESC LIMIT 100'
    return statistics.median(float(conn.execute(query).fetchone()[0][0]["Planning Time"]) for _ in range(REPEATS))


def _size_mb(conn: Any, schema: str) -> float:
    query = f"""
    SELECT sum(pg_total_relation_size(oid)) / 1048576.0 FROM pg_class
    WHERE relkind = 'r' AND relnamespace = to_regnamespace('{schema}') AND (relname = '{TABLE}' OR relispartition)
    """
    return float(_number(conn, query))


def _first_id(at: datetime) -> UUID:
    return UUID(int=int(at.timestamp() * 1_000) << 80)


def _number(conn: Any, query: str) -> Any:
    return conn.execute(query).fetchone()[0]
