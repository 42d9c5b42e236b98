"""Carrying out what a person asked for: rows of a run go back, start, stop or end, and runs that had ended go on.

The caller holds the lock of the root. Rows go back first, then the counters are made again from the states, and only
then does anything end or start: so what ends is counted once.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from apps.executions.erasures import refuse_erased
from apps.workflows.interventions import redoing, store_changes
from apps.workflows.interventions.redoing import FAILED, Changes, Key, Row, To
from apps.workflows.runs import reopening
from apps.workflows.runs.closing import TYPES
from apps.workflows.runs.deciding import BY_PERSON, DEADLINE, FINAL, End, counted, fails_run
from apps.workflows.runs.looking import stop_steps
from apps.workflows.runs.turn import Turn
from apps.workflows.runs.values import RunNow, StepNow
from kernel.errors import Conflict

GOES_BACK = frozenset({"reopen", "start", "wait", "resume", "skip"})
GOES_ON = frozenset({"reopen", "resume"})
STARTS = GOES_ON | {"start"}


class Word(NamedTuple):
    """Who asked for it and why, for the rows that it names. `forced`: needs and conditions do not count."""

    by: str
    note: str = ""
    forced: bool = False


def seen_of(turn: Turn, run: RunNow) -> list[Row]:
    """The rows of a run as `redoing` sees them."""
    rows = turn.all_of(run)
    ids = [one.execution_id for one in rows if one.state in FAILED and one.execution_id is not None]
    states = store_changes.execution_states(turn.conn, turn.tenancy.schema, ids)
    turn.take([one.execution_id for one in rows if one.type == "workflow" and one.execution_id in states])
    began = {run_id for run_id, child in turn.runs.items() if child.failed > 0 or child.state == "cancelled"}
    return [
        Row(
            one.step, one.item, one.type, one.state, one.reason, one.execution_id,
            None if one.execution_id is None else states.get(one.execution_id), one.execution_id in began,
        )
        for one in rows
    ]  # fmt: skip


def carry_out(turn: Turn, run: RunNow, changes: Changes, word: Word) -> None:
    """Does to the rows of a run what `redoing` said, and opens the run again where it has ended. Conflict."""
    rows = _rows(turn, run)
    if run.state == "paused" and any(to in STARTS for to in changes.values()):
        raise Conflict("The run is paused; resume it first.", code="run_paused")
    if any(to in GOES_BACK and rows[key].state in FINAL for key, to in changes.items()):
        open_again(turn, run, by=word.by)
    reopened = [rows[key] for key, to in changes.items() if to == "reopen"]
    for key, to in changes.items():
        if to == "drop":
            turn.drop(rows.pop(key))
        elif to in GOES_BACK:
            _back(turn, rows, key, to)
    reopening.reopen_steps(turn, run, [one for one in reopened if one.type != "workflow"])
    for row in reopened:
        if row.type == "workflow":
            _retry_child(turn, row, word)
    recount(turn, run)
    for row in [rows[key] for key, to in changes.items() if to == "cut"]:
        row.reason = BY_PERSON  # however many of its items may fail
        row.decided_by, row.note = word.by, word.note
        turn.changed(row)
    stop_steps(turn, [rows[key] for key, to in changes.items() if to == "stop"])
    for key, to in changes.items():
        if to in ("skip", "cancel", "start"):
            _act(turn, rows[key], to, word)
    turn.decide(run)
    turn.go_on()
    turn.looks.add(run.id)


def open_again(turn: Turn, run: RunNow, *, by: str) -> None:
    """A run that has ended goes on, and with it the step of which it is the sub-workflow, and so on up to the root."""
    if run.state == "cancelling":
        raise Conflict("The run is being cancelled; wait until it has ended.", code="run_cancelling")
    run.reason = ""  # what made it stop is dealt with
    turn.changed_run(run)
    if run.finished_at is None:
        return
    refuse_erased(turn.conn, turn.tenancy.schema, [run.id])
    run.state, run.finished_at, run.generation = "running", None, run.generation + 1
    deadline_s = run.graph.workflow.deadline_s
    run.deadline_at = None if deadline_s is None else turn.now + timedelta(seconds=deadline_s)
    run.has_error, run.error, run.output = False, None, None
    store_changes.forget_outcome(turn.conn, turn.tenancy.schema, run.id)
    reopening.reopen_container(turn, run, by=by)
    if run.parent_step_id is not None:
        _open_above(turn, run, run.parent_step_id, by=by)


def recount(turn: Turn, run: RunNow) -> None:
    """The counters of a run, of its steps that wait, and of those with lists, made again from the states."""
    rows = turn.all_of(run)
    ends = {one.step: one.end for one in rows if one.item is None and one.end is not None}
    items: dict[str, list[StepNow]] = defaultdict(list)
    for one in rows:
        if one.item is not None:
            items[one.step].append(one)
    for one in rows:
        if one.item is None and one.state == "waiting" and one.step in run.graph.steps:
            one.needs = counted(run.graph.steps[one.step], ends)
            turn.changed(one)
    run.open = sum(1 for one in rows if one.item is None and one.state not in FINAL)
    run.failed = int(run.reason == DEADLINE)
    for one in rows:
        if one.item is None and one.type not in TYPES and one.end is not None:
            run.failed += fails_run(run.graph.steps[one.step], one.end)
        if one.item is None and one.items is not None:
            one.items_open = sum(1 for item in items[one.step] if item.state not in FINAL)
            one.items_failed = sum(1 for item in items[one.step] if item.state in FAILED)
            turn.changed(one)
    if run.failed == 0 and run.has_error:  # what failed it runs again
        store_changes.forget_outcome(turn.conn, turn.tenancy.schema, run.id)
        run.has_error, run.error = False, None
    turn.changed_run(run)


def _rows(turn: Turn, run: RunNow) -> dict[Key, StepNow]:
    return {(one.step, one.item): one for one in turn.all_of(run)}


def _back(turn: Turn, rows: Mapping[Key, StepNow], key: Key, to: To) -> None:
    """A row that has ended, as if it had not; what has not ended stays as it is."""
    row = rows[key]
    if row.state not in FINAL:
        return
    row.state, row.reason, row.finished_at, row.error = "running" if to in GOES_ON else "waiting", "", None, None
    row.forced, row.decided_by, row.note = False, "", ""
    if to not in GOES_ON:
        if row.execution_id is not None or row.items is not None or row.type not in ("job", "workflow"):
            # Items that were read again must not meet the run keys of those that were there before.
            row.generation = 1 + max(one.generation for (step, _), one in rows.items() if step == row.step)
        row.output, row.started_at, row.items, row.items_open, row.items_failed = None, None, None, 0, 0
    turn.changed(row)


def _act(turn: Turn, row: StepNow, to: To, word: Word) -> None:
    row.forced, row.decided_by, row.note = word.forced, word.by, word.note
    if to == "start":
        turn.start(row)
    else:
        turn.end(row, End("skipped" if to == "skip" else "cancelled", BY_PERSON))


def _retry_child(turn: Turn, row: StepNow, word: Word) -> None:
    """What failed in the run of a sub-workflow runs again."""
    assert row.execution_id is not None
    child = turn.runs[row.execution_id]
    carry_out(turn, child, redoing.retried(child.graph, seen_of(turn, child)), word)


def _open_above(turn: Turn, run: RunNow, step_id: int, *, by: str) -> None:
    """The step whose sub-workflow goes on again; what was skipped because of how it ended is decided again."""
    found = next(iter(store_changes.steps_by_id(turn.conn, turn.tenancy.schema, [step_id])), None)
    if found is None or found.execution_id != run.id:
        newer = f"its run is {found.execution_id}" if found and found.execution_id else "its list was read again"
        raise Conflict(f"The step that this run was has been run once more; {newer}.", code="run_superseded")
    turn.take([found.run_id])
    parent = turn.runs[found.run_id]
    rows = _rows(turn, parent)
    row = rows[found.step, found.item]
    if row.state == "running":  # its end is not noted yet, or it goes on already
        return
    if parent.state == "paused":
        raise Conflict("The run that it is a part of is paused; resume that first.", code="run_paused")
    again = redoing.decided_again(parent.graph, seen_of(turn, parent), step=row.step)
    open_again(turn, parent, by=by)
    _back(turn, rows, (row.step, row.item), "reopen")
    if row.item is not None:
        _back(turn, rows, (row.step, None), "resume")
    for key, to in again.items():
        _back(turn, rows, key, to)
    recount(turn, parent)
    turn.decide(parent)
