"""Past occurrences of a workflow: its steps yield as runs of jobs do, and wait for the run before if they say so."""

from __future__ import annotations

from uuid import UUID

from tests.fixtures_flow import actor, executions_of, make_schedule, ticket_of
from tests.operations.fixtures import work_off
from tests.workflows.engine import Engine, make_workflow, step


def test_past_occurrences_run_in_their_order_and_yield(engine: Engine) -> None:
    from apps.operations.backfill.services import backfill_ask
    from apps.operations.models import Operation
    from apps.tickets.values import BACKFILL
    from tenants.work import database_now

    tenant = engine.tenant
    workflow = make_workflow(tenant, [step("load", depends_on_previous=True)])
    schedule = make_schedule(tenant, workflow=str(workflow), trigger={"cron": "0 3 * * *"})
    data = {"from": "2024-02-01", "to": "2024-02-04", "max_in_flight": 2}
    one = backfill_ask(tenant=tenant, actor=actor(tenant), schedule_id=schedule, data=data, now=database_now())
    assert isinstance(one, Operation)
    for day in (1, 2, 3):
        work_off(tenant, one.pk, most=4)
        engine.look()
        alive = [row for row in executions_of(engine.conn, tenant, schedule) if row["finished_at"] is None]
        assert [row["nominal_at"].day for row in alive] == [number for number in (day, day + 1) if number <= 3]
        states = [engine.step(row["id"], "load") for row in alive]
        assert [row["state"] for row in states] == ["running", "waiting"][: len(alive)]
        execution: UUID = states[0]["execution_id"]
        assert ticket_of(engine.conn, execution)["lane"] == BACKFILL
        engine.end(alive[0]["id"], "load")
        engine.look()
    assert work_off(tenant, one.pk, most=4).state == "completed"
