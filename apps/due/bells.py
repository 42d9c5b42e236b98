"""Bells: tenants that have events to carry out. Rung in the transaction that writes the events.

A bell is only a hint of where to look; what is to be carried out follows from the events and from how far each
subscription has got. So bells of a tenant can be merged, and one that is rung in vain costs a look.
"""

from datetime import datetime
from typing import Any, NamedTuple

import psycopg

Conn = psycopg.Connection[Any]
TAKEN_AT_ONCE = 10_000

_RING = """
INSERT INTO due_eventbell (tenant_id, tx, available_at)
VALUES (%s, pg_current_xact_id()::text::bigint, clock_timestamp() + %s * interval '1 second')
"""

_RUNG = """
SELECT DISTINCT tenant_id FROM (
    SELECT tenant_id FROM due_eventbell WHERE available_at <= clock_timestamp() AND tenant_id <> ALL(%s::int[])
    ORDER BY available_at LIMIT %s) AS found
"""

# A bell whose transaction is not below the horizon stays: what it rings for can't be read yet.
_TAKE = """
WITH found AS MATERIALIZED (
    SELECT id FROM due_eventbell WHERE tenant_id = %s AND tx < %s AND available_at <= %s
    ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
DELETE FROM due_eventbell b USING found WHERE b.id = found.id
"""


class Moment(NamedTuple):
    """The database's time, and the number below which no transaction runs any more."""

    now: datetime
    horizon: int


def ring(conn: Conn, tenant_id: int, *, in_s: float = 0.0) -> None:
    """Somebody is to look at this tenant's events, `in_s` seconds from now at the earliest."""
    conn.execute(_RING, [tenant_id, in_s])


def rung(conn: Conn, *, limit: int, not_tenants: tuple[int, ...] = ()) -> list[int]:
    """Tenants for which a bell has rung; of the oldest `limit` bells."""
    return [row[0] for row in conn.execute(_RUNG, [list(not_tenants), limit])]


def moment(conn: Conn) -> Moment:
    """To be asked in a statement of its own, before anything is read that is compared with it."""
    row = conn.execute("SELECT clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return Moment(row[0], int(row[1]))


def take(conn: Conn, tenant_id: int, at: Moment) -> int:
    """Removes the tenant's bells up to that moment; how many there were. Those that somebody holds are passed over."""
    return conn.execute(_TAKE, [tenant_id, at.horizon, at.now, TAKEN_AT_ONCE]).rowcount


def drop(conn: Conn, tenant_id: int) -> None:
    """The tenant is gone."""
    conn.execute("DELETE FROM due_eventbell WHERE tenant_id = %s", [tenant_id])
