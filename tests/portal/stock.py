"""What a tenant of these tests has: a job, schedules, and runs in each state; made over the services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.operations.fixtures import ask, passes
from tests.workflows.rows import ASKS, WAITS, run_with_rows

if TYPE_CHECKING:
    import psycopg

    from tenants.models import Tenant
    from tenants.registry import Registry

PAYLOAD = {"greeting": "hello"}


@dataclass
class Stock:
    """Ids, as paths name them."""

    tenant: Tenant
    job: UUID
    schedule: UUID
    waiting: UUID
    done: UUID
    dead: UUID
    letter: UUID
    run: UUID
    operation: UUID

    @property
    def paths(self) -> list[str]:
        """Every page that reads."""
        return [
            "/console/", "/console/jobs", "/console/schedules", "/console/executions", "/console/dead-letters",
            "/console/dead-letters/causes", "/console/webhooks", "/console/backfills",
            "/console/operations", f"/console/operations/{self.operation}",
            f"/console/jobs/{self.job}", f"/console/schedules/{self.schedule}",
            *(f"/console/executions/{one}" for one in (self.waiting, self.done, self.dead)),
            *(f"/console/executions/{one}/explain" for one in (self.waiting, self.done, self.dead)),
            f"/console/schedules/{self.schedule}/explain", f"/console/dead-letters/{self.letter}",
            "/console/workflow-runs", "/console/approvals", f"/console/workflow-runs/{self.run}",
            f"/console/workflow-runs/{self.run}/explain", f"/console/workflow-runs/{self.run}/steps/{WAITS}/explain",
        ]  # fmt: skip

    @property
    def verbs(self) -> dict[str, str]:
        """Every page that changes something: path by action."""
        job, schedule = f"/console/jobs/{self.job}", f"/console/schedules/{self.schedule}"
        run, operation = f"/console/workflow-runs/{self.run}", f"/console/operations/{self.operation}"
        return {
            "/console/jobs/new": "job.create", f"{job}/edit": "job.update", f"{job}/run": "execution.submit",
            f"{job}/pause": "job.pause", f"{job}/resume": "job.resume", f"{job}/delete": "job.delete",
            "/console/schedules/new": "schedule.create", f"{schedule}/edit": "schedule.update",
            f"{schedule}/run": "schedule.trigger", f"{schedule}/pause": "schedule.pause",
            f"{schedule}/backfill": "schedule.backfill", f"{schedule}/repair": "schedule.repair",
            f"{schedule}/resume": "schedule.resume", f"{schedule}/delete": "schedule.delete",
            f"/console/executions/{self.waiting}/cancel": "execution.cancel",
            f"/console/executions/{self.done}/rerun": "execution.rerun",
            f"/console/executions/{self.done}/erase": "execution.erase",
            f"/console/dead-letters/{self.letter}/replay": "deadletter.replay",
            f"/console/dead-letters/{self.letter}/resolve": "deadletter.resolve",
            f"/console/dead-letters/{self.letter}/reopen": "deadletter.reopen",
            f"{run}/cancel": "workflowrun.cancel", f"{run}/pause": "workflowrun.pause",
            f"{run}/resume": "workflowrun.resume", f"{run}/retry": "workflowrun.retry",
            f"{run}/steps/{ASKS}/approve": "workflowrun.approve", f"{run}/steps/{ASKS}/reject": "workflowrun.reject",
            f"{run}/steps/{WAITS}/skip": "workflowrun.skip",
            f"{operation}/pause": "operation.pause", f"{operation}/resume": "operation.resume",
            f"{operation}/cancel": "operation.cancel", f"{operation}/undo": "operation.undo",
            f"{operation}/pace": "operation.update",
            "/console/executions/bulk-cancel": "execution.cancel", "/console/jobs/bulk-pause": "job.pause",
            "/console/keys/new": "apikey.create", "/console/members/invite": "invitation.create",
            "/console/webhooks/new": "webhook.create",
        }  # fmt: skip


def stock(
    tenant: Tenant, conn: psycopg.Connection[Any], registry: Registry, *, name: str = "nightly", payload: Any = None
) -> Stock:
    """One of each."""
    from apps.audit.services import Actor
    from apps.dispatch.submission import execution_submit
    from apps.schedules.services import job_create, schedule_create
    from tenants import door
    from tests.api.makers import begin, kill, settle, utc_now

    actor = Actor(name="test:stock", role="admin", tenant_id=tenant.pk)
    now, payload = utc_now(), payload or PAYLOAD
    labels = {"a": name[:50], "items": "a name that templates know"}
    target = {"url": "http://127.0.0.1:9999/ok?token=hush", "headers": {"Authorization": "Bearer hush"}}
    job = job_create(
        tenant=tenant, actor=actor, now=now,
        data={"name": f"{name} job", "kind": "http", "target": target, "payload": payload, "labels": labels},
    ).job  # fmt: skip
    schedule = schedule_create(
        tenant=tenant, actor=actor, now=now,
        data={
            "name": name, "job": str(job.pk), "trigger": {"cron": "0 3 * * *"}, "timezone": "Europe/Berlin",
            "labels": labels,
        },
    ).schedule  # fmt: skip
    runs = [
        execution_submit(
            tenant=tenant, actor=actor, now=now, data={"job": str(job.pk), "payload": payload, "labels": labels}
        )
        for _ in range(3)
    ]
    settle(conn, registry, begin(conn, str(runs[1])), result={"said": name})
    kill(conn, registry, str(runs[2]))
    with door.inside(tenant):
        from apps.deadletters.models import DeadLetter

        letter = DeadLetter.objects.filter(execution_id=runs[2]).values_list("pk", flat=True)[0]
    operation = ask(tenant, "resume", "jobs", {"all": True}, reason=name)  # planned, and nothing more
    passes()
    return Stock(tenant, job.pk, schedule.pk, runs[0], runs[1], runs[2], letter, run_with_rows(tenant, text=name),
                 operation.pk)  # fmt: skip
