"""Executions that wait for others: submitted, freed or skipped in the transaction in which the last parent ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.workflow_submission import workflow_run
from apps.outcomes.cancel import execution_cancel
from apps.outcomes.replay import deadletter_replay
from apps.schedules.services import job_pause, job_resume
from apps.workflows.dependencies.depending_input import CONDITIONS
from apps.workflows.views.runs_reading import run_read
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    count,
    execution_of,
    fire,
    make_job,
    make_ticket,
    rows_of,
    settle_as,
    started_now,
    ticket_of,
)
from tests.workflows.engine import Engine, make_workflow, step

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)


def after(*parents: UUID, on: str | None = None) -> dict[str, Any]:
    """What a submission says that waits for these."""
    wanted = {"depends_on": [str(one) for one in parents]}
    return wanted if on is None else {**wanted, "condition": on}


def end(conn: Conn, registry: Registry, run: UUID, outcome: str = "succeeded") -> None:
    retryable = {} if outcome == "succeeded" else {"retryable": False}
    settle_as(conn, registry, started_now(conn, [run], WORKER), outcome, **retryable)


def state(conn: Conn, tenant: Tenant, run: UUID) -> str:
    ticket = ticket_of(conn, run)
    found: str = execution_of(conn, tenant, run)["state"] if ticket is None else ticket["state"]
    return found


def states(conn: Conn, tenant: Tenant, *runs: UUID) -> list[str]:
    return [state(conn, tenant, run) for run in runs]


def test_it_starts_once_when_the_last_of_its_parents_has_ended_well(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    first, second = make_ticket(acme, job), make_ticket(acme, job)
    child = make_ticket(acme, make_job(acme, max_queue_age_s=60), **after(first, second), priority=9)
    assert states(conn, acme, first, second, child) == ["ready", "ready", "blocked"]
    assert ticket_of(conn, child)["rank"] is None
    end(conn, registry, second)
    assert state(conn, acme, child) == "blocked"
    end(conn, registry, first)
    ticket = ticket_of(conn, child)
    assert ticket["state"] == "ready"
    # It became due just now: its queue age and its place in line count from then.
    assert ticket["available_at"] == ticket["actual_at"] == execution_of(conn, acme, child)["actual_at"] > NOW
    assert ticket["start_by"] == ticket["actual_at"] + timedelta(seconds=60)
    assert ticket["rank"] == ticket["available_at"] - 9 * MINUTE
    end(conn, registry, child)
    assert_exactly_one_outcome(conn, acme, child.hex, state="succeeded")
    assert [row["met"] for row in rows_of(conn, acme, "workflows_dependency")] == [True, True]


# How a parent ends, and the conditions that this fits.
ENDS = [
    ("succeeded", {"succeeded", "finished"}),
    ("failed", {"failed", "finished"}),
    ("cancelled", {"failed", "finished"}),
    ("expired", {"failed", "finished"}),
]


@pytest.mark.parametrize(("how", "fitting"), ENDS)
def test_every_condition_is_decided_by_how_the_parent_ended(
    conn: Conn, registry: Registry, acme: Tenant, how: str, fitting: set[str]
) -> None:
    from apps.outcomes.expire import expire_batch

    job = make_job(acme)
    parent = make_ticket(acme, job, max_queue_age_s=1 if how == "expired" else None)
    children = {on: make_ticket(acme, job, **after(parent, on=on)) for on in CONDITIONS}
    after_skipped = {on: make_ticket(acme, job, **after(children["skipped"], on=on)) for on in CONDITIONS}
    if how == "cancelled":
        execution_cancel(tenant=acme, actor=actor(acme), execution_id=parent, now=NOW)
    elif how == "expired":
        expire_batch(conn, registry, now=NOW + MINUTE, limit=10)
    else:
        end(conn, registry, parent, how)
    assert {on for on, child in children.items() if state(conn, acme, child) == "ready"} == fitting
    for on in CONDITIONS:
        if on not in fitting:
            skipped = assert_exactly_one_outcome(conn, acme, children[on].hex, state="skipped")
            assert (skipped["reason"], skipped["error"]["execution"]) == ("dependency_not_met", str(parent))
    # What waited for an execution that was skipped is decided with it.
    assert {on for on, child in after_skipped.items() if state(conn, acme, child) == "ready"} == {"skipped", "finished"}


def test_what_has_ended_already_counts_when_it_is_submitted(conn: Conn, registry: Registry, acme: Tenant) -> None:
    well, badly = make_ticket(acme), make_ticket(acme)
    end(conn, registry, well)
    end(conn, registry, badly, "failed")
    assert state(conn, acme, make_ticket(acme, **after(well))) == "ready"
    mixed = [{"execution": str(well)}, {"execution": str(badly), "on": "failed"}]
    assert state(conn, acme, make_ticket(acme, depends_on=mixed)) == "ready"
    refused = make_ticket(acme, **after(well, badly))
    assert state(conn, acme, refused) == "skipped"
    assert state(conn, acme, make_ticket(acme, **after(refused, on="skipped"))) == "ready"
    assert state(conn, acme, make_ticket(acme, depends_on=[])) == "ready"


def test_a_retry_of_a_parent_is_no_end(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """F19: whoever waits counts ends, not attempts."""
    parent = make_ticket(acme)
    child = make_ticket(acme, **after(parent))
    settle_as(conn, registry, started_now(conn, [parent], WORKER), "failed")
    assert states(conn, acme, parent, child) == ["ready", "blocked"]
    conn.execute("UPDATE tickets_ticket SET rank = available_at WHERE execution_id = %s", [parent])
    end(conn, registry, parent)
    assert states(conn, acme, parent, child) == ["succeeded", "ready"]


def test_both_its_time_and_its_parents_have_to_come(conn: Conn, registry: Registry, acme: Tenant) -> None:
    delayed = make_ticket(acme, delay_s=60)
    early = make_ticket(acme, **after(delayed), delay_s=30)
    late = make_ticket(acme, **after(delayed), delay_s=3_600, now=datetime.now(UTC))
    assert states(conn, acme, delayed, early, late) == ["scheduled", "blocked", "blocked"]
    fire(conn, registry, now=NOW + MINUTE)
    end(conn, registry, delayed)
    assert states(conn, acme, early, late) == ["ready", "ready"]
    assert ticket_of(conn, early)["rank"] is not None
    ticket = ticket_of(conn, late)
    assert ticket["rank"] is None and ticket["available_at"] > datetime.now(UTC), "it waits for its time"


def test_a_delayed_parent_that_is_cancelled_is_an_end_too(conn: Conn, acme: Tenant) -> None:
    delayed = make_ticket(acme, delay_s=60)
    child = make_ticket(acme, **after(delayed))
    grandchild = make_ticket(acme, **after(child, on="finished"))
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=delayed, now=NOW)
    assert states(conn, acme, child, grandchild) == ["skipped", "ready"]


def test_what_is_blocked_can_be_cancelled_and_its_parent_starts_nothing_then(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    parent = make_ticket(acme)
    child = make_ticket(acme, **after(parent))
    grandchild = make_ticket(acme, **after(child))
    assert execution_cancel(tenant=acme, actor=actor(acme), execution_id=child, now=NOW).outcome == "done"
    assert states(conn, acme, child, grandchild) == ["cancelled", "skipped"]
    end(conn, registry, parent)
    assert_exactly_one_outcome(conn, acme, child.hex, state="cancelled")


def test_a_parent_that_runs_again_decides_nothing_again(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """F13: what has been decided stays, whatever becomes of a dead parent afterwards."""
    parent = make_ticket(acme)
    children = [make_ticket(acme, **after(parent, on=on)) for on in ("succeeded", "failed")]
    end(conn, registry, parent, "failed")
    assert states(conn, acme, *children) == ["skipped", "ready"]
    [letter] = rows_of(conn, acme, "deadletters_deadletter")
    deadletter_replay(tenant=acme, actor=actor(acme), letter_id=letter["id"], now=NOW)
    later = make_ticket(acme, **after(parent))
    end(conn, registry, parent)
    assert states(conn, acme, *children, later) == ["skipped", "ready", "ready"]
    end(conn, registry, children[1])
    assert_exactly_one_outcome(conn, acme, children[1].hex, state="succeeded")


def test_runs_of_workflows_and_their_steps_can_be_waited_for_and_can_wait(
    conn: Conn, acme: Tenant, engine: Engine
) -> None:
    workflow = make_workflow(acme, [step("a"), step("b", "a")])
    run = engine.run(workflow)
    of_run = make_ticket(acme, **after(run))
    of_step = make_ticket(acme, **after(engine.step(run, "a")["execution_id"]))
    data = {"depends_on": [str(of_run)]}
    second = workflow_run(tenant=acme, actor=actor(acme), workflow_id=workflow, data=data, now=NOW)
    with door.inside(acme):
        waits = run_read(acme, second)
    assert waits is not None and (waits.state, waits.wait_reason) == ("ready", "workflow_blocked")
    engine.end(run, "a")
    assert states(conn, acme, of_step, of_run, second) == ["ready", "blocked", "blocked"]
    engine.end(run, "b")
    engine.look()
    assert states(conn, acme, run, of_run, second) == ["succeeded", "ready", "blocked"]
    end(conn, engine.registry, of_run)
    engine.look()
    assert engine.states(second) == {"a": "running", "b": "waiting"}
    # What is stopped with its run is an end, too.
    of_step = make_ticket(acme, **after(engine.step(second, "a")["execution_id"], on="failed"))
    of_run = make_ticket(acme, **after(second))
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=second, now=NOW)
    engine.look()
    assert states(conn, acme, of_step, of_run) == ["ready", "skipped"]


def test_parents_that_end_at_once_start_it_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Two connections settle the last two parents, many times over; nobody waits for ever and nothing starts twice."""
    job = make_job(acme)
    pairs = [(make_ticket(acme, job), make_ticket(acme, job)) for _ in range(20)]
    children = [make_ticket(acme, job, **after(*pair)) for pair in pairs]
    started = started_now(conn, [one for pair in pairs for one in pair], WORKER)
    by_run = {one.execution_id: one for one in started}
    with door.connect("test a") as a, door.connect("test b") as b:

        def settle_all(line: Conn, side: int) -> None:
            for pair in pairs:
                settle_as(line, registry, [by_run[pair[side]]])

        at_once(lambda: settle_all(a, 0), lambda: settle_all(b, 1))
    assert states(conn, acme, *children) == ["ready"] * len(children)
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == len(children)


def test_ends_cancels_and_pauses_at_once_leave_each_with_one_outcome(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Parents end while what waits for them is cancelled and their job paused: nobody waits for ever."""
    job = make_job(acme)
    parents = started_now(conn, [make_ticket(acme, job) for _ in range(10)], WORKER)
    children = [make_ticket(acme, job, **after(one.execution_id)) for one in parents]
    below = [make_ticket(acme, job, **after(one)) for one in children]
    instead = [make_ticket(acme, job, **after(one, on="failed")) for one in children]
    began = started_now(conn, [make_ticket(acme, job) for _ in range(10)], WORKER)  # younger than what waits

    def end_all() -> None:
        with door.connect("test settle") as other:
            for parent, more in zip(parents, began, strict=True):
                settle_as(other, registry, [parent, more])

    def cancel_all() -> None:
        for child in children:
            execution_cancel(tenant=acme, actor=actor(acme), execution_id=child, now=NOW)

    def pause_and_resume() -> None:
        for verb in (job_pause, job_resume) * 5:
            verb(tenant=acme, actor=actor(acme), job_id=job, now=NOW)

    at_once(end_all, cancel_all, pause_and_resume)
    assert states(conn, acme, *children) == ["cancelled"] * 10
    assert states(conn, acme, *below) == ["skipped"] * 10
    assert states(conn, acme, *instead) == ["ready"] * 10
    for one in (*parents, *began):
        assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")


def test_a_parent_that_ends_while_its_dependent_is_submitted_is_seen(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    parents = started_now(conn, [make_ticket(acme, job) for _ in range(20)], WORKER)
    children: list[UUID] = []
    with door.connect("test settle") as other:
        at_once(
            lambda: [settle_as(other, registry, [one]) for one in parents],
            lambda: children.extend(make_ticket(acme, job, **after(one.execution_id)) for one in parents),
        )
    assert states(conn, acme, *children) == ["ready"] * len(parents)


def test_the_end_of_a_long_row_of_failures_is_one_transaction(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    row = [make_ticket(acme, job)]
    for _ in range(30):
        row.append(make_ticket(acme, job, **after(row[-1])))
    end(conn, registry, row[0], "failed")
    assert states(conn, acme, *row[1:]) == ["skipped"] * 30


def test_a_crash_at_any_moment_leaves_both_or_neither(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    parent, other = make_ticket(acme, job), make_ticket(acme, job)
    children = [make_ticket(acme, job, **after(parent, on=on)) for on in ("succeeded", "failed")]
    both = make_ticket(acme, job, **after(parent, other))
    [started] = started_now(conn, [parent], WORKER)

    def check(where: str) -> None:
        ended = state(conn, acme, parent) == "succeeded"
        expected = ["ready", "skipped", "blocked"] if ended else ["blocked"] * 3
        assert states(conn, acme, *children, both) == expected, where

    assert at_every_crash(lambda line: settle_as(line, registry, [started]), check) > 3
    assert_exactly_one_outcome(conn, acme, parent.hex, state="succeeded")
