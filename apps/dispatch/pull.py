"""Lease: hand ready tickets of a pull queue to the tenant's own workers.

What release and start are for our workers is one step here: under the tenant's row, which whoever admits work of a
tenant holds, the best tickets that every predicate of `admission` lets through go from ready to running in one
statement, each under a new fence. Their deadline is the lease; whoever lets it run out has lost the attempt.
"""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson
import psycopg

from apps.dispatch import admission
from apps.dispatch.admission import Facts, refusal
from apps.dispatch.capacity import capacity_of
from apps.dispatch.flowshare import FlowShare
from apps.dispatch.lanes import LOWER, LOWER_PART
from apps.dispatch.picking import FLOWS_OF_ALL, Picking, Turns
from apps.dispatch.windows import Windows
from apps.executions import store as executions
from apps.outcomes.remote import Only
from apps.outcomes.settle import Settlement, settle
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definition, Definitions
from apps.tickets import buckets, pull_queues, remote, waiting
from apps.tickets.values import LANES, LIVE, Started
from apps.usage import deltas, rates
from apps.usage.figures import DISPATCH, RELEASED, Tally
from kernel.errors import NotFound
from tenants.door import raw
from tenants.models import Tenant
from tenants.registry import Tenancy, tenancy_of
from tenants.runtokens import runtoken_make
from tenants.work import in_tenant

Conn = psycopg.Connection[Any]
PROMOTE_MAX = 1_000
LOOKS = 8  # at FLOWS_OF_ALL flows each


class Item(NamedTuple):
    """A leased run with all that its worker needs."""

    token: str
    started: Started
    definition: Definition
    payload: Any
    deadline: datetime


class _Claimed(NamedTuple):
    items: list[Item]
    unreadable: list[Started]


def lease(*, tenant: Tenant, queue: str, most: int, lease_s: int, holder: str, now: datetime) -> list[Item]:
    """Leases up to `most` runs of the queue, the best first. NotFound when the tenant has no such queue."""
    tenancy = tenancy_of(tenant)
    done = in_tenant(tenant, lambda: _claim(raw(), tenancy, queue, most, lease_s, holder, now))
    if done.unreadable:
        _refuse(raw(), tenancy, done.unreadable, now)
    return done.items


def _claim(conn: Conn, tenancy: Tenancy, queue: str, most: int, lease_s: int, holder: str, now: datetime) -> _Claimed:
    locked = pull_queues.lock_tenant(conn, tenant_id=tenancy.id, queue=queue)
    if locked is None or not locked.known:
        raise NotFound("There is no such queue.")
    per_min, held = locked.max_runs_per_min, 0
    if locked.max_running is not None:
        held = waiting.held_by_tenants(conn, [tenancy.id])[tenancy.id]
    left = {} if per_min is None else rates.left(conn, {tenancy.id: (per_min, locked.runs_burst)}, now=now)
    facts = Facts(
        now=now, tenant_active=locked.active, queue_paused=locked.paused, max_running=locked.max_running,
        tenant_use=held, tenant_rate=left.get(tenancy.id),
    )  # fmt: skip
    refused = refusal(facts)
    if refused is not None:
        if refused.code == "tenant_rate" and per_min is not None:
            rates.held_back(conn, tenancy.id, per_min=per_min, now=now)
        return _Claimed([], [])
    remote.promote(conn, tenant_id=tenancy.id, queue=queue, limit=PROMOTE_MAX)
    picking = _pick(conn, tenancy.id, queue, int(min(most, admission.most(facts))), now)
    if not picking.chosen:
        return _Claimed([], [])
    order = sorted(picking.chosen.values(), key=lambda one: (one.rank, one.execution_id))
    ids = [one.execution_id for one in order]
    leased = {
        one.started.execution_id: one for one in remote.lease(conn, ids, holder=holder, lease_s=lease_s)
    }  # fmt: skip
    rates.take(conn, {tenancy.id: len(leased)}, left, now=now)
    by_job = Counter((tenancy.id, one.started.job_id) for one in leased.values())
    buckets.take(conn, by_job, picking.rates, now=now)
    deltas.add(conn, _tally(tenancy.id, [one.started for one in leased.values()]), now=now)
    return _prepared(conn, tenancy, [leased[one] for one in ids if one in leased])


def _tally(tenant_id: int, leased: Sequence[Started]) -> Tally:
    tally = Tally()
    tally.add(tenant_id, RELEASED, len(leased))
    for one in leased:
        if one.first_queued_at == one.started_at:
            tally.took(tenant_id, DISPATCH, (one.started_at - one.actual_at).total_seconds())
    return tally


def _pick(conn: Conn, tenant_id: int, queue: str, most: int, now: datetime) -> Picking:
    """The best tickets that may go, after the same rules as release; the workers say how much they take.

    Between two askers nothing is remembered but which parts of long flows come next: one in LOWER_PART, by chance,
    begins with what yields to live work.
    """
    source = remote.QueueTickets(conn, tenant_id=tenant_id, queue=queue)
    capacity = capacity_of([], [], prefetch=1)
    capacity.by_queue[queue] = most
    picking = Picking(
        conn, source, now, capacity, FlowShare(), Turns(), _windows(), {tenant_id: queue}, flows_max=FLOWS_OF_ALL
    )  # fmt: skip
    lower_first = random.random() < 1 / LOWER_PART
    for lane in (*LOWER, LIVE) if lower_first else LANES:
        for _ in range(LOOKS):
            left = most - len(picking.chosen)
            if left <= 0:
                return picking
            picking.pick(lane, {tenant_id: left})
            if not picking.further(lane, tenant_id):
                break
    return picking


_here = threading.local()


def _definitions() -> Definitions:
    if not hasattr(_here, "definitions"):
        _here.definitions = Definitions()
    found: Definitions = _here.definitions
    return found


def _windows() -> Windows:
    if not hasattr(_here, "windows"):
        _here.windows = Windows()
    found: Windows = _here.windows
    return found


def _prepared(conn: Conn, tenancy: Tenancy, leased: Sequence[remote.Leased]) -> _Claimed:
    definitions = _definitions()
    known = definitions.of_runs(conn, tenancy.schema, [one.started for one in leased])
    own = [one.started.execution_id for one in leased if one.started.payload_from == "execution"]
    payloads = executions.payloads(conn, tenancy.schema, own) if own else {}
    done = _Claimed([], [])
    for one in leased:
        started = one.started
        definition = known.get(started.execution_id)
        token = runtoken_make(
            "lease", tenant_id=tenancy.id, execution_id=started.execution_id, attempt=started.attempt,
            fence=started.fence,
        )  # fmt: skip
        if definition is None or token is None:
            done.unreadable.append(started)
            continue
        payload = definition.payload
        if started.payload_from == "execution":
            payload = orjson.loads(payloads[started.execution_id])
        elif started.payload_from == "schedule" and started.schedule_id is not None:
            version = started.schedule_version or 0
            payload = definitions.schedule_payload(conn, tenancy.schema, started.schedule_id, version)
        done.items.append(Item(token, started, definition, payload, one.over_at))
    return done


def _refuse(conn: Conn, tenancy: Tenancy, unreadable: Sequence[Started], now: datetime) -> None:
    """A run whose definition can't be read ends as it does with our workers."""
    error = {"class": "undecodable", "message": "The job's definition is missing or unreadable."}
    settle(
        conn,
        Only(tenancy),
        [
            Settlement(one, None, Report("failed", one.started_at, now, error=error, retryable=False), None)
            for one in unreadable
        ],
    )
