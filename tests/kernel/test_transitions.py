"""The table of transitions against the SQL: what is not in the table does not happen."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.submission import execution_submit
from apps.executions import store as executions
from apps.outcomes.cancel import execution_cancel
from apps.outcomes.expire import expire_batch
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.replay_undo import deadletter_unreplay
from apps.tickets import holding, releasing, remote, store
from apps.workflows.dependencies.depending import dependents_decide
from kernel.errors import Conflict
from kernel.transitions import (
    ATTEMPT_STATES,
    EXECUTION_STATES,
    FINAL_STATES,
    LIVE_STATES,
    TICKET_STATES,
    TRANSITIONS,
    Transition,
    sources_of,
)
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    execution_of,
    fire_all,
    make_job,
    make_ticket,
    settle_as,
    settlement,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
WORKER, RELEASE = UUID(int=1), 77
BY_NAME = {one.name: one for one in TRANSITIONS}


# --- the table itself ---


def test_states_are_those_that_the_tables_know() -> None:
    named = {state for one in TRANSITIONS for state in (*one.sources, one.target)}
    assert named <= set(EXECUTION_STATES)
    assert set(TICKET_STATES) == set(LIVE_STATES) - {"scheduled"}
    assert not set(LIVE_STATES) & set(FINAL_STATES)
    assert set(EXECUTION_STATES) == set(LIVE_STATES) | set(FINAL_STATES)
    assert {"succeeded", "failed", "lost", "returned"} <= set(ATTEMPT_STATES)


def test_names_are_unique_and_sources_can_be_asked_for() -> None:
    assert len(BY_NAME) == len(TRANSITIONS)
    assert sources_of("start") == ("queued",)
    with pytest.raises(KeyError):
        sources_of("teleport")


def test_every_live_state_can_be_left_and_no_final_one_but_by_reopening() -> None:
    for state in LIVE_STATES:
        assert any(state in one.sources for one in TRANSITIONS), state
    leaving = {one.name for one in TRANSITIONS if set(one.sources) & set(FINAL_STATES)}
    assert leaving == {"reopen", "go_on"}


def test_every_way_out_of_running_names_a_fence() -> None:
    assert all(one.guard == "fence" for one in TRANSITIONS if "running" in one.sources)


# --- the SQL ---

Do = Callable[[Conn, Registry, Tenant, UUID], bool]


def in_state(conn: Conn, tenant: Tenant, state: str) -> UUID:
    """An execution in that state, with a ticket where it lives there, however it came to be so."""
    execution = make_ticket(tenant, make_job(tenant), delay_s=60 if state == "scheduled" else 0)
    schema = tenant.schema_name
    if state in FINAL_STATES:
        conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [execution])
        conn.execute(
            f"UPDATE {schema}.executions_execution SET state = %s, finished_at = %s WHERE id = %s",
            [state, NOW, execution],
        )
        if state == "dead":
            conn.execute(
                f"INSERT INTO {schema}.deadletters_deadletter (id, execution_id, job_id, fingerprint, error, attempts,"
                " created_at, resolution, note, resolved_by) SELECT %s, id, job_id, '', '{}', 1, now(), '', '', ''"
                f" FROM {schema}.executions_execution WHERE id = %s",
                [uuid.uuid4(), execution],
            )
    elif state != "scheduled":
        conn.execute(
            "UPDATE tickets_ticket SET state = %(state)s, release = %(release)s, queued_at = %(now)s, attempt = 1,"
            " fence = nextval('ticket_fence'), worker_id = %(worker)s, started_at = %(now)s,"
            " first_started_at = %(now)s, deadline = %(now)s WHERE execution_id = %(id)s",
            {"state": state, "release": RELEASE, "now": NOW, "worker": WORKER, "id": execution},
        )
    return execution


def state_of(conn: Conn, tenant: Tenant, execution: UUID) -> str:
    """The ticket's state when there is one."""
    ticket = ticket_of(conn, execution)
    return str(ticket["state"] if ticket else execution_of(conn, tenant, execution)["state"])


def do_fire(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return fire_all(conn, registry, now=NOW + 2 * MINUTE) == 1


def do_release(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return bool(releasing.release(conn, [execution], release=RELEASE + 1, now=NOW))


def do_release_again(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return bool(releasing.release_again(conn, pools=["python"], now=NOW + MINUTE, bound_s=10, limit=10))


def do_put_back(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return bool(holding.put_back(conn, [execution], release=RELEASE, now=NOW))


def do_start(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return bool(holding.start(conn, [execution], release=RELEASE, worker=WORKER, limit=1))


def do_lease(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return bool(remote.lease(conn, [execution], holder="box", lease_s=60))


def do_hand_over(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    done = settle_with("accepted")(conn, registry, tenant, execution)
    ticket = ticket_of(conn, execution)
    assert done == bool(ticket and ticket["remote"] and ticket["worker_id"] is None and ticket["lease_s"] == 900)
    return done


def settle_with(outcome: str, **report: Any) -> Do:
    def do(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
        row = conn.execute("SELECT coalesce(max(fence), 1) FROM tickets_ticket").fetchone()
        assert row is not None
        [other] = started_now(conn, [make_ticket(tenant)], WORKER)  # what a worker knows of it, but for id and fence
        execution_now = execution_of(conn, tenant, execution)
        one = other._replace(
            execution_id=execution, fence=row[0], job_id=execution_now["job_id"], started_at=NOW, first_started_at=NOW
        )
        done = settle_as(conn, registry, [one], outcome, **report)
        return "stale" not in done.counts

    return do


def do_cancel_waiting(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    try:
        done = execution_cancel(tenant=tenant, actor=actor(tenant), execution_id=execution, now=NOW)
    except Conflict:
        return False
    return done.outcome == "done"


def do_cancel_running(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    if not store.cancel_running(conn, execution, tenant_id=tenant.pk):
        return False
    return settle_with("cancelled")(conn, registry, tenant, execution)


def do_go_on(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    return executions.reopen_run(conn, tenant.schema_name, execution) is not None


def do_reopen(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    row = conn.execute(
        f"SELECT id FROM {tenant.schema_name}.deadletters_deadletter WHERE execution_id = %s", [execution]
    ).fetchone()
    if row is None:
        with conn.transaction(force_rollback=True):
            return executions.reopen(conn, tenant.schema_name, execution) is not None
    deadletter_replay(tenant=tenant, actor=actor(tenant), letter_id=row[0], now=NOW)
    return True


def do_take_back(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    """As if it had been reopened after its first attempt."""
    letter = uuid.uuid4()
    conn.execute(
        f"INSERT INTO {tenant.schema_name}.deadletters_deadletter (id, execution_id, job_id, fingerprint, error,"
        " attempts, created_at, resolved_at, resolution, note, resolved_by) SELECT %s, id, job_id, '', '{}', 1, now(),"
        f" now(), 'replayed', '', '' FROM {tenant.schema_name}.executions_execution WHERE id = %s",
        [letter, execution],
    )
    try:
        deadletter_unreplay(
            tenant=tenant, actor=actor(tenant), letter_id=letter, execution_id=execution, now=NOW,
            before={"job_version": 1, "reason": ""},
        )  # fmt: skip
    except Conflict:
        return False
    return True


def depend(met: bool) -> Do:
    """What it depends on has ended, as it wants or not."""

    def do(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
        tenancy = registry.get(tenant.pk)
        assert tenancy is not None
        conn.execute(
            f'INSERT INTO {tenant.schema_name}.workflows_dependency (parent_id, child_id, "on", met)'
            " VALUES (gen_random_uuid(), %s, 'succeeded', %s)",
            [execution, met],
        )
        with conn.transaction():
            found = dependents_decide(conn, tenancy, {}, NOW, also=[execution])
        return bool(found.free if met else found.skipped)

    return do


def do_replace(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
    """By a newer run of a schedule; nothing was tried yet."""
    if ticket_of(conn, execution) is None:
        if execution_of(conn, tenant, execution)["finished_at"] is not None:
            executions.replace(conn, tenant.schema_name, [executions.Replaced(execution, 0, None, None)], now=NOW)
        return False
    schedule = uuid.uuid4()
    with conn.transaction() as here:
        conn.execute("UPDATE tickets_ticket SET schedule_id = %s WHERE execution_id = %s", [schedule, execution])
        gone = store.replace_waiting(conn, [schedule], unguarded=True)
        if not gone:
            raise psycopg.Rollback(here)
        rows = [executions.Replaced(one.execution_id, 0, None, None) for one in gone]
        executions.replace(conn, tenant.schema_name, rows, now=NOW)
    return bool(gone)


def past_start_by(first_started_at: datetime | None) -> Do:
    """What waits past its time: for its first start, or for its next try."""

    def do(conn: Conn, registry: Registry, tenant: Tenant, execution: UUID) -> bool:
        before = ticket_of(conn, execution)
        with conn.transaction() as here:
            conn.execute(
                "UPDATE tickets_ticket SET start_by = %s, first_started_at = %s WHERE execution_id = %s"
                " AND state <> 'running'",
                [NOW, first_started_at, execution],
            )
            counts = expire_batch(conn, registry, now=NOW + MINUTE, limit=10)
            if ticket_of(conn, execution) is not None or before is None:
                raise psycopg.Rollback(here)
        return counts["given_up" if first_started_at else "expired"] == 1

    return do


DOES: dict[str, Do] = {
    "fire": do_fire,
    "release": do_release,
    "release_again": do_release_again,
    "start": do_start,
    "lease": do_lease,
    "hand_over": do_hand_over,
    "hand_back": settle_with("returned"),
    "retry": settle_with("failed"),
    "succeed": settle_with("succeeded"),
    "dead_letter": settle_with("failed", retryable=False),
    "cancel_waiting": do_cancel_waiting,
    "cancel_running": do_cancel_running,
    "replace": do_replace,
    "expire": past_start_by(None),
    "give_up": past_start_by(NOW),
    "reopen": do_reopen,
    "take_back": do_take_back,
    "unblock": depend(True),
    "skip": depend(False),
    "go_on": do_go_on,
}
ALSO = {"release_again": [do_put_back]}  # a worker that had no slot


def test_every_transition_has_code() -> None:
    assert set(DOES) == set(BY_NAME)


PAIRS = [
    (state, BY_NAME[name], do)
    for name, does in DOES.items()
    for do in (does, *ALSO.get(name, ()))
    for state in EXECUTION_STATES
]


@pytest.mark.parametrize(
    ("state", "transition", "do"), PAIRS, ids=lambda one: one if isinstance(one, str) else getattr(one, "name", "sql")
)
def test_the_sql_goes_where_the_table_goes_and_nowhere_else(
    conn: Conn, registry: Registry, acme: Tenant, state: str, transition: Transition, do: Do
) -> None:
    execution = in_state(conn, acme, state)
    before = execution_of(conn, acme, execution), ticket_of(conn, execution)
    done = do(conn, registry, acme, execution)
    if state in transition.sources:
        assert done
        assert state_of(conn, acme, execution) == transition.target
    elif (state, transition.name) == ("cancelled", "cancel_waiting"):
        assert done, "cancelling twice is cancelling once"
        assert (execution_of(conn, acme, execution), ticket_of(conn, execution)) == before
    else:
        assert not done
        after = execution_of(conn, acme, execution), ticket_of(conn, execution)
        if (state, transition.name) == ("running", "cancel_waiting"):
            assert after[1]["cancel_requested"], "it is asked for; the worker ends it"
            after[1]["cancel_requested"] = False
        assert after == before


@pytest.mark.parametrize("guard", ["release", "fence"])
def test_the_guards_number_decides(conn: Conn, registry: Registry, acme: Tenant, guard: str) -> None:
    """Same id, same state, another number: nothing happens."""
    if guard == "release":
        execution = in_state(conn, acme, "queued")
        before = ticket_of(conn, execution)
        for other in (RELEASE - 1, RELEASE + 1):
            assert holding.start(conn, [execution], release=other, worker=WORKER, limit=1) == []
            assert holding.put_back(conn, [execution], release=other, now=NOW) == 0
    else:
        [one] = started_now(conn, [make_ticket(acme)], WORKER)
        execution, before = one.execution_id, ticket_of(conn, one.execution_id)
        for other in (one.fence - 1, one.fence + 1):
            for outcome in ("succeeded", "failed", "returned", "cancelled"):
                assert dict(settle_as(conn, registry, [one._replace(fence=other)], outcome).counts) == {"stale": 1}
            holding.extend(conn, [(execution, other)])
            holding.disown(conn, [(execution, other)])
            store.end(conn, [(execution, other)])
            store.try_again(conn, [(execution, other, NOW, 1, "retry")])
    assert ticket_of(conn, execution) == before


def test_a_ticket_in_an_impossible_state_can_not_exist(conn: Conn, acme: Tenant) -> None:
    execution = make_ticket(acme)
    illegal = {
        "state = 'paused'": "ticket_state_is_known",
        "priority = 10": "ticket_priority_is_0_to_9",
        "state = 'queued'": "ticket_queued_has_release",
        "state = 'running'": "ticket_running_has_fence_deadline",
        "state = 'running', fence = 1, deadline = now(), started_at = now()": "ticket_running_has_one_holder",
        "state = 'running', fence = 1, deadline = now(), started_at = now(), worker_id = gen_random_uuid(),"
        " remote = true, lease_s = 1": "ticket_running_has_one_holder",
        "remote = true": "ticket_remote_is_running",
        "flow = gen_random_uuid()": "ticket_key_has_flow_and_limit",
        "flow_limit = 3": "ticket_key_has_flow_and_limit",
        "key = 'customer=42', flow_limit = 3": "ticket_key_has_flow_and_limit",
        "job_limit = -1": "ticket_job_limit_is_not_negative",
        "lane = 3": "ticket_lane_is_known",
        "payload_from = 'nowhere'": "ticket_payload_source_is_known",
    }
    for change, constraint in illegal.items():
        with pytest.raises(psycopg.errors.CheckViolation) as caught:
            conn.execute(f"UPDATE tickets_ticket SET {change} WHERE execution_id = %s", [execution])
        assert caught.value.diag.constraint_name == constraint


def test_an_occurrence_can_not_have_two_executions(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from tests.fixtures_flow import executions_of, make_schedule

    make_schedule(acme)
    fire_all(conn, registry, now=NOW + MINUTE)
    [run] = executions_of(conn, acme)
    names = [name for name in run if name not in ("id", "run_key")]
    copy = f"INSERT INTO {acme.schema_name}.executions_execution (id, run_key, {', '.join(names)})"
    select = f" SELECT %s, %s, {', '.join(names)} FROM {acme.schema_name}.executions_execution WHERE id = %s"
    for key, constraint in (
        (run["run_key"], "execution_run_key_is_unique"),
        ("other", "execution_once_per_occurrence"),
    ):
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            conn.execute(copy + select, [uuid.uuid4(), key, run["id"]])
        assert caught.value.diag.constraint_name == constraint


def test_a_run_that_nobody_asked_for_does_not_exist(acme: Tenant) -> None:
    """Submitting names the job; a run of no job is refused before any row is written."""
    from kernel.errors import InvalidInput

    with pytest.raises(InvalidInput), door.inside(acme):
        execution_submit(tenant=acme, actor=actor(acme), data={"job": str(uuid.uuid4())}, now=NOW)


def test_settling_what_a_worker_started_is_what_the_builder_does(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """The builders of these tests go the same way as the processes."""
    [one] = started_now(conn, [make_ticket(acme)], WORKER)
    item = settlement(conn, registry, one)
    assert item.definition is not None and item.pair == (one.execution_id, one.fence)
