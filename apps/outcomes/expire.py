"""Ending what waited for too long, hundreds at a time, in one transaction.

A run that has not started for the first time by its `start_by` ends as `expired`. One that was tried and whose total
time-out ended while it waited for its next try is dead, with a dead letter. Either way its ticket goes, and with it all
that it held: its schedule's turn and its place in the overlap policy. A start that comes at the same moment is refused
or comes first; the ticket's row decides.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.deadletters import store as deadletters
from apps.events import store as events
from apps.executions import store as executions
from apps.outcomes.causing import cause_of
from apps.outcomes.settle import pause_failing
from apps.outcomes.storable import error_text
from apps.outcomes.telling import told_of_overdue
from apps.outcomes.verdict import TOTAL_TIMEOUT, has_letter, total_timeout_error
from apps.tickets import holds, overdue, workflow_runs
from apps.tickets.store import notify_ready
from apps.tickets.values import Overdue
from apps.usage import deltas
from apps.usage.figures import DEAD, EXPIRED, Tally
from apps.workflows.dependencies.depending import dependents_decide
from kernel.eventtypes import DELIVERY
from kernel.ids import attempt_id, uuid7
from kernel.stepkeys import run_of_step
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
REASON = "max_queue_age"
LOCK_TIMEOUT_MS = 400  # the runs of many tenants wait while it waits for the table of one
WAITED_FOR = {
    "ready": "to be released (room on workers, a limit, the end of a pause, its schedule's turn)",
    "queued": "for a worker to take it",
}


def expire_batch(
    conn: Conn, registry: Registry, *, now: datetime, limit: int, not_tenants: Sequence[int] = (),
    only_tenants: Sequence[int] | None = None,
) -> dict[str, int]:  # fmt: skip
    """Ends up to `limit` runs that waited for too long at `now`; counts of `expired` and `given_up`."""
    counts = {"expired": 0, "given_up": 0}
    tally = Tally()
    with conn.transaction():
        by_tenant: dict[int, list[Overdue]] = defaultdict(list)
        for one in overdue.expire(conn, now=now, limit=limit, not_tenants=not_tenants, only_tenants=only_tenants):
            by_tenant[one.tenant_id].append(one)
            counts["expired" if one.first_started_at is None else "given_up"] += 1
            if one.trigger != DELIVERY:
                tally.add(one.tenant_id, EXPIRED if one.first_started_at is None else DEAD)
        if by_tenant:
            conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        for tenant_id, gone in sorted(by_tenant.items()):
            tenancy = registry.get(tenant_id)
            if tenancy is None:  # the tenant is gone and its history with it
                log.warning("tenant %d is gone: %d waiting runs ended without history", tenant_id, len(gone))
                continue
            _end(conn, tenancy, gone, tally, now)
        runs = {run_of_step(one.trigger, one.run_key) for gone in by_tenant.values() for one in gone if one.followed}
        workflow_runs.look_at(conn, runs)
        if by_tenant:
            deltas.add(conn, tally, now=now)
            pools = {one.pool for of_tenant in by_tenant.values() for one in of_tenant}
            notify_ready(conn, pools)  # what was behind them may go now
    return counts


def _end(conn: Conn, tenancy: Tenancy, gone: Sequence[Overdue], tally: Tally, now: datetime) -> None:
    tried = {one.execution_id: attempt_id(one.execution_id, one.attempt) for one in gone if one.first_started_at}
    last = executions.errors_of(conn, tenancy.schema, list(tried.values())) if tried else {}
    errors: dict[UUID, Mapping[str, Any]] = {
        one.execution_id: _given_up(one, last.get(tried[one.execution_id])) if one.first_started_at else _expired(one)
        for one in gone
    }
    held = holds.delays_of(conn, [one for one in gone if one.delays is None and one.first_queued_at is None], now=now)
    ended = [
        executions.Ended(
            one.execution_id, "dead" if one.first_started_at else "expired", one.first_queued_at, one.first_started_at,
            now, one.attempt, None, error_text(errors[one.execution_id]),
            TOTAL_TIMEOUT if one.first_started_at else REASON, one.delays or held.get(one.execution_id),
        )
        for one in gone
    ]  # fmt: skip
    executions.settle(conn, tenancy.schema, ended, [])
    followed = {one.execution_id for one in gone if one.followed}
    if followed:
        dependents_decide(conn, tenancy, {one.id: one.state for one in ended if one.id in followed}, now)
    told = [event for one in gone for event in told_of_overdue(one, errors[one.execution_id], now, tenancy.wants)]
    events.emit(conn, tenancy.schema, tenancy.id, told, ring=bool(tenancy.wants))
    dead = [one for one in gone if one.first_started_at and has_letter(one.trigger, one.run_key)]
    if not dead:
        return
    letters = []
    for one in dead:
        cause = cause_of(last.get(tried[one.execution_id]))
        tally.failed(tenancy.id, cause, execution_id=one.execution_id, attempts=0, letters=1)
        error = error_text(errors[one.execution_id]) or "{}"
        letters.append(
            deadletters.Letter(
                uuid7(), one.execution_id, one.job_id, one.schedule_id, cause.fingerprint, error, one.attempt, now
            )
        )
    deadletters.add(conn, tenancy.schema, letters)
    pause_failing(conn, tenancy, {one.schedule_id: now for one in dead if one.schedule_id is not None})


def _expired(one: Overdue) -> dict[str, Any]:
    """Why a run did not run, for its owner."""
    age_s = round((one.start_by - one.actual_at).total_seconds())
    message = (
        f"It was due at {_text(one.actual_at)} and had {age_s:,} s to start (max_queue_age_s); it still waited "
        f"{WAITED_FOR[one.state]}."
    )
    return {"class": REASON, "message": message, "start_by": _text(one.start_by), "state": one.state}


def _given_up(one: Overdue, last: Mapping[str, Any] | None) -> dict[str, Any]:
    return total_timeout_error(last, give_up_at=one.start_by, total_timeout_s=one.total_timeout_s or 0)


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
