"""What a pass of release held back is noted with its cause, and says when to look again."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from apps.dispatch.admission import Facts, Refusal, refusal
from apps.dispatch.causes import Causes
from apps.dispatch.picking import Picking
from apps.tickets.values import Flow
from apps.tickets.waiting import PoolTickets

OVERLAPPED_MAX = 64  # flows of a pass are asked whether they wait for a run of their schedule
ENDS_SOON = frozenset({"job_concurrency", "tenant_concurrency", "pool_maximum", "concurrency_key", "overlap"})
RATES = frozenset({"tenant_rate", "job_rate"})


@dataclass(slots=True)
class Noting:
    """Of one pass. `busy`: what waits may go as soon as something ends; `held_until`: as soon as a token comes back."""

    causes: Causes
    now: datetime
    busy: bool = False
    held_until: datetime | None = None
    rate_held: set[int] = field(default_factory=set)  # tenants whose own rate holds them back

    def tenant(self, tenant_id: int, held: Refusal) -> None:
        """All of the tenant is held back in this pool."""
        self._hold(tenant_id, None, held)
        if held.code == "tenant_rate":
            self.rate_held.add(tenant_id)

    def flows(self, source: PoolTickets, picking: Picking) -> None:
        """Flows that were looked at and may not go, or whose tickets wait for a run of their schedule."""
        for flow, held in picking.refused.items():
            self._hold(flow.tenant_id, flow, held)
        idle = picking.idle()[:OVERLAPPED_MAX]
        overlapped = refusal(Facts(now=self.now, overlap_busy=True))
        if idle and overlapped is not None:
            for flow in source.overlapped(idle):
                self._hold(flow.tenant_id, flow, overlapped)
        self.busy = self.busy or picking.opened

    def hungry(self, tenants: Iterable[tuple[int, int, int, int]]) -> None:
        """(tenant, slots there are, held by all, held by itself): could use a slot that there is not, or not for it."""
        known: dict[tuple[bool, int, int], Refusal | None] = {}
        for tenant_id, slots, held_by_all, own in tenants:
            shared = held_by_all > own
            case = (shared, slots, held_by_all)
            if case not in known:
                facts = Facts(now=self.now, fair=0) if shared else Facts(now=self.now, pool_slots=slots, queue_room=0)
                held = refusal(facts)
                known[case] = None if held is None else held._replace(limit=slots, use=held_by_all)
            held = known[case]
            if held is not None:
                self._hold(tenant_id, None, held)

    def _hold(self, tenant_id: int, flow: Flow | None, held: Refusal) -> None:
        key = None if flow is None else flow.flow
        self.causes.note(tenant_id, key, held.code, now=self.now, limit=held.limit, use=held.use)
        self.busy = self.busy or held.code in ENDS_SOON
        if held.code in RATES and held.clears_at is not None:
            self.held_until = min(self.held_until or held.clears_at, held.clears_at)
