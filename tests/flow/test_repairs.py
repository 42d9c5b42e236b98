"""Repairs: what has come apart is found and put right, what is right is left alone, who is at work goes first."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.findings import CHUNK
from apps.dispatch.repairs import Finding, Rotation, run_all
from apps.outcomes.cancel import execution_cancel
from apps.schedules.services import job_pause, schedule_pause, schedule_update
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_once,
    count,
    entry_of,
    executions_of,
    fire_all,
    is_blocked,
    make_job,
    make_schedule,
    make_ticket,
    run_to_the_end,
    settle_as,
    started_now,
    ticket_of,
)
from tests.flow.test_fire_faults import table_lock
from tests.operations.fixtures import ask

Conn = psycopg.Connection[Any]


def repair(conn: Conn, registry: Registry, *, dry_run: bool = False, only: Tenant | None = None) -> list[Finding]:
    chosen = [one for one in registry.by_id.values() if only is None or one.id == only.pk]
    return list(run_all(conn, registry, chosen, dry_run=dry_run))


def checks(findings: list[Finding]) -> list[tuple[str, UUID]]:
    return sorted((one.check, one.object_id) for one in findings)


def everything(conn: Conn) -> list[Any]:
    """All rows that repairs may change."""
    tables = ["due_dueentry", "tickets_ticket"]
    tables += [
        f"{schema}.{table}"
        for schema in ("t_acme", "t_globex")
        for table in ("schedules_schedule", "executions_execution", "workflows_dependency")
    ]
    return [conn.execute(f"SELECT t.* FROM {table} t ORDER BY 1").fetchall() for table in tables]


# What comes apart: how it is broken, and what the check is called.
def lose_the_entry(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    schedule = make_schedule(tenant)
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
    return "schedule_without_due_entry", schedule


def lose_the_schedule(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    schedule = make_schedule(tenant)
    schema = tenant.schema_name
    conn.execute(f"DELETE FROM {schema}.schedules_scheduleversion WHERE schedule_id = %s", [schedule])
    conn.execute(f"DELETE FROM {schema}.schedules_schedule WHERE id = %s", [schedule])
    return "due_entry_without_schedule", schedule


def keep_the_entry_of_a_paused_one(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    schedule = make_schedule(tenant)
    conn.execute(f"UPDATE {tenant.schema_name}.schedules_schedule SET status = 'paused' WHERE id = %s", [schedule])
    return "due_entry_without_schedule", schedule


def keep_the_entry_of_a_deleted_one(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    schedule = make_schedule(tenant)
    conn.execute(f"UPDATE {tenant.schema_name}.schedules_schedule SET deleted_at = now() WHERE id = %s", [schedule])
    return "due_entry_without_schedule", schedule


def lose_the_ticket(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    execution = make_ticket(tenant)
    conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [execution])
    return "execution_without_ticket", execution


def lose_the_delayed_entry(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    execution = make_ticket(tenant, delay_s=60)
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [execution])
    return "execution_without_ticket", execution


def forget_a_dependent(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    parent = make_ticket(tenant)
    child = make_ticket(tenant, depends_on=[str(parent)])
    conn.execute("UPDATE tickets_ticket SET followed = false")
    with door.connect("test settle") as other:
        line = door.Line("test registry")
        run_to_the_end(other, Registry(line), [tenant])
        line.close()
    ticket = ticket_of(conn, child)
    assert ticket["state"] == "blocked"
    return "blocked_not_decided", child


def lose_the_ticket_of_what_is_blocked(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    child = make_ticket(tenant, depends_on=[str(make_ticket(tenant))])
    conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [child])
    return "execution_without_ticket", child


def lose_the_execution(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    execution = make_ticket(tenant)
    conn.execute(f"DELETE FROM {tenant.schema_name}.executions_execution WHERE id = %s", [execution])
    return "ticket_without_execution", execution


def keep_the_ticket_of_what_has_ended(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    execution = make_ticket(tenant)
    conn.execute(
        f"UPDATE {tenant.schema_name}.executions_execution SET state = 'cancelled', finished_at = now() WHERE id = %s",
        [execution],
    )
    return "ticket_without_execution", execution


def lose_the_turn_of_an_operation(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    operation = ask(tenant, "cancel", "executions", {"all": True})
    conn.execute("DELETE FROM due_dueoperation; DELETE FROM due_operationoutline")
    return "operation_without_turn", operation.pk


def leave_instants_out(conn: Conn, tenant: Tenant) -> tuple[str, UUID]:
    schedule = make_schedule(tenant)
    with door.connect("test fire") as other:
        line = door.Line("test registry")
        registry = Registry(line)
        registry.refresh()
        assert fire_all(other, registry, now=NOW + MINUTE) >= 1
        line.close()
    conn.execute(
        "UPDATE due_dueentry SET due_at = due_at + interval '5 min', nominal_at = nominal_at + interval '5 min'"
        " WHERE key = %s",
        [schedule],
    )
    return "gap", schedule


BREAKS: list[Callable[[Conn, Tenant], tuple[str, UUID]]] = [
    lose_the_entry, lose_the_schedule, keep_the_entry_of_a_paused_one, keep_the_entry_of_a_deleted_one,
    lose_the_ticket, lose_the_delayed_entry, forget_a_dependent, lose_the_ticket_of_what_is_blocked,
    lose_the_execution, keep_the_ticket_of_what_has_ended, leave_instants_out, lose_the_turn_of_an_operation,
]  # fmt: skip
each_break = pytest.mark.parametrize("apart", BREAKS, ids=lambda one: one.__name__)


@each_break
def test_what_came_apart_is_found_once_and_repaired(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, apart: Any
) -> None:
    make_schedule(globex)
    make_ticket(globex)
    expected = apart(conn, acme)
    findings = repair(conn, registry)
    assert checks(findings) == [expected]
    assert findings[0].tenant == "acme" and findings[0].detail
    assert repair(conn, registry) == [], "repaired"
    unknown = "SELECT id FROM t_acme.operations_operation EXCEPT SELECT operation_id FROM due_operationoutline"
    assert conn.execute(unknown).fetchall() == []


@each_break
def test_a_dry_run_finds_the_same_and_changes_nothing(conn: Conn, registry: Registry, acme: Tenant, apart: Any) -> None:
    expected = apart(conn, acme)
    before = everything(conn)
    assert checks(repair(conn, registry, dry_run=True)) == [expected]
    assert everything(conn) == before
    assert checks(repair(conn, registry)) == [expected]


def test_nothing_is_found_when_all_is_well(conn: Conn, registry: Registry, acme: Tenant, globex: Tenant) -> None:
    """Whatever state a schedule or a run may be in."""
    for tenant in (acme, globex):
        job, paused_job = make_job(tenant), make_job(tenant)
        for more in ({}, {"overlap": "skip"}, {"jitter_s": 40}, {"misfire": "fire_all"}, {"trigger": {"every_s": 7}}):
            make_schedule(tenant, job, **more)
        schedule_pause(tenant=tenant, actor=actor(tenant), schedule_id=make_schedule(tenant, job), now=NOW)
        make_schedule(tenant, paused_job)
        make_ticket(tenant, paused_job)
        job_pause(tenant=tenant, actor=actor(tenant), job_id=paused_job, now=NOW)
        make_ticket(tenant, job, delay_s=3600)
        ended = make_ticket(tenant, job)
        execution_cancel(tenant=tenant, actor=actor(tenant), execution_id=ended, now=NOW)
        started_now(conn, [make_ticket(tenant, job)], UUID(int=1))
    before = everything(conn)
    assert repair(conn, registry) == []
    for minute in (1, 2, 9, 200):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
        before = everything(conn)
        assert repair(conn, registry) == []
        assert everything(conn) == before
    assert count(conn, "SELECT count(*) FROM due_dueentry WHERE parked <> ''") == 0


def test_a_lost_entry_is_made_again_from_the_last_disposition(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Not from now: what was owed in between is accounted for by the misfire policy."""
    schedule = make_schedule(acme, misfire="fire_all")
    fire_all(conn, registry, now=NOW + MINUTE)
    conn.execute("DELETE FROM due_dueentry")
    repair(conn, registry)
    assert entry_of(conn, schedule).nominal_at == NOW + 2 * MINUTE
    fire_all(conn, registry, now=NOW + 6 * MINUTE)
    assert [one["nominal_at"] for one in executions_of(conn, acme)] == [NOW + n * MINUTE for n in range(1, 7)]


def test_a_lost_entry_goes_on_after_a_long_row_of_skips(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, misfire="skip", grace_s=0)
    fire_all(conn, registry, now=NOW + 30.5 * MINUTE)
    expected = entry_of(conn, schedule)
    conn.execute("DELETE FROM due_dueentry")
    repair(conn, registry)
    assert entry_of(conn, schedule) == expected


def test_a_lost_entry_of_an_edited_schedule_starts_with_the_edit(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme)
    fire_all(conn, registry, now=NOW + MINUTE)
    patch = {"trigger": {"cron": "30 * * * *"}}
    schedule_update(tenant=acme, actor=actor(acme), schedule_id=schedule, patch=patch, now=NOW + 40 * MINUTE)
    expected = entry_of(conn, schedule)
    conn.execute("DELETE FROM due_dueentry")
    repair(conn, registry)
    assert entry_of(conn, schedule) == expected


def test_a_gap_is_filled_and_nothing_runs_twice(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, misfire="fire_all")
    fire_all(conn, registry, now=NOW + MINUTE)
    leap = timedelta(minutes=4)
    conn.execute(
        "UPDATE due_dueentry SET due_at = due_at + %(leap)s, nominal_at = nominal_at + %(leap)s", {"leap": leap}
    )
    [finding] = repair(conn, registry)
    assert finding.check == "gap"
    fire_all(conn, registry, now=NOW + 6 * MINUTE)
    assert [one["nominal_at"] for one in executions_of(conn, acme)] == [NOW + n * MINUTE for n in range(1, 7)]
    assert entry_of(conn, schedule).nominal_at == NOW + 7 * MINUTE


def test_a_one_shot_that_ran_is_completed(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, trigger={"at": (NOW + MINUTE).isoformat()})
    query = f"SELECT status, revision FROM {acme.schema_name}.schedules_schedule WHERE id = %s"
    fire_all(conn, registry, now=NOW + MINUTE)
    assert repair(conn, registry, dry_run=True) == [] and conn.execute(query, [schedule]).fetchone() == ("active", 1)
    assert repair(conn, registry) == [], "nothing was wrong"
    assert conn.execute(query, [schedule]).fetchone() == ("completed", 2), "a change that its readers must see"
    assert repair(conn, registry) == []


def test_completing_a_schedule_does_not_undo_an_edit(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Its last instant is over, and just now somebody gives it a new one."""
    schedule = make_schedule(acme, trigger={"at": (NOW + MINUTE).isoformat()})
    fire_all(conn, registry, now=NOW + MINUTE)
    again = NOW + 60 * MINUTE
    edited, go_on = threading.Event(), threading.Event()

    def edit() -> None:
        from django.db import transaction

        with transaction.atomic():
            patch = {"trigger": {"at": again.isoformat()}}
            schedule_update(tenant=acme, actor=actor(acme), schedule_id=schedule, patch=patch, now=NOW + 2 * MINUTE)
            edited.set()
            assert go_on.wait(30)

    def watch(pid: int) -> None:
        wait_until(lambda: is_blocked(conn, pid), "reconcile to wait")
        go_on.set()

    def reconcile() -> list[Finding]:
        assert edited.wait(30)
        with door.connect("test reconcile") as own:
            watcher = threading.Thread(target=watch, args=(own.info.backend_pid,))
            watcher.start()
            try:
                return repair(own, registry)
            finally:
                watcher.join()

    _, findings = at_once(edit, reconcile)
    assert findings == []
    query = f"SELECT status FROM {acme.schema_name}.schedules_schedule WHERE id = %s"
    assert conn.execute(query, [schedule]).fetchone() == ("active",)
    assert entry_of(conn, schedule).nominal_at == again
    assert repair(conn, registry) == []
    assert fire_all(conn, registry, now=again) == 1


def test_repairs_at_the_moment_of_firing_find_nothing(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    """What is in the middle of its transaction has not come apart."""
    job = make_job(acme)
    for _ in range(6):
        make_schedule(acme, job)
    for _ in range(3):
        make_ticket(acme, job, delay_s=60 * 20)
    for minute in range(1, 25):
        fired, found = at_once(
            partial(fire_all, conn, registry, now=NOW + minute * MINUTE), partial(repair, second, registry)
        )
        fire_all(conn, registry, now=NOW + minute * MINUTE)
        assert found == [], f"minute {minute}, fired {fired}"
    assert len(executions_of(conn, acme)) == 6 * 24 + 3


def test_repairs_at_the_moment_of_settling_find_nothing(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    for _ in range(10):
        made = [make_ticket(acme, job) for _ in range(4)]
        _, found = at_once(partial(run_to_the_end, conn, registry, [acme]), partial(repair, second, registry))
        assert found == []
        for one in made:
            assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")


def test_two_reconcilers_at_once_repair_once(conn: Conn, second: Conn, registry: Registry, acme: Tenant) -> None:
    for _ in range(4):
        schedule, execution = make_schedule(acme), make_ticket(acme)
        conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
        conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [execution])
        at_once(partial(repair, conn, registry), partial(repair, second, registry))
        assert entry_of(conn, schedule).nominal_at == NOW + MINUTE
        assert ticket_of(conn, execution)["state"] == "ready"
        assert repair(conn, registry) == []
    run_to_the_end(conn, registry, [acme])
    for one in executions_of(conn, acme):
        assert_exactly_one_outcome(conn, acme, one["run_key"], state="succeeded")


def test_a_ticket_that_was_made_again_runs_as_before(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, priority=3, timeout_s=77, max_concurrency=2)
    schedule = make_schedule(acme, job, payload={"n": 1})
    fire_all(conn, registry, now=NOW + MINUTE)
    [run] = executions_of(conn, acme, schedule)
    before = ticket_of(conn, run["id"])
    conn.execute("DELETE FROM tickets_ticket")
    repair(conn, registry)
    after = ticket_of(conn, run["id"])
    differ = {name for name in before if before[name] != after[name]}
    assert differ <= {"rank", "available_at", "guarded"}
    run_to_the_end(conn, registry, [acme])
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


def test_a_ticket_that_was_made_again_goes_on_with_its_attempts(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Lost in the middle: numbers of attempts that have ended are not used twice, and the policy goes on."""
    execution = make_ticket(acme)
    for outcome in ("failed", "returned"):
        settle_as(conn, registry, started_now(conn, [execution], UUID(int=1)), outcome)
    [old] = started_now(conn, [execution], UUID(int=1))
    conn.execute("DELETE FROM tickets_ticket")
    repair(conn, registry)
    [new] = started_now(conn, [execution], UUID(int=2))
    assert (new.attempt, new.failures) == (3, 1) and new.fence != old.fence
    assert dict(settle_as(conn, registry, [old]).counts) == {"stale": 1}
    settle_as(conn, registry, [new])
    assert_exactly_one_outcome(conn, acme, execution.hex, state="succeeded")


def test_a_ticket_of_a_paused_job_that_was_made_again_waits(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    execution = make_ticket(acme, job)
    job_pause(tenant=acme, actor=actor(acme), job_id=job, now=NOW)
    conn.execute("DELETE FROM tickets_ticket")
    repair(conn, registry)
    assert ticket_of(conn, execution)["job_limit"] == 0


@pytest.mark.parametrize("how", ["locked", "dropped"])
def test_a_tenant_that_does_not_answer_is_passed_over(
    conn: Conn, registry: Registry, acme: Tenant, new_tenant: Any, as_owner: Any, how: str
) -> None:
    from tenants.provisioning import schema_drop

    broken = new_tenant()
    registry.refresh(force=True)
    make_schedule(broken)
    make_ticket(broken)
    schedule = make_schedule(acme)
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
    conn.execute("SET lock_timeout = '100 ms'")
    if how == "dropped":
        with as_owner():
            schema_drop(broken.schema_name)
        findings = repair(conn, registry)
    else:
        with table_lock(broken):
            findings = repair(conn, registry)
    assert checks(findings) == [("schedule_without_due_entry", schedule)]
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE tenant_id = %s", broken.pk) == 1, "kept for it"


def test_an_undecodable_schedule_stops_no_other(conn: Conn, registry: Registry, acme: Tenant) -> None:
    bad, good = make_schedule(acme), make_schedule(acme)
    conn.execute(f"UPDATE {acme.schema_name}.schedules_scheduleversion SET spec = 'x' WHERE schedule_id = %s", [bad])
    conn.execute("DELETE FROM due_dueentry")
    assert checks(repair(conn, registry)) == [("schedule_without_due_entry", good)]


def test_the_rotation_visits_everything_in_bounded_steps(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    expected = sorted(apart(conn, acme)[0] for apart in BREAKS)
    rotation, found = Rotation(), []
    for _ in range(40):
        for check, number in rotation.step(conn, registry).items():
            found += [check] * number
    assert sorted(found) == expected


def test_only_one_tenant_is_repaired_when_only_one_is_asked_for(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    for tenant in (acme, globex):
        for apart in (lose_the_entry, lose_the_schedule, lose_the_ticket, lose_the_execution):
            apart(conn, tenant)
    findings = repair(conn, registry, only=acme)
    assert {one.tenant for one in findings} == {"acme"} and len(findings) == 4
    assert len(repair(conn, registry, only=globex)) == 4, "the other tenant's are still there"


def test_chunks_are_walked_to_their_end(
    conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.dispatch import repairs, repairs_executions, repairs_schedules

    assert CHUNK <= 1_000
    for module in (repairs_executions, repairs_schedules):
        monkeypatch.setattr(module, "CHUNK", 3)
    monkeypatch.setattr(repairs, "LOOSE_CHUNK", 3)
    job = make_job(acme)
    for _ in range(8):
        make_schedule(acme, job)
        make_ticket(acme, job)
    conn.execute("DELETE FROM due_dueentry")
    conn.execute("DELETE FROM tickets_ticket")
    assert len(repair(conn, registry)) == 16


def test_a_parked_entry_is_left_to_people(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme)
    conn.execute("UPDATE due_dueentry SET parked = 'why'")
    assert repair(conn, registry) == []
    assert entry_of(conn, schedule).parked == "why"


def test_a_ticket_of_an_unknown_tenant_is_left_to_start(conn: Conn, registry: Registry, acme: Tenant) -> None:
    make_ticket(acme)
    conn.execute("UPDATE tickets_ticket SET tenant_id = 999999, execution_id = %s", [uuid.uuid4()])
    findings = repair(conn, registry, only=acme)
    assert [one.check for one in findings] == ["execution_without_ticket"]


def test_the_command_reports_what_was_put_aside_and_leaves_it(
    conn: Conn, acme: Any, registry: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from django.core.management import call_command

    schedule = make_schedule(acme, make_job(acme))
    conn.execute("UPDATE due_dueentry SET parked = 'ValueError: unreadable' WHERE key = %s", [schedule])
    for extra in ([], ["--tenant", "acme"]):
        with pytest.raises(SystemExit) as ended:
            call_command("reconcile", "--dry-run", *extra)
        assert ended.value.code == 1
        assert f"acme parked {schedule}: put aside: ValueError: unreadable" in capsys.readouterr().out
    call_command("reconcile", "--dry-run", "--tenant", "globex")
