"""Circuit breakers in SQL: every change of a state is one conditional statement; time is the database's.

A row is written when a breaker changes, never for a call. Without a row, or closed, calls are made.

    closed --(many failures)--> open --(its time is over, one call may try)--> half open --(it worked)--> closed
                                 ^------------------(it failed: longer)-------------'
"""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from kernel.ids import uuid7

Conn = psycopg.Connection[Any]
CALM_S = 600  # closed for so long, it opens for the shortest time again
READ_MAX = 20_000
WAKE_BATCH = 1_000
WAKE_SPREAD_S = 5.0  # what waited comes back over so many seconds
REASON_CHARS = 500
WAIT_REASON = "breaker_open"  # in a ticket's wait_reason, with the destination


class Shut(NamedTuple):
    """A breaker that is not closed, and the seconds until a call may try."""

    tenant_id: int
    destination: str
    left_s: float
    reason: str


READ = """
SELECT tenant_id, destination,
       extract(epoch FROM CASE state WHEN 'open' THEN retry_at ELSE probe_until END - clock_timestamp())::float8, reason
FROM tickets_breaker WHERE state <> 'closed' LIMIT %s
"""

OPEN = """
INSERT INTO tickets_breaker AS b
    (id, tenant_id, destination, state, failures, openings, reason, opened_at, retry_at, changed_at)
VALUES (%(id)s, %(tenant)s, %(destination)s, 'open', %(failures)s, 1, %(reason)s, clock_timestamp(),
        clock_timestamp() + %(open_s)s * interval '1 second', clock_timestamp())
ON CONFLICT (tenant_id, destination) DO UPDATE SET
    state = 'open', failures = excluded.failures, reason = excluded.reason, opened_at = clock_timestamp(),
    openings = CASE WHEN b.changed_at < clock_timestamp() - %(calm)s * interval '1 second' THEN 1
                    ELSE b.openings + 1 END,
    retry_at = clock_timestamp() + least(%(max_s)s, %(open_s)s * 2 ^ least(
        CASE WHEN b.changed_at < clock_timestamp() - %(calm)s * interval '1 second' THEN 0 ELSE b.openings END, 20))
        * interval '1 second',
    probe = NULL, probe_until = NULL, changed_at = clock_timestamp()
WHERE b.state = 'closed'
"""

CLAIM = """
UPDATE tickets_breaker SET state = 'half_open', probe = %(probe)s, changed_at = clock_timestamp(),
       probe_until = clock_timestamp() + %(lease)s * interval '1 second'
WHERE tenant_id = %(tenant)s AND destination = %(destination)s
  AND (state = 'open' AND retry_at <= clock_timestamp()
       OR state = 'half_open' AND probe_until <= clock_timestamp())
"""

CLOSE = """
UPDATE tickets_breaker SET state = 'closed', probe = NULL, probe_until = NULL, changed_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND destination = %(destination)s AND state = 'half_open' AND probe = %(probe)s
"""

REOPEN = """
UPDATE tickets_breaker SET state = 'open', probe = NULL, probe_until = NULL, changed_at = clock_timestamp(),
       openings = openings + %(more)s, reason = coalesce(%(reason)s, reason),
       retry_at = clock_timestamp() + %(more)s * least(%(max_s)s, %(open_s)s * 2 ^ least(openings, 20))
                  * interval '1 second'
WHERE tenant_id = %(tenant)s AND destination = %(destination)s AND state = 'half_open' AND probe = %(probe)s
"""

RESET = """
UPDATE tickets_breaker SET state = 'closed', openings = 0, probe = NULL, probe_until = NULL,
       changed_at = clock_timestamp()
WHERE id = %(id)s AND (%(tenant)s::int IS NULL OR tenant_id = %(tenant)s) AND state <> 'closed'
RETURNING tenant_id, destination
"""

WAKE = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket
    WHERE state = 'ready' AND rank IS NULL AND tenant_id = %(tenant)s AND wait_reason = %(reason)s
    ORDER BY execution_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET wait_reason = NULL,
       available_at = least(available_at, clock_timestamp() + random() * %(spread)s * interval '1 second')
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) AND t.state = 'ready'
"""


def read_shut(conn: Conn) -> list[Shut]:
    """All that are not closed."""
    return [Shut._make(row) for row in conn.execute(READ, [READ_MAX])]


def open_(
    conn: Conn, *, tenant_id: int, destination: str, failures: int, reason: str, open_s: float, max_s: float
) -> bool:  # fmt: skip
    """closed -> open. False when it was not closed: then another process was first."""
    given = {
        "id": uuid7(), "tenant": tenant_id, "destination": destination, "failures": failures,
        "reason": reason[:REASON_CHARS], "open_s": open_s, "max_s": max_s, "calm": CALM_S,
    }  # fmt: skip
    return conn.execute(OPEN, given).rowcount == 1


def claim(conn: Conn, *, tenant_id: int, destination: str, probe: UUID, lease_s: float) -> bool:
    """open -> half open, for one caller; also when the one before has not come back within its lease."""
    given = {"tenant": tenant_id, "destination": destination, "probe": probe, "lease": lease_s}
    return conn.execute(CLAIM, given).rowcount == 1


def close(conn: Conn, *, tenant_id: int, destination: str, probe: UUID) -> bool:
    """half open -> closed, by the one who tried; what waited for it is let go."""
    given = {"tenant": tenant_id, "destination": destination, "probe": probe}
    if conn.execute(CLOSE, given).rowcount != 1:
        return False
    wake(conn, tenant_id=tenant_id, destination=destination)
    return True


def reopen(
    conn: Conn, *, tenant_id: int, destination: str, probe: UUID, reason: str | None, open_s: float, max_s: float
) -> bool:  # fmt: skip
    """half open -> open by the one who tried: for longer with a reason; without one the next call may try at once."""
    given = {
        "tenant": tenant_id, "destination": destination, "probe": probe, "more": 0 if reason is None else 1,
        "reason": None if reason is None else reason[:REASON_CHARS], "open_s": open_s, "max_s": max_s,
    }  # fmt: skip
    return conn.execute(REOPEN, given).rowcount == 1


def reset(conn: Conn, breaker_id: UUID, *, tenant_id: int | None) -> tuple[int, str] | None:
    """Any state -> closed, by a person; (tenant, destination), None when there was nothing to do.

    What waits is for the caller to wake when this is committed.
    """
    row = conn.execute(RESET, {"id": breaker_id, "tenant": tenant_id}).fetchone()
    return None if row is None else (row[0], row[1])


def wake(conn: Conn, *, tenant_id: int, destination: str) -> int:
    """Lets the runs go that wait for this breaker, in small steps; returns how many."""
    given = {
        "tenant": tenant_id, "reason": wait_reason(destination), "limit": WAKE_BATCH, "spread": WAKE_SPREAD_S,
    }  # fmt: skip
    total = 0
    while True:
        count = conn.execute(WAKE, given).rowcount
        total += count
        if count < WAKE_BATCH:
            return total


def wait_reason(destination: str) -> str:
    """What the tickets say that wait for a breaker."""
    return f"{WAIT_REASON} {destination}"


def prune(conn: Conn, *, older_than_s: float) -> int:
    """Forgets breakers that have not changed for long; an open one that nobody tries is of no use either."""
    return conn.execute(
        "DELETE FROM tickets_breaker WHERE changed_at < clock_timestamp() - %s * interval '1 second'", [older_than_s]
    ).rowcount
