"""A plan's limits, when schedules fire: what they leave no room for is skipped, with a row that says so.

The runs of a day are counted in the transaction of the batch, after the due entries and before any ticket (see
`apps.usage.counting`); unfinished executions are known to some seconds (see `backlogs`).
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.planning import Plan
from apps.dispatch.pressure.backlogs import Backlogs
from apps.executions import store as executions
from apps.schedules.occurring import BACKLOG_FULL, DAILY_QUOTA, cut_off
from apps.usage import counting
from tenants.registry import Registry

Conn = psycopg.Connection[Any]


def keep_within(conn: Conn, registry: Registry, plan: Plan, backlogs: Backlogs, *, now: datetime) -> dict[int, int]:
    """Takes out of the plan what there is no room for; returns the runs that were counted, of tenants with a limit.

    First what exceeds unfinished executions: a day's runs are for those that are made.
    """
    limits = {tenant_id: registry.by_id[tenant_id].max_live for tenant_id, rows in plan.fired.items() if rows}
    most = {tenant_id: limit for tenant_id, limit in limits.items() if limit is not None}
    if most:
        for tenant_id, room in backlogs.room(conn, most).items():
            if room < len(plan.fired[tenant_id]):
                cut(plan, tenant_id, room, BACKLOG_FULL)
    wanted = {
        tenant_id: len(rows)
        for tenant_id, rows in plan.fired.items()
        if rows and registry.by_id[tenant_id].max_runs_per_day is not None
    }
    if not wanted:
        return {}
    granted = counting.reserve(conn, wanted, now=now)
    for tenant_id, count in granted.items():
        if count < wanted[tenant_id]:
            cut(plan, tenant_id, count, DAILY_QUOTA)
    return granted


def give_back(conn: Conn, counted: Mapping[int, int], made: Mapping[int, int], *, now: datetime) -> None:
    """What was counted and was there already is not counted twice. The counts are still locked."""
    over = {tenant_id: made.get(tenant_id, 0) - count for tenant_id, count in counted.items()}
    counting.take(conn, over, {}, now=now)


def cut(plan: Plan, tenant_id: int, most: int, reason: str) -> None:
    """Leaves the first `most` runs of a tenant in the plan; the others become skip rows, one for each schedule.

    Where none of a schedule's runs is left, nothing makes way for it.
    """
    kept, dropped = plan.fired[tenant_id][:most], plan.fired.pop(tenant_id)[most:]
    if kept:
        plan.fired[tenant_id] = kept
    by_schedule: dict[UUID, list[executions.Fired]] = defaultdict(list)
    for fired in dropped:
        del plan.new_tickets[fired.id]
        by_schedule[fired.schedule_id].append(fired)
    plan.standing[tenant_id] += [cut_off(runs, reason) for runs in by_schedule.values()]
    for_nothing = by_schedule.keys() - {fired.schedule_id for fired in kept}
    plan.replacing = [key for key in plan.replacing if key not in for_nothing]
    plan.cancelling = [key for key in plan.cancelling if key not in for_nothing]
