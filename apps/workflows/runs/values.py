"""Rows of runs and steps as they are held in memory while one transaction works on them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.workflows.definitions.graph import Graph
from apps.workflows.runs.deciding import FINAL, End, Needs

FAIL_FAST, DEADLINE, CANCELLED = "fail_fast", "deadline", "cancelled"  # why a run stops before its time
STOPPING = (FAIL_FAST, DEADLINE)


class Ended(NamedTuple):
    """An execution that ended in this transaction. `error` is a JSON text."""

    execution_id: UUID
    state: str
    reason: str
    error: str | None
    finished_at: datetime


class StepEnd(NamedTuple):
    """A step, or one item of it, that has just been noted as ended."""

    id: int
    run_id: UUID
    step: str
    item: int | None
    type: str
    execution_id: UUID | None
    end: End
    error: str | None  # JSON


@dataclass(slots=True)
class RunNow:
    """A run whose root's lock is held. What is changed here is written once, at the end."""

    id: UUID
    root_id: UUID
    parent_step_id: int | None
    depth: int
    workflow_id: UUID
    version: int
    state: str
    reason: str
    open: int
    failed: int
    has_error: bool
    deadline_at: datetime | None
    started_at: datetime
    generation: int
    nominal_at: datetime | None
    trigger: str
    root_trigger: str  # of the run that began it all: whether its steps yield to live work
    name: str  # of the workflow
    finished_at: datetime | None
    graph: Graph
    error: str | None = None  # JSON, when it is found in this transaction
    output: str | None = None  # JSON, likewise

    @property
    def starts_steps(self) -> bool:
        return self.state == "running"


@dataclass(slots=True)
class StepNow:
    """A step's row. What is changed here is written once, at the end."""

    id: int
    run_id: UUID
    step: str
    item: int | None
    type: str
    state: str
    reason: str
    execution_id: UUID | None
    generation: int
    pending: int
    met: int
    failed: int
    succeeded: int
    items: int | None
    items_open: int
    items_failed: int
    wake_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    forced: bool
    decided_by: str = ""
    note: str = ""
    error: str | None = None  # JSON
    value: str | None = None  # JSON
    output: str | None = None  # JSON
    used: str | None = None  # JSON

    @property
    def needs(self) -> Needs:
        return Needs(self.pending, self.met, self.failed, self.succeeded)

    @needs.setter
    def needs(self, needs: Needs) -> None:
        self.pending, self.met, self.failed, self.succeeded = needs

    @property
    def end(self) -> End | None:
        return End(self.state, self.reason) if self.state in FINAL else None


class NewStep(NamedTuple):
    """A step's row that is to be made."""

    run_id: UUID
    step: str
    item: int | None
    type: str
    pending: int = 0
    value: str | None = None  # JSON
    generation: int = 1


def with_error(code: str, message: str, **more: Any) -> dict[str, Any]:
    """An error in the form that executions have."""
    return {"class": code, "message": message, **more}
