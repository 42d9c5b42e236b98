"""The outbox: what is written, when, and that nobody who reads on misses one."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.conftest import wait_until
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    at_once,
    count,
    fire,
    make_job,
    make_schedule,
    make_ticket,
    settle_as,
)
from tests.webhooks.hands import begin, change_webhook, emit, events_of, make_webhook, read_all, tenancy_of, types_of

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


def test_an_event_is_written_with_its_effect_or_not_at_all(conn: Conn, acme: Tenant) -> None:
    with pytest.raises(ZeroDivisionError), conn.transaction():
        emit(conn, acme)
        raise ZeroDivisionError
    assert events_of(conn, acme) == [] and count(conn, "SELECT count(*) FROM due_eventbell") == 0
    emit(conn, acme)
    assert types_of(conn, acme) == ["schedule.resumed"]
    assert count(conn, "SELECT count(*) FROM due_eventbell WHERE tenant_id = %s", acme.pk) == 1


def test_what_commits_late_is_not_skipped(conn: Conn, second: Conn, acme: Tenant) -> None:
    """The earlier transaction commits after the later one has been read."""
    with second.transaction():
        early = emit(second, acme)
        late = emit(conn, acme)  # commits at once
        assert read_all(conn, acme) == []  # the first is not there yet, and so the other waits
    found = wait_until(lambda: read_all(conn, acme), "both to be readable")
    assert [one.id for one in found] == [early, late]


def test_a_reader_gets_each_event_once_while_many_write(conn: Conn, acme: Tenant) -> None:
    """Writers commit in any order; a reader who always goes on from the last event that it saw misses none."""
    from apps.events import store
    from tenants import door

    written: list[uuid.UUID] = []

    def write(number: int) -> None:
        with door.connect(f"writer {number}") as mine:
            for step in range(15):
                with mine.transaction():
                    made = emit(mine, acme)
                    if step % 3 == number % 3:
                        mine.execute("SELECT pg_sleep(0.01)")
                written.append(made)

    seen: list[uuid.UUID] = []

    def read() -> None:
        with door.connect("reader") as mine:
            place = store.Position(0, store.FIRST)

            def caught_up() -> bool:
                nonlocal place
                for one in read_all(mine, acme, place):
                    seen.append(one.id)
                    place = one.position
                return len(seen) >= 60

            wait_until(caught_up, "all events to be read")

    at_once(read, *[lambda number=number: write(number) for number in range(4)])
    assert sorted(seen) == sorted(written) and len(set(seen)) == 60


def test_frequent_types_are_only_written_while_somebody_asks(conn: Conn, acme: Tenant, registry: Registry) -> None:
    run = make_ticket(acme)
    settle_as(conn, registry, [begin(conn, run)])
    assert events_of(conn, acme) == []
    webhook = make_webhook(acme, registry, types=["run.succeeded"]).webhook
    run = make_ticket(acme)
    settle_as(conn, registry, [begin(conn, run)])
    [event] = events_of(conn, acme)
    assert (event["type"], event["execution_id"], event["data"]["execution"]) == ("run.succeeded", run, str(run))
    assert event["data"]["state"] == "succeeded" and event["data"]["attempt"] == 1
    change_webhook(acme, webhook, enabled=False)
    registry.refresh(force=True)
    settle_as(conn, registry, [begin(conn, make_ticket(acme))])
    assert types_of(conn, acme) == ["run.succeeded", "webhook.disabled"]


def test_a_tenant_without_webhooks_costs_no_statement(
    conn: Conn, acme: Tenant, registry: Registry, statements: list[str]
) -> None:
    started = [begin(conn, make_ticket(acme)) for _ in range(3)]
    statements.clear()
    settle_as(conn, registry, started)
    assert not [one for one in statements if "event" in one.lower() or "webhook" in one.lower()]


def test_failures_and_dead_letters_are_told(conn: Conn, acme: Tenant, registry: Registry) -> None:
    make_webhook(acme, registry, types=["run.failed", "run.dead_lettered"])
    run = make_ticket(acme, make_job(acme, retry={"max_attempts": 2}))
    error = {"class": "http_status", "message": "no\0pe \ud800", "status": 503}
    settle_as(conn, registry, [begin(conn, run)], "failed", error=error)
    [first] = events_of(conn, acme)
    assert first["type"] == "run.failed" and first["data"]["final"] is False and first["data"]["retry_at"]
    assert first["data"]["error"] == {"class": "http_status", "message": "no\ufffdpe ?", "status": 503}
    settle_as(conn, registry, [begin(conn, run)], "timed_out")
    _, second, third = events_of(conn, acme)
    assert {second["type"], third["type"]} == {"run.failed", "run.dead_lettered"}
    assert {one["data"]["state"] for one in (second, third)} == {"dead"}


def test_a_dead_letter_is_told_also_while_nobody_asks(conn: Conn, acme: Tenant, registry: Registry) -> None:
    run = make_ticket(acme)
    settle_as(conn, registry, [begin(conn, run)], "failed", retryable=False)
    [event] = events_of(conn, acme)
    assert event["type"] == "run.dead_lettered" and event["execution_id"] == run
    assert count(conn, "SELECT count(*) FROM due_eventbell") == 0  # nobody is to carry it out


def test_a_stale_settlement_tells_nothing(conn: Conn, acme: Tenant, registry: Registry) -> None:
    make_webhook(acme, registry)
    started = begin(conn, make_ticket(acme))
    settle_as(conn, registry, [started])
    settle_as(conn, registry, [started], "failed", retryable=False)
    assert types_of(conn, acme) == ["run.succeeded"]


def test_pauses_by_people_and_by_the_platform(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.schedules.services import schedule_pause, schedule_resume

    schedule = make_schedule(acme)
    schedule_pause(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW, reason="holiday")
    schedule_resume(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW)
    paused, resumed = events_of(conn, acme)
    assert paused["type"] == "schedule.paused" and paused["schedule_id"] == schedule
    assert paused["data"] == {"schedule": str(schedule), "reason": "holiday", "resume_at": None, "by": "test"}
    assert resumed["type"] == "schedule.resumed" and resumed["data"]["by"] == "test"
    failing = make_schedule(acme, pause_after_failures=1)
    fire(conn, registry, now=NOW + MINUTE)
    [run] = conn.execute("SELECT execution_id FROM tickets_ticket WHERE schedule_id = %s", [failing]).fetchall()
    settle_as(conn, registry, [begin(conn, run[0])], "failed", retryable=False)
    by_type = {one["type"]: one["data"] for one in events_of(conn, acme)[2:]}
    assert set(by_type) == {"run.dead_lettered", "schedule.paused"}
    assert by_type["schedule.paused"]["by"] == "system" and by_type["schedule.paused"]["schedule"] == str(failing)


def test_missed_occurrences_are_told_and_others_that_do_not_run_are_not(
    conn: Conn, acme: Tenant, registry: Registry
) -> None:
    missed = make_schedule(acme, misfire="skip")
    overlapping = make_schedule(acme, overlap="skip")
    fire(conn, registry, now=NOW + MINUTE)
    fire(conn, registry, now=NOW + 2 * MINUTE)  # the second run of the other is left out by its own policy
    assert events_of(conn, acme) == []
    fire(conn, registry, now=NOW + timedelta(hours=1))
    told = events_of(conn, acme)
    assert {one["type"] for one in told} == {"schedule.missed"}
    assert {one["schedule_id"] for one in told} == {missed, overlapping}
    [one] = [one for one in told if one["schedule_id"] == missed]
    assert one["data"]["reason"] == "misfire_skipped" and one["data"]["count"] > 1


def test_a_quota_that_is_used_up_is_told_once_a_day_for_each_schedule() -> None:
    from apps.dispatch.missed import missed_events
    from apps.executions.store import Skipped

    schedules = [uuid.uuid4(), uuid.uuid4()]

    def skip(schedule: uuid.UUID, hours: int) -> Skipped:
        at = NOW + timedelta(hours=hours)
        return Skipped(uuid.uuid4(), "k", schedule, 1, schedule, 1, 5, at, at, 1, "daily_quota", "test")

    day = {
        event.id
        for hour in (0, 1, 5)
        for event in missed_events([skip(one, hour) for one in schedules], NOW + timedelta(hours=hour))
    }
    [tomorrow] = missed_events([skip(schedules[0], 24)], NOW + timedelta(days=1))
    assert len(day) == 2 and tomorrow.id not in day


def test_expired_runs_have_failed(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.outcomes.expire import expire_batch

    make_webhook(acme, registry, types=["run.failed"])
    run = make_ticket(acme, max_queue_age_s=1)
    expire_batch(conn, registry, now=NOW + MINUTE, limit=10)
    [event] = events_of(conn, acme)
    assert (event["type"], event["execution_id"]) == ("run.failed", run)
    assert (event["data"]["outcome"], event["data"]["final"]) == ("expired", True)


def test_late_runs_are_told_once(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.dispatch.lateness import LATE_AFTER, tell_late
    from apps.tickets import releasing

    tenancy = tenancy_of(registry, acme)
    run = make_ticket(acme)
    paused = make_ticket(acme)
    conn.execute("UPDATE tickets_ticket SET job_limit = 0 WHERE execution_id = %s", [paused])
    for queued in (False, True):  # of a backfill, which waits for as long as it takes
        past = make_ticket(acme)
        conn.execute("UPDATE tickets_ticket SET lane = 2 WHERE execution_id = %s", [past])
        if queued:
            releasing.release(conn, [past], release=releasing.next_release(conn), now=NOW)
    window = {"after": NOW - LATE_AFTER, "until": NOW}
    assert tell_late(conn, tenancy, **window) == 1
    assert tell_late(conn, tenancy, **window) == 1  # another process looks at the same time: the same event
    [event] = events_of(conn, acme)
    assert (event["type"], event["execution_id"]) == ("run.late", run)
    assert tell_late(conn, tenancy, after=NOW, until=NOW + MINUTE) == 0


def test_late_runs_say_what_they_wait_for(conn: Conn, acme: Tenant, registry: Registry) -> None:
    """A rule that refuses them, or what release has noted last; what somebody wrote for an earlier wait is no cause."""
    from apps.dispatch.lateness import LATE_AFTER, tell_late

    limited, shared, queued = make_job(acme, max_concurrency=1), make_job(acme), make_job(acme)
    expected: dict[uuid.UUID, str | None] = {make_ticket(acme, limited): "job_concurrency"}
    expected |= {
        make_ticket(acme, shared): "job_rate",
        make_ticket(acme): "fair_share",
        make_ticket(acme, queued): None,
    }
    begun = make_ticket(acme, limited)
    conn.execute("UPDATE tickets_ticket SET wait_reason = 'retry'")
    conn.execute(
        "UPDATE tickets_ticket SET state = 'queued', release = 1, queued_at = actual_at WHERE job_id = %s"
        " OR execution_id = %s",
        [queued, begun],
    )
    for flow, code, since, seen in [
        (shared, "job_rate", 30, 1), (shared, "concurrency_key", 90, 60), (None, "pool_full", 60, 2),
        (None, "fair_share", 40, 1),
    ]:  # fmt: skip
        conn.execute(
            "INSERT INTO tickets_hold (pool, tenant_id, flow, code, since, seen_at)"
            " VALUES ('python', %s, %s, %s, %s - %s * interval '1 s', %s - %s * interval '1 s')",
            [acme.pk, flow, code, NOW + LATE_AFTER, since, NOW + LATE_AFTER, seen],
        )
    window = {"after": NOW - LATE_AFTER, "until": NOW}
    assert tell_late(conn, tenancy_of(registry, acme), **window) == 5
    found = {one["execution_id"]: one["data"]["wait_reason"] for one in events_of(conn, acme)}
    assert found == {**expected, begun: None}


def test_late_runs_are_looked_for_where_somebody_asks(conn: Conn, acme: Tenant, registry: Registry) -> None:
    from apps.dispatch.lateness import Lateness

    make_ticket(acme)
    conn.execute("UPDATE tickets_ticket SET actual_at = clock_timestamp() - interval '65 s'")
    assert Lateness().step(conn, registry) == 0
    make_webhook(acme, registry, types=["run.late"])
    assert Lateness().step(conn, registry) == 1


def test_limits_that_come_near_are_told(conn: Conn, acme: Tenant, globex: Tenant, registry: Registry) -> None:
    from apps.dispatch.nearness import tell_near
    from apps.usage.notices import crossed

    crossed(conn, acme.pk, quota="max_runs_per_day", limit=10, before=7, after=8, now=NOW)
    assert tell_near(conn, registry) == 1
    assert tell_near(conn, registry) == 0
    [event] = events_of(conn, acme)
    expected = {"quota": "max_runs_per_day", "level_percent": 80, "limit": 10, "use": 8}
    assert (event["type"], event["data"]) == ("quota.near", expected)
    assert events_of(conn, globex) == []
