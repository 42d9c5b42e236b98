"""The forecast of the whole index: from its due entries, from what changes, and what fire then really makes of it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from apps.due.forecast import Total
from tenants import door
from tests.fixtures_flow import NOW, OneLine, actor, count, fire_all, make_job, make_schedule, make_ticket

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


def by_bin(conn: Conn) -> dict[int, int]:
    """What is kept, of all shards, which were looked at in one hour."""
    from apps.due import forecast

    runs = [sum(each) for each in zip(*(one.runs for one in forecast.read_shards(conn) if one.runs), strict=True)]
    return {index: count for index, count in enumerate(runs) if count}


def each_alone(conn: Conn) -> dict[int, int]:
    """What the due entries run when each is expanded for itself."""
    from apps.due import forecast
    from apps.schedules.forecasting import Expander

    expander, found = Expander(NOW, NOW), Counter[int]()
    for entry in forecast.planned_of(conn, [row[0] for row in conn.execute("SELECT key FROM due_dueentry")]):
        for index, runs in expander.runs(entry):
            found[index] += runs
    return dict(found)


def test_what_is_expected_is_what_fires_and_changes_come_in_without_a_new_look(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    from apps.outcomes.cancel import execution_cancel
    from apps.schedules import services

    registry.refresh(force=True)
    job = make_job(acme)
    edited, paused, deleted, _, _ = (
        make_schedule(acme, job, cron=cron)
        for cron in ("*/7 * * * *", "* * * * *", "3 * * * *", "3 * * * *", "3 * * * *")
    )
    make_schedule(acme, job, cron="*/10 * * * *", jitter_s=500)
    make_schedule(acme, job, trigger={"every_s": 45}, max_runs=30)
    make_schedule(globex, cron="15,45 11,12 * * *", timezone="Europe/Berlin")
    make_ticket(acme, job, delay_s=1_200)
    cancelled = make_ticket(acme, job, delay_s=9_000)

    service = new_service(registry)
    first = settled(service, conn, NOW)
    assert (first.shards, first.entries) == (64, 10)
    assert by_bin(conn) == each_alone(conn)
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


def test_what_changes_while_a_shard_is_looked_at_is_counted_once(
    conn: Conn, registry: Registry, acme: Tenant, settings: Any
) -> None:
    from apps.due import forecast
    from apps.schedules import services

    settings.SHARDS = 1
    registry.refresh(force=True)
    job = make_job(acme)
    edited, deleted, twice = (make_schedule(acme, job, cron=cron) for cron in ("*/7 * * * *", "* * * * *", "3 * * * *"))
    service = new_service(registry)
    settled(service, conn, NOW)

    def edit(schedule: Any, cron: str) -> None:
        services.schedule_update(
            tenant=acme, actor=actor(acme), schedule_id=schedule, patch={"trigger": {"cron": cron}}, now=later
        )

    later = NOW + 31 * MINUTE
    edit(twice, "*/9 * * * *")  # not added yet when the look begins, and in what it reads
    with door.connect("test look") as other:
        service._served = frozenset({acme.pk})
        service._look = service._next_look(other, later)
        assert service._look is not None and not service._look.go_on(for_s=0)
        edit(twice, "*/4 * * * *")
        edit(edited, "5 * * * *")
        services.schedule_delete(tenant=acme, actor=actor(acme), schedule_id=deleted, now=later)
        make_schedule(acme, job, cron="*/8 * * * *", now=later)
        service.step(other, later, looks=False)
        at_once = forecast.read(conn)
        assert at_once is not None and service._look is not None
        written = settled(service, other, later)
        assert count(conn, "SELECT count(*) FROM due_forecastchange") == 0

        service._untold_since = later + MINUTE  # all anew; the connection is lost under way
        service._look = service._next_look(other, later)
        assert service._look is not None and not service._look.go_on(for_s=0)
    service._untold_since = None
    edit(edited, "6 * * * *")
    lost = settled(service, conn, later)
    edit(edited, "5 * * * *")
    expected = ahead(anew(conn, registry, later), later)
    assert ahead(at_once, later) == ahead(written, later) == expected != ahead(lost, later)


def test_whoever_takes_over_goes_on_with_the_oldest_shard_and_two_days_are_not_too_old(
    conn: Conn, registry: Registry, acme: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.dispatch.forecast import service as module
    from apps.due import forecast

    settings.SHARDS = 4
    registry.refresh(force=True)
    job = make_job(acme)
    for cron in ("*/10 * * * *", "15 */2 * * *", "30 4 * * *"):
        make_schedule(acme, job, cron=cron)
    first = settled(new_service(registry), conn, NOW)
    assert {one["at"] for one in first.peaks} and first.peaks[0]["looked_at"] == first.peaks[0]["entries"] == 3
    conn.execute("UPDATE due_forecastshard SET made_at = made_at - shard * interval '5 min'")
    successor = new_service(registry)
    for number in (3, 2):
        now = NOW + (30 - 5 * number) * MINUTE
        while any(successor.step(conn, now).values()):
            pass
        assert [one.shard for one in forecast.read_shards(conn) if one.made_at == now] == [number]
    said = forecast.read(conn)
    successor.step(conn, now + MINUTE)
    assert said is not None and forecast.read(conn) == said._replace(made_at=now + MINUTE)

    later = NOW + 40 * 60 * MINUTE
    monkeypatch.setattr(module, "LOOK_EVERY", timedelta(days=9))
    old = settled(new_service(registry), conn, later)
    assert (len(old.of_minutes(later)), len(old.of_hours(later)), old.oldest_at) == (1_440, 168, NOW - 5 * MINUTE)
    assert ahead(old, later) == ahead(anew(conn, registry, later), later)


def test_of_many_entries_a_sample_says_who_is_in_a_minute_and_a_suspension_is_noticed(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.dispatch.forecast import crowd

    settings.SHARDS = 2
    registry.refresh(force=True)
    job = make_job(acme)
    for number in range(6):
        make_schedule(acme if number < 4 else globex, job if number < 4 else None, cron="30 12 * * *")
    make_schedule(acme, job, cron="29 12 * * *", jitter_s=90)
    asked, real = [], crowd.forecast.some

    def all_of_them(conn: Conn, *, until: datetime, percent: float) -> Any:
        asked.append(percent)
        return real(conn, until=until, percent=100)

    monkeypatch.setattr(crowd, "SAMPLE", 3)
    monkeypatch.setattr(crowd.forecast, "some", all_of_them)
    conn.execute("DELETE FROM due_forecast; DELETE FROM due_forecastshard")
    service = new_service(registry)
    found = settled(service, conn, NOW)
    assert asked == [pytest.approx(300 / 7)]
    full = next(one for one in found.peaks if one["at"] == NOW.replace(hour=12, minute=30))
    assert full["of"] == 2 and full["looked_at"] == full["entries"] == 7 and [one[0] for one in full["tenants"]] == [
        acme.pk, globex.pk,
    ]  # fmt: skip
    assert sum(runs for _, runs in found.of_minutes(NOW)) == sum(one["runs"] for one in found.peaks) == 7
    look = crowd.CrowdLook(
        conn, watched=[150], expander=service._expander, entries=70, tenants=[acme.pk]  # type: ignore[arg-type]  # it has one
    )  # fmt: skip
    assert look.go_on(for_s=60) and look.by_tenant == {acme.pk: 5, globex.pk: 2}
    [peak] = look.peaks()
    assert (peak["runs"], peak["looked_at"], peak["entries"]) == (peak["tenants"][0][1], 5, 70)
    assert peak["runs"] in (4 * 14, 5 * 14)

    conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE id = %s", [globex.pk])
    registry.refresh(force=True)
    without = settled(service, conn, NOW + MINUTE)
    assert sum(runs for _, runs in without.of_minutes(NOW)) == 5 and without.oldest_at == NOW + MINUTE


def test_it_waits_for_its_lease_and_works_little(
    conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.dispatch.forecast import service as module

    clock, held = [1_000.0], [False]
    monkeypatch.setattr(module, "monotonic_s", lambda: clock[0])
    service = new_service(registry)
    service._line = OneLine(conn)  # type: ignore[assignment]  # a line is what it gives
    monkeypatch.setattr(service._keeper, "held", lambda kind: {0: 1} if held[0] else {})
    make_schedule(acme)
    assert service.run_once().counts == {}
    held[0] = True
    assert (service.run_once().counts, service.run_once().wait_s) == ({}, module.BEGIN_S)
    clock[0] += module.BEGIN_S
    while not service.run_once().counts.get("crowds"):
        clock[0] += 1
    before = clock[0]
    make_schedule(acme, cron="*/5 * * * *")
    while not (done := service.run_once()).counts.get("changes"):
        assert done.wait_s is not None and clock[0] <= before + module.EVERY_S
        clock[0] += max(0.1, done.wait_s)
    held[0] = False
    service.run_once()
    assert service._shards is None


@pytest.mark.long
def test_many_that_differ_need_little_memory(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    from apps.dispatch.forecast import looking
    from apps.schedules import forecasting
    from apps.schedules.forecasting import Expander
    from apps.schedules.timing import spec_from_api, spec_to_json

    text = spec_to_json(spec_from_api({"trigger": {"every_s": 7_777}}, now=NOW))

    class Rows:
        left = 6_000

        def fetch(self, size: int) -> list[tuple[Any, ...]]:
            numbers = range(self.left, max(0, self.left - size), -1)
            self.left -= len(numbers)
            return [
                (None, "schedule", text.replace("7777", str(7_777 + number)), NOW, NOW, None, 1) for number in numbers
            ]

        def close(self) -> None:
            pass

    monkeypatch.setattr(looking.forecast, "alike", lambda *_, **__: Rows())
    monkeypatch.setattr(forecasting, "PATTERNS_KEPT", 1_000)
    expander = Expander(NOW, NOW)
    tracemalloc.start()
    look = looking.ShardLook(conn, 0, now=NOW, expander=expander, tenants=[])
    assert look.go_on(for_s=600) and look.groups == 6_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20
