"""Runs that have not started a minute after they were due, told while a webhook of their tenant asks for it.

Each look takes the tickets whose minute ended since the last one, so each is told once; where looks overlap (another
process took over), the event's id follows from the execution's and is not written twice. What starts between two looks
may go untold, by the few seconds that lie between them.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.reasons import reasons_of
from apps.events import store as events
from apps.events.store import NewEvent, instant_text
from apps.tickets import holds
from apps.tickets.values import CATCH_UP, LIVE
from kernel.clock import monotonic_s
from kernel.eventtypes import DELIVERY
from kernel.ids import id_from
from kernel.pools import POOLS
from tenants.registry import Registry, Tenancy
from tenants.work import database_now

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
TYPE = "run.late"
LATE_AFTER = timedelta(seconds=60)
LOOK_EVERY_S = 5.0
LOOK_BACK = timedelta(seconds=30)  # of the first look of a process
ON_TIME = (LIVE, CATCH_UP)  # lanes; what is run for the past waits for as long as it takes
TOLD_AT_ONCE = 2_000  # of a tenant in one look

# What somebody stopped (a paused job, with a limit of 0) is not late. Down the index of what is ready.
_LATE = """
SELECT execution_id, job_id, schedule_id, run_key, trigger, nominal_at, actual_at, state, pool, flow
FROM tickets_ticket
WHERE tenant_id = %(tenant)s AND pool = ANY(%(pools)s) AND lane = ANY(%(lanes)s) AND state = 'ready'
  AND rank IS NOT NULL AND attempt = 0
  AND actual_at > %(after)s AND actual_at <= %(until)s AND job_limit IS DISTINCT FROM 0 AND trigger <> %(delivery)s
UNION ALL
SELECT execution_id, job_id, schedule_id, run_key, trigger, nominal_at, actual_at, state, pool, flow
FROM tickets_ticket
WHERE state = 'queued' AND tenant_id = %(tenant)s AND lane = ANY(%(lanes)s) AND attempt = 0
  AND actual_at > %(after)s AND actual_at <= %(until)s AND trigger <> %(delivery)s
LIMIT %(limit)s
"""


class Lateness:
    """Remembers how far it has looked. For one thread."""

    def __init__(self) -> None:
        self._looked_at = float("-inf")
        self._until: datetime | None = None

    def step(self, conn: Conn, registry: Registry) -> int:
        """A look at the tenants that want to know, every LOOK_EVERY_S; how many runs were told."""
        if monotonic_s() - self._looked_at < LOOK_EVERY_S:
            return 0
        self._looked_at = monotonic_s()
        until = database_now(conn) - LATE_AFTER
        after = self._until or until - LOOK_BACK
        told = 0
        for tenancy in registry.by_id.values():
            if TYPE not in tenancy.wants:
                continue
            try:
                told += tell_late(conn, tenancy, after=after, until=until)
            except psycopg.Error as error:
                if conn.closed:
                    raise
                log.warning("late runs of tenant %s could not be told: %s", tenancy.slug, error)
        self._until = until
        return told


def tell_late(conn: Conn, tenancy: Tenancy, *, after: datetime, until: datetime) -> int:
    """Events for a tenant's runs that became due in (after, until] and have not started; how many there are."""
    with conn.transaction():
        rows = conn.execute(
            _LATE,
            {
                "tenant": tenancy.id, "lanes": list(ON_TIME), "pools": list(POOLS), "after": after, "until": until,
                "limit": TOLD_AT_ONCE, "delivery": DELIVERY,
            },
        ).fetchall()  # fmt: skip
        causes = _causes(conn, tenancy, rows, now=until + LATE_AFTER)
        events.emit(conn, tenancy.schema, tenancy.id, [_event(row, causes.get(row[0])) for row in rows])
    if len(rows) == TOLD_AT_ONCE:
        log.warning("tenant %s: %d runs are late; not all are told", tenancy.slug, len(rows))
    return len(rows)


def _causes(conn: Conn, tenancy: Tenancy, rows: Sequence[tuple[Any, ...]], *, now: datetime) -> dict[UUID, str]:
    """What holds each back: the rule that refuses it, else what release said last of its flow or its tenant."""
    if not rows:
        return {}
    held = holds.lasting(conn, tenancy.id, now=now)
    found = {}
    for execution_id, *_, state, pool, flow in rows:
        code = held.get((pool, flow)) or held.get((pool, None))
        if state == "ready" and code is not None:
            found[execution_id] = code
    return found | reasons_of(conn, tenancy.id, [row[0] for row in rows], now=now)


def _event(row: tuple[Any, ...], cause: str | None) -> NewEvent:
    execution_id, job_id, schedule_id, run_key, trigger, nominal_at, actual_at, state, _, _ = row
    data = {
        "execution": str(execution_id), "job": str(job_id), "schedule": str(schedule_id) if schedule_id else None,
        "run_key": run_key, "trigger": trigger, "state": state,
        "nominal_at": instant_text(nominal_at) if nominal_at else None, "actual_at": instant_text(actual_at),
        "late_after_s": int(LATE_AFTER.total_seconds()), "wait_reason": cause,
    }  # fmt: skip
    event_id = id_from(actual_at + LATE_AFTER, TYPE.encode(), execution_id.bytes)
    return NewEvent(event_id, TYPE, actual_at + LATE_AFTER, data, job_id, schedule_id, execution_id)
