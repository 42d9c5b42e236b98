"""An operation from the wish to the receipt, turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures_flow import NOW, actor, make_job, make_ticket
from tests.operations.fixtures import ask, passes, read, receipt, work_off

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_a_filter_is_frozen_planned_and_worked_off_with_a_receipt(acme: Tenant, globex: Tenant) -> None:
    from apps.audit.models import AuditEvent
    from apps.due.models import DueOperation
    from apps.executions.models import Execution
    from apps.outcomes.cancel import execution_cancel
    from tenants import door
    from tenants.work import database_now

    job = make_job(acme)
    first, second, third = (make_ticket(acme, job) for _ in range(3))
    other = make_ticket(acme)
    foreign = make_ticket(globex)
    one = ask(acme, "cancel", "executions", {"job": str(job), "state": ["ready", "scheduled"]}, reason="wrong payload")
    later = make_ticket(acme, job, now=database_now())  # not meant: it came after the wish
    assert passes() == {"turns": 1, "planned": 3}

    execution_cancel(tenant=acme, actor=actor(acme), execution_id=second, now=NOW)

    done = work_off(acme, one.pk)

    assert (done.state, done.planned, done.succeeded) == ("completed", 3, 3)
    assert receipt(acme, one.pk) == [(n, "succeeded", "") for n in (1, 2, 3)]
    with door.inside(acme):
        states = dict(Execution.objects.values_list("id", "state"))
    assert {states[one] for one in (first, second, third)} == {"cancelled"}
    assert {states[one] for one in (other, later)} == {"ready"}
    with door.inside(globex):
        assert Execution.objects.filter(pk=foreign, state="ready").exists()
    assert not DueOperation.objects.exists()
    rows = AuditEvent.objects.filter(action="execution.cancel", request_id=f"operation:{one.pk}")
    assert {(row.object_id, row.reason, row.actor) for row in rows} == {
        (str(one), "wrong payload", "test") for one in (first, third)
    }
    assert read(acme, one.pk).finished_at is not None


def test_planning_goes_on_where_it_was_and_has_an_end(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.operations import services, turn
    from apps.operations.pacing import Pace
    from kernel.errors import Conflict
    from tenants.work import database_now

    job = make_job(acme)
    runs = [make_ticket(acme, job) for _ in range(5)]
    monkeypatch.setattr(turn, "PLAN_ROWS", 2)
    monkeypatch.setattr(services, "COUNT_ROWS", 2)
    who, now = actor(acme), database_now()
    wish = services.Wish("cancel", "executions", {"job": str(job)}, {}, Pace())
    dry = services.operation_rehearse(tenant=acme, actor=who, wish=wish, now=now)
    assert dry.count == 5 and [one.target_id for one in dry.sample] == runs, "oldest first"

    one = services.operation_create(tenant=acme, actor=who, wish=wish, now=now)
    passes()
    services.operation_pause(tenant=acme, actor=who, operation_id=one.pk, now=now)
    assert passes(3) == {"turns": 1} and read(acme, one.pk).planned == 2, "one look, and then nothing"
    resumed = services.operation_resume(tenant=acme, actor=who, operation_id=one.pk, now=now)
    assert resumed.state == "planning"
    assert work_off(acme, one.pk).succeeded == 5

    monkeypatch.setattr(turn, "MAX_ITEMS", 4)
    monkeypatch.setattr(services, "MAX_ITEMS", 4)
    with pytest.raises(Conflict, match="fits more than"):
        services.operation_rehearse(tenant=acme, actor=who, wish=wish, now=now)
    many = work_off(acme, services.operation_create(tenant=acme, actor=who, wish=wish, now=now).pk)
    assert (many.state, many.planned, many.pending) == ("failed", 4, 4) and "fits more than" in many.error
