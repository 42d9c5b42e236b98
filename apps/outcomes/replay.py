"""Dead letters replayed: one or many at once, by one way for all of them.

With the input that it had, an execution is reopened under its run key: attempts and fences go on, the retry policy
begins anew. Another payload, or a target that keeps its failure under the old key, asks for a new execution with a new
run key, which names the old one. Of a workflow's run what failed runs again.

What was replayed MAX_REPLAYS times and died again each time is refused, however it is asked for: a message that can't
be worked does not go round for ever. What is taken back again is in `replay_undo`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, Entry, record_many
from apps.deadletters import store as deadletters
from apps.deadletters.models import DeadLetter
from apps.deadletters.replays import replays_of
from apps.executions.models import Execution
from apps.outcomes.again import UNCHANGED, How, Replayed, reopen, start_new
from apps.outcomes.resolve import not_open
from apps.schedules.input_fields import json_bytes
from apps.schedules.running import JobNow, share_jobs
from apps.usage.admitting import admit_up_to
from apps.workflows.interventions.verbs import NOTE_CHARS as WORKFLOW_NOTE_CHARS
from apps.workflows.interventions.verbs import run_retry
from apps.workflows.models import Run as WorkflowRun
from kernel.errors import Conflict, FieldError, InvalidInput, ShardbeatError
from kernel.jsonrules import value_faults
from tenants import door
from tenants.models import Tenant
from tenants.work import Again, in_tenant


def deadletter_replay(
    *, tenant: Tenant, actor: Actor, letter_id: UUID, now: datetime, how: How | None = None
) -> UUID:  # fmt: skip
    """Runs a dead execution again with the job as it is now; returns the id of the execution that runs.

    InvalidInput for a payload that can't be kept; NotFound; Conflict when the letter is not open, its job or execution
    is gone, or it was replayed too often; QuotaExceeded.
    """
    done = deadletters_replay(tenant=tenant, actor=actor, letter_ids=[letter_id], now=now, how=how or How())[letter_id]
    if isinstance(done, ShardbeatError):
        raise done
    return done.execution_id


def deadletters_replay(
    *, tenant: Tenant, actor: Actor, letter_ids: Sequence[UUID], now: datetime, how: How
) -> dict[UUID, Replayed | ShardbeatError]:
    """The same of many in one transaction, each on its own: what was refused is told beside what runs.

    InvalidInput for a payload that can't be kept; Overloaded. Letters of workflows' runs take locks of their own, one
    after another: with several of them be ready to do it again with one, after a deadlock.
    """
    if how.payload is not UNCHANGED:
        faults = check_payload(how.payload, tenant.plan.max_payload_bytes)
        if faults:
            raise InvalidInput(faults)

    def work() -> dict[UUID, Replayed | ShardbeatError]:
        letters = DeadLetter.objects.filter(resolved_at=None).in_bulk(list(letter_ids))
        done: dict[UUID, Replayed | ShardbeatError] = {}
        done |= not_open([key for key in letter_ids if key not in letters])
        wanted = [letters[key] for key in sorted(letters)]
        done |= _refused_as_poison(tenant, wanted, how)
        runs = set[UUID]()
        if not how.makes_new:
            ids = [letter.execution_id for letter in wanted]
            runs = set(WorkflowRun.objects.filter(pk__in=ids).values_list("pk", flat=True))
        for letter in (one for one in wanted if one.execution_id in runs and one.pk not in done):
            done[letter.pk] = _retry_run(tenant, actor, letter, how, now)
        done |= _replay(tenant, actor, [one for one in wanted if one.pk not in done], how, now)
        _record(tenant, actor, done, how, now)
        return {key: done[key] for key in letter_ids}

    return in_tenant(tenant, work)


def check_payload(payload: Any, most: int) -> list[FieldError]:
    """What is wrong with a payload; a plan allows `most` bytes."""
    faults = value_faults(payload, "/payload")
    size = json_bytes(payload)
    if size > most:
        faults.append(FieldError("/payload", "too_large", f"has {size:,} bytes; the plan allows {most:,}."))
    return faults


def _refused_as_poison(tenant: Tenant, letters: Sequence[DeadLetter], how: How) -> dict[UUID, ShardbeatError]:
    if how.force:
        return {}
    counts = replays_of(door.raw(), tenant.schema_name, [letter.execution_id for letter in letters])
    return {
        letter.pk: Conflict(
            f"It was replayed {times} time{'' if times == 1 else 's'} and failed again each time; see why before the "
            "next one. With force it is replayed all the same.",
            code="replayed_too_often", replays=times,
        )
        for letter in letters
        if (times := counts.get(letter.execution_id, 0)) >= how.max_replays
    }  # fmt: skip


def _retry_run(
    tenant: Tenant, actor: Actor, letter: DeadLetter, how: How, now: datetime
) -> Replayed | ShardbeatError:  # fmt: skip
    """What failed of a workflow's run runs again; that closes the letter."""
    try:
        run_retry(
            tenant=tenant, actor=actor, run_id=letter.execution_id, now=now, reason=how.note[:WORKFLOW_NOTE_CHARS]
        )
    except ShardbeatError as error:
        return error
    if how.note:
        deadletters.annotate(door.raw(), tenant.schema_name, letter.pk, how.note)
    return Replayed(letter.execution_id)


def _replay(
    tenant: Tenant, actor: Actor, letters: Sequence[DeadLetter], how: How, now: datetime
) -> dict[UUID, Replayed | ShardbeatError]:
    """Letters are locked first, before jobs and counts of runs: two that replay the same ones take turns."""
    if not letters:
        return {}
    conn, schema = door.raw(), tenant.schema_name
    still_open = deadletters.lock_open(conn, schema, [letter.pk for letter in letters])
    olds = Execution.objects.defer("result", "error", "delays").in_bulk([one.execution_id for one in letters])
    jobs = share_jobs(tenant, {one.job_id for one in olds.values()}, inside=True)
    done: dict[UUID, Replayed | ShardbeatError] = {}
    done |= not_open([letter.pk for letter in letters if letter.pk not in still_open])
    todo: list[tuple[UUID, Execution]] = []
    for letter in (one for one in letters if one.pk in still_open):
        old = olds.get(letter.execution_id)
        if old is None:
            detail = "The execution of this dead letter is not kept any more."
            done[letter.pk] = Conflict(detail, code="execution_gone")
        elif (refusal := _refusal(old, jobs, how)) is not None:
            done[letter.pk] = refusal
        else:
            todo.append((letter.pk, old))
    if not todo:
        return done
    admitted = admit_up_to(conn, tenant, len(todo), now)
    if admitted.refusal is not None:
        done |= {key: admitted.refusal for key, _ in todo[admitted.runs :]}
        todo = todo[: admitted.runs]
    keys = [key for key, _ in todo]
    closed = deadletters.resolve_many(
        conn, schema, keys, resolution="replayed", now=now, note=how.note, by=actor.stored
    )
    if len(closed) < len(keys):
        raise Again
    run = start_new if how.makes_new else reopen
    return done | dict(zip(keys, run(tenant, actor, jobs, [old for _, old in todo], how, now), strict=True))


def _refusal(old: Execution, jobs: Mapping[UUID, JobNow], how: How) -> ShardbeatError | None:
    if old.job_id not in jobs:
        return Conflict("The job of this execution is deleted; it can only be resolved.", code="job_deleted")
    if old.state != "dead" and not how.makes_new:
        return Conflict(f"The execution is not dead: it is {old.state}.", code="not_dead")
    return None


def _record(
    tenant: Tenant, actor: Actor, done: Mapping[UUID, Replayed | ShardbeatError], how: How, now: datetime
) -> None:  # fmt: skip
    changed = {} if how.payload is UNCHANGED else {"new_payload": True}
    entries = [
        Entry("deadletter.replay", "dead_letter", key, after={"execution": str(one.execution_id), **changed},
              reason=how.note)
        for key, one in done.items()
        if isinstance(one, Replayed)
    ]  # fmt: skip
    record_many(entries, actor=actor, now=now, tenant_id=tenant.pk)
