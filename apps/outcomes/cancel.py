"""Cancelling an execution, wherever it is: waiting, running, delayed or just on its way from one to the other."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import psycopg

from apps.audit.services import Actor, record
from apps.due import entries
from apps.executions import store as executions
from apps.executions.models import Execution
from apps.tickets import store as tickets
from apps.tickets.store import notify_ready
from apps.usage import deltas
from apps.usage.figures import CANCELLED, Tally
from apps.workflows.dependencies.depending import dependents_decide
from apps.workflows.runs import advancing
from apps.workflows.runs.cancelling import cancel_run
from kernel.errors import Conflict, NotFound
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant
from tenants.registry import tenancy_of
from tenants.work import Again, in_tenant

Conn = psycopg.Connection[Any]
REASON = "cancelled"
Thing = Literal["execution", "workflow_run"]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`requested`: it runs, and its worker has been asked to stop. `done`: it is cancelled, now or before."""

    outcome: Literal["requested", "done"]


def execution_cancel(
    *, tenant: Tenant, actor: Actor, execution_id: UUID, now: datetime, thing: Thing = "execution", reason: str = "",
    only_unstarted: bool = False,
) -> Cancelled:  # fmt: skip
    """Cancels an execution. Cancelling twice is cancelling once; Conflict when it ended otherwise; NotFound.

    With `only_unstarted` one that was started once is left alone: Conflict.

    Each statement names the state that it ends. When the execution moved between two of them, all starts anew.
    `thing` is what it is called in the trail, where `reason` stands too.
    """

    def noted() -> None:
        record(
            actor=actor, action=f"{thing.replace('_', '')}.cancel", object_type=thing, object_id=execution_id, now=now,
            tenant_id=tenant.pk, reason=reason,
        )  # fmt: skip

    return in_tenant(tenant, lambda: _cancel(tenant, execution_id, now, noted, only_unstarted))


def count_cancelled(conn: Conn, tenant: Tenant, now: datetime) -> None:
    """Counts one cancelled execution in the tenant's usage."""
    tally = Tally()
    tally.add(tenant.pk, CANCELLED)
    deltas.add(conn, tally, now=now)


def _cancel(
    tenant: Tenant, execution_id: UUID, now: datetime, noted: Callable[[], None], only_unstarted: bool
) -> Cancelled:
    conn, schema = door.raw(), tenant.schema_name
    if not only_unstarted:  # a run of a workflow that has begun was started
        cancel_run(conn, tenancy_of(tenant), execution_id, now=now)  # when it is one: its lock comes before tickets'
    waiting = tickets.cancel_waiting(conn, execution_id, tenant_id=tenant.pk)
    if waiting is not None:
        attempts, queued_at, started_at, followed = waiting
        if only_unstarted and started_at is not None:
            raise _started()
        ended = executions.cancel(
            conn, schema, execution_id, now=now, reason=REASON, attempts=attempts, queued_at=queued_at,
            started_at=started_at,
        )  # fmt: skip
        if ended:
            if followed:
                advancing.ask_for_looks(conn, tenancy_of(tenant), [execution_id])
                dependents_decide(conn, tenancy_of(tenant), {execution_id: "cancelled"}, now)
            count_cancelled(conn, tenant, now)
            noted()
            return Cancelled("done")
    elif only_unstarted and tickets.is_running(conn, execution_id):
        raise _started()
    elif tickets.cancel_running(conn, execution_id, tenant_id=tenant.pk):
        notify_ready(conn, {WORKFLOW})  # when it is a run, somebody looks at it now
        noted()
        return Cancelled("requested")
    execution = Execution.objects.filter(pk=execution_id).only("state", "finished_at").first()
    if execution is None:
        raise NotFound("There is no such execution.")
    if execution.state == "cancelled":
        return Cancelled("done")
    if execution.finished_at is not None:
        raise Conflict(f"The execution ended already: it is {execution.state}.", code="already_finished")
    waits = execution.state == "scheduled" and entries.remove(conn, [execution_id])
    if waits and executions.cancel(conn, schema, execution_id, now=now, reason=REASON):
        dependents_decide(conn, tenancy_of(tenant), {execution_id: "cancelled"}, now)
        count_cancelled(conn, tenant, now)
        noted()
        return Cancelled("done")
    raise Again


def _started() -> Conflict:
    return Conflict("The execution was started already.", code="already_started")
