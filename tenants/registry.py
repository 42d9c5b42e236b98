"""What the hot paths know of tenants: read in one query, refreshed every few seconds, never a query a run.

The loops and threads of a process share their readings: one of them reads every few seconds, the others take what it
found. A tenant whose row is as it was stays the same object.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson
from django.conf import settings
from psycopg import Connection, Notify
from psycopg.pq import TransactionStatus

from kernel.clock import monotonic_s
from kernel.pools import POOLS
from tenants.door import Line
from tenants.models import Tenant
from tenants.queues import queue_name, with_own_queue

REFRESH_S = 3.0
WAIT_S = 0.5  # for another thread that is reading just now
REST = 5  # times as long as a reading took nobody reads again, whatever is told
CHANNEL = "shardbeat_tenants"  # a plan or a tenant has changed: triggers say so

# The pools that operators hold back for the tenant `t` of a query; '' is all of them.
PAUSED = "ARRAY(SELECT z.pool FROM tenants_dispatchpause z WHERE z.tenant_id IS NULL OR z.tenant_id = t.id)"

SELECT_TENANTS = f"""
SELECT t.id, t.slug, t.schema_name, t.status = 'active' AND NOT t.dispatch_paused, p.weight, p.own_queue,
       p.max_running, t.network::text, t.signing_version, t.status <> 'active',
       p.max_runs_per_min, p.max_runs_per_day, t.event_types::text,
       coalesce(nullif(t.worker_group, ''), p.worker_group), p.runs_burst,
       (SELECT json_object_agg(s.pool, json_build_array(s.reserved_slots, s.max_slots))::text
        FROM tenants_planpool s WHERE s.plan_id = p.id), p.max_live,
       {PAUSED}
FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id
WHERE t.status <> 'provisioning'
"""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One tenant as the hot paths see it."""

    id: int
    slug: str
    schema: str
    active: bool
    weight: int
    own_queue: bool
    max_running: int | None
    network: tuple[str, ...]
    signing_version: int  # of what signs its calls, which apps.secrets keeps; 0 is none
    queues: dict[str, str]
    wants: frozenset[str] = frozenset()  # types of events that its webhooks ask for; empty: it has none
    suspended: bool = False  # or being deleted: its schedules stand still
    max_runs_per_min: int | None = None
    max_runs_per_day: int | None = None
    max_live: int | None = None
    group: str = ""  # whose workers run its jobs; "" are the shared ones
    runs_burst: int | None = None
    reserved: Mapping[str, int] = field(default_factory=dict)  # by pool: slots that it gets whenever it wants them
    max_slots: Mapping[str, int] = field(default_factory=dict)  # by pool: most at once, where there is such a limit
    paused: frozenset[str] = frozenset()  # pools that operators hold back for it; "" is all of them

    def queue(self, pool: str) -> str:
        """The Celery queue of this tenant in a pool."""
        return self.queues[pool]

    def is_open(self, pool: str) -> bool:
        """Whether anything of it may start in a pool, as far as people have a say."""
        return self.active and not self.paused & {"", pool}


def tenancy_of(tenant: Tenant) -> Tenancy:
    """A tenant that was read with its plan, as the hot paths see it; without its shares of pools."""
    plan, active = tenant.plan, tenant.status == Tenant.Status.ACTIVE
    group, own = tenant.worker_group or plan.worker_group, tenant.has_own_queue
    return Tenancy(
        id=tenant.pk, slug=tenant.slug, schema=tenant.schema_name, active=active and not tenant.dispatch_paused,
        weight=plan.weight, own_queue=own, max_running=plan.max_running, network=reach_of(tenant.network),
        signing_version=tenant.signing_version, suspended=not active,
        queues=_queues(tenant.pk, tenant.slug, own, group), wants=frozenset(tenant.event_types),
        max_runs_per_min=plan.max_runs_per_min, max_runs_per_day=plan.max_runs_per_day, group=group,
        runs_burst=plan.runs_burst, max_live=plan.max_live,
    )  # fmt: skip


def reach_of(network: Iterable[str]) -> tuple[str, ...]:
    """Where a tenant's HTTP jobs may call: the operator's rules and its own (`kernel.addressrules`)."""
    return (*settings.HTTP_REACH, *network)


class Reading(NamedTuple):
    """All tenants as one statement found them. What was saved before `begun_at` is in it; both are monotonic."""

    begun_at: float
    ended_at: float
    rows: Mapping[int, tuple[Any, ...]]  # each with the settings that are in what is made of it
    own: Mapping[int, Tenancy]  # by id, as their rows say
    by_id: dict[int, Tenancy]  # the same, but no more than OWN_QUEUES_MAX have queues of their own
    beyond: Counter[str]  # by group: tenants that share though their plan gives them an own queue


NEVER = Reading(float("-inf"), float("-inf"), {}, {}, {}, Counter())


class _Readings:
    """The newest reading of each database that this process has read. For all threads."""

    def __init__(self) -> None:
        self.reading = threading.Lock()
        self._newest: dict[tuple[Any, ...], Reading] = {}

    def newest(self, conn: Connection[Any]) -> Reading:
        return self._newest.get(_place(conn), NEVER)

    def keep(self, conn: Connection[Any], found: Reading) -> None:
        """Others may have it, unless it was read in a transaction: that sees what is not saved, or saved long ago."""
        if conn.info.transaction_status != TransactionStatus.IDLE:
            return
        if found.begun_at > self.newest(conn).begun_at:
            self._newest[_place(conn)] = found


def _place(conn: Connection[Any]) -> tuple[Any, ...]:
    return conn.info.host, conn.info.port, conn.info.dbname


_readings = _Readings()


class Registry:
    """All tenants by id. Not shared between threads; its readings are.

    The first reading is its own: what was saved before is in it. With `listens` a change that was saved before the
    connection's last statement is known at the next `refresh`.
    """

    def __init__(self, line: Line, *, listens: bool = False) -> None:
        self._line = line
        self._listens = listens
        self._listening_on: Connection[Any] | None = None
        self._changed_at: float | None = None  # heard, and not known to be in what was read
        self._read_at = self._not_before = float("-inf")
        self.by_id: dict[int, Tenancy] = {}
        self.beyond: Counter[str] = Counter()  # by group: tenants that share though their plan gives them an own queue

    def get(self, tenant_id: int) -> Tenancy | None:
        """The tenant, after at most one extra read when it is unknown; None when there is none."""
        found = self.by_id.get(tenant_id)
        if found is None and monotonic_s() - self._read_at > 0.2:
            self.refresh(force=True)
            found = self.by_id.get(tenant_id)
        return found

    def refresh(self, *, force: bool = False) -> None:
        """Takes a newer reading when its own is older than REFRESH_S, or something has changed since.

        That of another thread when it is new enough; else it reads. `force` reads.
        """
        begun = monotonic_s()
        if self._listens:
            self._listen()
        told = self._changed_at is not None and begun >= self._not_before
        if not force and not told and begun - self._read_at < REFRESH_S:
            return
        conn = self._line.get()
        if force or self._read_at == float("-inf"):
            self._take(_read(conn))
            return
        since = max(begun - REFRESH_S, self._read_at if self._changed_at is None else self._changed_at)
        # One that hangs must not hold up the others: after WAIT_S each reads for itself.
        locked = _readings.reading.acquire(timeout=WAIT_S)
        try:
            newest = _readings.newest(conn)
            self._take(newest if newest.begun_at > since else _read(conn))
        finally:
            if locked:
                _readings.reading.release()

    def _take(self, found: Reading) -> None:
        if self._changed_at is not None and found.begun_at > self._changed_at:
            self._changed_at = None
        self.by_id, self.beyond = found.by_id, found.beyond
        self._read_at = found.ended_at
        self._not_before = found.ended_at + REST * (found.ended_at - found.begun_at)

    def _listen(self) -> None:
        conn = self._line.get()
        if self._listening_on is not conn:
            conn.add_notify_handler(self._hear)
            conn.execute(f"LISTEN {CHANNEL}")
            self._listening_on, self._changed_at = conn, monotonic_s()

    def _hear(self, notice: Notify) -> None:
        if notice.channel == CHANNEL:
            self._changed_at = monotonic_s()


def _read(conn: Connection[Any]) -> Reading:
    """Reads all tenants. Those whose rows are as they were need not be made again."""
    before, begun = _readings.newest(conn), monotonic_s()
    rules = settings.SHARED_QUEUES, settings.HTTP_REACH
    rows = {row[0]: (*row, *rules) for row in conn.execute(SELECT_TENANTS)}
    own = {
        tenant_id: before.own[tenant_id] if before.rows.get(tenant_id) == row else _tenancy(row)
        for tenant_id, row in rows.items()
    }
    kept, beyond = with_own_queue(own.values(), most=settings.OWN_QUEUES_MAX)
    by_id = {
        one.id: _sharing(one) if one.own_queue and one.id not in kept and not one.suspended else one
        for one in own.values()
    }
    found = Reading(begun, monotonic_s(), rows, own, by_id, beyond)
    _readings.keep(conn, found)
    return found


def _sharing(one: Tenancy) -> Tenancy:
    return replace(one, own_queue=False, queues=_queues(one.id, one.slug, False, one.group))


def _tenancy(row: tuple[Any, ...]) -> Tenancy:
    shares = orjson.loads(row[15]) if row[15] else {}
    return Tenancy(
        id=row[0], slug=row[1], schema=row[2], active=row[3], weight=row[4], own_queue=row[5], max_running=row[6],
        network=reach_of(orjson.loads(row[7])), signing_version=row[8], suspended=row[9],
        max_runs_per_min=row[10], max_runs_per_day=row[11],
        wants=frozenset(orjson.loads(row[12])), group=row[13], queues=_queues(row[0], row[1], row[5], row[13]),
        runs_burst=row[14], reserved={pool: share[0] for pool, share in shares.items() if share[0]},
        max_slots={pool: share[1] for pool, share in shares.items() if share[1] is not None}, max_live=row[16],
        paused=frozenset(row[17]),
    )  # fmt: skip


def _queues(tenant_id: int, slug: str, own: bool, group: str) -> dict[str, str]:
    return {pool: queue_name(pool=pool, tenant_id=tenant_id, slug=slug, own=own, group=group) for pool in POOLS}
