"""Dead letters replayed and resolved by operations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.operations.pacing import Pace
from apps.operations.services import (
    Wish,
    operation_cancel,
    operation_pause,
    operation_rehearse,
    operation_resume,
    operation_undo,
)
from apps.outcomes.again import How
from apps.outcomes.replay import deadletter_replay
from kernel.errors import Conflict, InvalidInput
from tenants.models import Tenant
from tenants.registry import Registry
from tenants.work import database_now
from tests.fixtures_flow import (
    actor,
    at_once,
    executions_of,
    letters_of,
    make_job,
    make_ticket,
    ready_of,
    rows_of,
    settle_as,
    started_now,
    ticket_of,
)
from tests.operations.fixtures import ask, read, receipt, work_off, work_while_due

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)


def deaths(conn: Conn, registry: Registry, tenant: Tenant, job: UUID, number: int, message: str = "no") -> list[UUID]:
    """So many executions that died of one cause."""
    ids = [make_ticket(tenant, job) for _ in range(number)]
    error = {"class": "test", "message": message}
    settle_as(conn, registry, started_now(conn, ids, WORKER), "failed", retryable=False, error=error)
    return ids


def run_what_waits(conn: Conn, registry: Registry, tenant: Tenant, outcome: str = "succeeded") -> int:
    """All tickets of the tenant that are ready are started once and end so; how many."""
    ready = ready_of(conn, tenant)
    settle_as(conn, registry, started_now(conn, ready, WORKER), outcome, retryable=False)
    return len(ready)


def test_letters_of_three_tenants_are_replayed_at_most_once_each(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, new_tenant: Any
) -> None:
    """One goes through, one is paused and goes on, one is cancelled on its way; the receipts add up."""
    third = new_tenant()
    registry.refresh(force=True)
    tenants = (acme, globex, third)
    dead = {tenant.pk: deaths(conn, registry, tenant, make_job(tenant), 6) for tenant in tenants}
    asked = {tenant.pk: ask(tenant, "replay", "dead_letters", {"all": True}, max_in_flight=2) for tenant in tenants}
    for tenant in tenants:
        work_off(tenant, asked[tenant.pk].pk, most=3)
        assert run_what_waits(conn, registry, tenant) == 2, "no more than two at a time"
    operation_pause(tenant=globex, actor=actor(globex), operation_id=asked[globex.pk].pk, now=database_now())
    operation_cancel(tenant=third, actor=actor(third), operation_id=asked[third.pk].pk, now=database_now())
    for tenant in tenants:
        work_off(tenant, asked[tenant.pk].pk, most=3)
    assert [run_what_waits(conn, registry, tenant) for tenant in tenants] == [2, 0, 0]
    operation_resume(tenant=globex, actor=actor(globex), operation_id=asked[globex.pk].pk, now=database_now())
    done = {}
    for tenant in tenants:
        for _ in range(4):
            done[tenant.pk] = work_off(tenant, asked[tenant.pk].pk, most=3)
            run_what_waits(conn, registry, tenant)
    assert {key: (one.state, one.succeeded, one.pending, one.running) for key, one in done.items()} == {
        acme.pk: ("completed", 6, 0, 0), globex.pk: ("completed", 6, 0, 0), third.pk: ("cancelled", 2, 4, 0),
    }  # fmt: skip
    for tenant in tenants:
        runs = executions_of(conn, tenant)
        assert {run["id"] for run in runs} == set(dead[tenant.pk]), "reopened, and none made anew"
        ended = done[tenant.pk].succeeded
        assert sorted(run["attempt_count"] for run in runs) == [1] * (6 - ended) + [2] * ended
        open_ones = [row for row in rows_of(conn, tenant, "deadletters_deadletter") if row["resolved_at"] is None]
        assert len(open_ones) == 6 - ended


def test_one_cause_is_tried_with_a_canary_and_what_fails_again_is_left_alone(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    who, job = actor(acme), make_job(acme)
    wanted, others = deaths(conn, registry, acme, job, 4), deaths(conn, registry, acme, job, 2, "another cause")
    letters = letters_of(conn, acme)
    wanted.sort(key=lambda key: letters[key]["id"])  # the order in which they are worked off
    cause = {"fingerprint": letters[wanted[0]]["fingerprint"]}
    params = {"max_replays": 1}
    rehearsed = operation_rehearse(
        tenant=acme, actor=who, wish=Wish("replay", "dead_letters", cause, params, Pace()), now=database_now()
    )
    assert (rehearsed.count, rehearsed.warnings) == (4, [])
    one = ask(acme, "replay", "dead_letters", cause, params=params, canary=1, reason="is it up?")
    work_off(acme, one.pk, most=3)
    assert run_what_waits(conn, registry, acme, "failed") == 1
    held = work_off(acme, one.pk, most=2)
    assert (held.state, held.paused_reason, held.failed, held.pending) == ("paused", "canary_failed", 1, 3)
    operation_pause(tenant=acme, actor=who, operation_id=one.pk, now=database_now(), reason="mine")
    assert read(acme, one.pk).paused_reason == "canary_failed", "a pause on top of it takes nothing away"
    operation_resume(tenant=acme, actor=who, operation_id=one.pk, now=database_now())
    going = work_off(acme, one.pk, most=2)
    assert (going.running, going.pending) == (3, 0), "the letter of what died again is none of it"
    begun = wanted[1]
    started_now(conn, [begun], WORKER)
    operation_undo(tenant=acme, actor=who, operation_id=one.pk, now=database_now())
    undone = work_off(acme, one.pk, most=3)
    assert receipt(acme, one.pk) == [
        (1, "failed", "dead"), (2, "running", "already_started"), (3, "undone", ""), (4, "undone", ""),
    ]  # fmt: skip
    assert undone.state == "undoing", "it waits for what has started"
    states = {run["id"]: run["state"] for run in executions_of(conn, acme)}
    assert states == dict.fromkeys([*wanted, *others], "dead") | {begun: "ready"}
    assert [ticket_of(conn, key) is None for key in wanted] == [True, False, True, True]

    again = ask(acme, "replay", "dead_letters", {"status": "open"}, params={"new_key": True, "max_replays": 1})
    work_off(acme, again.pk, most=3)
    made = {run["replay_of"] for run in executions_of(conn, acme) if run["trigger"] == "replay"}
    assert made == {wanted[2], wanted[3], *others}
    assert ("skipped", "replayed_too_often") in {row[1:] for row in receipt(acme, again.pk)}, "what died twice"
    closing = ask(acme, "resolve", "dead_letters", {"created_before": "2100-01-01T00:00:00Z"}, reason="known")
    assert (work_off(acme, closing.pk).succeeded, closing.reason) == (1, "known")
    notes = [row["note"] for row in rows_of(conn, acme, "deadletters_deadletter") if row["resolution"] == "resolved"]
    assert notes == ["known"]


def test_two_operations_and_a_person_replay_the_same_letters_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    dead = deaths(conn, registry, acme, make_job(acme), 20)
    letters = sorted(row["id"] for row in rows_of(conn, acme, "deadletters_deadletter"))
    asked = [ask(acme, "replay", "dead_letters", {"all": True}, params={"new_key": True}).pk for _ in range(2)]
    done: list[UUID] = []

    def person() -> None:
        for letter in reversed(letters):
            try:
                how = How(new_key=True)
                done.append(
                    deadletter_replay(tenant=acme, actor=actor(acme), letter_id=letter, now=database_now(), how=how)
                )
            except Conflict as error:
                assert error.extra["code"] == "not_open"

    at_once(work_while_due, work_while_due, person)
    operations = [read(acme, key) for key in asked]
    assert sum(one.running for one in operations) + len(done) == 20
    assert [(one.pending, one.failed) for one in operations] == [(0, 0)] * 2
    made = [run["replay_of"] for run in executions_of(conn, acme) if run["trigger"] == "replay"]
    assert sorted(made) == sorted(dead), "each once"


@pytest.mark.parametrize(
    ("filter_", "params", "pointer"),
    [
        ({}, {}, "/filter"),
        ({"status": "replayed"}, {}, "/filter/status"),
        ({"resolved_after": "2026-01-01T00:00:00Z"}, {}, "/filter/resolved_after"),
        ({"all": False}, {}, "/filter/all"),
        ({"error_class": ["http_status", "timeout"]}, {}, "/filter/error_class"),
        ({"all": True}, {"payload": "x" * 300_000}, "/payload"),
        ({"all": True}, {"max_replays": 0}, "/max_replays"),
        ({"all": True}, {"new": True}, "/new"),
    ],
    ids=str,
)
def test_wishes_that_can_not_be(acme: Tenant, filter_: Any, params: Any, pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ask(acme, "replay", "dead_letters", filter_, params=params)
    assert pointer in [error.pointer for error in refused.value.errors]
