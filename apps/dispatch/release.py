"""Release: choose ready tickets fairly and hand them to a pool's queues.

Under the pool's own lease, held for the whole transaction, because capacity and concurrency are sums: capacity per
queue is what live workers can take (slots times a small prefetch factor) less what is queued or running. Tickets are
marked queued under a new release number and committed, then published; whatever gets lost in between is released
again under a new number. Broker depth stays near worker capacity: that is the back-pressure.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.capacity import Capacity, Message, capacity_of, leave_to_others, messages_of
from apps.dispatch.choosing import Choosing, Memory
from apps.dispatch.fairness import FairShare
from apps.dispatch.keeper import Keeper
from apps.dispatch.leaving import Leaving
from apps.dispatch.pace import BUSY_WAIT_S, YIELD_AFTER_S, Newcomers, Yielding, look_again_s, waits_for_more
from apps.dispatch.publish import Publisher
from apps.dispatch.sharing import Shares
from apps.due import leases
from apps.tickets import buckets, holds, releasing, waiting, workers
from apps.tickets.values import LIVE, Candidate
from apps.usage import deltas, rates
from apps.usage.figures import DISPATCH, RELEASED, Tally
from kernel.clock import monotonic_s
from kernel.pools import POOL_NUMBER
from kernel.service import Pass
from tenants import transactions
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
KIND = "release"
AGAIN_EVERY_S = 1.0
HOLDS_EVERY_S = 5.0
PRUNE_EVERY_S = 600.0


class ReleaseService:
    """Releases one pool while this process holds the pool's lease. One thread, one connection."""

    def __init__(
        self, pool: str, line: Line, keeper: Keeper, publisher: Publisher, *, yielding: Yielding | None = None
    ) -> None:
        self.name = f"release {pool}"
        self.pool = pool
        self._line = line
        self._keeper = keeper
        self._publisher = publisher
        self._leaving = Leaving(pool, publisher)
        self._registry = Registry(line, listens=True)
        self._memory = Memory()
        self._newcomers = Newcomers()
        self._yielding = yielding or Yielding()
        self.rung = False  # something is ready: fire has made it
        self._term: int | None = None  # under which the memory is of this pool's last passes
        self._again_at = self._holds_at = self._prune_at = float("-inf")
        self._released_at = self._shared_at = float("-inf")
        self._free_after = 0  # places that the last release left
        self._look_s = BUSY_WAIT_S  # until the next look while busy
        self._busy = False  # whether what is ready waits for something that ends soon
        self._held_until: datetime | None = None  # when runs may go that a rate holds back
        self._told: tuple[date, set[int]] | None = None  # tenants that were told today of their rate

    def run_once(self) -> Pass:
        term = self._keeper.held(KIND).get(POOL_NUMBER[self.pool])
        if term is None:
            return Pass()
        if self._busy and self._yielding.is_near(monotonic_s()):
            return Pass(wait_s=YIELD_AFTER_S)  # fire rings when it is done
        counts: dict[str, int] = {}
        conn = self._line.get()
        rung, self.rung = self.rung, False
        # Where fire rings all the time, what has to be looked for (retries, lost messages) still has its turn.
        if rung and monotonic_s() < self._again_at:
            # A tenant that has changed since the last question is known as such from the next pass on.
            self._registry.refresh()
            return self._pass(conn, term, None, counts)
        now, comes, ready = waiting.look(conn, self.pool)
        self._registry.refresh()  # after a question, with whose answer comes what was told
        if monotonic_s() >= self._again_at:
            self._again_at = monotonic_s() + AGAIN_EVERY_S
            counts |= self._again(conn, now)
        if comes:
            counts["promoted"] = releasing.promote(conn, now=now, limit=settings.RELEASE_BATCH, pool=self.pool)
            ready = ready or waiting.any_ready(conn, self.pool)
        if not ready:
            self._keep_holds(conn, now)  # until when lasted what is over
            return Pass(counts, full=counts.get("promoted", 0) >= settings.RELEASE_BATCH)
        return self._pass(conn, term, now, counts)

    def close(self) -> None:
        self._publisher.close()
        self._line.close()

    def _again(self, conn: Conn, now: datetime) -> dict[str, int]:
        """What was queued for too long, or where nobody listens, goes back to ready. While nothing is, one question."""
        if not waiting.any_queued(conn, self.pool):
            return self._leaving.clean(conn)
        limit = settings.RELEASE_BATCH
        back = releasing.release_again(conn, pools=[self.pool], now=now, bound_s=settings.QUEUED_BOUND_S, limit=limit)
        left = self._leaving.step(conn, workers.live(conn, self.pool), limit=limit)
        return {"released_again": len(back), **left}

    def _pass(self, conn: Conn, term: int, now: datetime | None, counts: dict[str, int]) -> Pass:
        """Releases; `now` is None when nobody has looked: then something is ready."""
        self._busy, self._held_until, self._look_s = False, None, BUSY_WAIT_S
        found = self._release(conn, term, now)
        if found is None:
            return Pass(counts)
        now, messages, released = found
        if messages:
            self._publisher.publish(messages)
        self._keep_holds(conn, now)
        counts["released"] = released
        counts["messages"] = len(messages)
        return Pass(counts, full=released > 0, wait_s=self._wait_s(now))

    def _wait_s(self, now: datetime) -> float | None:
        if self._busy:
            return self._look_s
        return None if self._held_until is None else max(BUSY_WAIT_S, (self._held_until - now).total_seconds())

    def _release(self, conn: Conn, term: int, now: datetime | None) -> tuple[datetime, Sequence[Message], int] | None:
        """The database's time, what to publish and how many were released; None when the lease is somebody else's."""
        begun = monotonic_s()
        with transactions.transaction(conn) as within:
            rests_s = self._newcomers.rests_s(begun)
            with conn.pipeline():  # one round trip: what is busy is looked at often
                within.begin()
                held = leases.ask_still_held(
                    conn, kind=KIND, shard=POOL_NUMBER[self.pool], owner=self._keeper.id, term=term
                )
                alive, taken = workers.ask_live(conn, self.pool), waiting.ask_taken(conn, self.pool)
                asked = None if rests_s else waiting.ask_tenants(conn, self.pool)
                next_release = releasing.ask_next_release(conn)
            ours = held.fetchone()
            if ours is None:
                return None
            now = now or ours[0]
            looked = monotonic_s()
            self._remember(conn, term, now)
            live = alive.fetchall()
            capacity = capacity_of(live, taken.fetchall(), prefetch=settings.PREFETCH_FACTOR)
            leave_to_others(capacity, self.pool)
            waits = None if asked is None else asked.fetchall()
            if not live:
                waits = waiting.tenants(conn, self.pool) if waits is None else waits
                self._choosing(conn, capacity, now, waits, Newcomers()).hold()
                return now, [], 0
            since_s = monotonic_s() - self._released_at
            free = min(capacity.free, settings.RELEASE_BATCH)
            yield_s = self._yielding.wait_s(looked) if capacity.held else 0.0
            early = yield_s > 0 or waits_for_more(free=free, capacity=capacity.most, since_release_s=since_s)
            places = any(group.free + group.kept > 0 for group in capacity.groups.values())
            new = waits is not None and self._newcomers.looked(
                [tenant_id for lane, tenant_id in waits if lane == LIVE], held=capacity.held, begun=begun, ended=looked
            )
            if early and not (places and new):
                self._busy = True
                self._look_s = look_again_s(
                    free=free, free_before=self._free_after, capacity=capacity.most, since_release_s=since_s
                )
                if yield_s:
                    self._look_s = yield_s
                if places and rests_s:  # who rang may be new, and was not looked at
                    self._look_s = min(self._look_s, rests_s)
                self._memory.causes.go_on(now)
                return now, [], 0
            if waits is None:
                waits = waiting.tenants(conn, self.pool)
            choosing = self._choosing(conn, capacity, now, waits, self._newcomers)
            before, self._shared_at = self._shared_at, monotonic_s()
            choosing.choose(elapsed_s=max(1e-6, self._shared_at - before), early=early)
            self._busy, self._held_until = choosing.noting.busy, choosing.noting.held_until
            self._tell(conn, choosing.noting.rate_held, now)
            chosen = choosing.chosen
            if not chosen:
                if choosing.sharing.put_off:
                    self._busy, self._look_s = True, 0.0
                return now, [], 0
            row = next_release.fetchone()
            assert row is not None
            number = row[0]
            released_at = monotonic_s()
            at = now + timedelta(seconds=released_at - begun)  # lateness ends here
            if choosing.sharing.refill:
                self._released_at = released_at
                self._free_after = max(0, free - len(chosen))  # as the next look counts: newcomers go beyond it
            ids = [one.execution_id for one in chosen]
            gone = set(releasing.release(conn, ids, release=number, now=at, delays=self._delays(chosen, at)))
            chosen = [one for one in chosen if one.execution_id in gone]
            self._count(conn, choosing, chosen, now, released_at=at)
        return now, list(messages_of(chosen, number, capacity.message_max)), len(chosen)

    def _choosing(
        self, conn: Conn, capacity: Capacity, now: datetime, waits: Sequence[tuple[int, int]], newcomers: Newcomers
    ) -> Choosing:
        return Choosing(
            conn, self.pool, registry=self._registry, capacity=capacity, memory=self._memory, now=now,
            batch=settings.RELEASE_BATCH, waits=waits, newcomers=newcomers,
        )  # fmt: skip

    def _count(
        self, conn: Conn, choosing: Choosing, released: Sequence[Candidate], now: datetime, *, released_at: datetime
    ) -> None:
        tally, by_tenant = Tally(), Counter(one.tenant_id for one in released)
        for tenant_id, count in by_tenant.items():
            tally.add(tenant_id, RELEASED, count)
        for one in released:
            if one.first:
                tally.took(one.tenant_id, DISPATCH, (released_at - one.actual_at).total_seconds())
        rates.take(conn, by_tenant, choosing.gathered.rates, now=now)
        by_job = Counter((one.tenant_id, one.job_id) for one in released)
        buckets.take(conn, by_job, choosing.picking.rates, now=now)
        deltas.add(conn, tally, now=now)

    def _delays(self, chosen: Sequence[Candidate], now: datetime) -> dict[UUID, str]:
        """What held back those that are late and go for the first time."""
        found: dict[UUID, str] = {}
        known: dict[tuple[int, UUID, datetime], str | None] = {}
        for one in chosen:
            if one.first:
                key = (one.tenant_id, one.flow, one.available_at)
                if key not in known:
                    known[key] = self._memory.causes.delays(
                        one.tenant_id, one.flow, since=one.available_at, now=now
                    )  # fmt: skip
                told = known[key]
                if told is not None:
                    found[one.execution_id] = told
        return found

    def _remember(self, conn: Conn, term: int, now: datetime) -> None:
        if term != self._term:  # somebody else may have served meanwhile
            self._memory.causes.remember(holds.read(conn, self.pool, now=now))
            self._memory.shares = Shares(fair=FairShare(salt=term))
            self._term = term

    def _tell(self, conn: Conn, tenants: set[int], now: datetime) -> None:
        """Tenants are told once a day that their rate makes runs wait."""
        if self._told is None or self._told[0] != now.date():
            self._told = (now.date(), set())
        for tenant_id in tenants - self._told[1]:
            tenancy = self._registry.by_id.get(tenant_id)
            if tenancy is not None and tenancy.max_runs_per_min is not None:
                rates.held_back(conn, tenant_id, per_min=tenancy.max_runs_per_min, now=now)
        self._told[1].update(tenants)

    def _keep_holds(self, conn: Conn, now: datetime) -> None:
        """Writes what is held back, for those who ask, and for whoever takes over."""
        if monotonic_s() < self._holds_at:
            return
        self._holds_at = monotonic_s() + HOLDS_EVERY_S
        holds.write(conn, self.pool, self._memory.causes.lasting(now))
        if monotonic_s() >= self._prune_at:
            self._prune_at = monotonic_s() + PRUNE_EVERY_S
            holds.prune(conn, now=now)
