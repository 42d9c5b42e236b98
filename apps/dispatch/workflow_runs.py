"""Runs of workflows: begun when they may go, looked at when their time has come, settled when all of their steps ended.

No worker holds a run. Under the lease of their pool this loop takes runs that are ready by the rules that release has,
and looks at those whose deadline has come (`workflow_looks`). What has ended is settled as any attempt is. Most of what
happens to a run happens elsewhere, where its steps end (`apps.workflows.runs.advancing`).
"""

import logging
from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.capacity import capacity_of
from apps.dispatch.choosing import Choosing, Memory
from apps.dispatch.keeper import Keeper
from apps.dispatch.pace import Newcomers
from apps.dispatch.release import KIND
from apps.dispatch.workflow_looks import Looks
from apps.due import leases
from apps.tickets import releasing, waiting, workflow_runs
from apps.tickets.values import LiveWorker
from apps.usage import deltas, rates
from apps.usage.figures import DISPATCH, RELEASED, Tally
from kernel.clock import monotonic_s
from kernel.pools import POOL_NUMBER, WORKFLOW
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
BEGIN_MAX = 200  # of one pass
LOOK_MAX = 100
BUDGET_S = 1.0  # then the next pass goes on: a lease is only renewed for a loop that completes its passes
NOBODY = LiveWorker(UUID(int=0), BEGIN_MAX, [WORKFLOW])  # in place of workers: runs take no slots


class WorkflowService:
    """Looks after runs while this process holds their lease. One thread, one connection."""

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self.name = f"release {WORKFLOW}"
        self._line, self._keeper = line, keeper
        self._registry = Registry(line)
        self._memory, self._newcomers = Memory(), Newcomers()
        self._shared_at = float("-inf")
        self._looks = Looks()

    def run_once(self) -> Pass:
        term = self._keeper.held(KIND).get(POOL_NUMBER[WORKFLOW])
        if term is None:
            return Pass()
        counts: dict[str, int] = {}
        conn = self._line.fresh()
        now, comes, ready = waiting.look(conn, WORKFLOW)
        self._registry.refresh()
        if comes:
            counts["promoted"] = releasing.promote(conn, now=now, limit=settings.RELEASE_BATCH, pool=WORKFLOW)
            ready = ready or waiting.any_ready(conn, WORKFLOW)
        if ready:
            counts["begun"] = self._begin(conn, term, now)
        due = workflow_runs.due(conn, limit=LOOK_MAX)
        counts |= self._looks.step(conn, self._registry, due, stop_at=monotonic_s() + BUDGET_S)
        again = counts["made"] + counts["ended"] + counts["left"] + counts.get("begun", 0) > 0
        return Pass(counts, full=again or len(due) == LOOK_MAX)

    def close(self) -> None:
        self._line.close()

    def _begin(self, conn: Conn, term: int, now: datetime) -> int:
        """ready -> running for what may go; the look that follows makes the run."""
        with conn.transaction():
            shard = POOL_NUMBER[WORKFLOW]
            if not leases.still_held(conn, kind=KIND, shard=shard, owner=self._keeper.id, term=term):
                return 0
            capacity = capacity_of([NOBODY], waiting.taken(conn, WORKFLOW), prefetch=1)
            choosing = Choosing(
                conn, WORKFLOW, registry=self._registry, capacity=capacity, memory=self._memory, now=now,
                batch=BEGIN_MAX, waits=waiting.tenants(conn, WORKFLOW), newcomers=self._newcomers,
            )  # fmt: skip
            before, self._shared_at = self._shared_at, monotonic_s()
            choosing.choose(elapsed_s=max(1e-6, self._shared_at - before))
            begun = workflow_runs.begin(conn, [one.execution_id for one in choosing.chosen])
            tally, by_tenant = Tally(), Counter(one.tenant_id for one in begun)
            for one in begun:
                tally.took(one.tenant_id, DISPATCH, (one.started_at - one.actual_at).total_seconds())
            for tenant_id, count in by_tenant.items():
                tally.add(tenant_id, RELEASED, count)
            rates.take(conn, by_tenant, choosing.gathered.rates, now=now)
            deltas.add(conn, tally, now=now)
        return len(begun)
