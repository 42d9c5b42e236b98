"""What waited while its tenant stood still: none of that time counts, whatever its owner's limits are."""

from datetime import datetime
from typing import Any

import psycopg

from apps.tickets.store import notify_ready
from kernel.pools import WORKFLOW

Conn = psycopg.Connection[Any]

# A run that became due meanwhile began to wait then. What was tried before has less of its total time-out left with
# each try, so that grows, too; also for what runs now and may be tried again.
_LONGER = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket
    WHERE tenant_id = %(tenant)s
    AND (start_by IS NOT NULL OR total_timeout_s IS NOT NULL AND first_started_at <= %(since)s)
    ORDER BY execution_id FOR UPDATE)
UPDATE tickets_ticket t SET
    start_by = t.start_by + (%(until)s - greatest(%(since)s, coalesce(t.first_started_at, t.actual_at))),
    total_timeout_s = CASE WHEN t.first_started_at <= %(since)s
        THEN least(2147483647, t.total_timeout_s + ceil(extract(epoch FROM %(until)s - %(since)s)))::int
        ELSE t.total_timeout_s END
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) AND t.state <> 'blocked'
"""
_LOOK = f"""
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket
    WHERE pool = '{WORKFLOW}' AND state = 'running' AND tenant_id = %s ORDER BY execution_id FOR UPDATE)
UPDATE tickets_ticket t SET deadline = least(deadline - interval '1 microsecond', clock_timestamp())
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) AND t.state = 'running'
"""


def go_on(conn: Conn, *, tenant_id: int, since: datetime, until: datetime) -> int:
    """Moves the limits of all that waited by as long as it did; how many tickets. Locks them in id order."""
    wanted = {"tenant": tenant_id, "since": since, "until": until}
    return conn.execute(_LONGER, wanted).rowcount


def look_at_runs(conn: Conn, *, tenant_id: int) -> None:
    """Somebody is to look at all runs of workflows of a tenant as soon as this transaction commits."""
    if conn.execute(_LOOK, [tenant_id]).rowcount:
        notify_ready(conn, {WORKFLOW})
