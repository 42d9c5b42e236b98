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
    from apps.due import outlines
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
    seen = outlines.find(door.raw(), one.pk)
    assert seen is not None and seen.outline[1:8] == (acme.pk, "cancel", "executions", "running", "", 3, 3)
    assert (seen.outline.created_by, seen.outline.reason, seen.outline.done) == ("test", "wrong payload", 0)

    execution_cancel(tenant=acme, actor=actor(acme), execution_id=second, now=NOW)

    done = work_off(acme, one.pk)

    assert (done.state, done.planned, done.succeeded) == ("completed", 3, 3)
    assert receipt(acme, one.pk) == [(n, "succeeded", "") for n in (1, 2, 3)]
    assert outlines.read(door.raw(), live=True, limit=5) == []
    ended = outlines.read(door.raw(), live=False, tenant_id=acme.pk, not_action="backfill", limit=5)
    assert [(seen.outline.state, seen.outline.done, seen.left_s) for seen in ended] == [("completed", 3, None)]
    assert outlines.prune(door.raw()) == 0 and outlines.prune(door.raw(), older_than_s=-60) == 1
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


def test_the_pace_of_an_operation_is_what_ended_since_a_while_ago(acme: Tenant) -> None:
    from datetime import timedelta

    from apps.due import outlines
    from apps.operations.models import Operation
    from apps.operations.outlined import outline
    from tenants import door

    one = ask(acme, "cancel", "executions", {"all": True})
    found: list[tuple[float | None, float | None]] = []
    for after_s, done in ((0, 0), (4, 20), (10, 50), (15, 55), (30, 250), (200, 260), (212, 100)):
        state = Operation(**one.values())
        state.state, state.planned, state.succeeded, state.pending = "running", 450, done, 450 - done
        outline(door.raw(), state, tenant_id=acme.pk, now=one.created_at + timedelta(seconds=after_s))
        seen = outlines.find(door.raw(), one.pk)
        assert seen is not None
        found.append((seen.per_s, seen.left_s))
    assert found == [
        (None, None), (None, None), (5.0, 80.0), (5.0, 79.0), (10.0, 20.0),
        (None, None),  # too long ago to say anything of now
        (None, None),  # undone
    ]  # fmt: skip
