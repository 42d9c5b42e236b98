"""Makes what tests need: definitions over the API, states of executions through the stores that workers use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from tests.fixtures_api import Api

if TYPE_CHECKING:
    import psycopg

    from apps.tickets.values import Started
    from tenants.registry import Registry

TARGET = {"url": "http://127.0.0.1:9999/ok"}
JOB = {"name": "hello", "kind": "http", "target": TARGET}
MINUTELY = {"cron": "* * * * *"}
NOWHERE = "00000000-0000-7000-8000-000000000000"


@dataclass
class Makers:
    """Of one key; names are numbered, so that they differ."""

    api: Api
    count: int = 0

    def job(self, **members: Any) -> dict[str, Any]:
        self.count += 1
        return self._post("jobs", {**JOB, "name": f"job {self.count}", **members}, 201)

    def schedule(self, **members: Any) -> dict[str, Any]:
        self.count += 1
        if "job" not in members:
            members["job"] = self.job()["id"]
        return self._post("schedules", {"name": f"schedule {self.count}", "trigger": MINUTELY, **members}, 201)

    def workflow(self, *steps: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Of one step that waits, where none are given."""
        self.count += 1
        given = list(steps) or [{"name": "wait", "delay_s": 1}]
        return self._post("workflows", {"name": f"workflow {self.count}", "steps": given, **members}, 201)

    def execution(self, **members: Any) -> dict[str, Any]:
        if "job" not in members:
            members["job"] = self.job()["id"]
        return self._post("executions", members, 202)

    def _post(self, path: str, body: dict[str, Any], status: int) -> dict[str, Any]:
        made = self.api.post(path, body)
        assert made.status == status, made.body
        answer: dict[str, Any] = made.body
        return answer


def utc_now() -> datetime:
    return datetime.now(UTC)


def begin(conn: psycopg.Connection[Any], execution_id: str) -> Started:
    """What release and a worker do: ready -> queued -> running."""
    from apps.tickets import holding

    number = queue(conn, execution_id)
    (started,) = holding.start(conn, [UUID(execution_id)], release=number, worker=uuid4(), limit=1)
    return started


def begin_run(conn: psycopg.Connection[Any], registry: Registry, run_id: str) -> None:
    """What looks after runs does: it begins one of a workflow."""
    from apps.tickets import workflow_runs

    (started,) = workflow_runs.begin(conn, [UUID(run_id)])
    look_at(conn, registry, started)


def look_at(conn: psycopg.Connection[Any], registry: Registry, started: Started) -> None:
    """One look at a run of a workflow, in a transaction of its own."""
    from apps.workflows.runs.looking import look

    tenancy = registry.get(started.tenant_id)
    assert tenancy is not None
    with conn.transaction():
        look(conn, tenancy, started, now=utc_now())


def queue(conn: psycopg.Connection[Any], execution_id: str) -> int:
    """ready -> queued; the release number."""
    from apps.tickets import releasing

    number = releasing.next_release(conn)
    assert releasing.release(conn, [UUID(execution_id)], release=number, now=utc_now()) == [UUID(execution_id)]
    return number


def settle(
    conn: psycopg.Connection[Any], registry: Registry, started: Started, outcome: str = "succeeded", **report: Any
) -> None:
    """What a worker does at the end of an attempt."""
    from apps.outcomes.settle import Settlement
    from apps.outcomes.settle import settle as settle_batch
    from apps.outcomes.verdict import Report
    from apps.schedules.definitions import Definitions

    tenancy = registry.get(started.tenant_id)
    assert tenancy is not None
    key = (started.job_id, started.job_version)
    definition = Definitions().jobs(conn, tenancy.schema, [key])[key]
    told = Report(outcome, started.started_at, utc_now() + timedelta(milliseconds=1), **report)
    settle_batch(conn, registry, [Settlement(started, started.execution_id, told, definition)])


def kill(conn: psycopg.Connection[Any], registry: Registry, execution_id: str) -> None:
    """Runs an execution once so that it ends as a dead letter."""
    error = {"class": "http", "status": 400, "message": "no"}
    settle(conn, registry, begin(conn, execution_id), "failed", error=error, retryable=False)


def due(conn: psycopg.Connection[Any], key: str) -> dict[str, Any] | None:
    """The due entry of a schedule or a delayed execution."""
    cursor = conn.execute("SELECT * FROM due_dueentry WHERE key = %s", [key])
    row = cursor.fetchone()
    assert cursor.description is not None
    return None if row is None else dict(zip([column.name for column in cursor.description], row, strict=True))


def ticket(conn: psycopg.Connection[Any], execution_id: str) -> dict[str, Any] | None:
    """The ticket of an execution."""
    cursor = conn.execute("SELECT * FROM tickets_ticket WHERE execution_id = %s", [execution_id])
    row = cursor.fetchone()
    assert cursor.description is not None
    return None if row is None else dict(zip([column.name for column in cursor.description], row, strict=True))


def audit(conn: psycopg.Connection[Any], object_id: str) -> list[str]:
    """Actions noted about an object, oldest first; refused ones with a minus."""
    rows = conn.execute("SELECT action, allowed FROM audit_auditevent WHERE object_id = %s ORDER BY id", [object_id])
    return [action if allowed else f"-{action}" for action, allowed in rows]


def instant(text: str) -> datetime:
    """A time of an answer."""
    return datetime.fromisoformat(text)
