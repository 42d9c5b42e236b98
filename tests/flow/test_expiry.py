"""Start-by: what has not started for the first time in its time ends as expired, once, and says why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch import expiry
from apps.dispatch.expiry import Expiry
from apps.dispatch.reconcile import ReconcileService
from apps.dispatch.release import ReleaseService
from apps.dispatch.submit import schedule_trigger
from apps.outcomes.cancel import execution_cancel
from apps.outcomes.expire import expire_batch
from apps.schedules.services import job_pause
from apps.tickets import holding, overdue, releasing
from apps.tickets.values import start_by
from kernel.errors import Conflict
from tenants.models import Tenant
from tenants.registry import Registry
from tenants.work import database_now
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    OneLine,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    count,
    execution_of,
    executions_of,
    fire_all,
    live_worker,
    make_job,
    make_schedule,
    make_ticket,
    queue_of,
    release,
    run_to_the_end,
    settle_as,
    start,
    started_now,
    ticket_of,
)
from tests.flow.test_fire_faults import table_lock
from tests.schedules.cases import case, utc

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
SECOND = timedelta(seconds=1)
LATER = "'2100-01-01'"  # by the database's clock there is time left


def expire(conn: Conn, registry: Registry, *, now: datetime) -> dict[str, int]:
    """One pass over what waited for too long."""
    return Expiry().run(conn, registry, now=now)


def in_time(conn: Conn, tenant: Tenant, job: UUID, number: int) -> list[UUID]:
    """Ready runs whose time begins now by the database's clock, by which they are started."""
    now = database_now(conn)
    return sorted(make_ticket(tenant, job, now=now) for _ in range(number))


# --- the case, and its kind ---


def outage(
    conn: Conn, registry: Registry, tenant: Tenant, releaser: Callable[..., ReleaseService], *, every_s: int,
    age_s: int | None, down_s: int, ago_s: int, on: str = "schedule",
) -> dict[str, list[int]]:  # fmt: skip
    """Workers are down for `down_s` and take work again now; slots are `every_s` apart, the newest `ago_s` old.

    The ages in seconds, at this moment, of the runs that ran and of those that expired.
    """
    up_at = database_now(conn)
    newest = up_at - ago_s * SECOND
    went_down_at = up_at - down_s * SECOND
    limit: dict[str, Any] = {"max_queue_age_s": age_s}
    job = make_job(tenant, **(limit if on == "job" else {}))
    trigger = {"every_s": every_s, "anchor": (newest - 10_000 * every_s * SECOND).isoformat()}
    schedule = make_schedule(
        tenant, job, now=went_down_at, trigger=trigger, misfire="fire_all", **(limit if on == "schedule" else {})
    )
    slots = [newest - number * every_s * SECOND for number in range(down_s // every_s, -1, -1)]
    for slot in slots:
        fire_all(conn, registry, now=slot)
    live_worker(conn, queues=[queue_of(registry, tenant)], worker=WORKER)
    expire(conn, registry, now=database_now(conn))
    settle_as(conn, registry, start(conn, release(releaser()), WORKER))
    found = executions_of(conn, tenant, schedule)
    assert all(one["count"] == 1 for one in found)
    assert [one["nominal_at"] for one in found] == [slot for slot in slots if slot > went_down_at], "each has its row"
    for one in found:
        assert_exactly_one_outcome(conn, tenant, one["run_key"])
    return {
        state: [round((up_at - one["nominal_at"]).total_seconds()) for one in found if one["state"] == state]
        for state in ("succeeded", "expired")
    }


def test_b12_what_waited_for_too_long_in_the_queue_is_dropped_and_can_be_seen(
    conn: Conn, registry: Registry, acme: Tenant, releaser: Callable[..., ReleaseService]
) -> None:
    """The case's own outage, moved so that it ends now: its minutes are slots of 60 s."""
    found = case("dispatcher.jsonl", "B12")
    down_from, up_at = (utc(at) for at in found["input"]["worker_down_utc"])
    done = outage(
        conn, registry, acme, releaser, every_s=60, age_s=found["input"]["schedule"]["max_queue_age_s"],
        down_s=round((up_at - down_from).total_seconds()), ago_s=up_at.second,
    )  # fmt: skip
    assert done["succeeded"] == [30], "10:10 alone is younger than 60 s"
    assert len(done["expired"]) == found["expected"]["expired_count"]
    for one in executions_of(conn, acme):
        if one["state"] != "expired":
            continue
        assert (one["reason"], one["attempt_count"], one["started_at"]) == ("max_queue_age", 0, None)
        assert one["error"]["class"] == "max_queue_age" and "had 60 s to start" in one["error"]["message"]
        assert one["finished_at"] > one["actual_at"] + 60 * SECOND
    assert count(conn, f"SELECT count(*) FROM {acme.schema_name}.deadletters_deadletter") == 0, "it has not failed"


@pytest.mark.parametrize("on", ["job", "schedule"])
@pytest.mark.parametrize(
    ("every_s", "age_s", "down_s", "ago_s", "ran"),
    [
        (60, 60, 600, 30, [30]),
        (60, 300, 600, 30, [270, 210, 150, 90, 30]),
        (60, 10, 600, 30, []),
        (60, 3600, 600, 30, [570, 510, 450, 390, 330, 270, 210, 150, 90, 30]),
        (60, None, 300, 30, [270, 210, 150, 90, 30]),
        (3600, 1800, 7200, 900, [900]),
        (3600, 600, 7200, 900, []),
        (60, 60, 50, 20, [20]),
    ],
)
def test_an_outage_of_the_workers(
    conn: Conn, registry: Registry, acme: Tenant, releaser: Callable[..., ReleaseService], on: str, every_s: int,
    age_s: int | None, down_s: int, ago_s: int, ran: list[int],
) -> None:  # fmt: skip
    done = outage(
        conn, registry, acme, releaser, every_s=every_s, age_s=age_s, down_s=down_s, ago_s=ago_s, on=on
    )  # fmt: skip
    assert done["succeeded"] == ran
    assert done["expired"] == [age for age in range(ago_s, down_s, every_s) if age not in ran][::-1]


@pytest.mark.parametrize(("of_job", "own", "age_s"), [(60, None, 60), (60, 5, 5), (60, 600, 600), (None, 30, 30)])
@pytest.mark.parametrize("way", ["schedule", "trigger", "submit", "delayed"])
def test_whose_limit_it_is_and_from_when_it_counts(
    conn: Conn, registry: Registry, acme: Tenant, way: str, of_job: int | None, own: int | None, age_s: int
) -> None:
    """The schedule's or the submission's goes before the job's; it counts from the actual instant."""
    job = make_job(acme, max_queue_age_s=of_job)
    at = NOW
    if way in ("schedule", "trigger"):
        schedule = make_schedule(acme, job, max_queue_age_s=own, jitter_s=40, cron="*/5 * * * *")
        if way == "trigger":
            schedule_trigger(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW)
        else:
            fire_all(conn, registry, now=NOW + 6 * MINUTE)
        [run] = executions_of(conn, acme, schedule)
        execution, at = run["id"], run["actual_at"]
    else:
        delay: dict[str, Any] = {"delay_s": 90} if way == "delayed" else {}
        execution = make_ticket(acme, job, max_queue_age_s=own, **delay)
        if way == "delayed":
            at = NOW + 90 * SECOND
            fire_all(conn, registry, now=at + 7 * SECOND)
    assert ticket_of(conn, execution)["start_by"] == at + age_s * SECOND


def test_a_run_that_is_made_up_for_has_its_whole_time(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Its actual instant is when it was made up for, or its turn where a rate spreads them."""
    schedule = make_schedule(
        acme, max_queue_age_s=60, misfire="fire_latest_n", misfire_max=3, catch_up_per_s=0.01, grace_s=0
    )
    back_at = NOW + 60 * MINUTE + 30 * SECOND
    fire_all(conn, registry, now=back_at)
    made = [one for one in executions_of(conn, acme, schedule) if one["trigger"] == "catch_up"]
    starts = [ticket_of(conn, one["id"])["start_by"] for one in made]
    assert starts == [back_at + (60 + 100 * number) * SECOND for number in range(3)]


def test_an_edit_of_the_limit_keeps_the_plan_and_reaches_what_fires_next(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    from apps.schedules.services import job_update, schedule_update
    from tests.fixtures_flow import entry_of

    job = make_job(acme, max_queue_age_s=60)
    schedule = make_schedule(acme, job)
    due_at = entry_of(conn, schedule).due_at

    def next_start_by() -> timedelta:
        at: datetime = entry_of(conn, schedule).due_at
        fire_all(conn, registry, now=at)
        run = executions_of(conn, acme, schedule)[-1]
        found: datetime = ticket_of(conn, run["id"])["start_by"]
        return found - at

    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "now": NOW}
    schedule_update(**who, schedule_id=schedule, patch={"max_queue_age_s": 20})
    assert entry_of(conn, schedule).due_at == due_at
    assert next_start_by() == 20 * SECOND
    job_update(**who, job_id=job, patch={"max_queue_age_s": 30, "total_timeout_s": 900})
    assert next_start_by() == 20 * SECOND, "its own goes before the job's"
    schedule_update(**who, schedule_id=schedule, patch={"max_queue_age_s": None})
    assert next_start_by() == 30 * SECOND
    assert {ticket_of(conn, one["id"])["total_timeout_s"] for one in executions_of(conn, acme)} == {None, 900}


@given(st.integers(1, 366 * 86_400), st.booleans(), st.integers(-36_500, 36_500))
def test_start_by(age_s: int, tried: bool, days: int) -> None:
    at = NOW + timedelta(days=days)
    assert start_by(at, None, tried=tried) is None
    assert start_by(at, age_s, tried=tried) == (None if tried else at + timedelta(seconds=age_s))


# --- whatever it waits for ---


def test_it_expires_whatever_it_waits_for(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, max_queue_age_s=60)
    ready, queued = make_ticket(acme, job), make_ticket(acme, job)
    releasing.release(conn, [queued], release=releasing.next_release(conn), now=NOW)
    paused_job = make_job(acme, max_queue_age_s=60)
    paused = make_ticket(acme, paused_job)
    job_pause(tenant=acme, actor=actor(acme), job_id=paused_job, now=NOW)
    conn.execute("UPDATE tickets_ticket SET rank = NULL, available_at = %s WHERE execution_id = %s", [NOW, ready])
    assert expire(conn, registry, now=NOW + MINUTE) == {}, "in its last moment it may start"
    assert expire(conn, registry, now=NOW + MINUTE + SECOND) == {"expired": 3}
    for execution, state in ((ready, "ready"), (queued, "queued"), (paused, "ready")):
        found = assert_exactly_one_outcome(conn, acme, execution.hex, state="expired")
        assert found["error"]["state"] == state
    assert execution_of(conn, acme, queued)["queued_at"] == NOW
    assert expire(conn, registry, now=NOW + 60 * MINUTE) == {}


def test_buffered_runs_expire_behind_the_one_that_runs(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, overlap="buffer_all", overlap_max=5, misfire="skip", max_queue_age_s=90)
    for minute in range(1, 4):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    first, second, third = executions_of(conn, acme, schedule)
    conn.execute(f"UPDATE tickets_ticket SET start_by = {LATER} WHERE execution_id = %s", [first["id"]])
    started = started_now(conn, [first["id"]], WORKER)
    assert expire(conn, registry, now=NOW + 3 * MINUTE + 31 * SECOND) == {"expired": 1}
    assert expire(conn, registry, now=NOW + 5 * MINUTE) == {"expired": 1}
    settle_as(conn, registry, started)
    for one, state in ((first, "succeeded"), (second, "expired"), (third, "expired")):
        assert_exactly_one_outcome(conn, acme, one["run_key"], state=state)


@pytest.mark.parametrize("overlap", ["buffer_one", "skip"])
def test_what_expires_gives_its_turn_to_the_next(
    conn: Conn, registry: Registry, acme: Tenant, releaser: Callable[..., ReleaseService], overlap: str
) -> None:
    """It was queued, so its schedule's turn was its; and an overlap policy counted it."""
    schedule = make_schedule(acme, overlap=overlap, misfire="skip", max_queue_age_s=90)
    live_worker(conn, queues=[queue_of(registry, acme)])
    fire_all(conn, registry, now=NOW + MINUTE)
    [first] = executions_of(conn, acme, schedule)
    releasing.release(conn, [first["id"]], release=releasing.next_release(conn), now=NOW + MINUTE)
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    conn.execute(f"UPDATE tickets_ticket SET start_by = {LATER} WHERE state = 'ready'")  # the next has its time
    conn.execute("UPDATE tickets_ticket SET queued_at = clock_timestamp() WHERE state = 'queued'")
    assert release(releaser()) == []
    assert expire(conn, registry, now=NOW + 3 * MINUTE) == {"expired": 1}
    fire_all(conn, registry, now=NOW + 3 * MINUTE)
    conn.execute(f"UPDATE tickets_ticket SET start_by = {LATER}")
    [message] = release(releaser())
    states = [one["state"] for one in executions_of(conn, acme, schedule)]
    wanted = ["expired", "ready", "skipped"] if overlap == "buffer_one" else ["expired", "skipped", "ready"]
    assert (len(message.ids), states[:2]) == (1, wanted[:2])


def test_after_its_first_start_a_run_never_expires(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Retries and what a stopping worker hands back wait as long as it takes."""
    job = make_job(acme, max_queue_age_s=60, retry={"max_attempts": 3})
    [execution] = in_time(conn, acme, job, 1)
    for outcome in ("failed", "returned"):
        [one] = started_now(conn, [execution], WORKER)
        assert ticket_of(conn, execution)["start_by"] is None
        settle_as(conn, registry, [one], outcome)
        assert ticket_of(conn, execution)["start_by"] is None
        assert expire(conn, registry, now=NOW + timedelta(days=9_999)) == {}
    run_to_the_end(conn, registry, [acme])
    assert_exactly_one_outcome(conn, acme, execution.hex, state="succeeded")


# --- who refuses what is too late ---


def test_neither_release_nor_an_old_message_starts_what_is_too_late(
    conn: Conn, registry: Registry, acme: Tenant, releaser: Callable[..., ReleaseService]
) -> None:
    job = make_job(acme, max_queue_age_s=3600)
    late, queued, good = in_time(conn, acme, job, 3)
    number = releasing.next_release(conn)
    releasing.release(conn, [queued], release=number, now=NOW)
    conn.execute(
        "UPDATE tickets_ticket SET start_by = clock_timestamp() - interval '1 ms' WHERE execution_id = ANY(%s)",
        [[late, queued]],
    )
    assert releasing.release(conn, [late], release=releasing.next_release(conn), now=database_now(conn)) == []
    assert holding.start(conn, [queued], release=number, worker=WORKER, limit=1) == []
    live_worker(conn, queues=[queue_of(registry, acme)])
    [message] = release(releaser())
    assert list(message.ids) == [good], "what is late takes nobody's place"
    assert expire(conn, registry, now=database_now(conn)) == {"expired": 2}


# --- races and crashes ---


def test_start_and_expire_take_turns(conn: Conn, second: Conn, registry: Registry, acme: Tenant) -> None:
    """Both in their right by their own clock; the ticket's row decides, and exactly one of them wins each run."""
    job = make_job(acme, max_queue_age_s=3600)
    seen = set()
    for _ in range(25):
        ids = in_time(conn, acme, job, 4)
        number = releasing.next_release(conn)
        releasing.release(conn, ids, release=number, now=NOW)
        started, ended = at_once(
            partial(holding.start, conn, ids, release=number, worker=WORKER, limit=4),
            partial(expire_batch, second, registry, now=database_now(conn) + timedelta(hours=2), limit=10),
        )
        assert len(started) + ended["expired"] == 4
        seen.add("start" if started else "expire")
        for one in started:
            assert ticket_of(conn, one.execution_id)["state"] == "running"
        settle_as(conn, registry, started)
        for execution in ids:
            won = execution in {one.execution_id for one in started}
            assert_exactly_one_outcome(conn, acme, execution.hex, state="succeeded" if won else "expired")
    assert seen


def test_cancel_and_expire_take_turns(conn: Conn, second: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, max_queue_age_s=60)
    for _ in range(15):
        execution = make_ticket(acme, job)

        def cancel(execution: UUID = execution) -> str:
            try:
                return execution_cancel(tenant=acme, actor=actor(acme), execution_id=execution, now=NOW).outcome
            except Conflict:
                return "ended before"

        ended, answer = at_once(partial(expire_batch, second, registry, now=NOW + timedelta(hours=1), limit=10), cancel)
        found = assert_exactly_one_outcome(conn, acme, execution.hex)
        assert (found["state"], answer) in {("expired", "ended before"), ("cancelled", "done")}
        assert ended["expired"] == (found["state"] == "expired")


def test_two_who_expire_end_each_run_once(conn: Conn, second: Conn, registry: Registry, acme: Tenant) -> None:
    """The lease changed hands while the former holder was still at it."""
    job = make_job(acme, max_queue_age_s=60)
    for _ in range(10):
        ids = [make_ticket(acme, job) for _ in range(8)]
        both = at_once(
            *(partial(expire_batch, one, registry, now=NOW + timedelta(hours=1), limit=10) for one in (conn, second))
        )
        assert sum(counts["expired"] for counts in both) == 8
        for execution in ids:
            assert_exactly_one_outcome(conn, acme, execution.hex, state="expired")


def test_a_crash_at_every_round_trip_of_an_expiry_is_one_outcome(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    jobs = {tenant.pk: make_job(tenant, max_queue_age_s=60) for tenant in (acme, globex)}
    current: list[tuple[Tenant, UUID]] = []

    def work(fragile: Conn) -> None:
        if not current:
            current.extend((tenant, make_ticket(tenant, jobs[tenant.pk])) for tenant in (acme, globex, acme))
        expire_batch(fragile, registry, now=NOW + timedelta(hours=1), limit=10)

    def check(where: str) -> None:
        expire_batch(conn, registry, now=NOW + timedelta(hours=1), limit=10)
        for tenant, execution in current:
            assert_exactly_one_outcome(conn, tenant, execution.hex, state="expired")
        current.clear()

    assert at_every_crash(work, check) >= 8


def test_one_tenants_locked_schema_costs_only_that_tenant(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    mine, theirs = (make_ticket(one, make_job(one, max_queue_age_s=60)) for one in (acme, globex))
    service = Expiry()
    with table_lock(acme):
        assert service.run(conn, registry, now=NOW + timedelta(hours=1)) == {"expired": 1}
        assert_exactly_one_outcome(conn, globex, theirs.hex, state="expired")
        assert ticket_of(conn, mine)["state"] == "ready", "it has not ended, and neither has its row"
        assert service.run(conn, registry, now=NOW + timedelta(hours=1)) == {}
    service._failing = {tenant: (failures, 0.0) for tenant, (failures, _) in service._failing.items()}
    assert service.run(conn, registry, now=NOW + timedelta(hours=1)) == {"expired": 1}
    assert_exactly_one_outcome(conn, acme, mine.hex, state="expired")


def test_a_pass_stays_short_however_many_tenants_do_not_answer(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the lease would not be renewed, and the next holder would fare no better."""
    monkeypatch.setattr(expiry, "BUDGET_S", 0.1)
    ids = [make_ticket(one, make_job(one, max_queue_age_s=60)) for one in (acme, globex)]
    service = Expiry()
    with table_lock(acme), table_lock(globex):
        service.run(conn, registry, now=NOW + timedelta(hours=1))
        assert len(service._failing) == 1, "the other one is left for the next pass"
        service.run(conn, registry, now=NOW + timedelta(hours=1))
        assert len(service._failing) == 2
    service._failing = {}
    assert service.run(conn, registry, now=NOW + timedelta(hours=1)) == {"expired": 2}
    assert [ticket_of(conn, one) for one in ids] == [None, None]


def test_runs_of_a_tenant_that_is_gone_end_without_history(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution = make_ticket(acme, make_job(acme, max_queue_age_s=60))
    conn.execute("UPDATE tickets_ticket SET tenant_id = 999999")
    assert expire(conn, registry, now=NOW + timedelta(hours=1)) == {"expired": 1}
    assert ticket_of(conn, execution) is None


# --- bounded, and for nothing nothing ---


def test_a_pass_is_bounded_and_the_oldest_go_first(
    conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "EXPIRE_BATCH", 3)
    job = make_job(acme, max_queue_age_s=60)
    ids = [make_ticket(acme, job, now=NOW + number * SECOND) for number in range(7)]
    service = Expiry()
    for gone, full in ((3, True), (6, True), (7, False)):
        service.run(conn, registry, now=NOW + timedelta(hours=1))
        assert service.full == full
        assert [ticket_of(conn, one) is None for one in ids] == [number < gone for number in range(7)]


def test_no_tenant_is_visited_while_nothing_is_late(conn: Conn, registry: Registry, acme: Tenant) -> None:
    make_ticket(acme, make_job(acme, max_queue_age_s=60))
    make_ticket(acme)
    with table_lock(acme):
        assert expire(conn, registry, now=NOW + MINUTE) == {}


def test_the_look_goes_down_the_partial_index(conn: Conn, acme: Tenant) -> None:
    wanted = {"now": NOW, "limit": 10, "not_tenants": [], "only_tenants": None}
    with conn.transaction():
        conn.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {overdue.EXPIRE}", wanted))
    assert "ticket_start_by" in plan and "Seq Scan" not in plan


def test_a_reconcile_pass_expires(conn: Conn, registry: Registry, acme: Tenant, leader: Any) -> None:
    execution = make_ticket(acme, make_job(acme, max_queue_age_s=60))
    service = ReconcileService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives
    done = service.run_once()
    assert done.counts["expired"] == 1
    assert_exactly_one_outcome(conn, acme, execution.hex, state="expired")


def test_what_is_repaired_has_its_limit_again(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from apps.dispatch.repairs import run_all
    from tests.fixtures_flow import entry_of

    job = make_job(acme, max_queue_age_s=60, total_timeout_s=600)
    schedule = make_schedule(acme, job, max_queue_age_s=20)
    fire_all(conn, registry, now=NOW + MINUTE)
    [run] = executions_of(conn, acme, schedule)
    before = ticket_of(conn, run["id"])
    columns = "max_queue_age_s, own_max_queue_age_s, total_timeout_s"
    conn.execute("DELETE FROM tickets_ticket")
    conn.execute("DELETE FROM due_dueentry")
    list(run_all(conn, registry, [registry.by_id[acme.pk]], dry_run=False))
    after = ticket_of(conn, run["id"])
    assert (after["start_by"], after["total_timeout_s"]) == (before["start_by"], 600)
    assert entry_of(conn, schedule) is not None
    assert conn.execute(f"SELECT {columns} FROM due_dueentry").fetchone() == (60, 20, 600)
