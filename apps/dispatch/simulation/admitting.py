"""What of a simulated tenant may go now: its flows held against ADMISSION, remembered until something changes. Pure."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from apps.dispatch.admission import Facts, checks
from apps.dispatch.simulation.settings import JobSetting, TenantSetting
from apps.dispatch.simulation.state import Flow, PoolState, Run, State
from apps.tickets.values import Rate, tenant_rate


@dataclass(slots=True)
class Bucket:
    """Tokens of a rate in simulated time."""

    rate: Rate
    at: float = 0.0

    def fill(self, now: float) -> Rate:
        self.rate, self.at = self.rate.after(now - self.at), now
        return self.rate

    def take(self, now: float) -> None:
        filled = self.fill(now)
        self.rate = filled._replace(tokens=filled.tokens - 1)


@dataclass(slots=True)
class OfFlow:
    """One flow of a lane: how many may go, and its best run."""

    lane: int
    flow: Flow
    most: float
    waiting: int
    head: Run


@dataclass(slots=True)
class Admitted:
    """One tenant in one pool: its flows, what it may have in all, and what is held back by which code."""

    flows: list[OfFlow] = field(default_factory=list)
    most: float = math.inf
    of_job: dict[int, float] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    until: float = math.inf  # as long as nobody touches it
    expired: list[Run] = field(default_factory=list)

    def wants(self, lane: int) -> int:
        """How many could go of a lane now."""
        by_job: dict[int, float] = {}
        for one in self.flows:
            if one.lane == lane:
                by_job[one.flow[0]] = by_job.get(one.flow[0], 0) + min(one.most, one.waiting)
        return int(min(self.most, sum(min(count, self.of_job[job]) for job, count in by_job.items())))


class _Said(NamedTuple):
    """What ADMISSION says of a flow: how many may go of it, of its tenant and its job; the code of what holds all."""

    most: float
    code: str | None
    of_tenant: float
    of_job: float
    clears_at: datetime | None


class Admitting:
    """Asks ADMISSION for all flows of a tenant."""

    def __init__(self, state: State, pool: PoolState, instant: Callable[[float], datetime]) -> None:
        self._state, self._pool, self._instant = state, pool, instant
        self._known: dict[int, Admitted] = {}
        self._always: dict[int, _Said] = {}  # by job: answers that never change
        self._of_tenant: dict[int, Bucket] = {}
        self._of_job: dict[int, Bucket] = {}

    def of(self, tenant: int, now: float) -> Admitted:
        """As it is now; what expired has been taken out and is named."""
        known = self._known.get(tenant)
        if known is None or tenant in self._pool.touched or now >= known.until:
            known = self._known[tenant] = self._ask(self._state.settings.tenants[tenant], now)
            if known.expired:  # what is left has other heads
                again = self._ask(self._state.settings.tenants[tenant], now)
                again.expired = known.expired + again.expired
                known = self._known[tenant] = again
            self._pool.touched.discard(tenant)
        return known

    def spend(self, run: Run, now: float) -> None:
        """A run went: its tokens are gone."""
        for bucket in (self.bucket(self._state.tenant(run)), self.job_bucket(run.job)):
            if bucket is not None:
                bucket.take(now)

    def bucket(self, tenant: TenantSetting) -> Bucket | None:
        """The tenant's own rate. One for each pool would be too much: the state keeps it."""
        if tenant.runs_per_min is None:
            return None
        found = self._state.tenant_buckets.get(tenant.id)
        if found is None:
            per_s, burst = tenant_rate(tenant.runs_per_min, tenant.runs_burst)
            found = self._state.tenant_buckets[tenant.id] = Bucket(Rate(per_s, burst, burst))
        return found

    def job_bucket(self, job: JobSetting) -> Bucket | None:
        if job.rate is None:
            return None
        found = self._of_job.get(job.id)
        if found is None:
            runs, seconds, burst = job.rate
            found = self._of_job[job.id] = Bucket(Rate(runs / seconds, burst, burst))
        return found

    def _ask(self, tenant: TenantSetting, now: float) -> Admitted:
        found = Admitted()
        for lane, tenants in enumerate(self._pool.ready):
            for flow, waiting in list(tenants.get(tenant.id, {}).items()):
                while waiting and waiting[0][2].gone:
                    self._pool.take(lane, tenant.id, flow)
                if waiting:
                    self._ask_flow(found, tenant, lane, flow, waiting[0][2], len(waiting), now)
        return found

    def _ask_flow(
        self, found: Admitted, tenant: TenantSetting, lane: int, flow: Flow, head: Run, waiting: int, now: float
    ) -> None:
        said = self._always.get(flow[0])
        if said is None:
            said = _said_of(self._facts(tenant, flow, head, now))
            if self._never_changes(tenant, head.job):
                self._always[flow[0]] = said
        if said.clears_at is not None:
            found.until = min(found.until, self._state.seconds(said.clears_at))
        found.most = min(found.most, said.of_tenant)
        found.of_job[flow[0]] = min(found.of_job.get(flow[0], math.inf), said.of_job)
        if head.start_by is not None:
            found.until = min(found.until, head.start_by)
        if said.code == "expired":
            found.expired.append(self._pool.take(lane, tenant.id, flow))
        elif said.code is not None:
            found.refused[said.code] += waiting
        else:
            found.flows.append(OfFlow(lane, flow, said.most, waiting, head))
        if tenant.runs_per_min is not None or head.job.rate is not None:
            found.until = min(found.until, now)  # tokens come by themselves

    def _never_changes(self, tenant: TenantSetting, job: JobSetting) -> bool:
        """Whether the answer depends on nothing that is used, and on no time: most have no limit."""
        limits = (
            tenant.max_running, tenant.runs_per_min, tenant.max_slots.get(self._pool.name), job.max_concurrency,
            job.key_max, job.rate, job.max_queue_age_s,
        )  # fmt: skip
        return limits == (None,) * len(limits)

    def _facts(self, tenant: TenantSetting, flow: Flow, head: Run, now: float) -> Facts:
        state, job = self._state, head.job
        of_tenant, of_job = self.bucket(tenant), self.job_bucket(job)
        return Facts(
            now=self._instant(now), tenant_active=tenant.active, job_limit=job.max_concurrency,
            start_by=None if head.start_by is None or head.started >= 0 else self._instant(head.start_by),
            job_use=state.held_of_job[job.id], tenant_use=state.held_of_tenant[tenant.id],
            max_running=tenant.max_running, pool_use=self._pool.held[tenant.id],
            max_slots=tenant.max_slots.get(self._pool.name),
            key_use=0 if flow[1] is None else state.held_of_flow[flow],
            flow_limit=None if flow[1] is None else job.key_max,
            tenant_rate=None if of_tenant is None else of_tenant.fill(now),
            job_rate=None if of_job is None else of_job.fill(now),
            pool_slots=state.settings.slots.get((self._pool.name, tenant.group), 0),
        )  # fmt: skip


def _said_of(facts: Facts) -> _Said:
    most, code, of_tenant, of_job, clears_at = math.inf, None, math.inf, math.inf, None
    for predicate, room in checks(facts):
        if room.most < most:
            most = room.most
        if room.most < 1 and code is None:
            code, clears_at = predicate.code, room.clears_at
        if predicate.level == "tenant":
            of_tenant = min(of_tenant, room.most)
        elif predicate.level == "job":
            of_job = min(of_job, room.most)
    return _Said(most, code, of_tenant, of_job, clears_at)
