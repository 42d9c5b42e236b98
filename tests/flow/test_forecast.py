"""The forecast of the whole index: from its due entries, from what changes, and what fire then really makes of it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from apps.due.forecast import Total
from tests.fixtures_flow import NOW, actor, count, fire_all, make_job, make_schedule, make_ticket

if TYPE_CHECKING:
    from apps.dispatch.forecast.service import ForecastService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
MINUTE = timedelta(minutes=1)


def new_service(registry: Registry) -> ForecastService:
    """As a dispatcher has it; the test takes the steps."""
    from apps.dispatch.forecast.service import ForecastService
    from apps.dispatch.keeper import Keeper
    from tenants.door import Line

    made = ForecastService(Line("forecast"), Keeper(wants=lambda _: True, progressed=lambda _: True, stats=dict))
    made._registry = registry
    return made


def settled(service: ForecastService, conn: Conn, now: datetime) -> Total:
    """After as many steps as there is work for."""
    from apps.due import forecast

    while any(service.step(conn, now).values()):
        pass
    found = forecast.read(conn)
    assert found is not None
    return found


def anew(conn: Conn, registry: Registry, now: datetime) -> Total:
    """What a look at all due entries finds, whatever was known."""
    conn.execute("DELETE FROM due_forecast; DELETE FROM due_forecastshard; DELETE FROM due_forecastchange")
    return settled(new_service(registry), conn, now)


def ahead(total: Total, now: datetime) -> list[dict[datetime, int]]:
    """The minutes and the hours that begin after `now` and have runs."""
    return [
        {at: runs for at, runs in some if at > now and runs} for some in (total.of_minutes(now), total.of_hours(now))
    ]


def fired(conn: Conn) -> Counter[datetime]:
    """Executions of both tenants by the minute of their actual instant."""
    rows = conn.execute(
        "SELECT date_trunc('minute', actual_at) FROM t_acme.executions_execution WHERE state <> 'scheduled'"
        " UNION ALL SELECT date_trunc('minute', actual_at) FROM t_globex.executions_execution"
    )
    return Counter(row[0] for row in rows)


def test_what_is_expected_is_what_fires_and_changes_come_in_without_a_new_look(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    from apps.outcomes.cancel import execution_cancel
    from apps.schedules import services

    registry.refresh(force=True)
    job = make_job(acme)
    edited, paused, deleted = (
        make_schedule(acme, job, cron=cron) for cron in ("*/7 * * * *", "* * * * *", "3 * * * *")
    )
    make_schedule(acme, job, cron="*/10 * * * *", jitter_s=500)
    make_schedule(acme, job, trigger={"every_s": 45}, max_runs=30)
    make_schedule(globex, cron="15,45 11,12 * * *", timezone="Europe/Berlin")
    make_ticket(acme, job, delay_s=1_200)
    cancelled = make_ticket(acme, job, delay_s=9_000)

    service = new_service(registry)
    first = settled(service, conn, NOW)
    assert (first.shards, first.entries) == (64, 8)
    for passed in range(31):
        fire_all(conn, registry, now=NOW + passed * MINUTE)
    fire_all(conn, registry, now=NOW + 31 * MINUTE - timedelta(seconds=1))
    really, now = fired(conn), NOW + 31 * MINUTE
    assert {at: runs for at, runs in first.of_minutes(NOW) if runs and NOW < at < now} == {
        at: runs for at, runs in really.items() if at > NOW
    }
    assert count(conn, "SELECT count(*) FROM due_forecastchange") == 0  # what fires was expected

    settled(service, conn, now)
    for number, cron in enumerate(("*/9 * * * *", "*/4 * * * *")):  # twice before anybody looks
        services.schedule_update(
            tenant=acme,
            actor=actor(acme),
            schedule_id=edited,
            patch={"trigger": {"cron": cron}},
            now=now + number * MINUTE,
        )
    services.schedule_pause(tenant=acme, actor=actor(acme), schedule_id=paused, now=now)
    services.schedule_delete(tenant=acme, actor=actor(acme), schedule_id=deleted, now=now)
    made = make_schedule(globex, cron="0 */2 * * *", now=now)
    services.schedule_delete(tenant=globex, actor=actor(globex), schedule_id=made, now=now)
    make_schedule(globex, cron="15 * * * *", now=now)
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=cancelled, now=now)
    changed = settled(service, conn, now + MINUTE)
    assert count(conn, "SELECT count(*) FROM due_forecastchange") == 0
    assert ahead(changed, now + MINUTE) == ahead(anew(conn, registry, now + MINUTE), now + MINUTE)
    assert ahead(changed, now + MINUTE) != ahead(first, now + MINUTE)
