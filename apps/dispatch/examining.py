"""What an operator would look at first, all at once: is each part there, and do the parts fit each other."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import kombu
import psycopg
from django.conf import settings

from apps.archive.errors import ArchiveUnreachable
from apps.archive.files import store
from apps.archive.standing import unkept_plans
from apps.due import operations as due_operations
from apps.due import watch
from apps.usage import archives
from kernel.clock import utc_now
from tenants import behind, pauses
from tenants.work import database_now

Conn = psycopg.Connection[Any]
POSTGRESQL_LEAST = 15
BROKER_TIMEOUT_S = 2
CONNECTIONS_MANY = 0.8  # of those that the server allows
NAMES_SHOWN = 5
LATE_S = 10.0
OPERATIONS_LATE_S = 60.0  # many of them take turns

_CONNECTIONS = """
SELECT count(*), current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
FROM pg_stat_activity WHERE usename IS NOT NULL
"""
_WORKERS = "SELECT count(*) FROM tickets_worker WHERE expires_at > clock_timestamp()"
_PAUSES = "SELECT pool FROM tenants_dispatchpause WHERE tenant_id IS NULL ORDER BY pool"
_SHARDS = "SELECT count(*) FROM due_shardlease WHERE kind = 'fire'"


class Finding(NamedTuple):
    """One thing that was looked at; `detail` says what was found, and what to do when it is not `ok`."""

    name: str
    ok: bool
    detail: str


def examine(conn: Conn, broker_url: str) -> Iterator[Finding]:
    """Everything in turn. When the shared schema lacks migrations, nothing that reads its tables."""
    lacking = behind.shared_pending(conn)
    shown = ", ".join(lacking[:NAMES_SHOWN]) + (" and more" if len(lacking) > NAMES_SHOWN else "")
    yield Finding("shared schema", not lacking, f"lacks {shown}: run tenant_migrate" if lacking else "of this version")
    yield server(conn.info.server_version)
    yield _clock(conn)
    yield _connections(conn)
    yield _broker(broker_url)
    if lacking:
        return
    others = behind.other_version(conn)
    yield Finding(
        "tenant schemas", not others,
        f"{others:,} of another version: see tenant_migrate --status" if others else "all of this version",
    )  # fmt: skip
    yield _shards(conn)
    seen, workers = watch.look(conn), _number(conn, _WORKERS)
    yield Finding("dispatchers", bool(seen.dispatchers), f"{seen.dispatchers} alive")
    yield Finding("leases", not seen.unheld, f"{len(seen.unheld)} that no live dispatcher holds")
    yield Finding("workers", bool(workers), f"{workers} alive")
    late_s = seen.late.total_seconds()
    yield Finding("due entries", late_s <= LATE_S, f"the oldest has been due for {late_s:.1f} s")
    yield Finding("put aside", not seen.parked, f"{seen.parked:,} due entries: write their schedules again")
    yield _pauses(conn)
    yield _operations(conn)
    yield _archive(conn)


def without_database(why: str, broker_url: str) -> Iterator[Finding]:
    """What can be looked at while the database is away."""
    yield Finding("database", False, why)
    yield _broker(broker_url)


def server(version: int) -> Finding:
    """Of PostgreSQL, as the driver tells its version: 180006 is 18.6."""
    shown = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    ok = version // 10_000 >= POSTGRESQL_LEAST
    return Finding("database", ok, shown if ok else f"{shown}: {POSTGRESQL_LEAST} or newer is needed")


def _clock(conn: Conn) -> Finding:
    before = utc_now()
    off_s = abs((database_now(conn) - before).total_seconds()) - (utc_now() - before).total_seconds()
    return Finding("clock", off_s < settings.CLOCK_WARN_S, f"{max(0.0, off_s):.1f} s from the database's")


def _connections(conn: Conn) -> Finding:
    row = conn.execute(_CONNECTIONS).fetchone()
    assert row is not None
    used, allowed = row
    return Finding("connections", used < CONNECTIONS_MANY * allowed, f"{used} of {allowed} that the database allows")


def _broker(url: str) -> Finding:
    try:
        with kombu.Connection(url, connect_timeout=BROKER_TIMEOUT_S) as broker:
            broker.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S)
    except Exception as error:  # each transport has its own
        return Finding("broker", False, f"does not answer: {type(error).__name__}")
    return Finding("broker", True, "answers")


def _pauses(conn: Conn) -> Finding:
    """What operators hold back on purpose, and may have forgotten."""
    of_all = [f"{pool or 'all pools'} of all tenants" for (pool,) in conn.execute(_PAUSES)]
    single = pauses.held_back(conn, most=NAMES_SHOWN)
    names = [*of_all, *(f"{pool or 'all pools'} of tenant {slug}" for slug, pool in single.first)][:NAMES_SHOWN]
    count = len(of_all) + single.total
    if not count:
        return Finding("pauses", True, "none")
    shown = ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")
    return Finding("pauses", False, f"operators hold back {count:,}: {shown}. Resume them in the admin")


def _operations(conn: Conn) -> Finding:
    found = due_operations.standing(conn)
    if found.failing:
        return Finding("operations", False, f"{found.failing:,} fail at each turn: see the dispatchers' log")
    detail = f"the one that waits longest is {found.late_s:.1f} s late"
    return Finding("operations", found.late_s <= OPERATIONS_LATE_S, detail)


def _archive(conn: Conn) -> Finding:
    wanting = unkept_plans(conn)
    if not settings.ARCHIVE_URL:
        what = f"no ARCHIVE_URL: old history of the plans {', '.join(wanting[:NAMES_SHOWN])} stays in the tables"
        return Finding("archive", not wanting, what if wanting else "none, and no plan wants one")
    try:
        store().check()
    except ArchiveUnreachable as error:
        return Finding("archive", False, error.detail)
    failing = archives.totals(conn).failing
    detail = f"{failing:,} tenants failed at their last run: see the log of the workers" if failing else "answers"
    return Finding("archive", not failing, detail)


def _shards(conn: Conn) -> Finding:
    found = _number(conn, _SHARDS)
    if found == settings.SHARDS:
        return Finding("shards", True, f"{found}, as installed")
    return Finding("shards", False, f"SHARDS is {settings.SHARDS}, installed were {found}: set it back")


def _number(conn: Conn, query: str) -> int:
    row = conn.execute(query).fetchone()
    return int(row[0]) if row else 0
