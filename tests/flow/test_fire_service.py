"""The fire loop around a batch: when it looks again, what it computes ahead, and what it leaves to its next pass."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from apps.dispatch.dispatcher import Ear
from apps.dispatch.fire import CALM_S, FireService
from apps.dispatch.keeper import Keeper
from apps.dispatch.pace import Yielding
from apps.due.entries import CHANNEL, shard_for
from apps.schedules import timing
from apps.schedules.services import schedule_pause
from apps.tickets.store import READY_CHANNEL, notify_ready
from kernel.pools import POOLS
from tenants.models import Tenant
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    OneLine,
    actor,
    count,
    entry_of,
    executions_of,
    fire,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
)

Conn = psycopg.Connection[Any]


@pytest.fixture
def service(leader: Keeper, conn: Conn) -> FireService:
    return FireService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives


def now_of(conn: Conn) -> datetime:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


class FakeLoop:
    woken = False

    def wake(self) -> None:
        self.woken = True


def due_in(conn: Conn, tenant: Tenant, seconds: float) -> Any:
    at = now_of(conn) + timedelta(seconds=seconds)
    return make_schedule(tenant, trigger={"at": at.isoformat()}, now=now_of(conn))


def test_it_waits_until_the_next_due_instant(service: FireService, conn: Conn, acme: Tenant) -> None:
    assert service.run_once().wait_s is None, "nothing to wait for"
    due_in(conn, acme, 300)
    due_in(conn, acme, 20)
    done = service.run_once()
    assert done.wait_s is not None and 10 < done.wait_s <= 20
    assert done.counts == {} and not done.full


def test_a_full_pass_goes_on_at_once_and_an_empty_one_rests(
    service: FireService, conn: Conn, acme: Tenant, settings: Any
) -> None:
    settings.FIRE_BATCH = 2
    job = make_job(acme)
    for _ in range(5):
        make_schedule(acme, job, trigger={"at": (NOW + MINUTE).isoformat()})
    made = 0
    while (done := service.run_once()).full:
        made += done.counts["fired"]
    assert made == 5
    assert len(executions_of(conn, acme)) == 5


def test_what_is_due_soon_is_computed_ahead(
    service: FireService, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the aligned instant is only a write."""
    asked: list[datetime] = []
    real = timing.next_after

    def next_after(spec: Any, after: datetime) -> Any:
        asked.append(after)
        return real(spec, after)

    soon, later = due_in(conn, acme, 3), due_in(conn, acme, 60)
    monkeypatch.setattr(timing, "next_after", next_after)
    service.run_once()
    assert asked == [entry_of(conn, soon).nominal_at]
    service.run_once()
    assert len(asked) == 1, "not again in the same second"
    assert entry_of(conn, later) is not None


def test_looking_ahead_at_poison_is_no_error(service: FireService, conn: Conn, acme: Tenant) -> None:
    bad = due_in(conn, acme, 3)
    conn.execute("UPDATE due_dueentry SET spec = 'nonsense' WHERE key = %s", [bad])
    assert service.run_once().counts == {}
    assert entry_of(conn, bad).parked == ""


def test_what_is_put_aside_is_not_waited_for(service: FireService, conn: Conn, acme: Tenant) -> None:
    make_schedule(acme)
    conn.execute("UPDATE due_dueentry SET parked = 'why'")
    done = service.run_once()
    assert (done.counts, done.wait_s) == ({}, None)


def test_whoever_makes_something_due_soon_wakes_the_dispatchers(conn: Conn, second: Conn, acme: Tenant) -> None:
    second.execute(f"LISTEN {CHANNEL}")
    job = make_job(acme)
    make_schedule(acme, job, cron="0 3 * * *")
    assert list(second.notifies(timeout=0.05)) == [], "tomorrow wakes nobody"
    make_ticket(acme, job, delay_s=1)
    assert [one.channel for one in second.notifies(timeout=10, stop_after=1)] == [CHANNEL]


def test_firing_wakes_the_release_loops_when_it_is_committed(
    conn: Conn, second: Conn, registry: Any, acme: Tenant
) -> None:
    make_schedule(acme)
    second.execute(f"LISTEN {READY_CHANNEL}")
    with conn.transaction():
        fire_all(conn, registry, now=NOW + MINUTE)
        assert list(second.notifies(timeout=0.05)) == []
    assert [one.channel for one in second.notifies(timeout=10, stop_after=1)] == [READY_CHANNEL]


def test_it_rings_the_release_loops_of_its_process_when_it_is_committed(
    leader: Keeper, conn: Conn, second: Conn, acme: Tenant
) -> None:
    seen: list[tuple[set[str], int]] = []
    yielding = Yielding()
    service = FireService(
        OneLine(conn), leader, yielding=yielding,  # type: ignore[arg-type]  # a line is what it gives
        ring=lambda pools: seen.append((set(pools), count(second, "SELECT count(*) FROM tickets_ticket"))),
    )  # fmt: skip
    make_schedule(acme, trigger={"at": (NOW + MINUTE).isoformat()})
    due_in(conn, acme, 20)
    assert service.run_once().full
    assert seen == [({"python"}, 1)] and yielding.due_at == float("inf"), "nobody makes way any longer"
    assert service.run_once().wait_s == CALM_S, "what was fired is released first"
    assert (service.run_once().wait_s or 0) > 10 and len(seen) == 1


def test_it_rings_all_pools_where_something_made_way_that_others_wait_for(
    conn: Conn, registry: Any, acme: Tenant
) -> None:
    """These may go now, in whatever pool, and the ear passes over what this connection tells."""
    seen: list[set[str]] = []
    make_schedule(acme, overlap="replace_pending")
    for number in (1, 2):
        fire(conn, registry, now=NOW + number * MINUTE, ring=lambda pools: seen.append(set(pools)))
        conn.execute("UPDATE tickets_ticket SET followed = true")
    assert [one["reason"] for one in executions_of(conn, acme)] == ["replaced", ""]
    assert seen == [{"python"}, set(POOLS)]


def test_the_ear_passes_over_what_was_rung_here(conn: Conn, second: Conn) -> None:
    loops = {name: FakeLoop() for name in ("fire", "release python", "release http")}
    ear = Ear(OneLine(second), loops, rung=lambda: conn.info.backend_pid)  # type: ignore[arg-type]  # a line is what it gives
    second.execute(f"LISTEN {READY_CHANNEL}")
    notify_ready(conn, {"python"})
    ear.run_once()
    assert not any(loop.woken for loop in loops.values())
    notify_ready(second, {"python"})
    ear.run_once()
    assert [name for name, loop in loops.items() if loop.woken] == ["release python"]


def test_the_signature_names_dispatcher_and_term(
    service: FireService, leader: Keeper, conn: Conn, acme: Tenant
) -> None:
    make_schedule(acme, trigger={"at": (NOW + MINUTE).isoformat()})
    service.run_once()
    [run] = executions_of(conn, acme)
    dispatcher, term = run["fired_by"].split("/")
    assert dispatcher == str(leader.id) and int(term) in leader.held("fire").values()


def test_each_run_names_the_term_of_its_own_shard(
    service: FireService, leader: Keeper, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch serves many shards, and each lease has a term of its own."""
    job = make_job(acme)
    for misfire in ("fire_once", "skip") * 4:
        make_schedule(acme, job, trigger={"at": (NOW + MINUTE).isoformat()}, misfire=misfire)
    monkeypatch.setattr(leader, "held", lambda kind: {shard: 1000 + shard for shard in range(64)})
    service.run_once()
    runs = executions_of(conn, acme)
    assert {one["state"] for one in runs} == {"ready", "skipped"}
    assert len({one["fired_by"] for one in runs}) > 1
    for one in runs:
        assert one["fired_by"] == f"{leader.id}/{1000 + shard_for(one['schedule_id'])}"


def test_a_pause_between_two_passes_leaves_nothing_to_fire(service: FireService, conn: Conn, acme: Tenant) -> None:
    schedule = make_schedule(acme, trigger={"at": (NOW + MINUTE).isoformat()})
    schedule_pause(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW)
    assert service.run_once().counts == {}
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0
