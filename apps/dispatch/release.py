"""Release: choose ready tickets fairly and hand them to a pool's queues.

Under the pool's own lease, held for the whole transaction, because capacity and concurrency are sums: capacity per
queue is what live workers can take (slots times a small prefetch factor) less what is queued or running. Tickets are
marked queued under a new release number and committed, then published; whatever gets lost in between is released
again under a new number. Broker depth stays near worker capacity: that is the back-pressure.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.capacity import Capacity, Message, admit, capacity_of, leave_to_others, messages_of, open_flows
from apps.dispatch.flatshare import Claim, FairShare
from apps.dispatch.keeper import Keeper
from apps.dispatch.leaving import Leaving
from apps.dispatch.publish import Publisher
from apps.due import leases
from apps.tickets import releasing, workers
from apps.tickets.values import Candidate, Flow
from apps.usage import deltas, rates
from apps.usage.figures import DISPATCH, RELEASED, Tally
from kernel.clock import monotonic_s
from kernel.pools import POOL_NUMBER
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
KIND = "release"
AGAIN_EVERY_S = 1.0
# While workers are busy a pass waits until a good part of their room is free: few large messages, not many small ones.
REFILL_SHARE = 0.25
REFILL_WAIT_S = 0.1
BUSY_WAIT_S = 0.02  # between looks at workers, jobs or tenants that have no room
ROUNDS = 4  # in which a pass offers again what those could not use to whom it was offered first


class ReleaseService:
    """Releases one pool while this process holds the pool's lease. One thread, one connection."""

    def __init__(self, pool: str, line: Line, keeper: Keeper, publisher: Publisher) -> None:
        self.name = f"release {pool}"
        self.pool = pool
        self._line = line
        self._keeper = keeper
        self._publisher = publisher
        self._leaving = Leaving(pool, publisher)
        self._registry = Registry(line)
        self._fair = FairShare()
        self._again_at = float("-inf")
        self._released_at = float("-inf")
        self._busy = False  # whether what is ready waits for something that ends soon
        self._held_until: datetime | None = None  # when runs may go that their tenant's rate holds back
        self._rates: dict[int, int] = {}  # limits of a minute, of the tenants in hand that have one
        self._rate_used: dict[int, int] = {}

    def run_once(self) -> Pass:
        term = self._keeper.held(KIND).get(POOL_NUMBER[self.pool])
        if term is None:
            return Pass()
        self._registry.refresh()
        counts: dict[str, int] = {}
        conn = self._line.get()
        row = conn.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        now: datetime = row[0]
        if monotonic_s() >= self._again_at:
            counts["released_again"] = len(
                releasing.release_again(
                    conn, pools=[self.pool], now=now, bound_s=settings.QUEUED_BOUND_S,
                    limit=settings.RELEASE_BATCH,
                )
            )  # fmt: skip
            self._again_at = monotonic_s() + AGAIN_EVERY_S
            counts |= self._leaving.step(conn, workers.live(conn, self.pool), limit=settings.RELEASE_BATCH)
        counts["promoted"] = releasing.promote(conn, now=now, limit=settings.RELEASE_BATCH)
        if not releasing.any_ready(conn, self.pool):
            return Pass(counts, full=counts["promoted"] >= settings.RELEASE_BATCH)
        self._busy, self._held_until = False, None
        messages, released = self._release(conn, term, now)
        if messages:
            self._publisher.publish(messages)
        counts["released"] = released
        counts["messages"] = len(messages)
        return Pass(counts, full=released > 0, wait_s=self._wait_s(now))

    def close(self) -> None:
        self._publisher.close()
        self._line.close()

    def _wait_s(self, now: datetime) -> float | None:
        if self._busy:
            return BUSY_WAIT_S
        return None if self._held_until is None else max(BUSY_WAIT_S, (self._held_until - now).total_seconds())

    def _release(self, conn: Conn, term: int, now: datetime) -> tuple[list[Message], int]:
        with conn.transaction():
            shard = POOL_NUMBER[self.pool]
            if not leases.still_held(conn, kind=KIND, shard=shard, owner=self._keeper.id, term=term):
                return [], 0
            live = workers.live(conn, self.pool)
            if not live:
                return [], 0
            room = capacity_of(live, releasing.taken(conn, self.pool), prefetch=settings.PREFETCH_FACTOR)
            leave_to_others(room, self.pool)
            total = min(room.total, settings.RELEASE_BATCH)
            early = monotonic_s() - self._released_at < REFILL_WAIT_S
            if total <= 0 or (early and total < room.capacity * REFILL_SHARE):
                self._busy = True
                return [], 0
            chosen = self._choose(conn, room, total, now)
            if not chosen:
                return [], 0
            number = releasing.next_release(conn)
            self._released_at = monotonic_s()
            gone = set(releasing.release(conn, [one.execution_id for one in chosen], release=number, now=now))
            chosen = [one for one in chosen if one.execution_id in gone]
            self._count(conn, chosen, now)
        return list(messages_of(chosen, number, room.message_max)), len(chosen)

    def _count(self, conn: Conn, released: list[Candidate], now: datetime) -> None:
        tally, by_tenant = Tally(), Counter(one.tenant_id for one in released)
        for tenant_id, count in by_tenant.items():
            tally.add(tenant_id, RELEASED, count)
        for one in released:
            if one.first:
                tally.took(one.tenant_id, DISPATCH, (now - one.actual_at).total_seconds())
        rates.take(conn, by_tenant, before=self._rate_used, limits=self._rates, now=now)
        deltas.add(conn, tally, now=now)

    def _choose(self, conn: Conn, room: Capacity, total: int, now: datetime) -> list[Candidate]:
        """Shares the room, in rounds: what a tenant can't use of its share is offered to the others."""
        flows = self._open_flows(conn, room)
        claims = self._claims(conn, flows, total, now)
        weights = {tenant_id: claim.weight for tenant_id, claim in claims.items()}
        self._busy = self._busy or bool(claims)
        chosen: dict[UUID, Candidate] = {}
        got: Counter[int] = Counter()
        for _ in range(ROUNDS):
            grants = self._fair.share(claims, total=total - len(chosen), room=room.by_queue)
            if not grants:
                break
            new = self._admit(conn, room, claims, flows, grants, got, chosen, now)
            used = Counter(one.tenant_id for one in new)
            self._fair.charge(used, weights, offered=grants)
            got.update(used)
            chosen.update({one.execution_id: one for one in new})
            claims = {
                tenant_id: claim._replace(most=claim.most - used[tenant_id])
                for tenant_id, claim in claims.items()
                if used[tenant_id] == grants.get(tenant_id, 0)
            }
        return list(chosen.values())

    def _open_flows(self, conn: Conn, room: Capacity) -> dict[int, tuple[list[Flow], float]]:
        """Per active tenant what has something ready and room in its flow, and how much may pass."""
        by_tenant: dict[int, list[Flow]] = defaultdict(list)
        for flow in releasing.flows(conn, self.pool):
            tenancy = self._registry.get(flow.tenant_id)
            if tenancy is not None and tenancy.active:
                by_tenant[flow.tenant_id].append(flow)
                self._busy = self._busy or flow.flow_limit is not None or bool(flow.job_limit)
        return {tenant_id: open_flows(flows, room) for tenant_id, flows in by_tenant.items()}

    def _claims(
        self, conn: Conn, flows: Mapping[int, tuple[list[Flow], float]], total: int, now: datetime
    ) -> dict[int, Claim]:
        known = {tenant_id: self._registry.get(tenant_id) for tenant_id, (opened, _) in flows.items() if opened}
        tenancies = {tenant_id: tenancy for tenant_id, tenancy in known.items() if tenancy is not None}
        limited = [one.id for one in tenancies.values() if one.max_running is not None]
        self._rates = {one.id: one.max_runs_per_min for one in tenancies.values() if one.max_runs_per_min is not None}
        if limited or self._rates:
            releasing.lock_tenants(conn, {*limited, *self._rates})
        held = releasing.held_by_tenants(conn, limited) if limited else {}
        self._rate_used = rates.used(conn, list(self._rates), now=now) if self._rates else {}
        claims: dict[int, Claim] = {}
        for tenant_id, tenancy in tenancies.items():
            most = int(min(total, flows[tenant_id][1]))
            if tenancy.max_running is not None:
                most = min(most, tenancy.max_running - held[tenant_id])
                self._busy = self._busy or bool(held[tenant_id])
            if tenant_id in self._rates:
                left = max(0, self._rates[tenant_id] - self._rate_used[tenant_id])
                if left < most:
                    most, self._held_until = left, rates.minute_ends_at(now)
            if most > 0:
                claims[tenant_id] = Claim(max(1, tenancy.weight), most, tenancy.queue(self.pool))
        return claims

    def _admit(
        self, conn: Conn, room: Capacity, claims: Mapping[int, Claim], flows: Mapping[int, tuple[list[Flow], float]],
        grants: Mapping[int, int], got: Counter[int], chosen: Mapping[UUID, Candidate], now: datetime,
    ) -> list[Candidate]:  # fmt: skip
        """Of this round's candidates those that may go; tickets follow their tenant to its queue of today."""
        wanted = [(flow, grant + got[tenant_id]) for tenant_id, grant in grants.items() for flow in flows[tenant_id][0]]
        found = []
        moved: dict[str, list[UUID]] = defaultdict(list)
        for one in releasing.candidates(conn, self.pool, wanted, now=now):
            if one.execution_id in chosen:
                continue
            queue = claims[one.tenant_id].queue
            if one.queue != queue:
                moved[queue].append(one.execution_id)
            found.append(one._replace(queue=queue))
        for queue, ids in moved.items():
            releasing.move_to_queue(conn, ids, queue)
        running = {one.serial for one in chosen.values() if one.serial is not None}
        return admit(found, grants, room, busy=running)
