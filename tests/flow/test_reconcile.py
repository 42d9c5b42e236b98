"""Reconcile: attempts that nobody runs any more end as lost, once, and go on under their job's policy."""

from __future__ import annotations

import uuid
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch import reconcile as reconcile_module
from apps.dispatch.keeper import Keeper
from apps.dispatch.pressure.counted import of_dispatcher
from apps.dispatch.reconcile import FORGET_WORKERS_S, ReconcileService, end_lost
from apps.outcomes.cancel import execution_cancel
from apps.schedules.definitions import Definitions
from apps.tickets import store, workers
from apps.tickets.values import Started
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    NOW,
    OneLine,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    attempts_of,
    count,
    live_worker,
    make_job,
    make_schedule,
    make_ticket,
    run_to_the_end,
    settle_as,
    started_now,
    ticket_of,
)
from tests.flow.test_fire_faults import table_lock

Conn = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def no_grace(settings: Any) -> None:
    """The database of the tests may have started a moment ago."""
    settings.WORKER_TTL_S = 0.0


def lost(conn: Conn, registry: Registry) -> dict[str, int]:
    return end_lost(conn, registry, Definitions()).counts


def running(conn: Conn, tenant: Tenant, worker: UUID, **job: Any) -> Started:
    [one] = started_now(conn, [make_ticket(tenant, make_job(tenant, **job))], worker)
    return one


@pytest.mark.parametrize("how", ["expired", "removed"])
def test_the_runs_of_a_dead_worker_are_lost_and_tried_again(
    conn: Conn, registry: Registry, acme: Tenant, how: str
) -> None:
    """Case C27."""
    dead, alive = live_worker(conn, queues=[], ttl_s=60), live_worker(conn, queues=[])
    theirs, mine = running(conn, acme, dead), running(conn, acme, alive)
    assert lost(conn, registry) == {}
    if how == "expired":
        live_worker(conn, queues=[], ttl_s=-1, worker=dead)
    else:
        workers.remove(conn, dead)
    assert lost(conn, registry) == {"lost": 1, "lost_retry": 1}
    [attempt] = attempts_of(conn, acme, theirs.execution_id)
    assert (attempt["state"], attempt["worker_id"], attempt["error"]["class"]) == ("lost", dead, "worker_lost")
    assert ticket_of(conn, theirs.execution_id)["state"] == "ready"
    assert ticket_of(conn, mine.execution_id)["state"] == "running"
    assert lost(conn, registry) == {}
    run_to_the_end(conn, registry, [acme])
    assert_exactly_one_outcome(conn, acme, theirs.run_key, state="succeeded")


def test_a_lease_that_could_not_be_renewed_because_the_database_was_away_says_nothing(
    conn: Conn, registry: Registry, acme: Tenant, settings: Any
) -> None:
    """Case C26: after its restart all leases have run out, and all workers are still there."""
    worker = live_worker(conn, queues=[], ttl_s=-1)
    one = running(conn, acme, worker)
    settings.WORKER_TTL_S = 10**9  # as if it had started a moment ago
    assert lost(conn, registry) == {}
    conn.execute("UPDATE tickets_ticket SET deadline = clock_timestamp() - interval '1 s'")
    assert lost(conn, registry)["lost"] == 1, "a deadline is a deadline"
    assert ticket_of(conn, one.execution_id)["state"] == "ready"


def test_a_run_past_its_deadline_is_lost_though_its_worker_lives(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme, live_worker(conn, queues=[]))
    conn.execute("UPDATE tickets_ticket SET deadline = clock_timestamp() - interval '1 s'")
    assert lost(conn, registry)["lost"] == 1
    [attempt] = attempts_of(conn, acme, one.execution_id)
    assert (attempt["state"], attempt["error"]["class"]) == ("lost", "deadline_passed")
    assert dict(settle_as(conn, registry, [one]).counts) == {"stale": 1}


def test_a_job_that_kills_its_worker_each_time_is_dead_after_its_attempts(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Case C28: within its attempts, not after thirty of them."""
    job = make_job(acme, retry={"max_attempts": 2})
    execution = make_ticket(acme, job)
    for _ in range(2):
        started_now(conn, [execution], uuid.uuid4())
        lost(conn, registry)
    found = assert_exactly_one_outcome(conn, acme, execution.hex, state="dead")
    assert (found["attempt_count"], found["reason"]) == (2, "attempts_used_up")
    assert found["error"]["class"] == "worker_lost"


def test_a_policy_may_refuse_to_retry_what_was_lost(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme, uuid.uuid4(), retry={"never_on": ["lost"]})
    lost(conn, registry)
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")["reason"] == "excluded_by_policy"


def test_a_lost_run_that_somebody_cancelled_is_cancelled(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme, uuid.uuid4())
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=one.execution_id, now=NOW)
    lost(conn, registry)
    assert_exactly_one_outcome(conn, acme, one.run_key, state="cancelled")


def test_two_reconcilers_at_once_end_each_attempt_once(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    """Case C25, at a barrier."""
    job = make_job(acme, retry={"max_attempts": 1})
    for _ in range(10):
        ids = [make_ticket(acme, job) for _ in range(3)]
        started_now(conn, ids, uuid.uuid4())
        done = at_once(partial(lost, conn, registry), partial(lost, second, registry))
        assert sum(counts.get("lost_dead", 0) for counts in done) == 3
        for one in ids:
            assert_exactly_one_outcome(conn, acme, one.hex, state="dead")


def test_losing_and_finishing_at_a_barrier_is_one_outcome(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme, retry={"max_attempts": 1})
    for _ in range(10):
        started = started_now(conn, [make_ticket(acme, job)], uuid.uuid4())
        at_once(partial(lost, conn, registry), partial(settle_as, second, registry, started))
        assert_exactly_one_outcome(conn, acme, started[0].run_key)


def test_a_crash_at_every_round_trip_of_a_clean_up_is_one_outcome(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, retry={"max_attempts": 2})
    current: list[UUID] = []

    def work(fragile: Conn) -> None:
        if not current:
            current.extend([make_ticket(acme, job), make_ticket(acme, job)])
            started_now(conn, current, uuid.uuid4())
        lost(fragile, registry)

    def check(where: str) -> None:
        lost(conn, registry)
        run_to_the_end(conn, registry, [acme])
        for one in current:
            found = assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")
            assert [each["state"] for each in attempts_of(conn, acme, one)] == ["lost", "succeeded"], where
            assert found["attempt_count"] == 2
        current.clear()

    assert at_every_crash(work, check) >= 8


@pytest.mark.parametrize("how", ["locked", "dropped", "unreadable job", "no job"])
def test_what_is_wrong_with_one_tenant_does_not_keep_the_others_lost(
    conn: Conn, registry: Registry, globex: Tenant, new_tenant: Any, as_owner: Any, how: str
) -> None:
    from tenants.provisioning import schema_drop

    broken = new_tenant()
    registry.refresh(force=True)
    bad, good = running(conn, broken, uuid.uuid4()), running(conn, globex, uuid.uuid4())
    schema = broken.schema_name
    conn.execute("SET lock_timeout = '100 ms'")
    if how == "locked":
        with table_lock(broken):
            done = lost(conn, registry)
        assert ticket_of(conn, bad.execution_id)["state"] == "running"
        assert lost(conn, registry) == {"lost": 1, "lost_retry": 1}, "when it answers again"
    elif how == "dropped":
        with as_owner():
            schema_drop(schema)
        done = lost(conn, registry)
        assert ticket_of(conn, bad.execution_id)["state"] == "running", "it waits for its schema"
    else:
        if how == "no job":
            conn.execute(f"DELETE FROM {schema}.schedules_jobversion")
        else:
            conn.execute(f"UPDATE {schema}.schedules_jobversion SET retry = '[]'")
        done = lost(conn, registry)
        assert ticket_of(conn, bad.execution_id)["state"] == "ready", "by the default policy"
    assert done["lost"] == (1 if how in ("locked", "dropped") else 2)
    assert ticket_of(conn, good.execution_id)["state"] == "ready"


def test_a_locked_jobs_table_loses_nothing_for_good(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """A policy that can't be read now is not the default one: the attempt waits."""
    one = running(conn, acme, uuid.uuid4(), retry={"max_attempts": 9})
    conn.execute("SET lock_timeout = '100 ms'")
    with door.connect("test lock", owner=True, guarded=False) as owner, owner.transaction():
        owner.execute(f"LOCK TABLE {acme.schema_name}.schedules_jobversion IN ACCESS EXCLUSIVE MODE")
        assert lost(conn, registry).get("lost", 0) == 0
    assert ticket_of(conn, one.execution_id)["state"] == "running"
    assert lost(conn, registry) == {"lost": 1, "lost_retry": 1}


def test_more_lost_attempts_than_a_batch_come_up_in_turn(
    conn: Conn, registry: Registry, acme: Tenant, new_tenant: Any, monkeypatch: pytest.MonkeyPatch, as_owner: Any
) -> None:
    """A batch full of attempts whose tenant does not answer must not hide the others."""
    from tenants.provisioning import schema_drop

    monkeypatch.setattr(reconcile_module, "LOST_BATCH", 4)
    broken = new_tenant()
    registry.refresh(force=True)
    job = make_job(broken)
    for _ in range(9):
        started_now(conn, [make_ticket(broken, job)], uuid.uuid4())
    with as_owner():
        schema_drop(broken.schema_name)
    mine = running(conn, acme, uuid.uuid4())
    after, definitions = store.NOTHING, Definitions()
    for _ in range(4):
        _, after = end_lost(conn, registry, definitions, after=after)
    assert ticket_of(conn, mine.execution_id)["state"] == "ready"


# --- the service ---


@pytest.fixture
def service(leader: Keeper, conn: Conn) -> ReconcileService:
    return ReconcileService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives


def test_the_service_ends_what_is_lost_and_repairs_in_turn(service: ReconcileService, conn: Conn, acme: Tenant) -> None:
    one = running(conn, acme, uuid.uuid4())
    schedule = make_schedule(acme)
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
    totals = Counter(service.run_once().counts)
    assert totals["lost"] == 1
    assert ticket_of(conn, one.execution_id)["state"] == "ready"
    for _ in range(30):
        service._rotation._not_before = float("-inf")
        totals.update(service.run_once().counts)
    told = of_dispatcher({"reconcile": totals})  # as metrics tell it
    repaired = {check: times for check, times in told.repairs.items() if times}
    assert (told.lost, repaired, told.gaps) == (1, {"schedule_without_due_entry": 1}, 0)


def test_the_rotation_rests_so_that_it_takes_little_of_the_time(
    service: ReconcileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.dispatch import repairs

    clock, steps = [0.0], list[float]()
    monkeypatch.setattr(repairs, "monotonic_s", lambda: clock[0])

    def step(*_: Any) -> Any:
        steps.append(clock[0])
        clock[0] += 0.001 if len(steps) < 3 else 0.5
        return [], None

    monkeypatch.setattr(repairs, "walks", lambda _: [step] * 100)
    for _ in range(115):
        service.run_once()
        clock[0] += 1
    pauses = [after - before for before, after in pairwise(steps)]
    assert pauses == [pytest.approx(one, abs=1.1) for one in (1, 1, 50, 50)]


def test_repairs_look_at_each_tenant_once_for_many_rows(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    """In key order tenants alternate; a look that finds nothing is one round trip a tenant, without a transaction."""
    from apps.dispatch.repairs import walks

    for _ in range(5):
        make_schedule(acme), make_schedule(globex)
    asked: list[str] = []
    counted = Counting(conn, asked)
    assert walks(list(registry.by_id.values()))[-1](counted, registry, store.NOTHING, False) == ([], None)  # type: ignore[arg-type]  # it stands for a connection
    assert len(asked) == 3


class Counting:
    def __init__(self, conn: Conn, asked: list[str]) -> None:
        self._conn, self._asked = conn, asked

    def execute(self, query: Any, *args: Any) -> Any:
        self._asked.append(str(query))
        return self._conn.execute(query, *args)


def test_workers_that_ended_long_ago_are_forgotten(service: ReconcileService, conn: Conn) -> None:
    gone = live_worker(conn, queues=[], ttl_s=-FORGET_WORKERS_S - 10)
    recent = live_worker(conn, queues=[], ttl_s=-10)
    service.run_once()
    query = "SELECT count(*) FROM tickets_worker WHERE id = %s"
    assert (count(conn, query, gone), count(conn, query, recent)) == (0, 1)


def test_without_the_lease_nothing_is_reconciled(conn: Conn, acme: Tenant) -> None:
    standby = Keeper(wants=lambda _: True, progressed=lambda _: True, stats=dict)
    one = running(conn, acme, uuid.uuid4())
    assert ReconcileService(standby.line("reconcile"), standby).run_once().counts == {}
    assert ticket_of(conn, one.execution_id)["state"] == "running"
