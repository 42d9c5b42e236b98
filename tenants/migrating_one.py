"""Bringing one tenant schema up to date: step by step, in short transactions that do not wait long for a lock.

While the change of a table waits for its lock, everybody who comes after it waits too. So the wait is short, and the
schema is tried again later. Django's connection must have the migrating role (`door.become_owner`).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from django.db import connection, transaction
from django_tenants.utils import schema_context
from psycopg import sql

from tenants import door, template
from tenants.behind import Pending
from tenants.provisioning import grants_sql

Conn = psycopg.Connection[Any]
INDEX_NAME = re.compile(r'INDEX CONCURRENTLY "([^"]+)"')
HALF_MADE = """
SELECT c.relname FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relname = ANY(%s) AND c.relnamespace = %s::regnamespace AND NOT i.indisvalid
"""
INDEX_LOCK_TIMEOUT_MS = 60_000  # CONCURRENTLY waits for transactions that began before, and nobody waits for it
CHANGED_TOGETHER = "tuple concurrently updated"  # of the catalogue, by another session: no error class of its own
LATER = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

HOLDERS = """
SELECT DISTINCT a.pid, coalesce(nullif(a.application_name, ''), 'no name'), a.usename::text
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
WHERE c.relnamespace = to_regnamespace(%s) AND l.granted AND l.pid <> pg_backend_pid() AND l.database = a.datid
ORDER BY 1 LIMIT 3
"""
STAYS = """
SELECT 1 FROM public.tenants_tenant
WHERE schema_name = %s AND (delete_after IS NULL OR delete_after > clock_timestamp()) FOR SHARE
"""
ALONE = "SELECT pg_try_advisory_lock(hashtextextended('shardbeat schema ' || %s, 0))"
NOT_ALONE = "SELECT pg_advisory_unlock(hashtextextended('shardbeat schema ' || %s, 0))"


@dataclass(frozen=True, slots=True)
class Result:
    """How one schema's turn ended. `later`: nothing is wrong with it, something was in the way."""

    schema: str
    state: Literal["migrated", "later", "failed"]
    step: str = ""  # that was not done; those before it were
    reason: str = ""


def schema_migrate(one: Pending, *, lock_timeout_ms: int) -> Result:
    """Runs the steps that the schema lacks. Each is done whole or not at all, so this may be killed at any time."""
    step = ""
    try:
        with _alone(one.schema) as alone:
            if not alone:
                return Result(one.schema, "later", reason="another run of tenant_migrate works at it")
            done = _applied(door.raw(), one.schema)
            if done is None:
                step = "all of them"
                _make(one.schema, lock_timeout_ms)
            else:
                for each in one.steps:
                    step = each.label
                    if step not in done:
                        _run(one.schema, each, lock_timeout_ms)
            door.raw().execute(
                "UPDATE public.tenants_tenant SET schema_version = %s WHERE schema_name = %s",
                [template.version(), one.schema],
            )
    except Exception as error:  # one schema's fault must not stop the others
        return _refused(one.schema, step, error)
    return Result(one.schema, "migrated")


def in_the_way(error: BaseException) -> bool:
    """Whether others' work made a change fail, so that the same may go well later."""
    return isinstance(door.cause_of(error), LATER) or CHANGED_TOGETHER in reason_of(error)


def reason_of(error: BaseException) -> str:
    """What the database said, in one line."""
    return str(error).strip().partition("\n")[0]


@contextmanager
def _alone(schema: str) -> Iterator[bool]:
    """Two runs of the command never work at one schema; a lock of the session, since a step ends its transaction."""
    conn = door.raw()
    row = conn.execute(ALONE, [schema]).fetchone()
    alone = bool(row and row[0])
    try:
        yield alone
    finally:
        if alone and not conn.closed:
            conn.execute(NOT_ALONE, [schema])


def _applied(conn: Conn, schema: str) -> set[str] | None:
    """The steps that are recorded; None when there is no such schema, or nothing in it."""
    row = conn.execute("SELECT to_regclass(%s)", [f"{schema}.django_migrations"]).fetchone()
    if row is None or row[0] is None:
        return None
    query = sql.SQL("SELECT app || '.' || name FROM {}.django_migrations").format(sql.Identifier(schema))
    return {label for (label,) in conn.execute(query)}


def _make(schema: str, lock_timeout_ms: int) -> None:
    with _changing(schema, lock_timeout_ms) as conn:
        if conn.execute(STAYS, [schema]).fetchone() is None:
            return  # its tenant has been deleted meanwhile
        conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        _execute(conn, grants_sql(schema))
        _execute(conn, sql.SQL(template.create_sql()))


def _run(schema: str, step: template.Step, lock_timeout_ms: int) -> None:
    if not step.atomic:
        _index(schema, step)
    with _changing(schema, lock_timeout_ms) as conn:
        _execute(conn, grants_sql(schema))
        for part in step.parts if step.atomic else ():
            if isinstance(part, template.Code):
                with schema_context(schema):
                    part.run()
                _enter(conn, schema)
            else:
                _execute(conn, sql.SQL(part))
        _execute(conn, sql.SQL(template.record_sql((step,))))


def _index(schema: str, step: template.Step) -> None:
    """Makes indexes while others write. What an interrupted try left is half an index: it is dropped first."""
    conn = door.raw()
    try:
        conn.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(INDEX_LOCK_TIMEOUT_MS)))
        conn.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        named = [name for part in step.parts if isinstance(part, str) for name in INDEX_NAME.findall(part)]
        for (index,) in conn.execute(HALF_MADE, [named, schema]).fetchall():
            conn.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(index)))
        for part in step.parts:
            assert isinstance(part, str), f"{step.label} is not atomic and holds Python"
            conn.execute(sql.SQL(part.replace("CREATE INDEX CONCURRENTLY", "CREATE INDEX CONCURRENTLY IF NOT EXISTS")))
    finally:
        if not conn.closed:
            conn.execute("SET search_path TO public; RESET lock_timeout")


@contextmanager
def _changing(schema: str, lock_timeout_ms: int) -> Iterator[Conn]:
    """A transaction in the schema that waits only so long for any lock."""
    with transaction.atomic():
        conn = door.raw()
        conn.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(lock_timeout_ms)))
        _enter(conn, schema)
        yield conn


def _enter(conn: Conn, schema: str) -> None:
    conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))


def _execute(conn: Conn, statements: sql.SQL | sql.Composed) -> None:
    with conn.cursor() as cursor:
        cursor.execute(statements)


def _refused(schema: str, step: str, error: Exception) -> Result:
    reason = reason_of(error)
    if door.is_away(error):
        connection.close()  # the next schema gets a new one
        return Result(schema, "later", step, f"the connection was lost: {reason}")
    if in_the_way(error):
        return Result(schema, "later", step, f"{reason}{_holders(schema)}")
    return Result(schema, "failed", step, reason)


def _holders(schema: str) -> str:
    """Who holds locks there now: most often the one that was waited for."""
    found = door.raw().execute(HOLDERS, [schema]).fetchall()
    return "".join(f"; {name} ({role}, process {pid}) holds a lock there" for pid, name, role in found)
