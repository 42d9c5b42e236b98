"""What persons do to runs of workflows and to their steps. Cancelling a run is `apps.outcomes.cancel`.

Each verb holds the lock of the root for its transaction, and so comes before or after whatever else happens to the run.
Those that make steps run again also open a run that has ended: outside all limits of how many runs there may be, since
a newer run may hold the place and wait for this one.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from apps.audit.services import Actor, record
from apps.tickets import workflow_runs
from apps.usage.admitting import admit_runs
from apps.workflows.interventions import redoing, store_changes
from apps.workflows.interventions.changing import Word, carry_out, seen_of
from apps.workflows.interventions.redoing import Changes, Row
from apps.workflows.runs import store
from apps.workflows.runs.closing import COMPENSATION
from apps.workflows.runs.deciding import BY_PERSON, End
from apps.workflows.runs.turn import Turn
from apps.workflows.runs.values import RunNow, StepNow, with_error
from kernel.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound, Stale
from tenants import door
from tenants.models import Tenant
from tenants.permissions import ROLES
from tenants.registry import tenancy_of
from tenants.work import in_tenant

NOTE_CHARS = 500
BY_CHARS = 200
REJECTED = "rejected"
Decide = Callable[[RunNow, list[Row]], Changes]


def run_pause(
    *, tenant: Tenant, actor: Actor, run_id: UUID, now: datetime, reason: str = "", revision: int | None = None
) -> None:
    """Nothing of the run and of its sub-workflows starts any more; what runs goes on to its end. NotFound; Conflict."""
    reason = _note(reason, "/reason")

    def work(turn: Turn, run: RunNow) -> None:
        if run.state != "running":
            raise Conflict(f"Only a run that goes on can be paused: it is {run.state}.", code="run_not_running")
        ids = store_changes.below(turn.conn, turn.tenancy.schema, run.id)
        turn.take(ids)
        for one in (turn.runs[key] for key in ids if turn.runs[key].state == "running"):
            one.state = "paused"
            turn.changed_run(one)
        store_changes.note_pause(
            turn.conn, turn.tenancy.schema, ids, at=now, by=actor.stored[:BY_CHARS], reason=reason
        )  # fmt: skip

    _change(tenant, actor, run_id, now, "pause", work, revision=revision, reason=reason)


def run_resume(*, tenant: Tenant, actor: Actor, run_id: UUID, now: datetime, revision: int | None = None) -> None:
    """The run and its sub-workflows go on; what was let start meanwhile starts. NotFound; Conflict when not paused."""

    def work(turn: Turn, run: RunNow) -> None:
        if run.state != "paused":
            raise Conflict(f"The run is not paused: it is {run.state}.", code="run_not_paused")
        ids = store_changes.below(turn.conn, turn.tenancy.schema, run.id)
        turn.take(ids)
        for one in (turn.runs[key] for key in ids if turn.runs[key].state == "paused"):
            turn.resume(one)
        store_changes.note_pause(turn.conn, turn.tenancy.schema, ids, at=None, by="", reason="")

    _change(tenant, actor, run_id, now, "resume", work, revision=revision)


def run_retry(
    *, tenant: Tenant, actor: Actor, run_id: UUID, now: datetime, reason: str = "", revision: int | None = None
) -> None:
    """What failed or was cancelled runs again, and what was skipped because of that is decided again.

    NotFound; Conflict when nothing failed or its steps were compensated; QuotaExceeded.
    """
    word = _word(actor, reason)

    def decide(run: RunNow, rows: list[Row]) -> Changes:
        return redoing.retried(run.graph, rows)

    _redo(tenant, actor, run_id, now, "retry", decide, word, revision=revision)


def run_rerun(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, downstream: bool = True, reason: str = "",
    revision: int | None = None,
) -> None:  # fmt: skip
    """The step runs once more, in a new execution, and all that follows from it is decided again.

    Without `downstream` what has followed stays as it is. NotFound; Conflict while the step or something that is to be
    decided again runs; QuotaExceeded.
    """
    word = _word(actor, reason)

    def decide(run: RunNow, rows: list[Row]) -> Changes:
        return redoing.rerun(run.graph, rows, step=_known(run, step), downstream=downstream)

    _redo(tenant, actor, run_id, now, "rerun", decide, word, revision=revision, step=step)


def step_retry(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, item: int | None = None, reason: str = "",
    revision: int | None = None,
) -> None:  # fmt: skip
    """The step, or one item of its list, runs again. NotFound; Conflict when it did not fail; QuotaExceeded."""
    word = _word(actor, reason)

    def decide(run: RunNow, rows: list[Row]) -> Changes:
        return redoing.retried(run.graph, rows, only=(_known(run, step), item))

    _redo(tenant, actor, run_id, now, "retry", decide, word, revision=revision, step=step, item=item)


def step_skip(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, reason: str, revision: int | None = None
) -> None:
    """The step ends as skipped, for this reason. NotFound; InvalidInput without one; Conflict when it runs or ended."""
    word = _word(actor, reason, forced=True)
    if not word.note:
        raise InvalidInput([FieldError("/reason", "required", "Say why it is skipped.")])

    def decide(run: RunNow, rows: list[Row]) -> Changes:
        return redoing.skipped(run.graph, rows, step=_known(run, step))

    _redo(tenant, actor, run_id, now, "skip", decide, word, revision=revision, step=step)


def step_force(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, reason: str = "",
    revision: int | None = None,
) -> None:  # fmt: skip
    """The step starts now, whatever its needs and conditions say. NotFound; Conflict; QuotaExceeded."""
    word = _word(actor, reason, forced=True)

    def decide(run: RunNow, rows: list[Row]) -> Changes:
        return redoing.forced(run.graph, rows, step=_known(run, step))

    _redo(tenant, actor, run_id, now, "force", decide, word, revision=revision, step=step)


def step_cancel(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, branch: bool = False, reason: str = "",
    revision: int | None = None,
) -> None:  # fmt: skip
    """The step ends as cancelled or is asked to stop; with `branch` also what follows from it alone. Conflict."""
    word = _word(actor, reason)

    def work(turn: Turn, run: RunNow) -> None:
        changes = redoing.branch_cancelled(run.graph, seen_of(turn, run), step=_known(run, step), branch=branch)
        carry_out(turn, run, changes, word)

    after = {"step": step, **({"branch": True} if branch else {})}
    _change(tenant, actor, run_id, now, "cancel_step", work, revision=revision, reason=word.note, after=after)


def step_approve(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, note: str = "",
    revision: int | None = None,
) -> None:  # fmt: skip
    """The approval succeeds. NotFound; Forbidden below the step's role; Conflict when it does not wait for anybody."""
    _answer(tenant, actor, run_id, step, now, End("succeeded", BY_PERSON), "approve", note, revision)


def step_reject(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, note: str = "",
    revision: int | None = None,
) -> None:  # fmt: skip
    """The approval fails. NotFound; Forbidden below the step's role; Conflict when it does not wait for anybody."""
    _answer(tenant, actor, run_id, step, now, End("failed", REJECTED), "reject", note, revision)


def _answer(
    tenant: Tenant, actor: Actor, run_id: UUID, step: str, now: datetime, end: End, verb: str, note: str,
    revision: int | None,
) -> None:  # fmt: skip
    note = _note(note, "/note")

    def work(turn: Turn, run: RunNow) -> None:
        row = _row(turn, run, step)
        approval = run.graph.steps[step].approval
        if approval is None:
            raise Conflict("The step is no approval.", code="not_an_approval")
        if not _reaches(actor, approval.role):
            raise Forbidden(f"This approval asks for the role {approval.role} or more.", code="role_needed")
        if row.state != "running":
            raise Conflict(f"Nobody is asked: the step is {row.state}.", code="not_awaiting_approval")
        row.decided_by, row.note = actor.stored[:BY_CHARS], note
        row.output = orjson.dumps({"approved": end.state == "succeeded", "by": row.decided_by, "note": note}).decode()
        error = None
        if end.state == "failed":
            said = f"It was rejected by {row.decided_by}" + (f": {note}" if note else ".")
            error = orjson.dumps(with_error(REJECTED, said)).decode()
        turn.end(row, end, error=error)

    _change(tenant, actor, run_id, now, verb, work, revision=revision, reason=note, after={"step": step})


def _redo(
    tenant: Tenant, actor: Actor, run_id: UUID, now: datetime, verb: str, decide: Decide, word: Word, *,
    revision: int | None, step: str | None = None, item: int | None = None,
) -> None:  # fmt: skip
    def work(turn: Turn, run: RunNow) -> None:
        if any(one.type == COMPENSATION for one in turn.all_of(run)):
            raise Conflict("Steps of this run were compensated; start a new run instead.", code="run_compensated")
        changes = decide(run, seen_of(turn, run))
        if run.finished_at is not None:
            admit_runs(turn.conn, tenant, 1, now)
        carry_out(turn, run, changes, word)

    after = {name: value for name, value in (("step", step), ("item", item)) if value is not None}
    _change(tenant, actor, run_id, now, verb, work, revision=revision, reason=word.note, after=after)


def _change(
    tenant: Tenant, actor: Actor, run_id: UUID, now: datetime, verb: str, work: Callable[[Turn, RunNow], None], *,
    revision: int | None, reason: str = "", after: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """One verb in one transaction: lock, change, write, wake who looks after runs, and the audit row."""

    def body() -> None:
        tenancy, conn = tenancy_of(tenant), door.raw()
        if not store.lock_of_runs(conn, tenancy.schema, [run_id]):
            raise NotFound("There is no such run, or it has not begun.")
        if revision is not None and store_changes.revision_of(conn, tenancy.schema, run_id) != revision:
            raise Stale("The run has been changed since it was read.")
        turn = Turn(conn, tenancy, now=now)
        turn.take([run_id])
        if run_id not in turn.runs:
            raise Conflict("The definition of this run can't be read.", code="undecodable")
        work(turn, turn.runs[run_id])
        turn.go_on()
        turn.write()
        store_changes.changed(conn, tenancy.schema, [run_id])
        workflow_runs.look_at(conn, turn.looks | {run_id})
        record(
            actor=actor, action=f"workflowrun.{verb}", object_type="workflow_run", object_id=run_id, now=now,
            tenant_id=tenant.pk, after=after or None, reason=reason,
        )  # fmt: skip

    in_tenant(tenant, body)


def _known(run: RunNow, step: str) -> str:
    if step not in run.graph.steps:
        raise NotFound("There is no such step of this run.")
    return step


def _row(turn: Turn, run: RunNow, step: str) -> StepNow:
    name = _known(run, step)
    return next(one for one in turn.all_of(run) if one.step == name and one.item is None)


def _reaches(actor: Actor, role: str) -> bool:
    return actor.role in ROLES and ROLES.index(actor.role) >= ROLES.index(role)


def _word(actor: Actor, reason: str, *, forced: bool = False) -> Word:
    return Word(actor.stored[:BY_CHARS], _note(reason, "/reason"), forced)


def _note(text: str, pointer: str) -> str:
    if len(text) > NOTE_CHARS:
        raise InvalidInput([FieldError(pointer, "too_long", f"has more than {NOTE_CHARS} characters.")])
    return text.strip()
