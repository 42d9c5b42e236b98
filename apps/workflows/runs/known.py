"""What one transaction knows of runs and steps: rows as they were read and as they are to be written."""

import threading
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.workflows.definitions.graphs import Graphs
from apps.workflows.interventions import store_changes
from apps.workflows.runs import store, store_items
from apps.workflows.runs.values import RunNow, StepNow
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
_here = threading.local()


def graphs_here() -> Graphs:
    """The graphs that this thread remembers."""
    if not hasattr(_here, "graphs"):
        _here.graphs = Graphs()
    found: Graphs = _here.graphs
    return found


class Known:
    """The runs and the rows that were read, and which of them have changed."""

    def __init__(self, conn: Conn, tenancy: Tenancy, *, now: datetime) -> None:
        self.conn, self.tenancy, self.now = conn, tenancy, now
        self.runs: dict[UUID, RunNow] = {}
        self._states: dict[UUID, str] = {}  # of runs, as they are stored
        self._rows: dict[int, StepNow] = {}
        self._named: dict[tuple[UUID, str], StepNow] = {}  # the steps themselves, not their items
        self._whole: set[UUID] = set()  # runs of which all rows that wait are read
        self._changed: set[int] = set()
        self._changed_runs: set[UUID] = set()

    def take(self, run_ids: Collection[UUID]) -> None:
        """Reads runs. Those whose definition can't be read, or that are not there, are left out."""
        rows = store.runs(self.conn, self.tenancy.schema, set(run_ids) - self.runs.keys())
        graphs = graphs_here().load(self.conn, self.tenancy.schema, {(row[4], row[5]) for row in rows})
        for row in rows:
            if (row[4], row[5]) in graphs:
                self._states[row[0]] = row[6]
                self.runs[row[0]] = RunNow(*(*row, graphs[row[4], row[5]]))

    def add(self, steps: Iterable[StepNow]) -> None:
        """Rows that were read or made."""
        for one in steps:
            if one.id not in self._rows:
                self._rows[one.id] = one
                if one.item is None:
                    self._named[one.run_id, one.step] = one

    def all_of(self, run: RunNow) -> list[StepNow]:
        """All rows of a run, with items; as they are in memory where they were read before."""
        rows = store.steps_of(self.conn, self.tenancy.schema, run.id)
        self.add(rows)
        self._whole.add(run.id)
        return [self._rows[one.id] for one in rows]

    def read_steps(self, wanted: Sequence[tuple[UUID, str]]) -> None:
        """Reads these (run, step) that are not known yet, whatever their state."""
        missing = [key for key in wanted if key not in self._named]
        if missing:
            self.add(store_items.steps(self.conn, self.tenancy.schema, missing))

    def named(self, run_id: UUID, step: str) -> StepNow | None:
        """A step that was read."""
        return self._named.get((run_id, step))

    def waiting_items(self, step: StepNow, *, most: int | None) -> list[StepNow]:
        """Items of a step that wait, the first places first."""
        but = [one.id for one in self._items_of(step) if one.state != "waiting"]
        found = store_items.waiting(self.conn, self.tenancy.schema, step.run_id, step.step, but=but, most=most)
        self.add(found)
        return [self._rows[one.id] for one in found]

    def running_items(self, step: StepNow) -> int:
        """How many items of a step run."""
        known = self._items_of(step)
        others = store_items.running(
            self.conn, self.tenancy.schema, step.run_id, step.step, but=[one.id for one in known]
        )  # fmt: skip
        return others + sum(1 for one in known if one.state == "running")

    def _items_of(self, step: StepNow) -> list[StepNow]:
        """Those that were read."""
        return [
            one
            for one in self._rows.values()
            if one.item is not None and one.step == step.step and one.run_id == step.run_id
        ]

    def drop(self, step: StepNow) -> None:
        """Deletes the row of an item, at once."""
        store_changes.drop_steps(self.conn, self.tenancy.schema, [step.id])
        self._rows.pop(step.id, None)
        self._changed.discard(step.id)

    def changed(self, step: StepNow) -> None:
        """This row is to be written."""
        self._changed.add(step.id)

    def changed_run(self, run: RunNow) -> None:
        """This run's row is to be written."""
        self._changed_runs.add(run.id)

    def _read_waiting(self, children: dict[UUID, list[str]], *, whole: bool) -> None:
        if whole:
            for run_id in children:
                if run_id not in self._whole:
                    self.all_of(self.runs[run_id])
            return
        wanted = [(run_id, name) for run_id, names in children.items() for name in names]
        missing = [key for key in wanted if key not in self._named and key[0] not in self._whole]
        if missing:
            self.add(store.waiting(self.conn, self.tenancy.schema, missing))
