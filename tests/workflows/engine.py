"""Runs of workflows driven by hand: definitions as they are stored, steps that end as the test says.

Everything goes through the code that the processes run: the loop that begins and looks at runs, and settle.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from kernel.clock import utc_now
from tests.fixtures_flow import make_job, settle_as, started_now

if TYPE_CHECKING:
    from apps.dispatch.workflow_runs import WorkflowService
    from apps.tickets.values import Started
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WORKER = UUID(int=7)


def step(name: str, *needs: str | tuple[str, str], **more: Any) -> dict[str, Any]:
    """A step of a definition; without a job it gets the test's no-op. A need is a name, or a name and a condition."""
    edges = [{"step": one} if isinstance(one, str) else {"step": one[0], "on": one[1]} for one in needs]
    return {"name": name, **({"needs": edges} if edges else {}), **more}


def make_workflow(
    tenant: Tenant,
    steps: Sequence[Mapping[str, Any]],
    *,
    payload: Any = None,
    max_active_runs: int | None = None,
    attempts: int = 1,
    **more: Any,
) -> UUID:
    """A workflow as it is stored; returns its id. Steps that say nothing else run a no-op job with so many attempts."""
    from apps.schedules.models import Job, JobVersion
    from apps.workflows.definitions.definition import from_json, to_json
    from tenants import door

    noop = str(make_job(tenant, retry={"max_attempts": attempts, "base_s": 1}))
    own = ("job", "workflow", "approval", "delay_s")
    given = [dict(one) if any(name in one for name in own) else {**one, "job": noop} for one in steps]
    target = to_json(from_json({"steps": given, **more}))
    now = utc_now()
    with door.inside(tenant):
        row = Job.objects.create(
            name=f"workflow {uuid.uuid4().hex[:12]}", kind="workflow", created_at=now, updated_at=now
        )
        JobVersion.objects.create(
            job=row, version=1, target=target, payload=payload, timeout_s=60, retry={"max_attempts": 1}, priority=5,
            max_concurrency=max_active_runs,
            created_at=now,
        )  # fmt: skip
    return row.pk


class Engine:
    """One tenant's runs."""

    def __init__(self, conn: Conn, registry: Registry, tenant: Tenant, service: WorkflowService) -> None:
        self.conn, self.registry, self.tenant, self.service = conn, registry, tenant, service

    def run(self, workflow: UUID, *, payload: Any = None, now: datetime | None = None) -> UUID:
        """A run that has begun."""
        from apps.schedules.running import Run, run_start, share_job
        from tenants.work import in_tenant

        text = None if payload is None else orjson.dumps(payload).decode()
        given = Run(trigger="api", fired_by="test", payload=text, payload_from="job" if text is None else "execution")
        at = now or utc_now()
        run_id = in_tenant(self.tenant, lambda: run_start(self.tenant, share_job(self.tenant, workflow), given, now=at))
        self.look()
        return run_id

    def look(self) -> None:
        """Passes of the loop, until nothing is to be looked at."""
        while self.service.run_once().full:
            pass

    def pass_time(self, run_id: UUID, *, whole: bool = False) -> None:
        """All times that its steps wait for come now, or with `whole` its deadline; then it is looked at."""
        steps = ("workflows_steprun", "wake_at", "run_id")
        for table, column, key in [("workflows_run", "deadline_at", "execution_id")] if whole else [steps]:
            self.conn.execute(
                sql.SQL("UPDATE {0} SET {1} = clock_timestamp() WHERE {2} = %s AND {1} IS NOT NULL").format(
                    sql.Identifier(self.tenant.schema_name, table), sql.Identifier(column), sql.Identifier(key)
                ),
                [run_id],
            )
        self.conn.execute("UPDATE tickets_ticket SET deadline = clock_timestamp() WHERE execution_id = %s", [run_id])
        self.look()

    def start(self, run_id: UUID, name: str, item: int | None = None) -> Started:
        """Starts the attempt of a step that is ready."""
        execution = self.step(run_id, name, item)["execution_id"]
        assert execution is not None, f"{name} has no execution"
        [started] = started_now(self.conn, [execution], WORKER)
        return started

    def end(self, run_id: UUID, name: str, outcome: str = "succeeded", *, item: int | None = None, **more: Any) -> None:
        """Starts a step and ends it so; `more` are members of its report. A failure is final."""
        if outcome == "failed":
            more.setdefault("retryable", False)
        settle_as(self.conn, self.registry, [self.start(run_id, name, item)], outcome, **more)

    def rows(self, table: str, run_id: UUID, key: str) -> list[dict[str, Any]]:
        query = sql.SQL("SELECT * FROM {} WHERE {} = %s ORDER BY 1").format(
            sql.Identifier(self.tenant.schema_name, table), sql.Identifier(key)
        )
        cursor = self.conn.execute(query, [run_id])
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def step(self, run_id: UUID, name: str, item: int | None = None) -> dict[str, Any]:
        [found] = [
            one
            for one in self.rows("workflows_steprun", run_id, "run_id")
            if one["step"] == name and one["item"] == item
        ]
        return found

    def states(self, run_id: UUID) -> dict[str, str]:
        """The states of the steps, by name; of skipped ones with the reason."""
        rows = self.rows("workflows_steprun", run_id, "run_id")
        return {
            one["step"]: f"skipped: {one['reason']}" if one["state"] == "skipped" else one["state"]
            for one in rows
            if one["item"] is None
        }

    def of_run(self, run_id: UUID) -> dict[str, Any]:
        [found] = self.rows("workflows_run", run_id, "execution_id")
        return found

    def execution(self, execution_id: UUID) -> dict[str, Any]:
        [found] = self.rows("executions_execution", execution_id, "id")
        return found

    def executions(self, run_id: UUID) -> list[dict[str, Any]]:
        """Those of the run's steps."""
        return [one for one in self.rows("executions_execution", run_id, "workflow_run_id") if one["id"] != run_id]
