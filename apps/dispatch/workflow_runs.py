"""Runs of workflows: begun when they may go, looked at when their time has come, settled when all of their steps ended.

No worker holds a run. Under the lease of their pool this loop takes runs that are ready by the rules that release has,
and looks at those whose deadline has come: each look is a transaction of its own. What has ended is settled as any
attempt is. Most of what happens to a run happens elsewhere, where its steps end (`apps.workflows.advancing`).
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.capacity import capacity_of
from apps.dispatch.choosing import Choosing, Memory
from apps.dispatch.keeper import Keeper
from apps.dispatch.pace import Newcomers
from apps.dispatch.release import KIND
from apps.due import leases
from apps.outcomes.settle import Settlement, settle
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definitions
from apps.tickets import releasing, waiting, workflow_runs
from apps.tickets.values import LiveWorker
from apps.tickets.workflow_runs import Due
from apps.usage import deltas, rates
from apps.usage.figures import DISPATCH, RELEASED, Tally
from apps.workflows import looking, store
from apps.workflows.looking import Seen
from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from kernel.pools import POOL_NUMBER, WORKFLOW
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
BEGIN_MAX = 200  # of one pass
LOOK_MAX = 100
BUDGET_S = 1.0  # then the next pass goes on: a lease is only renewed for a loop that completes its passes
AGAIN_MAX_S = 60.0
LOCK_TIMEOUT_MS = 400  # all other runs wait while one waits for a lock
NOBODY = LiveWorker(UUID(int=0), BEGIN_MAX, [WORKFLOW])  # in place of workers: runs take no slots
UNREADABLE = {"class": "undecodable", "message": "The workflow's definition is missing or unreadable."}


class WorkflowService:
    """Looks after runs while this process holds their lease. One thread, one connection."""

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self.name = f"release {WORKFLOW}"
        self._line, self._keeper = line, keeper
        self._registry = Registry(line)
        self._definitions = Definitions()
        self._memory, self._newcomers = Memory(), Newcomers()
        self._shared_at = float("-inf")
        self._failing: dict[UUID, int] = {}  # runs that could not be looked at, how often in a row

    def run_once(self) -> Pass:
        term = self._keeper.held(KIND).get(POOL_NUMBER[WORKFLOW])
        if term is None:
            return Pass()
        self._registry.refresh()
        conn = self._line.get()
        now = _now(conn)
        counts = {"promoted": releasing.promote(conn, now=now, limit=settings.RELEASE_BATCH, pool=WORKFLOW)}
        if waiting.any_ready(conn, WORKFLOW):
            counts["begun"] = self._begin(conn, term, now)
        stop_at = monotonic_s() + BUDGET_S
        due = workflow_runs.due(conn, limit=LOOK_MAX)
        made = self._make(conn, due, stop_at)
        looked, ended = self._look(conn, [one for one in due if one.started.execution_id not in made], stop_at)
        counts["made"], counts["looked"], counts["ended"] = len(made), looked, len(ended)
        if ended:
            for one in settle(conn, self._registry, [settlement for _, settlement in ended]).failed:
                self._again_later(conn, next(due for due, settlement in ended if settlement.pair == one.pair))
        left = len(due) == LOOK_MAX or len(made) + looked < len(due)
        return Pass(counts, full=left or counts.get("begun", 0) > 0 or bool(made or ended))

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

    def _make(self, conn: Conn, due: Sequence[Due], stop_at: float) -> set[UUID]:
        """Makes the runs of what has just begun, those of a tenant in one transaction; what fails is looked at alone.

        Whatever needs a look at once keeps its deadline, which has passed.
        """
        made: set[UUID] = set()
        for tenant_id, of_tenant in sorted(_by_tenant(due).items()):
            tenancy = self._registry.get(tenant_id)
            left = of_tenant if tenancy is not None else []
            try:
                while left and tenancy is not None and monotonic_s() < stop_at:
                    with conn.transaction():
                        conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                        new = looking.make_new(conn, tenancy, left, now=_now(conn))
                    made |= new
                    left = [one for one in left if new and one.started.execution_id not in new]
            except Exception:
                if conn.closed:
                    raise
                log.warning("%d runs of tenant %d could not be made at once", len(left), tenant_id, exc_info=True)
        return made

    def _look(self, conn: Conn, due: Sequence[Due], stop_at: float) -> tuple[int, list[tuple[Due, Settlement]]]:
        """How many were looked at, and those that have ended."""
        looked = 0
        ended: list[tuple[Due, Settlement]] = []
        for one in due:
            if monotonic_s() >= stop_at:
                break
            looked += 1
            tenancy = self._registry.get(one.started.tenant_id)
            if tenancy is None:
                self._again_later(conn, one)  # until its tickets go with it
                continue
            try:
                seen = self._look_at(conn, tenancy, one)
            except Exception:
                if conn.closed:
                    raise
                log.exception("run %s could not be looked at", one.started.execution_id)
                self._again_later(conn, one)
                continue
            self._failing.pop(one.started.execution_id, None)
            if seen is None or seen.finished_at is not None:
                ended.append((one, self._settlement(conn, tenancy, one, seen)))
        return looked, ended

    def _look_at(self, conn: Conn, tenancy: Tenancy, one: Due) -> Seen | None:
        """One run in a transaction of its own; None when its definition can't be read."""
        with conn.transaction():
            conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            seen = looking.look(conn, tenancy, one.started, now=_now(conn))
            if not seen.state:
                return None
            if seen.finished_at is None:
                workflow_runs.looked(conn, one, next_at=seen.next_at)
        return seen

    def _again_later(self, conn: Conn, one: Due) -> None:
        run_id = one.started.execution_id
        self._failing[run_id] = failures = self._failing.get(run_id, 0) + 1
        wait = delay_s(failures, base_s=0.5, factor=2, max_s=AGAIN_MAX_S)
        workflow_runs.looked(conn, one, next_at=_now(conn) + timedelta(seconds=wait))

    def _settlement(self, conn: Conn, tenancy: Tenancy, one: Due, seen: Seen | None) -> Settlement:
        started = one.started
        key = (started.job_id, started.job_version)
        definition = self._definitions.jobs(conn, tenancy.schema, [key]).get(key)
        if seen is None or seen.finished_at is None:
            report = Report("failed", started.started_at, _now(conn), error=UNREADABLE, retryable=False)
            return Settlement(started, None, report, definition)
        output, error = store.outcome(conn, tenancy.schema, started.execution_id)
        report = Report(
            seen.state, started.started_at, seen.finished_at, result=output, error=error, retryable=False
        )  # fmt: skip
        return Settlement(started, None, report, definition)


def _by_tenant(due: Sequence[Due]) -> dict[int, list[Due]]:
    found: dict[int, list[Due]] = defaultdict(list)
    for one in due:
        found[one.started.tenant_id].append(one)
    return found


def _now(conn: Conn) -> datetime:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now
