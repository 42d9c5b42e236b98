"""What is wrong with one entry or one tenant costs nobody else anything; a crash anywhere loses and doubles nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.fire import FireService
from apps.dispatch.keeper import Keeper
from apps.due import entries
from apps.due.entries import Entry
from kernel.clock import monotonic_s
from kernel.ids import occurrence_run_key
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    OneLine,
    assert_exactly_one_outcome,
    at_every_crash,
    end_backend,
    entry_of,
    executions_of,
    fire,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    run_to_the_end,
    ticket_of,
)

Conn = psycopg.Connection[Any]
SOON_S = 2.5  # a pass that takes longer costs the dispatcher its leases


@pytest.fixture
def service(leader: Keeper, conn: Conn) -> FireService:
    """Fires on the test's connection, holding all shards."""
    return FireService(OneLine(conn), leader)  # type: ignore[arg-type]  # a line is what it gives


POISON: dict[str, dict[str, Any]] = {
    "not JSON": {"spec": "not a spec"},
    "an unknown trigger": {"spec": '{"trigger":{"phase":"moon"}}'},
    "an unknown zone": {"zone": "Mars/Olympus"},
    "a tenant that is gone": {"tenant_id": 999_999},
    "a limit that can't be": {"max_concurrency": -1},
    "a run key that does not fit": {"kind": "execution", "spec": "k" * 200},
}


@pytest.mark.parametrize("what", list(POISON))
def test_a_poison_entry_is_put_aside_with_its_reason_and_all_others_fire_in_the_same_pass(
    service: FireService, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, what: str
) -> None:
    good = [due_once(tenant) for tenant in (acme, globex, acme)]
    bad = poison(conn, good[0], **POISON[what])
    done = service.run_once()
    assert done.counts["fired"] == 3
    runs = [one for tenant in (acme, globex) for one in executions_of(conn, tenant) if one["state"] == "ready"]
    assert {one["schedule_id"] for one in runs} == set(good)
    aside = entry_of(conn, bad)
    assert aside is not None and aside.parked, "it is put aside, not deleted"
    assert service.run_once().counts.get("entries", 0) == 0, "and does not come up again"


def test_nothing_is_fired_by_a_clock_that_can_not_be_right(
    service: FireService, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    """Case B29: the entry is held back with an alert, and the dispatcher neither spins nor writes."""
    good = due_once(globex)
    schedule = make_schedule(acme, misfire="fire_all")
    long_ago = NOW - timedelta(days=11 * 366)
    conn.execute("UPDATE due_dueentry SET nominal_at = %s, due_at = %s WHERE key = %s", [long_ago, long_ago, schedule])
    assert service.run_once().counts["fired"] == 1
    done = service.run_once()
    assert not done.full and done.counts["held"] == 1
    assert executions_of(conn, acme) == []
    assert [one["schedule_id"] for one in executions_of(conn, globex)] == [good]
    assert entry_of(conn, schedule).nominal_at == long_ago


def test_a_missing_schema_costs_only_its_tenant(
    service: FireService, conn: Conn, acme: Tenant, globex: Tenant, new_tenant: Any, as_owner: Any
) -> None:
    from tenants.provisioning import schema_drop

    broken = new_tenant()
    lost = due_once(broken)
    good = [due_once(tenant) for tenant in (acme, globex)]
    with as_owner():
        schema_drop(broken.schema_name)
    done = service.run_once()
    assert done.counts["fired"] == 2
    assert done.counts["tenant_failures"] == 1
    assert {one["schedule_id"] for tenant in (acme, globex) for one in executions_of(conn, tenant)} == set(good)
    assert entry_of(conn, lost).due_at == NOW + MINUTE, "it waits for its schema"
    made = service.run_once()
    assert made.counts.get("tenant_failures", 0) == 0, "it is left alone for a while"


@pytest.mark.parametrize("locked", ["acme", "globex"])
def test_a_locked_table_costs_only_its_tenant(
    service: FireService, conn: Conn, request: pytest.FixtureRequest, acme: Tenant, globex: Tenant, locked: str
) -> None:
    """Whichever comes first: all others fire in the same pass, and that is short enough to keep the leases."""
    victim, other = (acme, globex) if locked == "acme" else (globex, acme)
    due_once(victim)
    due_once(other)
    with table_lock(victim):
        began = monotonic_s()
        done = service.run_once()
        assert monotonic_s() - began < SOON_S
        assert len(executions_of(conn, other)) == 1
        assert done.counts["tenant_failures"] == 1
        due_once(other)
        began = monotonic_s()
        assert service.run_once().counts["fired"] == 1, "the others go on"
        assert monotonic_s() - began < SOON_S
    its_time_has_come(service, victim)
    service.run_once()
    assert len(executions_of(conn, victim)) == 1


def test_a_tenant_that_fails_is_tried_later_each_time(
    service: FireService, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    due_once(acme)
    waits = []
    with table_lock(acme):
        for _ in range(3):
            service.run_once()
            waits.append(service._apart._failing[acme.pk][1] - monotonic_s())
            its_time_has_come(service, acme)
    assert waits == sorted(waits) and 0 < waits[0] < 1 < waits[-1] < 3


def test_an_error_of_the_database_is_no_poison(service: FireService, conn: Conn, acme: Tenant) -> None:
    """Only what is wrong with an entry puts it aside: an outage in the middle of a pass does not."""
    schedule = make_schedule(acme)
    end_backend(conn.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        service.run_once()
    with door.connect("test look") as look:
        assert entry_of(look, schedule).parked == ""


def test_an_entry_put_aside_is_served_again_when_its_schedule_is_saved(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    from apps.schedules.services import schedule_update
    from tests.fixtures_flow import actor

    schedule = make_schedule(acme)
    conn.execute("UPDATE due_dueentry SET spec = 'broken' WHERE key = %s", [schedule])
    assert fire(conn, registry, now=NOW + MINUTE)["poison"] == 1
    patch = {"trigger": {"cron": "*/2 * * * *"}}
    schedule_update(tenant=acme, actor=actor(acme), schedule_id=schedule, patch=patch, now=NOW + MINUTE)
    assert entry_of(conn, schedule).parked == ""
    assert fire_all(conn, registry, now=NOW + 2 * MINUTE) == 1


def test_a_crash_between_any_two_statements_of_a_batch_loses_and_doubles_nothing(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    """The server process of the batch's connection ends before and after each of its round trips."""
    job = make_job(acme)
    schedules = [make_schedule(acme, job), make_schedule(acme, job, misfire="skip"), make_schedule(globex)]
    once = make_schedule(acme, job, trigger={"at": (NOW + MINUTE).isoformat()})
    delayed = make_ticket(globex, delay_s=60)
    at = NOW + MINUTE
    turn = 0

    def check(where: str) -> None:
        nonlocal turn, at
        fire_all(conn, registry, now=at)
        for tenant in (acme, globex):
            for one in executions_of(conn, tenant):
                assert one["state"] != "ready" or ticket_of(conn, one["id"]) is not None, where
        run_to_the_end(conn, registry, [acme, globex])
        for schedule in schedules:
            tenant = globex if schedule == schedules[2] else acme
            assert_exactly_one_outcome(conn, tenant, occurrence_run_key(schedule, at), state="succeeded")
            assert entry_of(conn, schedule).nominal_at == at + MINUTE, where
        assert_exactly_one_outcome(conn, acme, occurrence_run_key(once, NOW + MINUTE), state="succeeded")
        assert_exactly_one_outcome(conn, globex, delayed.hex, state="succeeded")
        turn += 1
        at += MINUTE

    crashes = at_every_crash(lambda fragile: fire(fragile, registry, now=at), check)
    assert crashes >= 8
    for schedule in schedules:
        tenant = globex if schedule == schedules[2] else acme
        assert [one["nominal_at"] for one in executions_of(conn, tenant, schedule)] == [
            NOW + number * MINUTE for number in range(1, turn + 1)
        ]


def due_once(tenant: Tenant) -> UUID:
    """A schedule with one occurrence, long due."""
    return make_schedule(tenant, trigger={"at": (NOW + MINUTE).isoformat()})


def its_time_has_come(service: FireService, tenant: Tenant) -> None:
    """As if the wait of a failing tenant were over."""
    failures, _ = service._apart._failing[tenant.pk]
    service._apart._failing[tenant.pk] = (failures, float("-inf"))


def poison(conn: Conn, like: UUID, **changes: Any) -> UUID:
    """A due entry as `like`, but wrong."""
    [entry] = entries.lock(conn, [like])
    key = uuid.uuid4()
    if zone := changes.pop("zone", None):
        changes["spec"] = entry.spec.replace('"zone":"UTC"', f'"zone":"{zone}"')
        assert zone in changes["spec"]
    bad: Entry = entry._replace(key=key, shard=entries.shard_for(key), **changes)
    entries.put(conn, bad, now=NOW)
    if bad.kind == "execution":  # of a run that exists, or it would only be forgotten
        conn.execute(
            "INSERT INTO t_acme.executions_execution (id, run_key, job_id, job_version, trigger, state, priority,"
            " actual_at, created_at, attempt_count, reason, count, fired_by)"
            " VALUES (%s, %s, %s, 1, 'api', 'scheduled', 5, %s, %s, 0, '', 1, '')",
            [key, key.hex, bad.job_id, NOW, NOW],
        )
    return key


@contextmanager
def table_lock(tenant: Tenant) -> Iterator[None]:
    """Somebody migrates the tenant's table by hand and goes for a coffee."""
    with door.connect("test lock", owner=True, guarded=False) as owner, owner.transaction():
        owner.execute(f"LOCK TABLE {tenant.schema_name}.executions_execution IN ACCESS EXCLUSIVE MODE")
        yield
