"""What the workers of a waiting run's queue can still take, counted as release counts it; with places of newcomers."""

from typing import Any, NamedTuple

import psycopg
from django.conf import settings

from apps.dispatch.capacity import capacity_of, leave_to_others
from apps.dispatch.explaining.rows import Run
from apps.tickets import waiting, workers
from apps.tickets.values import LIVE
from kernel.pools import group_of
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
LOOKED_AT = 1_000  # ready tickets of the tenant

# Whether something of the tenant that is ready was there when the pool last released: who was passed over is not new.
_PASSED_OVER = """
SELECT EXISTS (
    SELECT 1 FROM (
        SELECT available_at FROM tickets_ticket
        WHERE pool = %(pool)s AND lane = %(lane)s AND tenant_id = %(tenant)s AND state = 'ready' AND rank IS NOT NULL
        LIMIT %(most)s) mine
    WHERE available_at <= (
        SELECT max(queued_at) FROM tickets_ticket WHERE pool = %(pool)s AND state IN ('queued', 'running')))
"""


class Places(NamedTuple):
    """Of the workers that serve a queue: what they take in all, what they still can, and how many they are."""

    slots: int
    room: int
    consumers: int
    is_kept: bool  # the room is that of newcomers, whose turn comes before anybody's share


def places_of(conn: Conn, tenant: Tenant, run: Run, queue: str) -> Places:
    """As the next pass finds them. One statement more where all is taken by others."""
    live = workers.live(conn, run.pool)
    serving = [worker for worker in live if queue in worker.queues]
    slots = int(sum(worker.slots for worker in serving) * settings.PREFETCH_FACTOR)
    capacity = capacity_of(live, waiting.taken(conn, run.pool), prefetch=settings.PREFETCH_FACTOR)
    leave_to_others(capacity, run.pool)
    group = capacity.groups.get(capacity.whose.get(queue, group_of(queue)))
    if group is None or queue not in capacity.by_queue:
        return Places(slots, 0, len(serving), is_kept=False)
    room = min(group.free, capacity.by_queue[queue])
    kept = group.places_for_newcomers()
    if room > 0 or kept <= 0 or run.lane != LIVE or capacity.held[tenant.pk] or _was_passed_over(conn, tenant, run):
        return Places(slots, room, len(serving), is_kept=False)
    return Places(slots + group.kept, min(kept, capacity.by_queue[queue] + kept), len(serving), is_kept=True)


def _was_passed_over(conn: Conn, tenant: Tenant, run: Run) -> bool:
    given = {"pool": run.pool, "lane": LIVE, "tenant": tenant.pk, "most": LOOKED_AT}
    row = conn.execute(_PASSED_OVER, given).fetchone()
    return bool(row and row[0])
