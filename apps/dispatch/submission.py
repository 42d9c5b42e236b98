"""Runs that are submitted, at once or for later, one or many in one transaction: one statement a kind of row."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from apps.audit.services import Actor, Entry, record_many
from apps.dispatch.dependencies import depend, known_parents, missing_parents
from apps.schedules.batches import only, results
from apps.schedules.input_fields import Fields
from apps.schedules.job_input import MAX_QUEUE_AGE_S
from apps.schedules.running import JobNow, Run, Start, missing, runs_start, share_jobs
from apps.schedules.timing_trigger import read_instant
from apps.usage.admitting import admit_up_to
from apps.workflows.definitions.definition import On
from apps.workflows.dependencies.depending_input import read_depends_on
from kernel.errors import Faults, FieldError, InvalidInput, ShardbeatError
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

FIELDS = ("job", "payload", "run_at", "delay_s", "priority", "max_queue_age_s", "labels", "depends_on", "condition")
PAST_TOLERANCE = timedelta(seconds=60)  # a slow request, or a clock that is a little off, does not make it "past"
MAX_DELAY_S = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Submission:
    """A valid wish for a run."""

    job_id: UUID
    payload: str | None
    run_at: datetime | None
    priority: int | None
    max_queue_age_s: int | None
    labels: dict[str, str]
    depends_on: Mapping[UUID, On]


def execution_submit(*, tenant: Tenant, actor: Actor, data: Mapping[str, Any], now: datetime) -> UUID:
    """Submits a run of a job and returns the execution's id. InvalidInput with all faults; QuotaExceeded.

    A run of a paused job waits until the job is resumed. One that depends on others is blocked until they have ended as
    it wants; when they can't any more, it is skipped.
    """
    return only(executions_submit(tenant=tenant, actor=actor, items=[data], now=now))


def executions_submit(
    *, tenant: Tenant, actor: Actor, items: Sequence[Any], now: datetime, atomic: bool = False
) -> list[UUID | ShardbeatError]:
    """Submits runs; of each the execution's id, or what it was refused with as `execution_submit` would raise it.

    All or nothing when `atomic`: BatchRefused.
    """
    wishes: dict[int, Submission] = {}
    unread: dict[int, ShardbeatError] = {}
    for number, data in enumerate(items):
        try:
            wishes[number] = read_submission(data, now=now, max_payload_bytes=tenant.plan.max_payload_bytes)
        except InvalidInput as error:
            unread[number] = error

    def work() -> list[UUID | ShardbeatError]:
        refused = dict(unread)
        jobs = share_jobs(tenant, {wish.job_id for wish in wishes.values()})
        known = known_parents(tenant, (wish.depends_on for wish in wishes.values()))
        starts: dict[int, Start] = {}
        for number, wish in wishes.items():
            faults = _faults(wish, jobs, known)
            if faults:
                refused[number] = InvalidInput(faults)
                continue
            run_at = wish.run_at if wish.run_at is not None and wish.run_at > now else None
            starts[number] = Start(jobs[wish.job_id], _run(wish, actor), run_at, blocked=bool(wish.depends_on))
        admitted = admit_up_to(door.raw(), tenant, len(starts), now)
        if admitted.refusal is not None:
            for number in list(starts)[admitted.runs :]:
                refused[number] = admitted.refusal
                del starts[number]
        ids = runs_start(tenant, list(starts.values()), now=now)
        depend(tenant, [(wishes[number].depends_on, one) for number, one in zip(starts, ids, strict=True)], now)
        made = dict(zip(starts, ids, strict=True))
        found = results(len(items), made, refused, atomic=atomic)
        record_many(
            [
                Entry("execution.submit", "execution", one, after={"job": str(start.job.id)})
                for start, one in zip(starts.values(), ids, strict=True)
            ],
            actor=actor, now=now, tenant_id=tenant.pk,
        )  # fmt: skip
        return found

    return in_tenant(tenant, work)


def read_submission(data: Mapping[str, Any], *, now: datetime, max_payload_bytes: int) -> Submission:
    """Reads the body of a submission. InvalidInput with all faults."""
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(FIELDS)
    payload = fields.json("payload", max_bytes=max_payload_bytes)
    wish = Submission(
        job_id=fields.id("job") or UUID(int=0),
        payload=None,
        run_at=read_run_at(fields, now),
        priority=fields.whole("priority", 0, 9, None),
        max_queue_age_s=fields.whole("max_queue_age_s", 1, MAX_QUEUE_AGE_S, None),
        labels=fields.labels(),
        depends_on=read_depends_on(fields),
    )
    faults.raise_if_any()
    if payload is None:
        return wish
    text = orjson.dumps(payload).decode()
    return replace(wish, payload=text)


def _faults(wish: Submission, jobs: Mapping[UUID, JobNow], known: Collection[UUID]) -> list[FieldError]:
    job = jobs.get(wish.job_id)
    faults = [] if job is not None and job.word == "job" else [missing("job")]
    return faults + missing_parents(wish.depends_on, known)


def read_run_at(fields: Fields, now: datetime) -> datetime | None:
    at, delay_s = fields.data.get("run_at"), fields.data.get("delay_s")
    if at is not None and delay_s is not None:
        fields.faults.add("/delay_s", "contradiction", "Give run_at or delay_s, not both.")
        return None
    if delay_s is not None:
        seconds = fields.whole("delay_s", 0, MAX_DELAY_S, 0)
        return now + timedelta(seconds=seconds) if seconds else None
    if at is None:
        return None
    instant = read_instant(at, "/run_at", "UTC", fields.faults)
    if instant is not None and instant < now - PAST_TOLERANCE:
        fields.faults.add("/run_at", "past", "lies in the past; leave it out to run at once.")
    elif instant is not None and instant > now + timedelta(seconds=MAX_DELAY_S):
        fields.faults.add("/run_at", "range", "must be at most a year ahead.")
    return instant


def _run(wish: Submission, actor: Actor) -> Run:
    return Run(
        trigger="api", fired_by=actor.stored, payload=wish.payload, priority=wish.priority, labels=wish.labels,
        payload_from="job" if wish.payload is None else "execution", max_queue_age_s=wish.max_queue_age_s,
    )  # fmt: skip
