"""What the hot paths know of tenants: read in one query, refreshed every few seconds, never a query a run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from django.conf import settings
from psycopg import Connection, Notify

from kernel.clock import monotonic_s
from kernel.pools import POOLS
from tenants.door import Line
from tenants.models import Tenant
from tenants.queues import queue_name, with_own_queue

REFRESH_S = 3.0
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


class Registry:
    """All tenants by id. Not shared between threads.

    With `listens` a change that was saved before the connection's last statement is known at the next `refresh`.
    """

    def __init__(self, line: Line, *, listens: bool = False) -> None:
        self._line = line
        self._listens = listens
        self._listening_on: Connection[Any] | None = None
        self._changed = False  # since the last reading began
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
        """Reads all tenants again when the last read is older than REFRESH_S, or something has changed since."""
        begun = monotonic_s()
        if self._listens:
            self._listen()
        told = self._changed and begun >= self._not_before
        if not force and not told and begun - self._read_at < REFRESH_S:
            return
        self._changed = False
        rows = self._line.get().execute(SELECT_TENANTS).fetchall()
        found = [_tenancy(row) for row in rows]
        kept, self.beyond = with_own_queue(found, most=settings.OWN_QUEUES_MAX)
        self.by_id = {
            one.id: _sharing(one) if one.own_queue and one.id not in kept and not one.suspended else one
            for one in found
        }
        self._read_at = monotonic_s()
        self._not_before = self._read_at + REST * (self._read_at - begun)

    def _listen(self) -> None:
        conn = self._line.get()
        if self._listening_on is not conn:
            conn.add_notify_handler(self._hear)
            conn.execute(f"LISTEN {CHANNEL}")
            self._listening_on, self._changed = conn, True

    def _hear(self, notice: Notify) -> None:
        self._changed = self._changed or notice.channel == CHANNEL


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
