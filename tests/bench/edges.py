"""What an edge of a workflow adds: from the end of a step to the start of the next, and to the cost of a settlement.

The first with a real dispatcher and a real worker; the second in this process, on one connection, step by step.
"""

import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tests.bench import stage

BUDGET_P50_MS = 150
LENGTH = 100  # steps of the chain
WARM_UP = 10
SIZES = (10, 100, 1_000)
SAMPLES = 60
ROW = 10  # steps of one row of `rows`


class Cost(NamedTuple):
    """Medians of one settlement."""

    statements: float
    database_ms: float
    python_ms: float


def latencies(made: stage.Tenants) -> list[float]:
    """Milliseconds from the end of each step of a chain to the start of the next one, with real processes."""
    from tenants import door
    from tenants.models import Tenant

    tenant = Tenant.objects.get(pk=next(iter(made)))
    conn = door.connect("bench edges", guarded=False)
    table = f'"{tenant.schema_name}".executions_execution'
    running = [stage.worker(PYTHON_CHILDREN="1"), stage.dispatcher()]
    try:
        stage.until(lambda: stage.one(conn, "SELECT count(*) FROM tickets_worker") > 0, timeout_s=60)
        for length in (WARM_UP, LENGTH):
            run_id = begin(tenant, _workflow(tenant, made, [chain(length)]))
            query = f"SELECT finished_at IS NOT NULL FROM {table} WHERE id = '{run_id}'"
            stage.until(lambda query=query: bool(stage.one(conn, query)), timeout_s=120, step_s=0.5)  # type: ignore[misc]  # bound now
        rows = conn.execute(
            f"SELECT started_at, finished_at FROM {table} WHERE workflow_run_id = %(run)s AND id <> %(run)s"
            " ORDER BY substr(step, 4)::int",
            {"run": run_id},
        ).fetchall()
        assert len(rows) == LENGTH
        return [(rows[at + 1][0] - rows[at][1]).total_seconds() * 1_000 for at in range(LENGTH - 1)]
    finally:
        for process in reversed(running):
            process.stop()
        conn.close()


def costs(made: stage.Tenants) -> Iterator[tuple[str, int, Cost]]:
    """(shape, steps, cost of settling one step of it) for graphs of each size.

    `rows`: each end starts one step, which gets its execution. `join`: each end is one of all that the last step needs.
    """
    from tenants.models import Tenant

    tenant = Tenant.objects.get(pk=next(iter(made)))
    for shape in ("rows", "join"):
        for size in SIZES:
            graph = [chain(ROW, f"{row}-") for row in range(size // ROW)] if shape == "rows" else [join(size)]
            yield shape, size, _cost(tenant, made, graph)


def chain(length: int, prefix: str = "1-") -> list[dict[str, Any]]:
    names = [f"s{prefix}{at}" for at in range(length)]
    return [{"name": name, "needs": [names[at - 1]] if at else []} for at, name in enumerate(names)]


def join(size: int) -> list[dict[str, Any]]:
    middle = [f"m{at}" for at in range(size - 1)]
    return [*({"name": name, "needs": []} for name in middle), {"name": "last", "needs": middle}]


def begin(tenant: Any, workflow: UUID) -> UUID:
    """A run that waits for the loop."""
    from apps.schedules.running import Run, run_start, share_job
    from kernel.clock import utc_now
    from tenants.work import in_tenant

    run = Run(trigger="api", fired_by="bench", payload_from="job")
    return in_tenant(tenant, lambda: run_start(tenant, share_job(tenant, workflow), run, now=utc_now()))


def told(found: list[float]) -> str:
    """The figures of `latencies`, beside the budget."""
    cuts = statistics.quantiles(found, n=20)
    over = "" if cuts[9] <= BUDGET_P50_MS else "  over budget"
    return f"p50 {cuts[9]:.0f} ms, p95 {cuts[18]:.0f} ms (budget p50 {BUDGET_P50_MS} ms){over}"


def _workflow(tenant: Any, made: stage.Tenants, graph: Sequence[list[dict[str, Any]]]) -> UUID:
    from apps.audit.services import Actor
    from apps.workflows.definitions.services import workflow_create
    from kernel.clock import utc_now

    job = str(made[tenant.pk][1])
    steps = [{**step, "job": job} for part in graph for step in part]
    data = {"name": f"bench {uuid.uuid4().hex[:12]}", "steps": steps}
    return workflow_create(tenant=tenant, actor=Actor("bench", "admin"), data=data, now=utc_now()).job.pk


def _cost(tenant: Any, made: stage.Tenants, graph: Sequence[list[dict[str, Any]]]) -> Cost:
    from apps.outcomes.settle import Settlement, settle
    from apps.outcomes.verdict import Report
    from apps.schedules.definitions import Definitions
    from tenants import door
    from tenants.registry import Registry, tenancy_of

    workflow = _workflow(tenant, made, graph)
    line = door.Line("bench registry")
    registry = Registry(line)
    registry.refresh(force=True)
    tenancy, definitions = tenancy_of(tenant), Definitions()
    found: list[tuple[int, float, float]] = []
    with door.connect("bench edges", guarded=False) as conn:
        while len(found) < SAMPLES:
            run_id = begin(tenant, workflow)
            _make(conn, tenancy, run_id)
            known = f'SELECT step, execution_id FROM "{tenancy.schema}".workflows_steprun WHERE run_id = %s'
            for step in [step for row in graph for step in row[:-1]]:  # what ends a row starts nothing
                if len(found) < SAMPLES:
                    execution = dict(conn.execute(known, [run_id]).fetchall())[step["name"]]
                    started = _start(conn, execution)
                    definition = definitions.of_runs(conn, tenancy.schema, [started])[execution]
                    report = Report("succeeded", started.started_at, started.started_at + timedelta(milliseconds=1))
                    with _measured(conn) as figures:
                        settle(conn, registry, [Settlement(started, None, report, definition)])
                    found.append((int(figures[0]), figures[1], figures[2]))
            conn.execute("DELETE FROM tickets_ticket WHERE tenant_id = %s", [tenancy.id])
    line.close()
    return Cost(
        *(statistics.median(values) for values in zip(*found[5:], strict=True))
    )  # the first ones read the graph


def _make(conn: Any, tenancy: Any, run_id: UUID) -> None:
    """What the loop does when a run may go."""
    from apps.tickets import workflow_runs
    from apps.workflows.runs import looking
    from kernel.clock import utc_now

    workflow_runs.begin(conn, [run_id])
    due = [one for one in workflow_runs.due(conn, limit=100) if one.started.execution_id == run_id]
    with conn.transaction():
        assert looking.make_new(conn, tenancy, due, now=utc_now()) == {run_id}


def _start(conn: Any, execution: UUID) -> Any:
    from apps.tickets import holding, releasing
    from kernel.clock import utc_now

    number = releasing.next_release(conn)
    releasing.release(conn, [execution], release=number, now=utc_now())
    [started] = holding.start(conn, [execution], release=number, worker=UUID(int=1), limit=1)
    return started


@contextmanager
def _measured(conn: Any) -> Iterator[list[float]]:
    """Gives [statements, CPU ms of the backend, CPU ms of this process] of the block."""
    schedstat = Path(f"/proc/{conn.info.backend_pid}/schedstat")
    execute, seen = psycopg.Cursor.execute, [0]

    def counted(self: Any, *given: Any, **named: Any) -> Any:
        seen[0] += 1
        return execute(self, *given, **named)

    psycopg.Cursor.execute = counted  # type: ignore[method-assign]  # given back below
    cpu, own = int(schedstat.read_text().split()[0]), time.process_time()
    figures: list[float] = []
    try:
        yield figures
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # the one it had
    spent = time.process_time() - own
    figures += [seen[0], (int(schedstat.read_text().split()[0]) - cpu) / 1e6, spent * 1_000]
