"""Steps that run over a list: a row for each item of it, so many of them at once, and the end of the step with theirs.

The list is read when the step starts. Each item that ends lets the next one start, so an end costs the same however
long the list is. Items end in the same turn as everything else; only their step counts in the graph.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import orjson

from apps.workflows.definitions.definition import ForEach
from apps.workflows.definitions.inputs import items_of
from apps.workflows.runs import store
from apps.workflows.runs.deciding import BY_PERSON, FINAL, End, end_of_map, map_goes_on
from apps.workflows.runs.values import CANCELLED, STOPPING, NewStep, RunNow, StepNow, with_error

if TYPE_CHECKING:
    from apps.workflows.runs.turn import Turn

FAILED = ("failed", "cancelled")
ITEMS_FAILED = "items_failed"


class ItemEnd(NamedTuple):
    """An item of a step that has ended."""

    run: RunNow
    step: str
    end: End


def expand(turn: "Turn", row: StepNow, each: ForEach, values: dict[str, object]) -> list[StepNow]:
    """Makes the rows of the items; returns those that start at once. Raises BadInput for what is no list."""
    items = items_of(each, values)
    row.items, row.items_open, row.items_failed = len(items), len(items), 0
    new = [
        NewStep(row.run_id, row.step, at, row.type, value=orjson.dumps(one).decode(), generation=row.generation)
        for at, one in enumerate(items)
    ]
    made = store.add_steps(turn.conn, turn.tenancy.schema, new) if new else []
    turn.add(made)
    first = made[: each.max_in_flight or len(made)]
    for item in first:
        turn.changed(item)
    return first


def note(turn: "Turn", ended: Sequence[ItemEnd]) -> None:
    """Counts items that have ended, starts as many others, and ends the steps of which none is left."""
    by_step: dict[tuple[UUID, str], list[End]] = defaultdict(list)
    runs = {one.run.id: one.run for one in ended}
    for one in ended:
        by_step[one.run.id, one.step].append(one.end)
    turn.read_steps(list(by_step))
    for (run_id, name), ends in by_step.items():
        run, row = runs[run_id], turn.named(run_id, name)
        if row is None or row.state != "running":
            continue
        row.items_open -= len(ends)
        row.items_failed += sum(1 for end in ends if end.state in FAILED)
        turn.changed(row)
        go_on(turn, run, row, most=len(ends))


def fill(turn: "Turn", run: RunNow, row: StepNow) -> None:
    """Starts as many items as may run: after a pause, or when an item could not start."""
    each = run.graph.steps[row.step].for_each
    limit = None if each is None else each.max_in_flight
    go_on(turn, run, row, most=row.items_open if limit is None else max(0, limit - turn.running_items(row)))


def cut(turn: "Turn", run: RunNow, row: StepNow, reason: str) -> None:
    """What waits of a step's items is skipped; the step ends when what runs of them has."""
    waiting = turn.waiting_items(row, most=None)
    for item in waiting:
        turn.set_end(item, End("skipped", reason))
    row.items_open -= len(waiting)
    if waiting and reason != ITEMS_FAILED:
        row.reason = reason  # it can't succeed any more
    turn.changed(row)
    _end(turn, run, row)


def go_on(turn: "Turn", run: RunNow, row: StepNow, *, most: int) -> None:
    """Starts up to `most` further items, or skips them all once too many have failed; ends the step after the last."""
    each = run.graph.steps[row.step].for_each
    assert each is not None
    if not map_goes_on(failed_items=row.items_failed, max_failures=each.max_failures):
        cut(turn, run, row, ITEMS_FAILED)
        return
    stops = run.reason in STOPPING and row.step not in run.graph.handlers
    if run.starts_steps and not stops and most > 0:
        for item in turn.waiting_items(row, most=most):
            turn.start(item)
    _end(turn, run, row)


def _end(turn: "Turn", run: RunNow, row: StepNow) -> None:
    each = run.graph.steps[row.step].for_each
    assert each is not None
    end = end_of_map(open_items=row.items_open, failed_items=row.items_failed, max_failures=each.max_failures)
    if end is None or row.state in FINAL:
        return
    if row.reason in (CANCELLED, *STOPPING):
        end = End("cancelled", row.reason)
    elif row.reason == BY_PERSON and row.items_failed:
        end = End("cancelled", BY_PERSON)
    elif end.state == "failed" and run.state == "cancelling":
        end = End("cancelled", CANCELLED)
    error = None
    if end.state == "failed":
        message = f"{row.items_failed:,} of {row.items or 0:,} items failed; {each.max_failures:,} may."
        error = orjson.dumps(with_error(ITEMS_FAILED, message)).decode()
    turn.end(row, end, error=error)
