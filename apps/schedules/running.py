"""Executions that somebody asks for, outside fire: the row, and its ticket or its place in the due-time index.

Whoever starts a run first shares a lock on its job, so that pausing the job and starting a run take turns.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from apps.due import entries
from apps.executions import store as executions
from apps.schedules import store
from apps.schedules.keyed import flows_of_executions
from apps.schedules.models import Job, JobVersion
from apps.schedules.schedule_input import Word
from apps.tickets import store as tickets
from apps.tickets.gates import CLOSED
from apps.tickets.values import BACKFILL, CATCH_UP, LIVE, lane_of, start_by
from apps.usage import deltas
from apps.usage.figures import CANCELLED, SKIPPED, Tally
from kernel.errors import FieldError, NotFound
from kernel.ids import uuid7s
from kernel.limitrules import Flow, flow_of, value_at, value_of
from kernel.pools import WORKFLOW, pool_of
from tenants import door
from tenants.models import Tenant
from tenants.provisioning import queue_for

FIRED_BY_CHARS = 80


@dataclass(frozen=True, slots=True)
class JobNow:
    """What a ticket and a due entry take from a job as it is now."""

    id: UUID
    version: int
    pool: str
    queue: str
    priority: int
    timeout_s: int
    max_concurrency: int | None
    max_queue_age_s: int | None
    total_timeout_s: int | None
    paused: bool
    key: Mapping[str, Any] | None = None  # its concurrency key
    key_value: Any = None  # what it has of that itself, in its labels or its payload

    @property
    def word(self) -> Word:
        """What it is for its users."""
        return "workflow" if self.pool == WORKFLOW else "job"

    @property
    def limit(self) -> int | None:
        """How many may be queued or running at once."""
        return CLOSED if self.paused else self.max_concurrency

    def flow(self, labels: Mapping[str, str], payload: Any, *, own_payload: bool) -> Flow:
        """What the runs of a schedule with these labels and, when that has its `own_payload`, this one queue behind."""
        value = self.key_value
        if self.key is not None and "label" in self.key:
            value = labels.get(self.key["label"], value)
        elif self.key is not None and own_payload:
            value = value_at(payload, self.key["payload"])
        return flow_of(self.id, self.key, value)


@dataclass(frozen=True, slots=True)
class Run:
    """What is to run, for whom and why. `payload` is JSON text, for runs that have one of their own.

    `max_queue_age_s` goes before the job's. `run_key` is for runs that must not be made twice, whoever tries; others
    have their execution's id.
    """

    trigger: str
    fired_by: str
    payload: str | None = None
    payload_from: str = "job"
    priority: int | None = None
    max_queue_age_s: int | None = None
    nominal_at: datetime | None = None
    schedule_id: UUID | None = None
    schedule_version: int | None = None
    guarded: bool = False
    labels: dict[str, str] | None = None
    replay_of: UUID | None = None
    run_key: str | None = None
    yields: bool = False  # to live runs, as what makes up for missed ones does


class GoesOn(NamedTuple):
    """An execution that runs once more: `attempt` is the number of the last one that it had."""

    job: JobNow
    run: Run
    execution_id: UUID
    run_key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Start:
    """A run that is to be made of a job, now or at a later instant. `blocked`: first of all others have to end."""

    job: JobNow
    run: Run
    run_at: datetime | None = None
    blocked: bool = False

    @property
    def is_delayed(self) -> bool:
        """Whether it waits in the due-time index. What is blocked has its ticket at once, which knows its time."""
        return self.run_at is not None and not self.blocked


def job_now(tenant: Tenant, job: Job, definition: JobVersion) -> JobNow:
    """The job's part of tickets and entries."""
    key = definition.concurrency_key
    pool = pool_of(job.kind, definition.queue)
    return JobNow(
        id=job.pk, version=job.version, pool=pool, queue=definition.queue or queue_for(tenant, pool),
        priority=definition.priority, timeout_s=definition.timeout_s, max_concurrency=definition.max_concurrency,
        max_queue_age_s=definition.max_queue_age_s, total_timeout_s=definition.total_timeout_s,
        paused=job.paused_at is not None, key=key,
        key_value=None if key is None else value_of(key, labels=job.labels, payload=definition.payload),
    )  # fmt: skip


def missing(word: Word) -> FieldError:
    """What the member of this name gets that names none."""
    return FieldError(f"/{word}", "not_found", f"There is no such {word}.")


def share_job(tenant: Tenant, job_id: UUID, *, inside: bool = False) -> JobNow:
    """The job as it is until this transaction ends. NotFound when there is none.

    With `inside` it may be one that is written inside of a workflow: for what has run already.
    """
    found = share_jobs(tenant, [job_id], inside=inside)
    if not found:
        raise NotFound("There is no such job.")
    return found[job_id]


def share_jobs(tenant: Tenant, job_ids: Collection[UUID], *, inside: bool = False) -> dict[UUID, JobNow]:
    """Those jobs that are there, as they are until this transaction ends; `inside` as for `share_job`."""
    shared = store.jobs_share(door.raw(), tenant.schema_name, job_ids, inside=inside) if job_ids else {}
    return {job.id: job_shared(job, lambda pool: queue_for(tenant, pool)) for job in shared.values()}


def job_shared(job: store.SharedJob, queue_of: Callable[[str], str]) -> JobNow:
    """The same of a job that was shared; `queue_of` gives the tenant's queue in a pool."""
    pool = pool_of(job.kind, job.queue)
    return JobNow(
        job.id, job.version, pool, job.queue or queue_of(pool), job.priority, job.timeout_s, job.max_concurrency,
        job.max_queue_age_s, job.total_timeout_s, job.paused, _read(job.key), _read(job.key_value),
    )  # fmt: skip


def run_start(tenant: Tenant, job: JobNow, run: Run, *, now: datetime) -> UUID:
    """Makes an execution that is ready now, with its ticket. Returns its id."""
    return runs_start(tenant, [Start(job, run)], now=now)[0]


def runs_start(tenant: Tenant, starts: Sequence[Start], *, now: datetime) -> list[UUID]:
    """Makes executions that are ready now or blocked, with their tickets, or wait in the due-time index until `run_at`.

    Returns their ids, in order; ids grow in that order.
    """
    if not starts:
        return []
    conn = door.raw()
    ids = uuid7s(len(starts))
    made = list(zip(starts, ids, strict=True))
    executions.submit(conn, tenant.schema_name, [_submitted(one, key, now) for one, key in made], now=now)
    flows = _flows(tenant, [(one.job, key) for one, key in made])
    tickets.add(
        conn,
        [
            new_ticket(
                tenant.pk, one.job, one.run, flows[key], execution_id=key, run_key=one.run.run_key or key.hex,
                now=one.run_at or now, blocked=one.blocked,
            )
            for one, key in made
            if not one.is_delayed
        ],
    )  # fmt: skip
    delayed = [
        _entry(tenant, one.job, one.run, flows[key], key, one.run_at)
        for one, key in made
        if one.run_at is not None and one.is_delayed
    ]
    entries.add(conn, delayed, now=now)
    return ids


def tickets_go_on(tenant: Tenant, runs: Sequence[GoesOn], *, now: datetime) -> None:
    """Adds the tickets of executions that were reopened; they are ready now."""
    flows = _flows(tenant, [(one.job, one.execution_id) for one in runs])
    new = [
        new_ticket(
            tenant.pk, one.job, one.run, flows[one.execution_id], execution_id=one.execution_id, run_key=one.run_key,
            now=now, attempt=one.attempt,
        )
        for one in runs
    ]  # fmt: skip
    tickets.add(door.raw(), new)


def make_way(
    tenant: Tenant, schedule_id: UUID, *, cancels: bool, now: datetime, unguarded: bool = False
) -> dict[UUID, str]:  # fmt: skip
    """What waits of a schedule is replaced by what the caller makes; with `cancels` what runs is asked to stop.

    Returns what has ended and others wait for, with its state; who can't decide on those leaves them to reconcile.
    """
    conn = door.raw()
    if cancels:
        tickets.lock_runs_of(conn, [schedule_id])
    waiting = tickets.replace_waiting(conn, [schedule_id], unguarded=unguarded)
    ended = [executions.Replaced(*one[1:5]) for one in waiting]
    if cancels:
        tickets.cancel_running_of(conn, [schedule_id])
    executions.replace(conn, tenant.schema_name, ended, now=now)
    tally = Tally()
    for one in ended:
        tally.add(tenant.pk, CANCELLED if one.attempt else SKIPPED)
    deltas.add(conn, tally, now=now)
    return {one.execution_id: executions.replaced_state(one.attempt) for one in waiting if one.followed}


def _flows(tenant: Tenant, runs: Sequence[tuple[JobNow, UUID]]) -> dict[UUID, Flow]:
    """What each of these executions, whose rows are there, queues behind."""
    flows = {execution_id: Flow(job.id) for job, execution_id in runs}
    keyed = [execution_id for job, execution_id in runs if job.key is not None]
    return {**flows, **flows_of_executions(door.raw(), tenant.schema_name, keyed)} if keyed else flows


def _submitted(start: Start, execution_id: UUID, now: datetime) -> executions.Submitted:
    job, run = start.job, start.run
    return executions.Submitted(
        id=execution_id, run_key=run.run_key or execution_id.hex, job_id=job.id, job_version=job.version,
        schedule_id=run.schedule_id, schedule_version=run.schedule_version, trigger=run.trigger,
        priority=_priority(job, run),
        nominal_at=run.nominal_at, actual_at=start.run_at or now,
        state="scheduled" if start.is_delayed else "ready",
        fired_by=run.fired_by[:FIRED_BY_CHARS], payload=run.payload, labels=run.labels or None,
        replay_of=run.replay_of,
    )  # fmt: skip


def _entry(
    tenant: Tenant, job: JobNow, run: Run, flow: Flow, execution_id: UUID, run_at: datetime
) -> entries.Entry:  # fmt: skip
    return entries.Entry(
        key=execution_id, shard=entries.shard_for(execution_id), kind="execution", tenant_id=tenant.pk, due_at=run_at,
        nominal_at=run_at, version=0, spec=execution_id.hex, job_id=job.id, job_version=job.version, pool=job.pool,
        queue=job.queue, priority=_priority(job, run), timeout_s=job.timeout_s, max_concurrency=job.limit,
        own_payload=run.payload is not None, max_queue_age_s=job.max_queue_age_s,
        own_max_queue_age_s=run.max_queue_age_s, total_timeout_s=job.total_timeout_s, **entries.keyed(flow),
    )  # fmt: skip


def new_ticket(
    tenant_id: int,
    job: JobNow,
    run: Run,
    flow: Flow,
    *,
    execution_id: UUID,
    run_key: str,
    now: datetime,
    attempt: int = 0,
    blocked: bool = False,
) -> tickets.Ticket:
    """The ticket of an execution that is ready now."""
    priority = _priority(job, run)
    return tickets.Ticket(
        execution_id=execution_id, tenant_id=tenant_id, job_id=job.id, job_version=job.version,
        schedule_id=run.schedule_id, schedule_version=run.schedule_version, run_key=run_key, trigger=run.trigger,
        nominal_at=run.nominal_at, actual_at=now, pool=job.pool, queue=job.queue, priority=priority,
        timeout_s=job.timeout_s, flow=flow.flow, flow_limit=flow.limit, key=flow.key, job_limit=job.limit,
        lane=max(lane_of(run.trigger), CATCH_UP if run.yields else LIVE), guarded=run.guarded,
        payload_from=run.payload_from, available_at=now,
        state="blocked" if blocked else "ready", rank=None if blocked else tickets.new_rank(now, priority),
        attempt=attempt, failures=0, start_by=start_by(now, _queue_age_s(job, run), tried=attempt > 0),
        total_timeout_s=job.total_timeout_s,
    )  # fmt: skip


def _read(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def _priority(job: JobNow, run: Run) -> int:
    return job.priority if run.priority is None else run.priority


def _queue_age_s(job: JobNow, run: Run) -> int | None:
    if lane_of(run.trigger) == BACKFILL:  # it yields for as long as it takes, and is about the past in any case
        return None
    return job.max_queue_age_s if run.max_queue_age_s is None else run.max_queue_age_s
