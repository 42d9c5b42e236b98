"""One transaction's work on runs of a tenant: ends of steps in, what follows from them out.

Whoever makes a `Turn` holds the locks of the runs' roots (`store.lock_of_runs`, `store.lock_of_executions`). Rows are
changed in memory, `go_on` until nothing follows any more, and written once by `write`. The cost follows from the steps
that end and their children, not from the size of the graph.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.workflows.runs import closing, deciding, mapping, previous, store
from apps.workflows.runs.deciding import End
from apps.workflows.runs.known import Known
from apps.workflows.runs.starting import Starting
from apps.workflows.runs.values import CANCELLED, DEADLINE, FAIL_FAST, NewStep, RunNow, StepEnd, StepNow, with_error
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
ROUNDS_BY_NAME = 2  # rounds that read only children; a longer cascade reads all of the run that waits at once
OUTSIDE = closing.TYPES  # steps beside the graph: nothing needs them


class _Ending(NamedTuple):
    run: RunNow
    step: str
    type: str
    end: End
    execution_id: UUID | None
    error: str | None


class Turn(Known):
    """What is known, what has ended of it, and what is to be done."""

    def __init__(self, conn: Conn, tenancy: Tenancy, *, now: datetime) -> None:
        super().__init__(conn, tenancy, now=now)
        self.looks: set[UUID] = set()  # runs that somebody has to look at soon, or whose time to look at has changed
        self._ends: list[_Ending] = []
        self._items: list[mapping.ItemEnd] = []
        self._went: list[previous.Went] = []  # steps for which the next run may wait
        self._unfinished: set[UUID] = set()  # runs that have something to do before they end, and are paused
        self._starts: list[StepNow] = []
        self._starting = Starting(conn, tenancy, now=now)

    # -- what happens --------------------------------------------------------------------------------------------------

    def note(self, ended: Sequence[StepEnd]) -> None:
        """Ends of steps that are written already."""
        self.take({one.run_id for one in ended})
        for one in ended:
            row = self._rows.get(one.id)
            if row is not None:  # it was read before: as it is in the table now
                row.state, row.reason, row.finished_at, row.wake_at = one.end.state, one.end.reason, self.now, None
            run = self.runs.get(one.run_id)
            if run is not None and one.item is not None:
                self._items.append(mapping.ItemEnd(run, one.step, one.end))
            elif run is not None:
                self._ends.append(_Ending(run, one.step, one.type, one.end, one.execution_id, one.error))

    def end(self, step: StepNow, end: End, *, error: str | None = None) -> None:
        """Ends a step that waits or has no execution. `error` is JSON."""
        self.set_end(step, end, error=error)
        run = self.runs[step.run_id]
        if step.item is not None:
            self._items.append(mapping.ItemEnd(run, step.step, end))
        else:
            self._ends.append(_Ending(run, step.step, step.type, end, step.execution_id, step.error))

    def set_end(self, step: StepNow, end: End, *, error: str | None = None) -> None:
        """The same, where the caller sees to what follows."""
        step.state, step.reason, step.finished_at, step.wake_at = end.state, end.reason, self.now, None
        if error is not None:
            step.error = error
        self.changed(step)

    def start(self, step: StepNow) -> None:
        """Starts a step that waits, whatever its needs say."""
        step.state, step.reason, step.wake_at = "running", "", None
        self.changed(step)
        self._starts.append(step)

    def begin(self, run: RunNow) -> None:
        """Starts the steps of a new run that need nothing; its rows were added."""
        for name in run.graph.roots:
            self.start(self._named[run.id, name])

    def stop(self, run: RunNow, reason: str) -> None:
        """What waits is skipped, but for handlers of failures; whoever looks at the run next stops what runs."""
        run.reason = reason
        self.changed_run(run)
        self.looks.add(run.id)
        rows = {one.step: one for one in self.all_of(run) if one.item is None and one.state == "waiting"}
        for name in deciding.cut_off(run.graph, rows):
            self.end(rows[name], End("skipped", reason))

    def cancel(self, run: RunNow, reason: str = CANCELLED) -> None:
        """Nothing more of the run starts; whoever looks at it next stops what runs."""
        run.state, run.reason = "cancelling", reason
        self.changed_run(run)
        self.looks.add(run.id)
        for one in self.all_of(run):
            if one.state == "waiting":
                self.end(one, End("cancelled", CANCELLED))

    def resume(self, run: RunNow) -> None:
        """A paused run goes on; whoever looks at it next starts what may. A failure in the pause stops it now."""
        run.state = "running"
        self.changed_run(run)
        self.looks.add(run.id)
        if run.failed and not run.reason and run.graph.workflow.failure_policy != "continue":
            self.stop(run, FAIL_FAST)

    def overdue(self, run: RunNow) -> None:
        """The run's own deadline has passed: it fails, and stops as at a first failure."""
        run.state, run.failed = "running", run.failed + 1
        if not run.has_error:
            message = "Its deadline passed before all steps had ended."
            run.has_error, run.error = True, orjson.dumps(with_error(DEADLINE, message)).decode()
        self.stop(run, DEADLINE)

    def decide(self, run: RunNow) -> None:
        """Looks at all that waits in a run, with its counters made anew from the states of what it needs."""
        self.go_on()  # what has just ended is counted once
        rows = {one.step: one for one in self.all_of(run) if one.item is None}
        ends = {name: one.end for name, one in rows.items() if one.end is not None}
        for name, step in run.graph.steps.items():
            row = rows.get(name)
            if row is None or row.state != "waiting":
                continue
            needs = deciding.counted(step, ends)
            if needs != row.needs:
                row.needs = needs
                self.changed(row)
            self._carry_out(run, row, deciding.decide(step, needs))
        for row in rows.values():
            if row.items is not None and row.state == "running" and run.starts_steps:
                mapping.fill(self, run, row)

    def go_on(self) -> None:
        """Until nothing follows any more."""
        while self._ends or self._items or self._starts or self._close():
            if self._items:
                items, self._items = self._items, []
                mapping.note(self, items)
            rounds = 0
            while self._ends:
                self._round(whole=rounds >= ROUNDS_BY_NAME)
                rounds += 1
            self._begin_steps()

    def _begin_steps(self) -> None:
        starts, self._starts = self._starts, []
        if not starts:
            return
        self._write_before({one.run_id for one in starts})
        for step, end, error in self._starting.begin(
            self.runs, starts, expand=lambda row, each, values: mapping.expand(self, row, each, values)
        ):
            self.end(step, end, error=error)
        self._changed.update(step.id for step in starts)
        self.looks.update(step.run_id for step in starts if step.wake_at is not None)

    def _write_before(self, starting: set[UUID]) -> None:
        """What starts now may read what has just ended, and starts only in a run that goes on."""
        resumed = [self.runs[one] for one in sorted(starting) if self.runs[one].state != self._states[one]]
        store.write_runs(self.conn, self.tenancy.schema, resumed)
        self._states.update((one.id, one.state) for one in resumed)
        ended = [one for one in sorted(self._changed) if self._rows[one].state in deciding.FINAL]
        store.write_steps(self.conn, self.tenancy.schema, [self._rows[one] for one in ended])
        self._changed.difference_update(ended)

    def write(self) -> None:
        """Writes all that has changed, and wakes who has to look."""
        self._finish()
        schema = self.tenancy.schema
        store.write_steps(self.conn, schema, [self._rows[one] for one in sorted(self._changed)])
        store.write_runs(self.conn, schema, [self.runs[one] for one in sorted(self._changed_runs)])
        self.looks.update(previous.following(self.conn, schema, self._went))

    # -- rounds --------------------------------------------------------------------------------------------------------

    def _round(self, *, whole: bool) -> None:
        batch, self._ends = self._ends, []
        by_run: dict[UUID, dict[str, End]] = defaultdict(dict)
        for one in batch:
            self._count(one)
            if one.type not in OUTSIDE:
                by_run[one.run.id][one.step] = one.end
        children = {
            run_id: deciding.children_of(self.runs[run_id].graph, ends) for run_id, ends in by_run.items()
        }  # fmt: skip
        self._read_waiting(children, whole=whole)
        for run_id, ends in by_run.items():
            run = self.runs[run_id]
            rows = {name: self._named[run_id, name] for name in children[run_id] if (run_id, name) in self._named}
            rows = {name: row for name, row in rows.items() if row.state == "waiting"}
            result = deciding.advance(run.graph, ends, {name: row.needs for name, row in rows.items()})
            for name, needs in result.needs.items():
                rows[name].needs = needs
                self.changed(rows[name])
                self._carry_out(run, rows[name], deciding.decide(run.graph.steps[name], needs))
        for one in batch:
            if one.type not in OUTSIDE:
                self._stop_at_failure(one)
                if one.run.graph.steps[one.step].depends_on_previous and previous.went_well(one.end):
                    self._went.append(previous.Went(one.run.workflow_id, one.run.id, one.step))

    def _carry_out(self, run: RunNow, row: StepNow, verdict: deciding.Verdict) -> None:
        if not run.starts_steps or row.state != "waiting":  # a pause: what was decided is decided again later
            return
        if verdict.kind == "start":
            self.start(row)
        elif verdict.kind == "skip":
            self.end(row, End("skipped", verdict.reason))

    def _count(self, one: _Ending) -> None:
        run = one.run
        run.open -= 1
        self.changed_run(run)
        if one.type in OUTSIDE or not deciding.fails_run(run.graph.steps[one.step], one.end):
            return
        run.failed += 1
        if not run.has_error and run.state != "cancelling":
            run.has_error, run.error = True, _error_of(one)

    def _stop_at_failure(self, one: _Ending) -> None:
        run = one.run
        if run.reason or not run.starts_steps:
            return
        if deciding.stops_run(run.graph.workflow, run.graph.steps[one.step], one.end):
            self.stop(run, FAIL_FAST)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close(self) -> bool:
        """Starts what runs that are about to end as failed do before that; whether there was any."""
        for run_id in sorted(self._changed_runs):
            run = self.runs[run_id]
            if run.finished_at is not None or run.open > 0 or run.state == "cancelling":
                continue
            if closing.is_asked(run.graph.workflow) and self._will_fail(run):
                self._close_run(run)
        return bool(self._starts)

    def _will_fail(self, run: RunNow) -> bool:
        """Whether a run of which nothing is open ends as failed: a step failed it, or its output can't be made."""
        if run.failed > 0:
            return True
        state = run.state
        self._starting.fill_output(run)
        fails, run.state = run.state == "failed", state
        run.has_error = run.has_error or fails
        return fails

    def _close_run(self, run: RunNow) -> None:
        self._unfinished.discard(run.id)
        rows = [
            closing.Row(one.step, one.type, one.state, one.generation, one.finished_at)
            for one in self.all_of(run)
            if one.item is None
        ]
        following = closing.closing(run.graph, rows, generation=run.generation)
        if following is None:
            return
        if not run.starts_steps:
            self._unfinished.add(run.id)
            return
        row = self.named(run.id, following.step)
        if row is None:
            new = NewStep(run.id, following.step, None, following.type, generation=run.generation)
            [row] = store.add_steps(self.conn, self.tenancy.schema, [new])
            self.add([row])
        row.generation, row.finished_at, row.error = run.generation, None, None
        run.open += 1
        self.start(row)

    def _finish(self) -> None:
        for run_id in sorted(self._changed_runs):
            run = self.runs[run_id]
            if run.finished_at is not None or run.id in self._unfinished:
                continue
            state = deciding.end_of_run(
                open_steps=run.open, failed_steps=run.failed, cancelled=run.state == "cancelling"
            )
            if state is None:
                continue
            run.state, run.finished_at = state, self.now
            if state == "succeeded":
                self._starting.fill_output(run)
            self.looks.add(run.id)


def _error_of(one: _Ending) -> str:
    """The error of the run: that of the first step that failed it, with its name and its execution."""
    inner = None if one.error is None else orjson.loads(one.error)
    why = inner.get("message", "") if isinstance(inner, dict) and one.end.state != "cancelled" else ""
    told = {"cancelled": "was cancelled"}.get(one.end.state, "failed")
    execution = None if one.execution_id is None else str(one.execution_id)
    message = f"The step {one.step} {told}" + (f": {why}" if why else ".")
    return orjson.dumps(
        with_error("step_failed", message[:2_000], step=one.step, execution=execution, error=inner)
    ).decode()
