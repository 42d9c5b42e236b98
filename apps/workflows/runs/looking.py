"""A look at a run: what nobody else tells it. Time that has come, a cancel, ends that nobody has noted, its own end.

What runs is stopped here and not where a failure is noted: there the tickets of other steps would be locked out of
order.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.executions import store as executions
from apps.tickets import workflow_runs
from apps.tickets.values import Started
from apps.tickets.workflow_runs import Due
from apps.usage import deltas
from apps.usage.figures import CANCELLED as CANCELLED_RUNS
from apps.usage.figures import Tally
from apps.workflows.dependencies.depending import dependents_decide
from apps.workflows.runs import mapping, store
from apps.workflows.runs.beginning import begin
from apps.workflows.runs.deciding import FINAL, End
from apps.workflows.runs.turn import OUTSIDE, Turn
from apps.workflows.runs.values import CANCELLED, STOPPING, Ended, RunNow, StepNow, with_error
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
LOOK_AGAIN = timedelta(seconds=workflow_runs.LOOK_MAX_S)
APPROVAL_TIMEOUT = "approval_timeout"


class Seen(NamedTuple):
    """How a run stands. `state` is final once it has ended; empty when its definition can't be read."""

    state: str
    finished_at: datetime | None
    next_at: datetime


def look(conn: Conn, tenancy: Tenancy, started: Started, *, now: datetime) -> Seen:
    """Brings a run up to date in the current transaction; begins it when it has no row yet."""
    schema, run_id = tenancy.schema, started.execution_id
    store.lock_of_executions(conn, schema, [run_id])  # the root of the run that it is a step of
    if not store.lock_of_runs(conn, schema, [run_id]):
        turn = begin(conn, tenancy, [started], now=now)
    else:
        turn = Turn(conn, tenancy, now=now)
        turn.take([run_id])
    run = turn.runs.get(run_id)
    if run is None:
        return Seen("", None, now)
    if run.finished_at is None:
        _bring_up_to_date(turn, run, cancel=started.cancel_requested)
    turn.write()
    workflow_runs.look_at(conn, turn.looks - {run.id})
    return Seen(run.state, run.finished_at, _next_look(conn, tenancy, run, now))


def make_new(conn: Conn, tenancy: Tenancy, due: Sequence[Due], *, now: datetime) -> set[UUID]:
    """Makes those of these runs that are not there yet, in the current transaction; returns them.

    What has to be looked at at once is not put off: it waits for a delay, or somebody cancelled it meanwhile.
    """
    schema = tenancy.schema
    there = store.known(conn, schema, [one.started.execution_id for one in due])
    new = [one for one in due if one.started.execution_id not in there]
    if not new:
        return set()
    store.lock_of_executions(conn, schema, [one.started.execution_id for one in new])
    turn = begin(conn, tenancy, [one.started for one in new], now=now)
    turn.write()
    workflow_runs.look_at(conn, turn.looks - turn.runs.keys())
    for one in new:
        run = turn.runs.get(one.started.execution_id)
        if run is not None and run.id not in turn.looks and not one.started.cancel_requested:
            workflow_runs.looked(conn, one, next_at=min(now + LOOK_AGAIN, run.deadline_at or now + LOOK_AGAIN))
    return set(turn.runs)


def _bring_up_to_date(turn: Turn, run: RunNow, *, cancel: bool) -> None:
    turn.note(store.end_steps(turn.conn, turn.tenancy.schema, store.unnoted(turn.conn, turn.tenancy.schema, run.id)))
    turn.go_on()
    if cancel and run.state in ("running", "paused"):
        turn.cancel(run)
    if run.deadline_at is not None and run.deadline_at <= turn.now and run.state in ("running", "paused"):
        run.deadline_at = None
        turn.overdue(run)
    for row in turn.all_of(run):
        if row.state == "running" and row.wake_at is not None and row.wake_at <= turn.now:
            _wake(turn, run, row)
    turn.decide(run)
    turn.go_on()
    _stop(turn, run)
    turn.go_on()


def _wake(turn: Turn, run: RunNow, row: StepNow) -> None:
    """The end of a delay, or of the time that an approval had."""
    if row.type == "delay":
        turn.end(row, End("succeeded"))
    elif row.type == "approval":
        approval = run.graph.steps[row.step].approval
        end = End("failed" if approval is None else approval.on_timeout, APPROVAL_TIMEOUT)
        error = with_error(APPROVAL_TIMEOUT, "Nobody approved or rejected it in time.")
        turn.end(row, end, error=orjson.dumps(error).decode() if end.state == "failed" else None)


def _stop(turn: Turn, run: RunNow) -> None:
    """Stops what runs of a run that stops: all of it, or what is no handler of a failure."""
    if run.state != "cancelling" and not (run.state == "running" and run.reason in STOPPING):
        return
    rows = [row for row in turn.all_of(run) if row.state == "running" and _is_stopped(run, row)]
    for row in rows:
        if row.items is not None:
            mapping.cut(turn, run, row, run.reason)
        elif row.execution_id is None:
            turn.end(row, End("cancelled", run.reason))
    stop_steps(turn, [row for row in rows if row.execution_id is not None])


def stop_steps(turn: Turn, rows: Sequence[StepNow]) -> None:
    """Steps that run: what waits of their executions is cancelled, what runs is asked to stop."""
    ids = [row.execution_id for row in rows if row.execution_id is not None]
    if not ids:
        return
    stopped = workflow_runs.stop(turn.conn, ids)
    ended = [
        executions.Ended(
            one.execution_id, "cancelled", one.first_queued_at, one.first_started_at, turn.now, one.attempt, None,
            None, CANCELLED,
        )
        for one in stopped
    ]  # fmt: skip
    if ended:
        executions.settle(turn.conn, turn.tenancy.schema, ended, [])
        dependents_decide(turn.conn, turn.tenancy, {one.id: one.state for one in ended}, turn.now)
        tally = Tally()
        tally.add(turn.tenancy.id, CANCELLED_RUNS, len(ended))
        deltas.add(turn.conn, tally, now=turn.now)
        noted = [Ended(one.id, one.state, one.reason, None, one.finished_at) for one in ended]
        turn.note(store.end_steps(turn.conn, turn.tenancy.schema, noted))


def _is_stopped(run: RunNow, row: StepNow) -> bool:
    return run.state == "cancelling" or (row.type not in OUTSIDE and row.step not in run.graph.handlers)


def _next_look(conn: Conn, tenancy: Tenancy, run: RunNow, now: datetime) -> datetime:
    if run.state in FINAL:
        return now
    times = [now + LOOK_AGAIN, run.deadline_at, store.next_looks(conn, tenancy.schema, [run.id]).get(run.id)]
    return min(one for one in times if one is not None)
