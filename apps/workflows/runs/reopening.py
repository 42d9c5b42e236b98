"""Executions of workflows that run again under their run keys: dead ones of steps, and those of runs that have ended.

The retry policy starts anew, attempts go on.
"""

from collections.abc import Sequence
from uuid import UUID

from apps.deadletters import store as deadletters
from apps.executions import store as executions
from apps.schedules import store as jobs
from apps.schedules.keyed import flows_of_executions
from apps.schedules.running import JobNow, Run, job_shared, new_ticket
from apps.tickets import store as tickets
from apps.tickets import workflow_runs
from apps.tickets.values import lane_of
from apps.usage import deltas
from apps.usage.figures import SUBMITTED, Tally
from apps.workflows.runs.closing import handler_of
from apps.workflows.runs.starting import Starting, Unit
from apps.workflows.runs.turn import Turn
from apps.workflows.runs.values import RunNow, StepNow
from kernel.errors import Conflict
from kernel.limitrules import Flow
from tenants.work import Again


def reopen_steps(turn: Turn, run: RunNow, rows: Sequence[StepNow]) -> None:
    """dead -> ready for the executions of these steps, with their jobs as they are now. Conflict without the job."""
    if not rows:
        return
    conn, schema = turn.conn, turn.tenancy.schema
    by_id = {row.execution_id: row for row in rows if row.execution_id is not None}
    jobs_of = {key: _job_of(run, row) for key, row in by_id.items()}
    shared = _share(turn, set(jobs_of.values()))
    versions = [(key, shared[job_id].version) for key, job_id in sorted(jobs_of.items())]
    reopened = executions.reopen_many(conn, schema, versions)
    if len(reopened) < len(by_id):
        raise Again  # not dead any more
    keyed = [one.id for one in reopened if shared[jobs_of[one.id]].key is not None]
    flows = flows_of_executions(conn, schema, keyed) if keyed else {}
    starting = Starting(conn, turn.tenancy, now=turn.now)
    new = []
    for one in reopened:
        job_id = jobs_of[one.id]
        unit = Unit(run, by_id[one.id], job_id, "{}" if one.own_payload else None)
        ticket = starting.ticket(unit, shared[job_id], one.id, flows.get(one.id))
        new.append(ticket._replace(run_key=one.run_key, attempt=one.attempts, start_by=None))
    tickets.add(conn, new)
    tally = Tally()
    tally.add(turn.tenancy.id, SUBMITTED, len(new))
    deltas.add(conn, tally, now=turn.now)


def reopen_container(turn: Turn, run: RunNow, *, by: str) -> None:
    """The execution of a run that has ended goes on: at once, whatever limits how many runs there are.

    A limit that made it wait could make it wait for a run that waits for it. One that is not settled yet stays alive.
    """
    conn, schema = turn.conn, turn.tenancy.schema
    found = executions.reopen_run(conn, schema, run.id)
    if found is None:
        if not workflow_runs.go_on(conn, run.id):
            raise Again  # it is settled by now
        return
    job = _share(turn, {run.workflow_id})[run.workflow_id]
    again = Run(
        trigger=run.trigger, fired_by="", payload_from="execution" if found.own_payload else "job",
        priority=found.priority, nominal_at=run.nominal_at, schedule_id=found.schedule_id,
        schedule_version=found.schedule_version,
    )  # fmt: skip
    ticket = new_ticket(
        turn.tenancy.id, job, again, Flow(job.id), execution_id=run.id, run_key=found.run_key, now=turn.now,
        attempt=found.attempts,
    )._replace(
        job_version=run.version, followed=run.parent_step_id is not None, lane=lane_of(run.root_trigger), start_by=None,
        job_limit=None, flow_limit=None,
    )  # fmt: skip
    tickets.insert(conn, ticket)
    workflow_runs.begin(conn, [run.id])
    deadletters.resolve_of_execution(conn, schema, run.id, resolution="replayed", now=turn.now, by=by)


def _job_of(run: RunNow, row: StepNow) -> UUID:
    handler = handler_of(run.graph, row.step)
    job = run.graph.steps[row.step].job if handler is None else handler.job
    assert job is not None
    assert job.job_id is not None
    return job.job_id


def _share(turn: Turn, job_ids: set[UUID]) -> dict[UUID, JobNow]:
    shared, busy = jobs.jobs_share_free(turn.conn, turn.tenancy.schema, job_ids)
    if busy:
        raise Again
    if len(shared) < len(job_ids):
        raise Conflict("A job that would run again is deleted.", code="job_deleted")
    return {key: job_shared(one, turn.tenancy.queue) for key, one in shared.items()}
