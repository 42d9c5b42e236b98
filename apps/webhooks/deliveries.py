"""Deliveries in SQL: executions of a webhook's hidden job, with their tickets, many at a time."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.executions import store as executions
from apps.tickets import store as tickets
from apps.tickets.values import LIVE, Ticket
from apps.webhooks.jobs import GIVE_UP_S, IN_FLIGHT_MAX, KIND, PRIORITY, TIMEOUT_S, VERSION
from kernel.eventtypes import DELIVERY
from kernel.ids import uuid7s
from kernel.rows import json_rows
from tenants.statements import run_in

Conn = psycopg.Connection[Any]
REASON_GONE = "webhook_gone"


class Delivery(NamedTuple):
    """A delivery to make. `body` is what is sent."""

    webhook_id: UUID
    run_key: str
    body: dict[str, Any]
    event_at: datetime | None
    job_version: int = VERSION
    replay_of: UUID | None = None


class _Row(NamedTuple):
    id: UUID
    run_key: str
    job_id: UUID
    job_version: int
    nominal_at: datetime | None
    payload: dict[str, Any]
    replay_of: UUID | None


_MAKE = f"""
INSERT INTO {{schema}}.executions_execution
    (id, run_key, job_id, job_version, nominal_at, payload, replay_of, trigger, state, priority, actual_at, created_at,
     attempt_count, reason, count, fired_by)
SELECT m.*, '{DELIVERY}', 'ready', {PRIORITY}, $2, $2, 0, '', 1, $3
FROM json_to_recordset($1::json) AS m(id uuid, run_key text, job_id uuid, job_version int, nominal_at timestamptz,
                                      payload jsonb, replay_of uuid)
ON CONFLICT (run_key) DO NOTHING RETURNING id
"""

_LIVE = f"""
SELECT job_id, count(*) FROM {{schema}}.executions_execution
WHERE job_id = ANY(%s) AND finished_at IS NULL AND trigger = '{DELIVERY}' GROUP BY 1
"""

_FOUND = f"""
SELECT left(run_key, 32)::uuid, id, state FROM {{schema}}.executions_execution
WHERE left(run_key, 32) = ANY(%s) AND trigger = '{DELIVERY}' AND job_id = %s
"""

# Whoever runs keeps its ticket: it is not stopped in the middle of a call, and nobody starts another.
_CANCEL = f"""
WITH alive AS MATERIALIZED (
    SELECT id FROM {{schema}}.executions_execution
    WHERE job_id = %(webhook)s AND finished_at IS NULL AND trigger = '{DELIVERY}' AND job_version = {VERSION}
    LIMIT %(limit)s),
waiting AS MATERIALIZED (
    SELECT t.execution_id FROM tickets_ticket t JOIN alive ON alive.id = t.execution_id
    WHERE t.state IN ('blocked', 'ready', 'queued') ORDER BY t.execution_id FOR UPDATE OF t),
gone AS (
    DELETE FROM tickets_ticket t WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM waiting))
    AND t.state IN ('blocked', 'ready', 'queued')
    RETURNING t.execution_id, t.attempt, t.first_queued_at, t.first_started_at)
UPDATE {{schema}}.executions_execution e
SET state = 'cancelled', finished_at = %(now)s, reason = '{REASON_GONE}', attempt_count = gone.attempt,
    queued_at = gone.first_queued_at, started_at = gone.first_started_at
FROM gone WHERE e.id = gone.execution_id AND e.finished_at IS NULL RETURNING e.id
"""


def key_of(event_id: UUID, webhook_id: UUID, generation: int) -> str:
    """The run key of an event's delivery, which receivers get as webhook-id: the same over all tries."""
    suffix = f".{generation}" if generation else ""
    return f"{event_id.hex}.{webhook_id.hex}{suffix}"


def make(
    conn: Conn, schema: str, *, tenant_id: int, queue: str, wanted: Sequence[Delivery], now: datetime, by: str
) -> list[UUID]:  # fmt: skip
    """Makes those that do not exist yet, with their tickets; their ids."""
    if not wanted:
        return []
    ids = uuid7s(len(wanted))
    rows = [
        _Row(new_id, one.run_key, one.webhook_id, one.job_version, one.event_at, one.body, one.replay_of)
        for new_id, one in zip(ids, wanted, strict=True)
    ]
    made = {row[0] for row in run_in(conn, _MAKE, schema, [json_rows(rows), now, by])}
    new = [_ticket(row, tenant_id, queue, now) for row in rows if row.id in made]
    if new:
        tickets.copy_in(conn, new)
        tickets.notify_ready(conn, {one.pool for one in new})
    return [one.execution_id for one in new]


def reopen(conn: Conn, schema: str, execution_id: UUID, *, tenant_id: int, queue: str, now: datetime) -> bool:
    """dead -> ready under the same run key; attempts and fences go on. False when it is not dead."""
    found = executions.reopen(conn, schema, execution_id)
    if found is None:
        return False
    run_key, webhook_id, job_version, nominal_at, attempts = found[0], found[1], found[2], found[7], found[8]
    row = _Row(execution_id, run_key, webhook_id, job_version, nominal_at, {}, None)
    tickets.insert(conn, _ticket(row, tenant_id, queue, now, attempt=attempts))
    return True


def live(conn: Conn, schema: str, webhook_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many deliveries of each webhook have not ended."""
    return dict(conn.execute(_in(_LIVE, schema), [list(webhook_ids)]).fetchall())


def of_events(
    conn: Conn, schema: str, webhook_id: UUID, event_ids: Sequence[UUID]
) -> dict[UUID, list[tuple[UUID, str]]]:
    """A webhook's deliveries by event: their ids and states, those sent once more among them."""
    found: dict[UUID, list[tuple[UUID, str]]] = defaultdict(list)
    for row in conn.execute(_in(_FOUND, schema), [[one.hex for one in event_ids], webhook_id]):
        found[row[0]].append((row[1], row[2]))
    return found


def cancel_waiting(conn: Conn, schema: str, webhook_id: UUID, *, now: datetime, limit: int) -> int:
    """Ends deliveries of events that wait for a start; how many. What runs goes on to the end of its call."""
    rows = conn.execute(_in(_CANCEL, schema), {"webhook": webhook_id, "now": now, "limit": limit})
    return len(rows.fetchall())


def _ticket(row: _Row, tenant_id: int, queue: str, now: datetime, *, attempt: int = 0) -> Ticket:
    return Ticket(
        execution_id=row.id, tenant_id=tenant_id, job_id=row.job_id, job_version=row.job_version, schedule_id=None,
        schedule_version=None, run_key=row.run_key, trigger=DELIVERY, nominal_at=row.nominal_at, actual_at=now,
        pool=KIND, queue=queue, priority=PRIORITY, timeout_s=TIMEOUT_S,
        flow=row.job_id, flow_limit=None, key=None, job_limit=IN_FLIGHT_MAX, lane=LIVE, guarded=False,
        payload_from="execution", state="ready", available_at=now, rank=tickets.new_rank(now, PRIORITY),
        attempt=attempt, failures=0, start_by=None, total_timeout_s=GIVE_UP_S,
    )  # fmt: skip


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(schema))
