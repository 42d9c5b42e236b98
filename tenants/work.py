"""One piece of work in a tenant's schema: one transaction, done again when it lost a deadlock."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from django.db import OperationalError, connection, transaction

from kernel.errors import Conflict
from tenants import door
from tenants.models import Tenant

T = TypeVar("T")
TRIES = 8
LOST_RACE = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


class Again(Exception):
    """What was read before the locks is no longer so: the work starts anew."""


def in_tenant(tenant: Tenant, work: Callable[[], T]) -> T:
    """Runs `work` inside the tenant, in one transaction (a savepoint where there is one already).

    After a deadlock, a serialization failure or `Again` it runs again, TRIES times in all (Conflict when it never got
    through); so it must only write to the database. Inside another transaction a deadlock is left to whoever opened
    that one.
    """
    if getattr(connection, "schema_name", "") == tenant.schema_name:  # entering again would cost two statements
        return atomically(work)
    with door.inside(tenant):
        return atomically(work)


def atomically(work: Callable[[], T]) -> T:
    """As `in_tenant`, in whatever schema this thread is."""
    nested = connection.in_atomic_block
    for left in range(TRIES - 1, -1, -1):
        try:
            with transaction.atomic():
                return work()
        except Again:
            if not left:
                raise Conflict("The object is being changed right now; try again.", code="busy") from None
        except (OperationalError, *LOST_RACE) as error:
            if nested or not left or not isinstance(door.cause_of(error), LOST_RACE):
                raise
    raise AssertionError("unreachable")


@contextmanager
def rehearsing(dry: bool) -> Iterator[None]:
    """What is done inside is taken back when `dry`, and whatever waits for the commit does not happen.

    Else nothing is opened around it: services have their own transactions, and try again after a deadlock only there.
    """
    if not dry:
        yield
        return
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def database_now(conn: psycopg.Connection[Any] | None = None) -> datetime:
    """The database's clock, asked on this connection or on Django's; for entry points, which pass it on as `now`."""
    row = (conn or door.raw()).execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now
