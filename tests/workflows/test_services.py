"""What is stored of workflows: versions, the jobs inside of them, what may go, and edits that meet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from kernel.errors import Conflict, InvalidInput
from tests.fixtures_people import People
from tests.workflows.engine import Engine, make_workflow, step

Conn = psycopg.Connection[Any]
NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
TARGET = {"url": "https://api.example.com/run"}


class Desk:
    """What acme's admin does to workflows and jobs."""

    def __init__(self, people: People) -> None:
        self.tenant, self.actor = people.tenant, people.actor("admin")

    def job(self, name: str) -> UUID:
        from apps.schedules.services import job_create

        data = {"name": name, "kind": "http", "target": TARGET}
        return job_create(tenant=self.tenant, actor=self.actor, data=data, now=NOW).job.pk

    def create(self, name: str, *steps: dict[str, Any], **members: Any) -> Any:
        from apps.workflows.definitions.services import workflow_create

        data = {"name": name, "steps": list(steps), **members}
        return workflow_create(tenant=self.tenant, actor=self.actor, data=data, now=NOW)

    def update(self, workflow_id: UUID, **patch: Any) -> Any:
        from apps.workflows.definitions.services import workflow_update

        return workflow_update(
            tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, patch=patch, now=NOW
        )  # fmt: skip

    def delete(self, workflow_id: UUID) -> None:
        from apps.workflows.definitions.services import workflow_delete

        workflow_delete(tenant=self.tenant, actor=self.actor, workflow_id=workflow_id, now=NOW)


@pytest.fixture
def desk(acme_people: People) -> Desk:
    return Desk(acme_people)


def inline(**target: Any) -> dict[str, Any]:
    return {"kind": "http", "target": {**TARGET, **target}}


def jobs_of(made: Any) -> dict[str, UUID]:
    return {place: ref.job_id for place, ref in made.workflow.jobs()}


def test_an_inline_job_keeps_its_row_until_it_differs(desk: Desk, conn: Conn) -> None:
    from apps.workflows.definitions.defined import workflow_as_given, workflow_defined, workflow_shape
    from tenants.work import in_tenant

    known = desk.job("load")
    first = {"name": "extract", "job": inline(headers={"Authorization": "Bearer s3cret"})}
    second = {"name": "load", "job": str(known), "needs": ["extract"], "compensate": {"job": inline()}}
    made = desk.create("nightly", first, second, on_failure={"job": inline()}, failure_policy="compensate")
    was = jobs_of(made)
    assert was["steps/load"] == known and len(set(was.values())) == 4
    assert desk.update(made.job.pk, description="of the region").job.version == 2, "steps are not touched (F15)"
    read = in_tenant(desk.tenant, lambda: workflow_defined(made.job.__class__.objects.get(pk=made.job.pk)))
    shape = workflow_shape(read)
    assert shape["steps"][0]["job"]["target"]["headers"] == {"Authorization": "***"}
    assert shape["steps"][1] == second | {"compensate": {"job": inline()}}
    sent = desk.update(made.job.pk, steps=shape["steps"], on_failure=shape["on_failure"])
    assert (sent.job.version, jobs_of(sent)) == (2, was), "what was answered can be sent back"
    changed = desk.update(made.job.pk, steps=[first | {"job": inline(method="PUT")}, second], name="each night")
    now = jobs_of(changed)
    assert {place for place in was if was[place] != now[place]} == {"steps/extract"}
    rows = conn.execute(
        "SELECT id, name, deleted_at IS NULL FROM t_acme.schedules_job WHERE workflow_id = %s", [made.job.pk]
    ).fetchall()
    names = {row[0]: row[1] for row in rows}
    assert len(rows) == 4 and not any(row[2] for row in rows), "hidden from the start; the old one stays for its runs"
    assert names[now["steps/extract"]] == "each night/extract"
    assert names[was["steps/extract"]] == "nightly/extract"
    assert names[now["steps/load/compensate"]] == "each night/load/compensate"
    assert workflow_as_given(changed)["name"] == "each night"


def test_what_a_workflow_names_can_not_go(desk: Desk) -> None:
    from apps.schedules.services import job_delete

    job = desk.job("a")
    inner = desk.create("inner", {"name": "a", "job": str(job)})
    outer = desk.create("outer", {"name": "a", "workflow": str(inner.job.pk)})
    follower = desk.create("follower", {"name": "a", "delay_s": 1}, after=[{"workflow": str(inner.job.pk)}])
    with pytest.raises(Conflict) as refused:
        job_delete(tenant=desk.tenant, actor=desk.actor, job_id=job, now=NOW)
    assert refused.value.extra["code"] == "job_in_use"
    assert refused.value.extra["workflows"] == [{"id": str(inner.job.pk), "name": "inner"}]
    with pytest.raises(Conflict) as refused:
        desk.delete(inner.job.pk)
    assert [one["name"] for one in refused.value.extra["workflows"]] == ["outer", "follower"]
    desk.update(outer.job.pk, steps=[{"name": "a", "delay_s": 1}])
    desk.delete(follower.job.pk)
    desk.delete(inner.job.pk)
    job_delete(tenant=desk.tenant, actor=desk.actor, job_id=job, now=NOW)
    with pytest.raises(InvalidInput) as unknown:
        desk.update(outer.job.pk, steps=[{"name": "a", "job": str(job)}, {"name": "b", "workflow": str(inner.job.pk)}])
    assert {one.pointer: one.code for one in unknown.value.errors} == {
        "/steps/0/job": "unknown_job", "/steps/1/workflow": "unknown_workflow",
    }  # fmt: skip


def test_workflows_do_not_start_themselves(desk: Desk) -> None:
    """F03, also through a step that runs a workflow and another one that follows it."""
    wait = {"name": "a", "delay_s": 1}
    first = desk.create("first", wait)
    second = desk.create("second", wait, after=[{"workflow": str(first.job.pk)}])
    third = desk.create("third", wait, {"name": "b", "workflow": str(second.job.pk)})
    for patch, pointer, loop in (
        ({"after": [{"workflow": str(first.job.pk)}]}, "/after/0/workflow", "first -> first"),
        ({"after": [{"workflow": str(second.job.pk)}]}, "/after/0/workflow", "first -> second -> first"),
    ):
        with pytest.raises(InvalidInput) as refused:
            desk.update(first.job.pk, **patch)
        (fault,) = refused.value.errors
        assert (fault.pointer, fault.code, loop in fault.detail) == (pointer, "workflow_cycle", True), fault
    with pytest.raises(InvalidInput, match="not valid") as refused:
        desk.update(second.job.pk, steps=[wait, {"name": "b", "workflow": str(third.job.pk)}])
    assert [one.pointer for one in refused.value.errors] == ["/steps/1/workflow"]
    desk.update(first.job.pk, steps=[wait, {"name": "b", "workflow": str(third.job.pk)}])  # all of them end


def test_a_run_takes_no_place_of_its_own_and_is_not_lost(engine: Engine, conn: Conn) -> None:
    from apps.dispatch.reconcile import end_lost
    from apps.schedules.definitions import Definitions
    from apps.tickets import waiting

    run = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a")]))
    conn.execute("UPDATE tickets_ticket SET deadline = clock_timestamp() - interval '1 h' WHERE pool = 'workflow'")
    assert end_lost(conn, engine.registry, Definitions()).counts == {}, "its deadline says when to look at it"
    row = conn.execute("SELECT state, queue FROM tickets_ticket WHERE execution_id = %s", [run]).fetchone()
    assert row == ("running", "workflow")
    assert waiting.held_by_tenants(conn, [engine.tenant.pk]) == {engine.tenant.pk: 0}, "max_running is of steps"
    engine.start(run, "a")
    assert waiting.held_by_tenants(conn, [engine.tenant.pk]) == {engine.tenant.pk: 1}


def test_a_step_runs_again_by_itself(desk: Desk, engine: Engine, conn: Conn) -> None:
    """A job inside of a workflow can't be submitted, but what has run of it can run again."""
    from apps.dispatch.submission import execution_submit
    from apps.dispatch.submit import execution_rerun

    made = desk.create("etl", {"name": "a", "job": inline(), "input": {"region": "{{ input.region }}"}})
    job = jobs_of(made)["steps/a"]
    run = engine.run(made.job.pk, payload={"region": "eu"})
    engine.end(run, "a")
    with pytest.raises(InvalidInput):
        execution_submit(tenant=desk.tenant, actor=desk.actor, data={"job": str(job)}, now=NOW)
    execution = engine.step(run, "a")["execution_id"]
    again = execution_rerun(tenant=desk.tenant, actor=desk.actor, execution_id=execution, now=NOW)
    query = "SELECT job_id, trigger, payload, workflow_run_id FROM t_acme.executions_execution WHERE id = %s"
    assert conn.execute(query, [again]).fetchone() == (job, "replay", {"region": "eu"}, None)
