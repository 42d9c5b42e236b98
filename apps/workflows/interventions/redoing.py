"""What a person's verbs do to the steps of a run. Pure: rows and the graph in, what becomes of each row out.

Rows that are named in no change stay as they are: a step that has run is never run again unless somebody asks for it.
"""

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple
from uuid import UUID

from apps.workflows.definitions.graph import Graph
from apps.workflows.runs.deciding import DEADLINE, FAIL_FAST, FINAL, UPSTREAM_FAILED, UPSTREAM_SKIPPED
from kernel.errors import Conflict

Key = tuple[str, int | None]  # a step, and the place in its list

# reopen: its dead execution goes on, under its run key. start: it starts now, as a new generation when it ran before.
# wait: its needs decide again. resume: of a step with a list, some of its items run again. skip and cancel: it has
# ended by decision of a person. stop: it runs, and is asked to stop. cut: of a step with a list, all that has not ended
# is stopped or cancelled. drop: its row goes; the list is read again.
To = Literal["reopen", "start", "wait", "resume", "skip", "cancel", "stop", "cut", "drop"]
Changes = dict[Key, To]

FAILED = frozenset({"failed", "cancelled"})
# Skips that follow from how others ended. A condition that did not hold and a person's word stand.
STOPPED = frozenset({FAIL_FAST, DEADLINE})
FOLLOWS = STOPPED | {UPSTREAM_FAILED, UPSTREAM_SKIPPED}
OWN_TYPES = frozenset({"approval", "delay"})  # they have no execution


class Row(NamedTuple):
    """A step of a run, or one item of it, as the verbs see it."""

    step: str
    item: int | None
    type: str
    state: str
    reason: str
    execution_id: UUID | None = None
    execution_state: str | None = None
    began: bool = False  # of a sub-workflow: its run is there

    @property
    def key(self) -> Key:
        return self.step, self.item


def retried(graph: Graph, rows: Iterable[Row], *, only: Key | None = None) -> Changes:
    """What failed or was cancelled runs again, and what was skipped because of it is decided again. Conflict.

    Of all that failed, failures that were allowed stay; `only` names one step or item, whatever was allowed.
    """
    table = _Table(graph, rows)
    failed = [one for one in table.steps() if one.state in FAILED and not graph.steps[one.step].allow_failure]
    if only is not None:
        failed = [table.one(only[0])]
        if failed[0].state not in FAILED:
            raise Conflict(f"The step did not fail: it is {failed[0].state}.", code="step_not_failed")
    if not failed and (only or not table.cut_short()):
        raise Conflict("No step of this run failed or was cancelled.", code="nothing_to_retry")
    names = {one.step for one in failed}
    changes = table.decided_again(names if only else names | table.cut_short())
    back = names | {step for step, _ in changes}
    for one in failed:
        if only is not None and only[1] is not None:
            _item_again(table, only, changes)
        else:
            _again(table, one, changes, waits=bool(back & table.parents(one.step)))
    return changes


def rerun(graph: Graph, rows: Iterable[Row], *, step: str, downstream: bool = True) -> Changes:
    """The step runs once more, and all that follows from it is decided again. Conflict while some of that runs.

    Without `downstream` what follows stays as it is, whatever the step brings this time.
    """
    table = _Table(graph, rows)
    first = table.one(step)
    if first.state not in FINAL:
        raise Conflict(f"The step has not ended: it is {first.state}.", code="step_not_finished")
    if first.state == "skipped":
        raise Conflict("The step was skipped; force it to run it.", code="step_skipped")
    following = graph.downstream({step}) if downstream else set()
    alive = sorted(one.step for one in table.steps() if one.step in following and one.state == "running")
    if alive:
        names = ", ".join(alive[:5])
        raise Conflict(f"What follows from the step is running: {names}. Wait or cancel it.", code="step_not_finished")
    changes: Changes = {}
    for one in table.steps():
        if one.step == step or (one.step in following and one.state in FINAL):
            _afresh(table, one, changes, to="start" if one.step == step else "wait")
    return changes


def skipped(graph: Graph, rows: Iterable[Row], *, step: str) -> Changes:
    """The step ends as skipped; what was skipped because it had failed is decided again. Conflict.

    Steps that wait, that failed or were cancelled can be skipped, and approvals and delays that go on.
    """
    table = _Table(graph, rows)
    one = table.one(step)
    if one.state in ("succeeded", "skipped"):
        raise Conflict(f"The step has ended: it is {one.state}.", code="step_finished")
    if one.state == "running" and one.type not in OWN_TYPES:
        raise Conflict("The step is running; cancel it first.", code="step_running")
    changes = table.decided_again({step}) if one.state in FAILED else {}
    changes[one.key] = "skip"
    return changes


def forced(graph: Graph, rows: Iterable[Row], *, step: str) -> Changes:
    """The step starts now, whatever its needs say, and what was skipped because it was is decided again. Conflict."""
    table = _Table(graph, rows)
    one = table.one(step)
    if one.state not in ("waiting", "skipped"):
        raise Conflict(f"Only what waits or was skipped can be forced: it is {one.state}.", code="step_not_waiting")
    changes = table.decided_again({step}) if one.state == "skipped" else {}
    _afresh(table, one, changes, to="start")
    return changes


def branch_cancelled(graph: Graph, rows: Iterable[Row], *, step: str, branch: bool) -> Changes:
    """The step ends as cancelled, or is asked to stop; with `branch` also what follows from it alone. Conflict.

    What also follows from steps outside the branch is left to its join rule.
    """
    table = _Table(graph, rows)
    one = table.one(step)
    below = table.only_below(step) if branch else set()
    changes: Changes = {}
    for name in (step, *sorted(below, key=graph.place.__getitem__)):  # the first one is what failed the run
        changes |= table.ended_by_person(name)
    if not changes:
        raise Conflict(f"The step has ended: it is {one.state}.", code="step_finished")
    return changes


def decided_again(graph: Graph, rows: Iterable[Row], *, step: str) -> Changes:
    """What was skipped because of how this step ended waits again: it has not ended after all."""
    return {key: to for key, to in _Table(graph, rows).decided_again({step}).items() if key[0] != step}


class _Table:
    """The rows by step, and what follows from what."""

    def __init__(self, graph: Graph, rows: Iterable[Row]) -> None:
        self._rows: dict[Key, Row] = {one.key: one for one in rows}
        self._items: dict[str, list[Row]] = {}
        for one in self._rows.values():
            if one.item is not None:
                self._items.setdefault(one.step, []).append(one)
        self._graph = graph

    def one(self, step: str) -> Row:
        return self._rows[step, None]

    def item(self, key: Key) -> Row | None:
        return self._rows.get(key)

    def steps(self) -> list[Row]:
        """Of the definition, without items, compensations and the run's own handler."""
        return [one for key, one in self._rows.items() if key[1] is None and one.step in self._graph.steps]

    def items(self, step: str) -> list[Row]:
        return self._items.get(step, [])

    def parents(self, step: str) -> set[str]:
        return {edge.parent for edge in self._graph.steps[step].needs}

    def only_below(self, step: str) -> set[str]:
        """What follows from this step and needs nothing from outside of that."""
        found = {step}
        candidates = self._graph.downstream({step})
        grew = True
        while grew:
            more = {one for one in candidates - found if self.parents(one) <= found}
            found |= more
            grew = bool(more)
        return found - {step}

    def cut_short(self) -> set[str]:
        """Steps that were skipped only because another one failed the run."""
        return {one.step for one in self.steps() if one.state == "skipped" and one.reason in STOPPED}

    def decided_again(self, steps: Collection[str]) -> Changes:
        """What was skipped because of how these steps ended, and these where they were skipped so themselves."""
        found: Changes = {}
        for name in self._graph.downstream(steps) | set(steps):
            one = self.one(name)
            if one.state == "skipped" and one.reason in FOLLOWS:
                found[one.key] = "wait"
        return found

    def ended_by_person(self, step: str) -> Changes:
        """The step, of what has not ended; where its list is read, the items, with which it ends."""
        items = self.items(step)
        found = {one.key: _ended(one) for one in items or [self.one(step)] if one.state not in FINAL}
        return found | {(step, None): "cut"} if items and found else found


def _ended(one: Row) -> To:
    return "stop" if one.state == "running" and one.execution_id is not None else "cancel"


def _again(table: _Table, one: Row, changes: Changes, *, waits: bool) -> None:
    """A failed step. `waits`: something that it needs is decided again, and so is it."""
    if waits:
        _afresh(table, one, changes, to="wait")
        return
    items = table.items(one.step)
    if not items:
        changes[one.key] = _opened(one)
        return
    changes[one.key] = "resume"
    for item in items:
        if item.state in FAILED:
            changes[item.key] = _opened(item)
        elif item.state == "skipped":
            changes[item.key] = "wait"


def _item_again(table: _Table, key: Key, changes: Changes) -> None:
    item = table.item(key)
    if item is None or item.state not in FAILED:
        state = "not there" if item is None else item.state
        raise Conflict(f"The item did not fail: it is {state}.", code="step_not_failed")
    changes[key[0], None] = "resume"
    changes[key] = _opened(item)


def _opened(one: Row) -> To:
    """What a failed step does that its needs let run: goes on in its execution, or starts anew when that can't be."""
    if one.execution_id is None:
        # cancelled before its needs had decided
        return "wait" if one.state == "cancelled" and one.type not in OWN_TYPES else "start"
    goes_on = one.began if one.type == "workflow" else one.execution_state == "dead"
    return "reopen" if goes_on else "start"


def _afresh(table: _Table, one: Row, changes: Changes, *, to: To) -> None:
    """As if it had not run yet: its list is read again."""
    changes[one.key] = to
    for item in table.items(one.step):
        changes[item.key] = "drop"
