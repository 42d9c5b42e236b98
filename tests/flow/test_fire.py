"""Fire: a due entry becomes one execution with one ticket and moves on, whatever is there already."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from apps.due import entries
from apps.outcomes.cancel import execution_cancel
from apps.schedules.models import Schedule
from apps.schedules.timing import next_after, spec_from_json
from apps.tickets import store
from kernel.ids import occurrence_run_key
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    SHARDS,
    actor,
    count,
    entry_of,
    execution_of,
    executions_of,
    fire,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    ticket_of,
)

Conn = psycopg.Connection[Any]


def test_a_due_entry_becomes_one_execution_and_one_ticket(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, priority=7, timeout_s=42)
    schedule = make_schedule(acme, job)
    at = NOW + MINUTE
    assert entry_of(conn, schedule).nominal_at == at
    counts = fire(conn, registry, now=at)
    assert {name for name, number in counts.items() if number} == {"entries", "fired"}
    assert counts["entries"] == counts["fired"] == 1
    [execution] = executions_of(conn, acme)
    assert execution["run_key"] == occurrence_run_key(schedule, at)
    assert (execution["state"], execution["trigger"], execution["fired_by"]) == ("ready", "schedule", "test/1")
    assert execution["nominal_at"] == execution["actual_at"] == at
    ticket = ticket_of(conn, execution["id"])
    assert (ticket["state"], ticket["tenant_id"], ticket["schedule_id"]) == ("ready", acme.pk, schedule)
    assert (ticket["priority"], ticket["timeout_s"], ticket["run_key"]) == (7, 42, execution["run_key"])
    assert ticket["rank"] == store.new_rank(at, 7)
    assert entry_of(conn, schedule).nominal_at == at + MINUTE


def test_firing_does_not_touch_the_schedules_row(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme)
    query = f"SELECT xmin::text FROM {acme.schema_name}.schedules_schedule WHERE id = %s"
    before = conn.execute(query, [schedule]).fetchone()
    assert fire_all(conn, registry, now=NOW + MINUTE) == 1
    assert conn.execute(query, [schedule]).fetchone() == before


def test_firing_twice_at_one_instant_fires_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    make_schedule(acme)
    assert fire(conn, registry, now=NOW + MINUTE)["fired"] == 1
    assert fire(conn, registry, now=NOW + MINUTE) == {"entries": 0}
    assert len(executions_of(conn, acme)) == 1


def test_the_entry_moves_as_the_pure_rules_say(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, cron="*/7 8-17 * * 1-5", timezone="Europe/Berlin", jitter_s=90)
    (text,) = conn.execute("SELECT spec FROM due_dueentry WHERE key = %s", [schedule]).fetchone() or ("",)
    spec = spec_from_json(text)
    for _ in range(30):
        entry = entry_of(conn, schedule)
        expected = next_after(spec, entry.nominal_at)
        assert fire(conn, registry, now=entry.due_at)["fired"] == 1
        moved = entry_of(conn, schedule)
        assert moved.nominal_at == expected
        assert moved.nominal_at <= moved.due_at < moved.nominal_at + timedelta(seconds=90)
    fired = executions_of(conn, acme)
    assert len({one["nominal_at"] for one in fired}) == 30
    assert all(one["nominal_at"] <= one["actual_at"] for one in fired)


def test_an_execution_that_exists_gets_no_second_ticket_and_the_entry_moves_on(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    schedule = make_schedule(acme)
    entry = entry_of(conn, schedule)
    fire(conn, registry, now=NOW + MINUTE)
    conn.execute(
        "UPDATE due_dueentry SET due_at = %s, nominal_at = %s WHERE key = %s",
        [entry.due_at, entry.nominal_at, schedule],
    )
    counts = fire(conn, registry, now=NOW + MINUTE)
    assert (counts["entries"], counts["fired"], counts["already_there"]) == (1, 0, 1)
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 1
    assert entry_of(conn, schedule).nominal_at == NOW + 2 * MINUTE


def test_a_finished_execution_is_not_run_again_when_its_entry_goes_back(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    schedule = make_schedule(acme)
    entry = entry_of(conn, schedule)
    fire(conn, registry, now=NOW + MINUTE)
    [execution] = executions_of(conn, acme)
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=execution["id"], now=NOW + MINUTE)
    conn.execute("UPDATE due_dueentry SET due_at = %s, nominal_at = %s", [entry.due_at, entry.nominal_at])
    assert fire_all(conn, registry, now=NOW + MINUTE) == 0
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0
    assert execution_of(conn, acme, execution["id"])["state"] == "cancelled"


def test_a_one_shot_fires_once_and_leaves_no_entry(conn: Conn, registry: Registry, acme: Tenant) -> None:
    at = NOW + 5 * MINUTE
    schedule = make_schedule(acme, trigger={"at": at.isoformat()})
    assert fire_all(conn, registry, now=at - timedelta(seconds=1)) == 0
    assert fire_all(conn, registry, now=at) == 1
    assert entry_of(conn, schedule) is None
    assert fire_all(conn, registry, now=at + 60 * MINUTE) == 0


def test_a_window_that_ends_leaves_no_entry(conn: Conn, registry: Registry, acme: Tenant) -> None:
    end_at = NOW + 3 * MINUTE
    schedule = make_schedule(acme, end_at=end_at.isoformat())
    for minute in range(6):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    assert [one["nominal_at"] for one in executions_of(conn, acme)] == [NOW + n * MINUTE for n in (1, 2, 3)]
    assert entry_of(conn, schedule) is None


def test_two_one_shots_for_the_same_instant_both_run(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case B40."""
    at = NOW + MINUTE
    both = {make_schedule(acme, trigger={"at": at.isoformat()}) for _ in range(2)}
    assert fire_all(conn, registry, now=at) == 2
    assert {one["schedule_id"] for one in executions_of(conn, acme)} == both


def test_a_delayed_execution_begins_at_its_time(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution_id = make_ticket(acme, delay_s=90, payload={"n": 1}, priority=8)
    at = NOW + timedelta(seconds=90)
    assert execution_of(conn, acme, execution_id)["state"] == "scheduled"
    assert ticket_of(conn, execution_id) is None
    assert fire_all(conn, registry, now=at - timedelta(seconds=1)) == 0
    assert fire_all(conn, registry, now=at + timedelta(seconds=3)) == 1
    execution, ticket = execution_of(conn, acme, execution_id), ticket_of(conn, execution_id)
    assert execution["state"] == "ready"
    assert ticket["run_key"] == execution["run_key"]
    assert (ticket["state"], ticket["priority"], ticket["payload_from"]) == ("ready", 8, "execution")
    assert execution["actual_at"] == ticket["actual_at"] == at, "lateness is counted from the time that was asked for"
    assert entry_of(conn, execution_id) is None


def test_a_cancelled_delayed_execution_holds_nothing_and_never_begins(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Case C11."""
    execution_id = make_ticket(acme, delay_s=7200)
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=execution_id, now=NOW)
    assert entry_of(conn, execution_id) is None
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0
    assert fire_all(conn, registry, now=NOW + timedelta(hours=3)) == 0
    assert execution_of(conn, acme, execution_id)["state"] == "cancelled"


def test_a_delayed_execution_that_ended_otherwise_gets_no_ticket(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution_id = make_ticket(acme, delay_s=60)
    conn.execute(
        f"UPDATE {acme.schema_name}.executions_execution SET state = 'cancelled', finished_at = %s WHERE id = %s",
        [NOW, execution_id],
    )
    assert fire_all(conn, registry, now=NOW + MINUTE) == 0
    assert (entry_of(conn, execution_id), ticket_of(conn, execution_id)) == (None, None)


def test_schedules_of_the_same_name_in_two_tenants_both_fire_in_their_own_schema(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    """Cases D03 and D22."""
    for tenant in (acme, globex):
        for number in range(2):
            make_schedule(tenant, name=f"nightly {number}")
    assert fire_all(conn, registry, now=NOW + MINUTE) == 4
    for tenant in (acme, globex):
        assert len(executions_of(conn, tenant)) == 2
    assert count(conn, "SELECT count(DISTINCT tenant_id) FROM tickets_ticket") == 2


def test_only_the_shards_that_are_held_are_fired(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    made = [make_schedule(acme, job) for _ in range(12)]
    mine = [shard for shard in SHARDS if shard % 2]
    expected = {schedule for schedule in made if entries.shard_for(schedule) in mine}
    assert fire(conn, registry, now=NOW + MINUTE, shards=mine)["fired"] == len(expected)
    assert {one["schedule_id"] for one in executions_of(conn, acme)} == expected
    assert fire(conn, registry, now=NOW + MINUTE)["fired"] == len(made) - len(expected)


def test_what_is_on_time_comes_before_debt_and_debt_gets_half_of_a_batch(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    debt = {make_schedule(acme, job, trigger={"at": (NOW + MINUTE).isoformat()}) for _ in range(20)}
    later = NOW + timedelta(hours=1)
    fresh = {make_schedule(acme, job, trigger={"at": (later - timedelta(seconds=5)).isoformat()}) for _ in range(4)}
    with conn.transaction():
        found = entries.lock_due(conn, [entries.shard_for(uuid.uuid4())], now=later, limit=8)
    shards = sorted({entries.shard_for(key) for key in debt | fresh})
    with conn.transaction():
        # Each shard gives its part of the batch: enough for all that is on time, should its keys be of one shard.
        found = entries.lock_due(conn, shards, now=later, limit=len(fresh) * len(shards))
    kinds = [one.key in fresh for one in found]
    assert kinds == sorted(kinds, reverse=True), "what is on time comes first"
    assert fresh <= {one.key for one in found}
    assert fire_all(conn, registry, now=later, limit=8) == 24


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_debt_is_served_however_small_the_batch(conn: Conn, registry: Registry, acme: Tenant, limit: int) -> None:
    job = make_job(acme)
    for _ in range(3):
        make_schedule(acme, job, cron="5 10 * * *")
    assert fire_all(conn, registry, now=NOW + timedelta(hours=5), limit=limit) == 3


def test_a_schedule_that_is_saved_is_in_the_index_at_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """The write and its due entry are one transaction: an acknowledged schedule can't be without one."""
    job = make_job(acme)
    with pytest.raises(RuntimeError, match="rolled back"), door.inside(acme):
        from django.db import transaction

        with transaction.atomic():
            make_schedule(acme, job)
            raise RuntimeError("rolled back")
    assert count(conn, "SELECT count(*) FROM due_dueentry") == 0
    with door.inside(acme):
        assert not Schedule.objects.exists()
    schedule = make_schedule(acme, job)
    assert entry_of(conn, schedule) is not None


def test_a_payload_edit_is_used_by_the_next_run_and_not_by_the_queued_one(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Case B33."""
    from apps.schedules.definitions import Definitions
    from apps.schedules.services import schedule_update

    schedule = make_schedule(acme, payload={"v": 1})
    fire_all(conn, registry, now=NOW + MINUTE)
    schedule_update(
        tenant=acme, actor=actor(acme), schedule_id=schedule, patch={"payload": {"v": 2}}, now=NOW + 1.5 * MINUTE
    )
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    runs = executions_of(conn, acme)
    payloads = [
        Definitions().schedule_payload(conn, acme.schema_name, schedule, one["schedule_version"]) for one in runs
    ]
    assert payloads == [{"v": 1}, {"v": 2}]
    assert all(ticket_of(conn, one["id"])["payload_from"] == "schedule" for one in runs)


def test_a_job_edit_reaches_the_entries_of_its_schedules(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from apps.schedules.services import job_update

    job = make_job(acme)
    make_schedule(acme, job)
    fire_all(conn, registry, now=NOW + MINUTE)
    patch = {"priority": 9, "timeout_s": 5, "max_concurrency": 2}
    job_update(tenant=acme, actor=actor(acme), job_id=job, patch=patch, now=NOW + MINUTE)
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    old, new = (ticket_of(conn, one["id"]) for one in executions_of(conn, acme))
    assert (old["job_version"], old["priority"], old["timeout_s"]) == (1, 5, 60)
    assert (new["job_version"], new["priority"], new["timeout_s"]) == (2, 9, 5)
    assert new["flow"] == old["flow"] == job
    assert new["job_limit"] == old["job_limit"] == 2, "a new limit holds for what waits already"
