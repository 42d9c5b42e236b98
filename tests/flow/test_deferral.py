"""What was missed yields to live work that waits for slots; nothing on time does, and nothing for ever."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.pressure.deferral import TRICKLE_EVERY_S, Deferral
from tests.fixtures_flow import MINUTE, NOW, OneLine, count, entry_of, executions_of, fire, make_job, make_schedule
from tests.fixtures_flow import make_ticket as submit

if TYPE_CHECKING:
    from apps.dispatch.keeper import Keeper
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
LATER = NOW + timedelta(hours=5)
PYTHON = frozenset({("python", "")})
DAILY = "30 10 * * *"  # half an hour after NOW
BATCH = 160  # of which ten go in each second


class At:
    """A clock by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def at() -> At:
    return At()


@pytest.fixture
def deferral(at: At) -> Deferral:
    made = Deferral(batch=BATCH, clock=at)
    made.press(PYTHON)
    return made


@pytest.fixture
def step(conn: Conn, registry: Registry, deferral: Deferral, at: At) -> Callable[..., dict[str, int]]:
    """A pass of firing, half a second after the last one."""

    def one(now: datetime = LATER) -> dict[str, int]:
        at.now += 0.5
        debt = deferral.looks()
        not_debt = deferral.keys(now) if debt else []
        return fire(conn, registry, now=now, limit=BATCH, deferral=deferral, debt=debt, not_debt=not_debt)

    return one


def test_debt_waits_while_live_work_of_its_pool_does_and_goes_then(
    conn: Conn, acme: Tenant, deferral: Deferral, step: Callable[..., dict[str, int]]
) -> None:
    schedule = make_schedule(acme, cron=DAILY)
    before = entry_of(conn, schedule)
    counts = step()
    assert (counts["entries"], counts["deferred"]) == (0, 1) and deferral.active
    assert entry_of(conn, schedule) == before and executions_of(conn, acme) == []
    deferral.press(frozenset())
    assert not deferral.active
    assert step()["fired"] == 1
    assert [one["trigger"] for one in executions_of(conn, acme)] == ["catch_up"]


def test_what_is_on_time_goes_and_takes_its_own_debt_with_it(
    conn: Conn, acme: Tenant, step: Callable[..., dict[str, int]]
) -> None:
    make_schedule(acme, misfire="fire_latest_n", misfire_max=3)  # every minute, so one of them is on time
    counts = step()
    assert (counts["fired"], counts["deferred"]) == (5, 0)  # two of them are within their grace


def test_only_catch_up_of_that_pool_waits(
    conn: Conn, acme: Tenant, deferral: Deferral, step: Callable[..., dict[str, int]]
) -> None:
    submit(acme, run_at=(NOW + MINUTE).isoformat())  # late, and asked for
    make_schedule(acme, cron=DAILY, misfire="skip")  # owes nothing but a row
    make_schedule(acme, make_job(acme, kind="http", target={"url": "http://127.0.0.1:9999/"}), cron=DAILY)
    make_schedule(acme, cron="55 14 * * *", grace_s=1, now=LATER - timedelta(minutes=6))
    at = LATER - timedelta(minutes=5) + timedelta(seconds=30)
    make_schedule(acme, trigger={"at": (at - timedelta(seconds=20)).isoformat()}, grace_s=5)  # late by little
    counts = step(at)
    assert (counts["deferred"], counts["skipped"]) == (0, 1)
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 4
    deferral.press(frozenset({("python", "gpu")}))
    make_schedule(acme, cron=DAILY)
    assert step()["deferred"] == 0


def test_what_waits_is_looked_at_again_when_its_next_occurrence_comes(
    conn: Conn, acme: Tenant, step: Callable[..., dict[str, int]]
) -> None:
    schedule = make_schedule(acme, cron="30 * * * *")
    assert step(LATER)["deferred"] == 1
    assert step(LATER + timedelta(minutes=29)).get("deferred", 0) == 0  # remembered: nobody decides it again
    assert step(LATER + timedelta(minutes=30))["fired"] == 1
    (made,) = executions_of(conn, acme, schedule)[-1:]
    assert (made["trigger"], made["nominal_at"]) == ("schedule", LATER + timedelta(minutes=30))


def test_nothing_starves_and_the_oldest_goes_first(
    conn: Conn, acme: Tenant, step: Callable[..., dict[str, int]], at: At
) -> None:
    job = make_job(acme)
    first = [make_schedule(acme, job, cron=f"{minute} 10 * * *") for minute in (10, 20)]
    for minute in range(30, 53):
        make_schedule(acme, job, cron=f"{minute} 10 * * *")
    fired: list[int] = []
    began = at.now
    while sum(fired) < 25:
        fired.append(step().get("fired", 0))
        assert at.now - began < 30
    assert max(fired) <= BATCH // 16 and at.now - began >= 2 * TRICKLE_EVERY_S
    assert {one["schedule_id"] for one in sorted(executions_of(conn, acme), key=_made)[:10]} >= set(first)


def _made(one: dict[str, Any]) -> UUID:
    found: UUID = one["id"]
    return found


def test_what_is_remembered_is_bounded_and_the_rest_is_decided_again(
    conn: Conn, acme: Tenant, deferral: Deferral, step: Callable[..., dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.dispatch.pressure.deferral.REMEMBERED", 2)
    job = make_job(acme)
    for minute in range(10, 15):
        make_schedule(acme, job, cron=f"{minute} 10 * * *")
    assert step()["deferred"] == 5
    assert len(deferral.keys(LATER)) == 2 and deferral.active


def test_a_loop_that_holds_something_back_still_wakes_for_what_is_next(
    leader: Keeper, conn: Conn, acme: Tenant
) -> None:
    from apps.dispatch.fire import FireService
    from apps.usage import pressure

    service = FireService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    pressure.write(conn, every_s=2, live=1, ended_per_s=0, figures={"pressed": [["python", ""]]})
    owing = make_schedule(acme, trigger={"at": (now - timedelta(hours=1)).isoformat()}, now=now - timedelta(hours=2))
    assert service.run_once().counts["deferred"] == 1
    make_schedule(acme, trigger={"at": (now + timedelta(seconds=20)).isoformat()}, now=now)
    done = service.run_once()
    assert not done.full and done.wait_s is not None and 5 < done.wait_s < 20
    assert entry_of(conn, owing) is not None
    conn.execute("UPDATE usage_pressure SET measured_at = measured_at - interval '1 minute'")
    assert pressure.pressed(conn) == frozenset()  # nobody measures: nobody yields
