"""Replaying dead letters through the service that the API, the command and operations share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from apps.outcomes.again import How, Replayed
from apps.outcomes.replay import deadletter_replay, deadletters_replay
from apps.outcomes.replay_undo import deadletter_unreplay
from apps.outcomes.resolve import deadletters_resolve
from apps.tickets.values import CATCH_UP
from kernel.errors import Conflict, QuotaExceeded, ShardbeatError, code_of
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    assert_exactly_one_outcome,
    execution_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    rows_of,
    settle_as,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
LATER = NOW + 60 * MINUTE


def die(conn: Conn, registry: Registry, *ids: UUID) -> None:
    """Each is tried once and dead."""
    settle_as(conn, registry, started_now(conn, list(ids), WORKER), "failed", retryable=False)


def open_letters(conn: Conn, tenant: Tenant) -> dict[UUID, UUID]:
    """Open letters by execution."""
    rows = rows_of(conn, tenant, "deadletters_deadletter")
    return {row["execution_id"]: row["id"] for row in rows if row["resolved_at"] is None}


def word(result: Replayed | ShardbeatError) -> str:
    return code_of(result) if isinstance(result, ShardbeatError) else "replayed"


def test_many_are_replayed_each_on_its_own(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Of one batch: two jobs, an occurrence of a schedule with a payload, one that is closed, one without its job."""
    job, gone = make_job(acme), make_job(acme)
    plain, own = make_ticket(acme, job), make_ticket(acme, job, payload={"a": 1}, priority=9)
    lost, closed = make_ticket(acme, gone), make_ticket(acme, job)
    schedule = make_schedule(acme, job, overlap="skip", payload={"s": 1})
    fire_all(conn, registry, now=NOW + MINUTE)
    [occurrence] = [row["id"] for row in executions_of(conn, acme, schedule)]
    die(conn, registry, plain, own, lost, closed, occurrence)
    letters = open_letters(conn, acme)
    deadletters_resolve(tenant=acme, actor=actor(acme), letter_ids=[letters[closed]], now=LATER)
    conn.execute(f"UPDATE {acme.schema_name}.schedules_job SET deleted_at = now() WHERE id = %s", [gone])
    asked = [*letters.values(), nowhere := uuid4()]
    who, how = replace(actor(acme), request_id="operation:1"), How(note="target is up again", yields=True)
    done = deadletters_replay(tenant=acme, actor=who, letter_ids=asked, now=LATER, how=how)
    assert {key: word(one) for key, one in done.items()} == {
        letters[plain]: "replayed", letters[own]: "replayed", letters[occurrence]: "replayed",
        letters[lost]: "job_deleted", letters[closed]: "not_open", nowhere: "not_found",
    }  # fmt: skip
    assert open_letters(conn, acme) == {lost: letters[lost]}, "what was refused is as it was"
    tickets = {key: ticket_of(conn, key) for key in (plain, own, occurrence)}
    assert {key: (one["attempt"], one["payload_from"], one["guarded"]) for key, one in tickets.items()} == {
        plain: (1, "job", False), own: (1, "execution", False), occurrence: (1, "schedule", True),
    }  # fmt: skip
    assert {one["lane"] for one in tickets.values()} == {CATCH_UP}, "live runs go first"
    assert tickets[own]["priority"] == 9
    assert ticket_of(conn, lost) is None
    audited = conn.execute(
        "SELECT count(*) FROM audit_auditevent WHERE action = 'deadletter.replay' AND request_id = 'operation:1'"
    ).fetchone()
    assert audited == (3,)
    settle_as(conn, registry, started_now(conn, list(tickets), WORKER))
    for execution in tickets:
        assert_exactly_one_outcome(conn, acme, execution_of(conn, acme, execution)["run_key"], state="succeeded")


def test_what_dies_again_and_again_is_not_replayed_for_ever(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Under the old key or under new ones: the replays of what it runs in the place of count, too."""
    who, execution = actor(acme), make_ticket(acme)
    for how in (How(), How(new_key=True), How(payload={"b": 2})):
        die(conn, registry, execution)
        letter = open_letters(conn, acme)[execution]
        runs = deadletter_replay(tenant=acme, actor=who, letter_id=letter, now=LATER, how=how)
        assert (runs != execution) == how.makes_new
        execution = runs
    die(conn, registry, execution)
    letter = open_letters(conn, acme)[execution]
    for how in (How(), How(new_key=True)):
        with pytest.raises(Conflict) as refused:
            deadletter_replay(tenant=acme, actor=who, letter_id=letter, now=LATER, how=how)
        assert (refused.value.extra["code"], refused.value.extra["replays"]) == ("replayed_too_often", 3)
    assert deadletter_replay(tenant=acme, actor=who, letter_id=letter, now=LATER, how=How(max_replays=4)) == execution
    die(conn, registry, execution)
    letter = open_letters(conn, acme)[execution]
    assert deadletter_replay(tenant=acme, actor=who, letter_id=letter, now=LATER, how=How(force=True)) == execution


def test_a_replay_is_taken_back_while_nothing_was_tried(conn: Conn, registry: Registry, acme: Tenant) -> None:
    who, job = actor(acme), make_job(acme)
    ids = reopened, anew, begun = [make_ticket(acme, job, payload={"n": n}) for n in range(3)]
    die(conn, registry, *ids)
    before = {key: execution_of(conn, acme, key) for key in ids}
    letters = open_letters(conn, acme)
    conn.execute(f"UPDATE {acme.schema_name}.schedules_job SET version = version + 1 WHERE id = %s", [job])
    conn.execute(
        f"INSERT INTO {acme.schema_name}.schedules_jobversion SELECT (jsonb_populate_record(v, jsonb_build_object("
        f"'id', v.id + 100000, 'version', 2))).* FROM {acme.schema_name}.schedules_jobversion v WHERE job_id = %s",
        [job],
    )
    done = deadletters_replay(
        tenant=acme, actor=who, letter_ids=[letters[reopened], letters[begun]], now=LATER, how=How(note="again")
    )
    new_id = deadletter_replay(tenant=acme, actor=who, letter_id=letters[anew], now=LATER, how=How(new_key=True))
    made = execution_of(conn, acme, new_id)
    assert (made["replay_of"], made["payload"], made["trigger"]) == (anew, {"n": 1}, "replay")
    assert execution_of(conn, acme, reopened)["job_version"] == 2
    started_now(conn, [begun], WORKER)

    def undo(letter: UUID, execution: UUID) -> None:
        told = done.get(letter)
        deadletter_unreplay(
            tenant=acme, actor=who, letter_id=letter, execution_id=execution, now=LATER,
            before=told.before if isinstance(told, Replayed) else {},
        )  # fmt: skip

    undo(letters[reopened], reopened)
    undo(letters[anew], new_id)
    with pytest.raises(Conflict, match="started since"):
        undo(letters[begun], begun)
    with pytest.raises(Conflict, match="not replayed"):
        undo(letters[reopened], reopened)
    assert open_letters(conn, acme) == {reopened: letters[reopened], anew: letters[anew]}
    assert execution_of(conn, acme, reopened) == before[reopened], "as if it had not been replayed"
    assert execution_of(conn, acme, new_id)["state"] == "cancelled"
    assert (ticket_of(conn, reopened), ticket_of(conn, new_id)) == (None, None)
    assert ticket_of(conn, begun)["state"] == "running"
    again = deadletter_replay(tenant=acme, actor=who, letter_id=letters[reopened], now=LATER)
    assert again == reopened, "it can be replayed again"


def test_a_batch_takes_what_there_is_room_for(conn: Conn, registry: Registry, new_tenant: Any) -> None:
    tenant = new_tenant(max_live=2)
    registry.refresh(force=True)
    job = make_job(tenant)
    for _ in range(3):
        die(conn, registry, make_ticket(tenant, job))
    letters = sorted(open_letters(conn, tenant).values())
    done = deadletters_replay(tenant=tenant, actor=actor(tenant), letter_ids=letters, now=LATER, how=How())
    assert [word(done[key]) for key in letters] == ["replayed", "replayed", "quota_exceeded"]
    assert isinstance(done[letters[2]], QuotaExceeded)
    assert list(open_letters(conn, tenant).values()) == letters[2:]
