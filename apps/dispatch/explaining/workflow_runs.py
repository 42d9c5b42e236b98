"""Why does a run of a workflow, or a step of it, not go on? The answer from the rows as they are.

A step whose execution is alive is answered by what holds that execution; everything else by `steps`.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from apps.dispatch.explaining.ended import By
from apps.dispatch.explaining.execution import execution_explain
from apps.dispatch.explaining.steps import Before, Parent, RunNow, StepNow, run_verdict, step_verdict
from apps.dispatch.explaining.trail import last_by
from apps.dispatch.explaining.values import Explanation, Thing, Verdict
from apps.executions.models import Execution
from apps.schedules.models import Job
from apps.workflows.definitions.definition import Step
from apps.workflows.definitions.graph import Graph
from apps.workflows.models import Run, StepRun
from apps.workflows.runs.deciding import FINAL, End, meets
from apps.workflows.runs.known import graphs_here
from apps.workflows.runs.previous import held
from kernel.errors import NotFound
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

OPEN_MAX = 200  # steps that are looked at
NOTES_MAX = 20
ASKED_MAX = 5  # of the executions of running steps: each takes about a dozen statements
TO = {"succeeded": "to succeed", "failed": "to fail", "finished": "to end", "skipped": "to be skipped"}
STEP_FAILED = "step_failed"
CANCELS = ("workflowrun.cancel", "execution.cancel")


def run_explain(
    tenant: Tenant, run_id: UUID, *, now: datetime, named: bool = False, operator: bool = False,
    ask_max: int = ASKED_MAX,
) -> Explanation:  # fmt: skip
    """What the run is at, or what holds it; one that has not begun is explained as what waits to. NotFound.

    In the tenant's schema. `named` and `operator` as for `execution_explain`; `ask_max` of its steps are asked what
    holds their executions.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return _not_begun(tenant, run_id, now=now, named=named, operator=operator)
    facts, graph = _run_now(run), _graph(tenant, run)
    by = _by(tenant, run, named)
    rows = [_step_now(one) for one in StepRun.objects.filter(run_id=run_id, finished_at=None).order_by("pk")[:OPEN_MAX]]
    states = _states(run_id, graph, rows)
    found: list[tuple[str, Verdict]] = []
    asked = 0
    for row in rows:
        step = graph.steps.get(row.step) if graph else None
        if row.state == "waiting" and row.item is not None:
            continue  # its step says how many
        verdict = None
        if facts.state == row.state == "running" and row.execution_id is not None and asked < ask_max:
            asked += 1
            verdict = _of_execution(tenant, row, row.execution_id, now=now, named=named, operator=operator)
        if verdict is None:
            before = _before(tenant, run, row, step, states)
            verdict = step_verdict(facts, row, step, _parents(step, states), before=before, by=by, now=now)
        found.append((row.name, verdict))
    verdict = run_verdict(facts, found, error=run.error, reason=run.reason, finished_at=run.finished_at, by=by)
    notes = [f"Step {name!r}: {one.detail}" for name, one in found[:NOTES_MAX]]
    if len(found) > NOTES_MAX or len(rows) == OPEN_MAX:
        notes.append("More steps are open.")
    return Explanation("workflow_run", run_id, _name(run.workflow_id), run.state, now, verdict, notes=notes)


def step_explain(
    tenant: Tenant, run_id: UUID, name: str, *, item: int | None = None, now: datetime, named: bool = False,
    operator: bool = False,
) -> Explanation:  # fmt: skip
    """Why this step, or one item of its list, waits, what it is up to, or why it ended so. NotFound."""
    run = Run.objects.filter(pk=run_id).first()
    found = StepRun.objects.filter(run_id=run_id, step=name, item=item).first() if run is not None else None
    if run is None or found is None:
        raise NotFound("There is no such step of such a run.")
    row, graph = _step_now(found), _graph(tenant, run)
    step = graph.steps.get(name) if graph else None
    states = _states(run_id, graph, [], only=step)
    parents = _parents(step, states)
    told = [f"It needs {one.step!r} {TO[one.on]}; that step is {one.state}." for one in parents[:NOTES_MAX]]
    if found.forced and found.decided_by:
        told.insert(0, f"{found.decided_by} decided on it{': ' + found.note.rstrip('.') if found.note else ''}.")
    title = f"{_name(run.workflow_id)}/{row.name}"
    ran = row.type not in ("workflow", "approval", "delay")
    if ran and row.execution_id is not None and row.state != "waiting" and _is_kept(row.execution_id):
        of = execution_explain(tenant, row.execution_id, now=now, named=named, operator=operator)
        if row.state == "failed":  # it is no dead letter: what there is to do is done to the step
            verdict = replace(of.verdict, code=STEP_FAILED, thing=Thing("workflow_run", str(run_id)))
            of = replace(of, verdict=verdict)
        return replace(of, kind="step", id=run_id, name=title, state=row.state, notes=[*of.notes, *told])
    answer: Verdict | None = None
    if run.state == row.state == "running" and row.execution_id is not None:
        answer = _of_execution(tenant, row, row.execution_id, now=now, named=named, operator=operator)
    if answer is None:
        before = _before(tenant, run, row, step, states)
        answer = step_verdict(
            _run_now(run), row, step, parents, before=before, by=_by(tenant, run, named), now=now
        )  # fmt: skip
    return Explanation("step", run_id, title, row.state, now, answer, notes=told)


def _of_execution(
    tenant: Tenant, row: StepNow, execution_id: UUID, *, now: datetime, named: bool, operator: bool
) -> Verdict | None:
    """What holds a step that runs: of a sub-workflow what somebody should see to in its run; None when nothing is."""
    if row.type != "workflow":
        return execution_explain(tenant, execution_id, now=now, named=named, operator=operator).verdict
    inner = run_explain(tenant, execution_id, now=now, named=named, operator=operator, ask_max=1).verdict
    return None if inner.fine else inner


def _not_begun(tenant: Tenant, run_id: UUID, *, now: datetime, named: bool, operator: bool) -> Explanation:
    execution = Execution.objects.filter(pk=run_id).only("job_id").first()
    if execution is None or not Job.objects.filter(pk=execution.job_id, kind=WORKFLOW).exists():
        raise NotFound("There is no such run.")
    found = execution_explain(tenant, run_id, now=now, named=named, operator=operator)
    return replace(found, kind="workflow_run")


def _is_kept(execution_id: UUID) -> bool:
    return Execution.objects.filter(pk=execution_id).exists()


def _run_now(run: Run) -> RunNow:
    return RunNow(run.pk, run.state, run.deadline_at, run.paused_at, run.paused_by, run.paused_reason)


def _step_now(row: StepRun) -> StepNow:
    return StepNow(
        row.step, row.item, row.type, row.state, row.reason, row.error, row.execution_id, row.wake_at, row.started_at,
        row.finished_at, row.forced, row.decided_by, row.note, row.items, row.items_open, row.items_failed,
        row.value if row.type == "approval" and row.value else "",
    )  # fmt: skip


def _graph(tenant: Tenant, run: Run) -> Graph | None:
    """None when the version can't be read any more."""
    version = (run.workflow_id, run.version)
    return graphs_here().load(door.raw(), tenant.schema_name, [version]).get(version)


def _states(run_id: UUID, graph: Graph | None, rows: list[StepNow], *, only: Step | None = None) -> Mapping[str, End]:
    """How the steps are that one of these rows needs, or that `only` needs."""
    if graph is None:
        return {}
    asking = [only] if only is not None else [graph.steps[row.step] for row in rows if row.step in graph.steps]
    names = {edge.parent for step in asking for edge in step.needs}
    found = StepRun.objects.filter(run_id=run_id, item=None, step__in=names).values_list("step", "state", "reason")
    return {step: End(state, reason) for step, state, reason in found}


def _parents(step: Step | None, states: Mapping[str, End]) -> list[Parent]:
    if step is None:
        return []
    known = [(edge, states[edge.parent]) for edge in step.needs if edge.parent in states]
    return [
        Parent(edge.parent, edge.on, end.state, meets(edge.on, end) if end.state in FINAL else None)
        for edge, end in known
    ]


def _before(tenant: Tenant, run: Run, row: StepNow, step: Step | None, states: Mapping[str, End]) -> Before | None:
    """The run before, where this step waits for that and for nothing else."""
    if step is None or not step.depends_on_previous or row.state != "waiting":
        return None
    if any(one.met is None for one in _parents(step, states)):
        return None
    found = held(
        door.raw(), tenant.schema_name, workflow_id=run.workflow_id, run_id=run.pk, steps=[step.name]
    )  # fmt: skip
    return Before(*found[step.name]) if found else None


def _by(tenant: Tenant, run: Run, named: bool) -> By | None:
    if run.state == "paused":
        return last_by(tenant, run.pk, ["workflowrun.pause"], named=named)
    if run.state in ("cancelling", "cancelled"):
        return last_by(tenant, run.pk, CANCELS, named=named)
    return None


def _name(workflow_id: UUID) -> str:
    return Job.objects.filter(pk=workflow_id).values_list("name", flat=True).first() or ""
