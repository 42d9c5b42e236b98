"""One pass over runs of workflows that are to be looked at: made, brought up to date, and what has ended settled.

Tenant by tenant, so that one whose schema does not answer costs only itself. New runs of a tenant are made in one
transaction, those that have ended are settled together; each other look is a transaction of its own.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.outcomes.settle import Settlement, settle
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definitions
from apps.tickets import workflow_runs
from apps.tickets.workflow_runs import Due
from apps.workflows.runs import looking, store
from apps.workflows.runs.afterwards import RunEnded, start_followers
from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from tenants import suspension
from tenants.registry import Registry, Tenancy
from tenants.work import database_now

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
LOCK_TIMEOUT_MS = 400  # all other runs wait while one waits for a lock
AGAIN_MAX_S = 60.0
UNREADABLE = {"class": "undecodable", "message": "The workflow's definition is missing or unreadable."}


@dataclass(slots=True)
class Looks:
    """Remembers which runs could not be looked at. For one thread."""

    definitions: Definitions = field(default_factory=Definitions)
    _failing: dict[UUID, int] = field(default_factory=dict)  # how often in a row

    def step(self, conn: Conn, registry: Registry, due: Sequence[Due], *, stop_at: float) -> dict[str, int]:
        """Looks at runs until `stop_at`, monotonic; counts, with those that are `left` for the next pass."""
        counts = {"made": 0, "looked": 0, "ended": 0, "left": 0}
        standing = suspension.standing_still(conn, {one.started.tenant_id for one in due})
        for tenant_id, of_tenant in _by_tenant(due).items():  # whoever is due for the longest comes first
            tenancy = registry.get(tenant_id)
            if tenant_id in standing:
                of_tenant = self._rest(conn, of_tenant)
            if monotonic_s() >= stop_at:
                counts["left"] += len(of_tenant)
            elif tenancy is None:  # until its tickets go with it
                self._again_later(conn, of_tenant)
            else:
                self._tenant(conn, registry, tenancy, of_tenant, counts, stop_at)
        return counts

    def _tenant(
        self, conn: Conn, registry: Registry, tenancy: Tenancy, due: list[Due], counts: dict[str, int], stop_at: float
    ) -> None:
        try:
            made = self._make(conn, tenancy, due, stop_at)
            others = [one for one in due if one.started.execution_id not in made]
            ended = self._ended(conn, tenancy, others)
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("%d runs of %s could not be looked at", len(due), tenancy.slug, exc_info=True)
            self._again_later(conn, due)
            return
        counts["made"] += len(made)
        finished: list[Due] = []
        for one in others:
            if one.started.execution_id in ended:
                continue
            if monotonic_s() >= stop_at:
                counts["left"] += 1
                continue
            counts["looked"] += 1
            if self._look(conn, tenancy, one):
                finished.append(one)
        ended |= self._ended(conn, tenancy, finished)
        ended |= self._unreadable(conn, tenancy, [one for one in finished if one.started.execution_id not in ended])
        counts["ended"] += len(ended)
        self._settle(conn, registry, tenancy, [one for one in others if one.started.execution_id in ended], ended)

    def _make(self, conn: Conn, tenancy: Tenancy, due: list[Due], stop_at: float) -> set[UUID]:
        """Makes the runs of what has just begun; where that fails each is looked at alone."""
        made: set[UUID] = set()
        left = due
        try:
            while left and monotonic_s() < stop_at:
                with conn.transaction():
                    _bound_waits(conn)
                    new = looking.make_new(conn, tenancy, left, now=database_now(conn))
                made |= new
                left = [one for one in left if new and one.started.execution_id not in new]
        except Exception:
            if conn.closed:
                raise
            log.warning("%d runs of %s could not be made together", len(left), tenancy.slug, exc_info=True)
        return made

    def _look(self, conn: Conn, tenancy: Tenancy, one: Due) -> bool:
        """Looks at one run; whether it has to be settled: it has ended, or its definition can't be read."""
        try:
            with conn.transaction():
                _bound_waits(conn)
                seen = looking.look(conn, tenancy, one.started, now=database_now(conn))
                if seen.state and seen.finished_at is None:
                    workflow_runs.looked(conn, one, next_at=seen.next_at)
        except Exception:
            if conn.closed:
                raise
            log.exception("run %s could not be looked at", one.started.execution_id)
            self._again_later(conn, [one])
            return False
        self._failing.pop(one.started.execution_id, None)
        return not seen.state or seen.finished_at is not None

    def _ended(self, conn: Conn, tenancy: Tenancy, due: Sequence[Due]) -> dict[UUID, Settlement]:
        """Settlements of those that have ended. Whoever opens one again changes its fence: they are stale then."""
        started = {one.started.execution_id: one.started for one in due}
        found = store.ended(conn, tenancy.schema, list(started)) if started else []
        jobs = {(started[run_id].job_id, started[run_id].job_version) for run_id, *_ in found}
        known = self.definitions.jobs(conn, tenancy.schema, jobs) if jobs else {}
        settlements = {}
        for run_id, state, finished_at, output, error in found:
            one = started[run_id]
            report = Report(state, one.started_at, finished_at, result=output, error=error, retryable=False)
            settlements[run_id] = Settlement(one, None, report, known.get((one.job_id, one.job_version)))
        return settlements

    def _unreadable(self, conn: Conn, tenancy: Tenancy, due: Sequence[Due]) -> dict[UUID, Settlement]:
        found = {}
        for one in due:
            at = one.started.started_at
            report = Report("failed", at, max(at, database_now(conn)), error=UNREADABLE, retryable=False)
            found[one.started.execution_id] = Settlement(one.started, None, report, None)
        return found

    def _settle(
        self, conn: Conn, registry: Registry, tenancy: Tenancy, due: Sequence[Due], ended: dict[UUID, Settlement]
    ) -> None:
        """First the runs that follow these are made: however often that is done, they are made once."""
        if not ended:
            return
        runs = [RunEnded(one.started.job_id, key, one.report.outcome) for key, one in ended.items()]
        try:
            with conn.transaction():
                _bound_waits(conn)
                start_followers(conn, tenancy, runs, now=database_now(conn))
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("runs that follow %d of %s could not be made", len(ended), tenancy.slug, exc_info=True)
            self._again_later(conn, due)
            return
        failed = {one.pair[0] for one in settle(conn, registry, list(ended.values())).failed}
        self._again_later(conn, [one for one in due if one.started.execution_id in failed])

    def _rest(self, conn: Conn, due: Sequence[Due]) -> list[Due]:
        """No time passes for runs of a tenant that stands still; only what was cancelled is looked at.

        Whoever lets the tenant go on asks for a look at the others.
        """
        later = database_now(conn) + timedelta(seconds=workflow_runs.LOOK_MAX_S)
        for one in due:
            if not one.started.cancel_requested:
                workflow_runs.looked(conn, one, next_at=later)
        return [one for one in due if one.started.cancel_requested]

    def _again_later(self, conn: Conn, due: Sequence[Due]) -> None:
        for one in due:
            run_id = one.started.execution_id
            self._failing[run_id] = failures = self._failing.get(run_id, 0) + 1
            wait = delay_s(failures, base_s=0.5, factor=2, max_s=AGAIN_MAX_S)
            workflow_runs.looked(conn, one, next_at=database_now(conn) + timedelta(seconds=wait))


def _bound_waits(conn: Conn) -> None:
    conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")


def _by_tenant(due: Sequence[Due]) -> dict[int, list[Due]]:
    found: dict[int, list[Due]] = defaultdict(list)
    for one in due:
        found[one.started.tenant_id].append(one)
    return found
