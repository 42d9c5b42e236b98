"""Figures: what the steps of the flow note, and that summing up counts each note once, whatever stops in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.fixtures_api import in_parallel
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    count,
    fire,
    live_worker,
    make_job,
    make_schedule,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
)
from tests.usage.test_admitting import NewTenant, runs_on

if TYPE_CHECKING:
    from apps.dispatch.release import ReleaseService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)


def rolled(conn: Conn, tenant: Tenant, step_s: int = 86_400) -> dict[str, int]:
    """The sums of all rows of one step, without what is 0; histograms as how many they hold."""
    from apps.usage.figures import COLUMNS, HISTOGRAMS
    from apps.usage.rolling import roll_up

    while roll_up(conn):
        pass
    sums = [f"sum({name})::bigint" for name in COLUMNS.values()]
    sums += [f"sum((SELECT sum(n) FROM unnest({name}) n))::bigint" for name in HISTOGRAMS.values()]
    row = conn.execute(
        f"SELECT {', '.join(sums)} FROM usage_rollup WHERE tenant_id = %s AND step_s = %s", [tenant.pk, step_s]
    ).fetchone()
    assert row is not None
    return {name: value for name, value in zip([*COLUMNS.values(), *HISTOGRAMS.values()], row, strict=True) if value}


def test_a_run_is_seen_at_every_step(
    conn: Conn, registry: Registry, acme: Tenant, releaser: Callable[..., ReleaseService]
) -> None:
    job = make_job(acme, retry={"max_attempts": 2, "base_s": 0})
    make_schedule(acme, job)
    live_worker(conn, queues=[queue_of(registry, acme)], worker=WORKER)
    fire(conn, registry, now=NOW + MINUTE)
    make_ticket(acme, job, now=NOW + MINUTE)
    assert rolled(conn, acme) == {"fired": 1, "submitted": 1}
    first, second = start(conn, release(releaser()), WORKER)
    settle_as(conn, registry, [first], "succeeded")
    settle_as(conn, registry, [second], "failed")
    conn.execute("UPDATE tickets_ticket SET available_at = %s", [NOW])
    settle_as(conn, registry, start(conn, release(releaser()), WORKER), "timed_out")
    for step_s in (60, 3_600, 86_400):
        found = rolled(conn, acme, step_s)
        found.pop("run_ms", None)
        assert found == {
            "fired": 1, "submitted": 1, "released": 3, "started": 2, "succeeded": 1, "dead": 1, "attempts": 3,
            "attempts_failed": 2, "dispatch": 2, "start": 2, "duration": 3,
        }  # fmt: skip


def test_what_does_not_run_is_seen_too(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from apps.dispatch.submit import schedule_trigger
    from apps.outcomes.cancel import execution_cancel
    from apps.outcomes.expire import expire_batch
    from apps.schedules.services import schedule_pause

    job, who = make_job(acme), actor(acme)
    missed = make_schedule(acme, job, misfire="skip", grace_s=1)
    fire(conn, registry, now=NOW + 5.5 * MINUTE)
    assert rolled(conn, acme) == {"skipped": 5}
    schedule_pause(tenant=acme, actor=who, schedule_id=missed, now=NOW + 7 * MINUTE)
    assert rolled(conn, acme) == {"skipped": 7}
    once = make_schedule(acme, job, overlap="skip", cron="0 0 1 1 *")
    for _ in range(3):
        schedule_trigger(tenant=acme, actor=who, schedule_id=once, now=NOW)
    assert rolled(conn, acme) == {"skipped": 9, "submitted": 1}
    newest = make_schedule(acme, job, overlap="replace_pending", cron="0 0 1 1 *")
    for _ in range(3):
        schedule_trigger(tenant=acme, actor=who, schedule_id=newest, now=NOW)
    assert rolled(conn, acme) == {"skipped": 11, "submitted": 4}
    make_ticket(acme, job, max_queue_age_s=1)
    expire_batch(conn, registry, now=NOW + MINUTE, limit=10)
    gone, later = make_ticket(acme, job), make_ticket(acme, job, delay_s=60)
    for one in (gone, later, gone):
        execution_cancel(tenant=acme, actor=who, execution_id=one, now=NOW)
    assert rolled(conn, acme) == {"skipped": 11, "submitted": 7, "expired": 1, "cancelled": 2}


def test_the_same_settlement_twice_is_seen_once(
    conn: Conn, registry: Registry, acme: Tenant, releaser: Callable[..., ReleaseService]
) -> None:
    make_ticket(acme)
    live_worker(conn, queues=[queue_of(registry, acme)], worker=WORKER)
    started = start(conn, release(releaser()), WORKER)
    settle_as(conn, registry, started * 2)
    settle_as(conn, registry, started)
    assert rolled(conn, acme)["succeeded"] == 1


def note(conn: Conn, tenant: Tenant, now: datetime, *, fired: int = 1, took_s: float | None = None) -> None:
    from apps.usage import deltas
    from apps.usage.figures import DURATION, FIRED, Tally

    tally = Tally()
    tally.add(tenant.pk, FIRED, fired)
    if took_s is not None:
        tally.took(tenant.pk, DURATION, took_s)
    deltas.add(conn, tally, now=now)


def test_a_note_falls_into_its_minute_hour_and_day_also_at_the_end_of_a_month(conn: Conn, acme: Tenant) -> None:
    last = datetime(2025, 2, 28, 23, 59, 59, 999_999, UTC)
    note(conn, acme, last, fired=2)
    note(conn, acme, last + timedelta(microseconds=1), fired=3)
    rolled(conn, acme)
    note(conn, acme, last, fired=5)  # it comes late
    rolled(conn, acme)
    rows = conn.execute("SELECT step_s, starts_at, fired FROM usage_rollup ORDER BY 1, 2").fetchall()
    march = datetime(2025, 3, 1, tzinfo=UTC)
    assert rows == [
        (60, march - MINUTE, 7), (60, march, 3), (3_600, march - timedelta(hours=1), 7), (3_600, march, 3),
        (86_400, march - timedelta(days=1), 7), (86_400, march, 3),
    ]  # fmt: skip


def test_histograms_of_different_length_are_added_bucket_by_bucket(conn: Conn, acme: Tenant) -> None:
    from apps.usage.figures import bucket_of

    for seconds in (0.001, 10.0, 0.5, 10.0):
        note(conn, acme, NOW, took_s=seconds)
        rolled(conn, acme)
    row = conn.execute("SELECT duration FROM usage_rollup WHERE step_s = 60").fetchone()
    assert row is not None
    assert {bucket: n for bucket, n in enumerate(row[0]) if n} == {0: 1, bucket_of(0.5): 1, bucket_of(10.0): 2}
    assert len(row[0]) == bucket_of(10.0) + 1


def test_runs_without_a_limit_reach_the_days_count_and_those_with_one_are_not_counted_twice(
    conn: Conn, registry: Registry, new_tenant: NewTenant, acme: Tenant
) -> None:
    limited = new_tenant(max_runs_per_day=50)
    for tenant in (limited, acme):
        job = make_job(tenant)
        make_schedule(tenant, job)
        for _ in range(4):
            make_ticket(tenant, job)
    fire(conn, registry, now=NOW + MINUTE)
    assert (runs_on(conn, limited, NOW.date()), runs_on(conn, acme, NOW.date())) == (5, 0)
    rolled(conn, acme)
    assert (runs_on(conn, limited, NOW.date()), runs_on(conn, acme, NOW.date())) == (5, 5)


def test_a_tenant_that_gets_a_limit_has_used_what_it_ran_before(conn: Conn, new_tenant: NewTenant) -> None:
    from kernel.errors import QuotaExceeded
    from tenants.models import Plan, Tenant

    tenant = new_tenant(weight=2)
    job = make_job(tenant)
    for _ in range(4):
        make_ticket(tenant, job)
    rolled(conn, tenant)
    Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_day=5)
    tenant = Tenant.objects.select_related("plan").get(pk=tenant.pk)
    make_ticket(tenant, job)
    with pytest.raises(QuotaExceeded):
        make_ticket(tenant, job)


def test_a_step_that_is_stopped_changes_nothing(conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.usage import rolling

    for _ in range(3):
        note(conn, acme, NOW)
    with monkeypatch.context() as patched:
        patched.setattr(rolling, "_COUNT", "SELECT 1 / 0, %s, %s, %s")
        with pytest.raises(psycopg.errors.DivisionByZero):
            rolling.roll_up(conn)
        assert rolling.Rolling().step(conn, now=NOW) == {}  # told in the log; the loop around it goes on
    assert count(conn, "SELECT count(*) FROM usage_delta") == 3
    assert count(conn, "SELECT count(*) FROM usage_rollup") == 0
    assert rolled(conn, acme) == {"fired": 3}


def test_two_that_sum_up_at_once_count_each_note_once(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    from apps.usage.rolling import roll_up
    from tenants import door

    for number in range(200):
        note(conn, (acme, globex)[number % 2], NOW + number * timedelta(seconds=7))

    def work(number: int) -> int:
        with door.connect("test roll") as mine:
            done = 0
            while part := roll_up(mine, limit=7 + number):
                done += part
            return done

    assert sum(in_parallel(4, work)) == 200
    assert rolled(conn, acme) == rolled(conn, globex) == {"fired": 100}
    assert rolled(conn, acme, 60) == {"fired": 100}


def test_a_step_is_bounded_and_says_when_it_left_some(
    conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.usage import rolling

    monkeypatch.setattr(rolling, "BATCH", 2)
    monkeypatch.setattr(rolling.roll_up, "__kwdefaults__", {"limit": 2})
    for _ in range(5):
        note(conn, acme, NOW)
    service = rolling.Rolling()
    done = []
    for _ in range(4):
        done.append((service.step(conn, now=NOW).get("usage_noted", 0), service.full))
    assert done == [(2, True), (2, True), (1, False), (0, False)]


def test_old_rows_go_and_so_do_those_of_tenants_that_are_gone(conn: Conn, acme: Tenant) -> None:
    from apps.usage.rolling import KEPT, prune

    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for kept in KEPT.values():
        note(conn, acme, now - kept - timedelta(days=1))
        note(conn, acme, now - kept + timedelta(days=1))
    rolled(conn, acme)
    conn.execute("INSERT INTO usage_notice SELECT 1, 'max_live', 80, %s, 5, 4, %s", [now.date(), now])
    nothing = ", ".join(["0"] * 12 + ["NULL"] * 3)
    conn.execute(f"INSERT INTO usage_rollup SELECT 60, %s, 2147483647, {nothing}", [now])
    while prune(conn, now=now, limit=2):
        pass
    left = conn.execute("SELECT step_s, count(*) FROM usage_rollup GROUP BY 1 ORDER BY 1").fetchall()
    assert left == [(60, 1), (3_600, 3), (86_400, 5)]
    assert count(conn, "SELECT count(*) FROM usage_rollup WHERE tenant_id <> %s", acme.pk) == 0
    assert count(conn, "SELECT count(*) FROM usage_notice") == 1
    prune(conn, now=now + timedelta(days=4))
    assert count(conn, "SELECT count(*) FROM usage_notice") == 0
    assert count(conn, "SELECT count(*) FROM usage_daycount WHERE day < %s", now.date() - timedelta(days=33)) == 0
