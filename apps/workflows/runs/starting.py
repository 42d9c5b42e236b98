"""Starting steps: their conditions and their input, and the executions that they become.

In the transaction of whatever let them start, under the lock of their root. Jobs are shared without waiting for anybody
who changes one: tickets are locked by then, which come later in the order of locks. A step whose job is being changed
waits a moment.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.executions import store as executions
from apps.schedules import store as jobs
from apps.schedules.keyed import flows_of_executions
from apps.schedules.running import JobNow, Run, job_shared, new_ticket
from apps.tickets import store as tickets
from apps.tickets.values import flow_of, lane_of
from apps.usage import deltas
from apps.usage.figures import SUBMITTED, Tally
from apps.workflows.definitions.definition import ForEach, Step
from apps.workflows.definitions.inputs import (
    BadInput,
    filled,
    message_filled,
    reads_of,
    steps_named,
    texts_of,
    unmet_condition,
)
from apps.workflows.runs import previous, store, upstream
from apps.workflows.runs.closing import TYPES, handler_of
from apps.workflows.runs.deciding import WHEN_FALSE, End
from apps.workflows.runs.values import RunNow, StepNow, with_error
from kernel.ids import uuid7s
from kernel.limitrules import Flow
from kernel.stepkeys import TRIGGER, step_key
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
INPUT_MAX_BYTES = 262_144
BUSY_WAIT = timedelta(seconds=1)  # until a step is tried again whose job is just being changed
BUSY = "job_changes"  # why it waits
Expand = Callable[[StepNow, ForEach, dict[str, Any]], list[StepNow]]


class Failed(NamedTuple):
    """A step that ends instead of starting. `error` is JSON."""

    step: StepNow
    end: End
    error: str | None


class Unit(NamedTuple):
    """An execution that is to be made for a step, or for one item of it. `payload` is JSON, if it has one."""

    run: RunNow
    row: StepNow
    job_id: UUID
    payload: str | None


class Starting:
    """Starts steps of a tenant in one transaction."""

    def __init__(self, conn: Conn, tenancy: Tenancy, *, now: datetime) -> None:
        self._conn, self._tenancy, self._now = conn, tenancy, now

    def begin(self, runs: Mapping[UUID, RunNow], rows: Sequence[StepNow], *, expand: Expand) -> list[Failed]:
        """Starts steps whose needs are met; returns those that end at once: not wanted, or impossible.

        `expand` makes the items of a step that runs over a list, and says which of them start.
        """
        rows = self._not_held(runs, rows)
        known = self._read(runs, rows)
        ended: list[Failed] = []
        units: list[Unit] = []
        for row in rows:
            run = runs[row.run_id]
            row.started_at = self._now
            try:
                if row.type in TYPES:
                    self._begin_beside(run, row, known, units)
                else:
                    self._begin_step(run, row, known, units, ended, expand)
            except BadInput as bad:
                ended.append(failed(row, "bad_input", bad.detail))
        return ended + self.make(units)

    def _not_held(self, runs: Mapping[UUID, RunNow], rows: Sequence[StepNow]) -> list[StepNow]:
        """Steps that wait for the run before go on waiting."""
        asking: dict[UUID, list[StepNow]] = defaultdict(list)
        for row in rows:
            step = runs[row.run_id].graph.steps.get(row.step)
            if step is not None and step.depends_on_previous and row.item is None and not row.forced:
                asking[row.run_id].append(row)
        held: set[int] = set()
        for run_id, mine in asking.items():
            names = [row.step for row in mine]
            found = previous.held(
                self._conn, self._tenancy.schema, workflow_id=runs[run_id].workflow_id, run_id=run_id, steps=names
            )  # fmt: skip
            for row in (row for row in mine if row.step in found):
                row.state, row.reason = "waiting", previous.REASON
                row.wake_at = self._now + timedelta(seconds=previous.LOOK_S)
                held.add(row.id)
        return [row for row in rows if row.id not in held]

    def _begin_step(
        self, run: RunNow, row: StepNow, known: upstream.Upstream, units: list[Unit], ended: list[Failed],
        expand: Expand,
    ) -> None:  # fmt: skip
        step = run.graph.steps[row.step]
        names = sorted(reads_of(step))
        if row.item is not None:
            self._begin(run, row, step, known.values(run, names, **_place(row)), units)
            return
        values = known.values(run, names)
        row.used = known.used(run, [edge.parent for edge in step.needs])
        if unmet_condition(step.when, values) is not None and not row.forced:
            row.started_at = None
            ended.append(Failed(row, End("skipped", WHEN_FALSE), None))
        elif step.for_each is None:
            self._begin(run, row, step, values, units)
        else:
            for item in expand(row, step.for_each, values):
                item.state, item.started_at = "running", self._now
                try:
                    self._begin(run, item, step, known.values(run, names, **_place(item)), units)
                except BadInput as bad:
                    ended.append(failed(item, "bad_input", bad.detail))
            if row.items == 0:
                ended.append(Failed(row, End("succeeded"), None))

    def _begin_beside(self, run: RunNow, row: StepNow, known: upstream.Upstream, units: list[Unit]) -> None:
        """A compensation, or what runs for a failed run."""
        handler = handler_of(run.graph, row.step)
        assert handler is not None
        assert handler.job.job_id is not None
        payload = None
        if handler.input is not None:
            error = orjson.loads(run.error) if run.error else store.outcome(self._conn, self._tenancy.schema, run.id)[1]
            values = known.values(run, sorted(steps_named(handler.input)), failure=error or {})
            payload = orjson.dumps(filled(handler.input, values, max_bytes=INPUT_MAX_BYTES)).decode()
        units.append(Unit(run, row, handler.job.job_id, payload))

    def make(self, units: Sequence[Unit]) -> list[Failed]:
        """Makes executions with their tickets; returns steps whose job is not there any more."""
        if not units:
            return []
        conn, schema = self._conn, self._tenancy.schema
        shared, busy = jobs.jobs_share_free(conn, schema, {one.job_id for one in units})
        found = {job.id: job_shared(job, self._tenancy.queue) for job in shared.values()}
        gone, ready = [], []
        for one in units:
            if one.job_id in found:
                ready.append(one)
            elif one.job_id in busy:
                one.row.state, one.row.reason, one.row.started_at = "waiting", BUSY, None
                one.row.wake_at = self._now + BUSY_WAIT
            else:
                gone.append(failed(one.row, "job_gone", "Its job is deleted.", job=str(one.job_id)))
        if ready:
            self._insert(ready, found)
        return gone

    def fill_output(self, run: RunNow) -> None:
        """Makes the output of a run that has succeeded; the run fails when that can't be made."""
        template = run.graph.workflow.output
        if template is None:
            return
        names = {name for name in run.graph.steps if any(f"steps.{name}" in text for _, text in texts_of(template))}
        known = upstream.read(
            self._conn, self._tenancy.schema, whole={(run.id, name) for name in names}, brief=set(), inputs={run.id}
        )
        try:
            made = filled(template, known.values(run, sorted(names)), max_bytes=INPUT_MAX_BYTES)
            run.output = orjson.dumps(made).decode()
        except BadInput as bad:
            run.state = "failed"
            run.error = orjson.dumps(with_error("bad_output", f"Its output could not be made: {bad.detail}")).decode()

    def _read(self, runs: Mapping[UUID, RunNow], rows: Sequence[StepNow]) -> upstream.Upstream:
        whole, brief, inputs = set(), set(), set()
        for row in rows:
            if row.type in TYPES:
                handler = handler_of(runs[row.run_id].graph, row.step)
                whole |= {(row.run_id, name) for name in steps_named(None if handler is None else handler.input)}
                inputs.add(row.run_id)
                continue
            step = runs[row.run_id].graph.steps[row.step]
            whole |= {(row.run_id, name) for name in reads_of(step)}
            brief |= {(row.run_id, edge.parent) for edge in step.needs}
            message = None if step.approval is None else step.approval.message
            if step.when or step.for_each or any(texts_of([step.input, message])):
                inputs.add(row.run_id)
        return upstream.read(self._conn, self._tenancy.schema, whole=whole, brief=brief, inputs=inputs)

    def _begin(self, run: RunNow, row: StepNow, step: Step, values: dict[str, Any], units: list[Unit]) -> None:
        if step.type == "delay":
            row.wake_at = self._now + timedelta(seconds=step.delay_s or 0)
        elif step.type == "approval" and step.approval is not None:
            row.value = orjson.dumps(message_filled(step.approval.message, values)).decode()
            if step.approval.timeout_s is not None:
                row.wake_at = self._now + timedelta(seconds=step.approval.timeout_s)
        else:
            job_id = step.workflow_id if step.job is None else step.job.job_id
            assert job_id is not None
            payload = None
            if step.input is not None:
                payload = orjson.dumps(filled(step.input, values, max_bytes=INPUT_MAX_BYTES)).decode()
            units.append(Unit(run, row, job_id, payload))

    def _insert(self, units: Sequence[Unit], found: Mapping[UUID, JobNow]) -> None:
        conn, schema = self._conn, self._tenancy.schema
        made = list(zip(units, uuid7s(len(units)), strict=True))
        rows = [_begun(one, found[one.job_id], key) for one, key in made]
        there = executions.begin_steps(conn, schema, rows, now=self._now)
        made = [(one, key) for one, key in made if key in there]
        keyed = [key for one, key in made if found[one.job_id].key is not None]
        flows = flows_of_executions(conn, schema, keyed) if keyed else {}
        tickets.add(conn, [self.ticket(one, found[one.job_id], key, flows.get(key)) for one, key in made])
        for one, key in made:
            one.row.execution_id = key
        tally = Tally()
        tally.add(self._tenancy.id, SUBMITTED, len(made))
        deltas.add(conn, tally, now=self._now)

    def ticket(self, one: Unit, job: JobNow, key: UUID, flow: Flow | None) -> tickets.Ticket:
        """The ticket of an execution of a step."""
        step = one.run.graph.steps.get(one.row.step)
        run = Run(
            trigger=TRIGGER, fired_by="", payload_from="job" if one.payload is None else "execution",
            priority=_priority(one, job), nominal_at=one.run.nominal_at,
        )  # fmt: skip
        ticket = new_ticket(
            self._tenancy.id, job, run, flow or Flow(job.id), execution_id=key, run_key=_key(one), now=self._now
        )._replace(followed=True, lane=lane_of(one.run.root_trigger))
        if step is None:
            return ticket
        own = step.overrides
        if own.timeout_s is not None:
            ticket = ticket._replace(timeout_s=own.timeout_s)
        if own.max_concurrency is not None and flow is None:
            name = f"{one.run.id.hex}:{step.name}"
            ticket = ticket._replace(
                flow=flow_of(job.id, name), flow_limit=own.max_concurrency, key=f"step={step.name}"
            )
        return ticket


def _place(item: StepNow) -> dict[str, Any]:
    """What stands at this place of the list, and where that is."""
    return {"item": None if item.value is None else orjson.loads(item.value), "index": item.item}


def failed(row: StepNow, code: str, message: str, **more: Any) -> Failed:
    """A step that can't start."""
    return Failed(row, End("failed", code), orjson.dumps(with_error(code, message, **more)).decode())


def _begun(one: Unit, job: JobNow, key: UUID) -> executions.Begun:
    step = one.run.graph.steps.get(one.row.step)
    overrides = None
    if step is not None and (step.overrides.retry is not None or step.overrides.timeout_s is not None):
        own = {"retry": step.overrides.retry, "timeout_s": step.overrides.timeout_s}
        overrides = orjson.dumps({name: value for name, value in own.items() if value is not None}).decode()
    return executions.Begun(
        id=key, run_key=_key(one), job_id=one.job_id, job_version=job.version, priority=_priority(one, job),
        nominal_at=one.run.nominal_at, fired_by=f"workflow {one.run.id}", payload=one.payload, overrides=overrides,
        replay_of=one.row.execution_id, workflow_run_id=one.run.id, step=one.row.step,
    )  # fmt: skip


def _key(one: Unit) -> str:
    return step_key(one.run.id, one.row.step, one.row.item, one.row.generation)


def _priority(one: Unit, job: JobNow) -> int:
    step = one.run.graph.steps.get(one.row.step)
    own = None if step is None else step.overrides.priority
    return job.priority if own is None else own
