"""The only door into a tenant's schema, and the only place that opens connections.

`inside(tenant)` is for the ORM: it sets the schema of this thread's connection and puts the former one back.
The hot paths never change a schema; they use `connect()` and names qualified with `Tenancy.schema`.
Querysets are lazy: what is read inside must be materialised inside.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection
from django_tenants.utils import tenant_context

from kernel.clock import monotonic_s
from tenants.models import Tenant

LOCK_TIMEOUT_MS = 2_000
SERVES_S, VISITS_MAX = 14_400, 500  # what is forgotten has to be read again: not often, where all tenants are active
IDLE_IN_TRANSACTION_MS = 5_000
AWAY = ("08", "57P")  # classes of errors: no connection, a server that stops; the driver's own have none
# A plan that is kept may be one for tables that were empty when it was made, as those of live work are between bursts,
# and then reads all that has come since, each time, until statistics are gathered. Planning is cheaper.
PLANS = "force_custom_plan"
OWN_OPTIONS = frozenset({"options", "pool", "prepare_threshold"})  # of Django's connection, not of ours


@contextmanager
def inside(tenant: Tenant) -> Iterator[None]:
    """This thread's ORM works in the tenant's schema until the block ends, whatever happens in it."""
    with tenant_context(tenant):
        yield


def raw() -> "psycopg.Connection[Any]":
    """The psycopg connection under Django's, in Django's current transaction; for the SQL of the stores."""
    connection.close_if_health_check_failed()  # Django itself looks only when it opens a cursor
    connection.ensure_connection()
    return cast("psycopg.Connection[Any]", connection.connection)


def connect(name: str, *, owner: bool = False, guarded: bool = True) -> "psycopg.Connection[Any]":
    """A connection of its own, autocommit, to the database that Django uses now.

    `owner` takes the migrating role. `guarded` sets the time-outs that keep a stuck client from holding row locks.
    """
    user, password = _credentials(owner)
    database = connection.settings_dict
    options = f"-c timezone=UTC -c plan_cache_mode={PLANS}"
    if guarded:
        options += f" -c lock_timeout={LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS}"
    return psycopg.connect(
        dbname=str(database["NAME"]),
        user=user,
        password=password,
        host=database["HOST"] or None,
        port=database["PORT"] or None,
        application_name=f"shardbeat {name}"[:63],
        autocommit=True,
        options=options,
        **{key: value for key, value in database["OPTIONS"].items() if key not in OWN_OPTIONS},
    )


class Line:
    """A connection that is opened again when it was lost. For one thread; `get()` before each piece of work.

    `fresh()` is for what works in tenants' schemas for as long as the process lives: the server's process behind a
    connection remembers each table that it has touched, and forgets nothing.
    """

    def __init__(self, name: str, *, opened: "Callable[[psycopg.Connection[Any]], None] | None" = None) -> None:
        self._name = name
        self._opened = opened
        self._conn: psycopg.Connection[Any] | None = None
        self._until = 0.0
        self._visits = 0

    def get(self) -> "psycopg.Connection[Any]":
        """The open connection; OperationalError when the database can't be reached."""
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._name)
            self._visits = 0
            self._until = monotonic_s() + random.uniform(0.5, 1) * SERVES_S  # not all of a process at once
            if self._opened is not None:
                self._opened(self._conn)
        return self._conn

    def fresh(self, *, visits: int = 0) -> "psycopg.Connection[Any]":
        """The same, but a new one when this has served for SERVES_S, or for VISITS_MAX schemas by the caller's count.

        Only where nothing is under way on it.
        """
        self._visits += visits
        if self._conn is not None and (monotonic_s() >= self._until or self._visits > VISITS_MAX):
            self._conn.close()
        return self.get()

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


def become_owner() -> None:
    """This process's Django connection uses the migrating role from now on; for commands that change schemas."""
    user, password = _credentials(owner=True)
    if connection.settings_dict["USER"] != user:
        connection.close()
        connection.settings_dict["USER"] = user
        connection.settings_dict["PASSWORD"] = password
        connection.settings_dict["OPTIONS"].pop("options", None)  # a migration may wait for locks


def cause_of(error: BaseException) -> BaseException | None:
    """What the driver raised: Django wraps what comes through its own cursors, and leaves alone what `raw` raises."""
    return error.__cause__ if isinstance(error, DatabaseError) else error


def is_away(error: BaseException) -> bool:
    """Whether the database can't be reached, or has gone away; not a time limit, a lock or a fault of the statement."""
    cause = cause_of(error)
    return isinstance(cause, psycopg.OperationalError) and (cause.sqlstate or AWAY[0]).startswith(AWAY)


def application_role() -> str:
    """The role that the application itself uses."""
    return unquote(urlsplit(settings.DATABASE_URL).username or "")


def _credentials(owner: bool) -> tuple[str | None, str | None]:
    parts = urlsplit(settings.MIGRATION_DATABASE_URL if owner else settings.DATABASE_URL)
    return (unquote(parts.username) if parts.username else None, unquote(parts.password) if parts.password else None)
