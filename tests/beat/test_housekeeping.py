"""What the platform forgets, what it keeps, and that nobody waits for it."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from kernel.ids import attempt_id
from tests.fixtures_flow import SERVED_LEASES

Conn = psycopg.Connection[Any]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=40)
BEFORE = NOW - timedelta(days=30)
NOTHING = {"dead_letters": 0, "executions": 0, "attempts": 0, "events": 0, "webhooks": 0, "operations": 0}


def test_old_history_goes_and_young_history_stays(conn: Conn, acme: Any, globex: Any) -> None:
    old, young = execution(conn, acme, at=OLD, attempts=3), execution(conn, acme, at=NOW, attempts=2)
    others = execution(conn, globex, at=OLD)
    assert forget(conn, acme) == {**NOTHING, "executions": 1, "attempts": 3}
    assert executions(conn, acme) == {young}
    assert attempts(conn, acme) == {young}
    assert executions(conn, globex) == {others}
    assert old not in executions(conn, acme)


def test_what_is_not_finished_stays_whatever_its_age(conn: Conn, acme: Any) -> None:
    alive = execution(conn, acme, at=OLD, finished=None)
    assert forget(conn, acme)["executions"] == 0
    assert executions(conn, acme) == {alive}


def test_an_open_dead_letter_keeps_its_execution_and_a_resolved_one_goes(conn: Conn, acme: Any) -> None:
    open_one, resolved, lately = (execution(conn, acme, at=OLD, state="dead") for _ in range(3))
    letter(conn, acme, open_one, resolved_at=None)
    letter(conn, acme, resolved, resolved_at=OLD + timedelta(days=1))
    letter(conn, acme, lately, resolved_at=NOW)
    assert forget(conn, acme) == {**NOTHING, "dead_letters": 1, "executions": 2, "attempts": 2}
    assert executions(conn, acme) == {open_one}


def test_the_newest_disposition_of_a_schedule_stays(conn: Conn, acme: Any) -> None:
    """A due entry that was lost is made again from it."""
    schedule = uuid.uuid4()
    made = [execution(conn, acme, at=OLD + timedelta(days=day), schedule=schedule) for day in range(4)]
    by_hand = execution(conn, acme, at=OLD, schedule=schedule, trigger="manual")
    assert forget(conn, acme)["executions"] == 4
    assert executions(conn, acme) == {made[-1]}
    assert by_hand not in executions(conn, acme)


def test_the_steps_of_a_run_go_with_the_run_of_their_root(conn: Conn, acme: Any) -> None:
    """Of an old run all goes; of one that goes on, ended lately or has an open letter nothing, nor of runs below it."""
    ends = {"old": OLD, "alive": None, "lately": NOW, "dead": OLD}
    kept: set[UUID] = set()
    for name, ended in ends.items():
        root, below, step = (execution(conn, acme, at=OLD) for _ in range(3))
        for run, depth, finished in ((root, 0, ended), (below, 1, OLD)):
            conn.execute(
                f"INSERT INTO {acme.schema_name}.workflows_run (execution_id, root_id, parent_step_id, depth,"
                " workflow_id, version, state, reason, open, failed, started_at, finished_at, paused_by, paused_reason,"
                " generation, revision) VALUES (%s, %s, %s, %s, %s, 1, %s, '', 0, 0, %s, %s, '', '', 1, 1)",
                [run, root, 1 if depth else None, depth, root, "succeeded" if finished else "running", OLD, finished],
            )
        for one, of in ((root, root), (below, below), (step, below)):
            conn.execute(
                f"UPDATE {acme.schema_name}.executions_execution SET workflow_run_id = %s WHERE id = %s", [of, one]
            )
        conn.execute(
            f'INSERT INTO {acme.schema_name}.workflows_dependency (parent_id, child_id, "on") VALUES (%s, %s, %s)',
            [root, step, "succeeded"],
        )
        if name == "dead":
            letter(conn, acme, root, resolved_at=None)
        kept |= set() if name == "old" else {root, below, step}
    assert forget(conn, acme)["executions"] == 3
    assert executions(conn, acme) == kept
    for table, count in (("workflows_run", 6), ("workflows_dependency", 3)):
        assert conn.execute(f"SELECT count(*) FROM {acme.schema_name}.{table}").fetchone() == (count,)


def test_it_works_in_batches_and_stops_when_its_time_is_over(
    conn: Conn, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers import retention

    monkeypatch.setattr(retention, "BATCH", 4)
    for number in range(10):
        execution(conn, acme, at=OLD + timedelta(seconds=number))
    turns = iter([True, True, True, False])  # one look for dead letters, two batches of executions
    assert forget(conn, acme, more=lambda: next(turns, False))["executions"] == 8
    assert forget(conn, acme)["executions"] == 2


def test_it_waits_for_nobody(conn: Conn, second: Conn, acme: Any) -> None:
    held, free = execution(conn, acme, at=OLD), execution(conn, acme, at=OLD)
    with second.transaction():
        second.execute("SELECT 1 FROM t_acme.executions_execution WHERE id = %s FOR UPDATE", [held])
        assert forget(conn, acme)["executions"] == 1
    assert free not in executions(conn, acme)
    assert forget(conn, acme)["executions"] == 1


def test_the_task_follows_each_tenants_plan_and_one_tenants_trouble_is_not_the_others(
    conn: Conn, acme: Any, globex: Any
) -> None:
    from tenants import door
    from tenants.models import Plan
    from workers.housekeeping import retention

    now = datetime.now(UTC)
    young, old = (execution(conn, acme, at=now - timedelta(days=days)) for days in (5, 15))
    owner = door.connect("test", owner=True)
    owner.execute("ALTER TABLE t_globex.executions_execution RENAME TO away")
    Plan.objects.filter(pk=acme.plan_id).update(retention_days=10)
    try:
        assert retention()["executions"] == 1
    finally:
        Plan.objects.filter(pk=acme.plan_id).update(retention_days=30)
        owner.execute("ALTER TABLE t_globex.away RENAME TO executions_execution")
        owner.close()
    assert executions(conn, acme) == {young}
    assert old not in executions(conn, acme)


def test_dead_processes_and_old_answers_are_forgotten(conn: Conn) -> None:
    from workers.housekeeping import prune

    gone, holder, alive = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    dispatcher(conn, gone, "2 hours ago")
    dispatcher(conn, holder, "2 hours ago")
    dispatcher(conn, alive, "now")
    conn.execute("UPDATE due_shardlease SET owner = %s WHERE kind = 'fire' AND shard = 1", [holder])
    for hours in (1, 71, 73):
        conn.execute(
            "INSERT INTO api_idempotentanswer (tenant_id, key, fingerprint, status, headers, body, created_at)"
            " VALUES (1, %s, '', 200, '{}', '', clock_timestamp() - %s * interval '1 hour')",
            [f"{hours} h", hours],
        )
    conn.execute(
        "INSERT INTO django_session VALUES ('old', '', now() - interval '1 minute'),"
        " ('new', '', now() + interval '1 day')"
    )
    for number, days in enumerate((40, 20)):
        conn.execute(
            "INSERT INTO tenants_invitation (id, tenant_id, email, name, role, digest, created_at, created_by,"
            " expires_at) SELECT gen_random_uuid(), id, %s, '', 'viewer', %s, now(), '', now() - %s * interval '1 day'"
            " FROM tenants_tenant WHERE slug = 'acme'",
            [f"{days}@acme.test", str(number), days],
        )
    assert prune() == {
        "slots": 0,
        "dispatchers": 1,
        "workers": 0,
        "breakers": 0,
        "sessions": 1,
        "invitations": 1,
        "answers": 1,
    }
    assert conn.execute("SELECT session_key FROM django_session").fetchall() == [("new",)]
    assert conn.execute("SELECT email FROM tenants_invitation").fetchall() == [("20@acme.test",)]
    assert {row[0] for row in conn.execute("SELECT id FROM due_dispatcher")} == {holder, alive}
    assert {row[0] for row in conn.execute("SELECT key FROM api_idempotentanswer")} == {"1 h", "71 h"}


def test_the_health_check_says_what_is_wrong(conn: Conn, caplog: pytest.LogCaptureFixture) -> None:
    from workers.housekeeping import health

    with caplog.at_level(logging.WARNING):
        found = health()
    assert (found["dispatchers"], found["unheld"]) == (0, SERVED_LEASES)
    assert "no dispatcher is alive" in caplog.text
    assert f"{SERVED_LEASES} leases have no live holder" in caplog.text
    dispatcher(conn, one := uuid.uuid4(), "now", skew_ms=900)
    conn.execute("UPDATE due_shardlease SET owner = %s, expires_at = clock_timestamp() + interval '1 minute'", [one])
    caplog.clear()
    found = health()
    assert (found["dispatchers"], found["unheld"], found["skewed"]) == (1, 0, 1)
    assert "+900 ms off" in caplog.text


def test_housekeeping_is_there_as_periodic_tasks(database: None) -> None:
    from django_celery_beat.models import PeriodicTask

    import workers.archiving
    import workers.housekeeping
    from workers.app import app

    found = dict(PeriodicTask.objects.filter(name__startswith="shardbeat: ").values_list("task", "enabled"))
    assert found == {f"shardbeat.{name}": True for name in ("retention", "archive", "prune", "health")}
    assert set(found) <= set(app.tasks)
    assert max(workers.housekeeping.BUDGET_S, workers.archiving.BUDGET_S + workers.archiving.TURN_S) < 600


def forget(conn: Conn, tenant: Any, *, more: Any = lambda: True) -> dict[str, int]:
    from workers.retention import forget as real

    return real(conn, tenant.schema_name, before=BEFORE, more=more)


def execution(
    conn: Conn, tenant: Any, *, at: datetime, attempts: int = 1, state: str = "succeeded",
    schedule: UUID | None = None, trigger: str = "schedule", finished: datetime | str | None = "at",
) -> UUID:  # fmt: skip
    """An execution that was made and ended at that instant, with its attempts."""
    made = UUID(int=(int(at.timestamp() * 1_000) << 80) | (uuid.uuid4().int & ((1 << 80) - 1)))
    ended = at if finished == "at" else None
    conn.execute(
        f"INSERT INTO {tenant.schema_name}.executions_execution"
        " (id, run_key, job_id, job_version, schedule_id, trigger, state, priority, nominal_at, actual_at,"
        " created_at, finished_at, attempt_count, reason, count, fired_by)"
        " VALUES (%s, %s, %s, 1, %s, %s, %s, 5, %s, %s, %s, %s, %s, '', 1, '')",
        [made, made.hex, uuid.uuid4(), schedule, trigger, state if ended else "ready", at, at, at, ended, attempts],
    )
    for number in range(1, attempts + 1):
        conn.execute(
            f"INSERT INTO {tenant.schema_name}.executions_attempt"
            " (id, execution_id, number, fence, state, started_at, finished_at)"
            " VALUES (%s, %s, %s, %s, 'succeeded', %s, %s)",
            [attempt_id(made, number), made, number, number, at, at],
        )
    return made


def letter(conn: Conn, tenant: Any, execution_id: UUID, *, resolved_at: datetime | None) -> None:
    letter_id = UUID(int=(execution_id.int >> 80 << 80) | (uuid.uuid4().int & ((1 << 80) - 1)))
    conn.execute(
        f"INSERT INTO {tenant.schema_name}.deadletters_deadletter"
        " (id, execution_id, job_id, fingerprint, error, attempts, created_at, resolved_at, resolution, note,"
        " resolved_by)"
        " VALUES (%s, %s, %s, '', '{}', 1, %s, %s, %s, '', '')",
        [letter_id, execution_id, uuid.uuid4(), OLD, resolved_at, "resolved" if resolved_at else ""],
    )


def dispatcher(conn: Conn, dispatcher_id: UUID, expires: str, *, skew_ms: int = 0) -> None:
    ago = "2 hours" if expires != "now" else "-1 minute"
    conn.execute(
        "INSERT INTO due_dispatcher"
        " (id, host, pid, version, started_at, expires_at, backends, draining, skew_ms, stats)"
        " VALUES (%s, 'test', 1, '', clock_timestamp(), clock_timestamp() - %s::interval, '{}', false, %s, '{}')",
        [dispatcher_id, ago, skew_ms],
    )


def executions(conn: Conn, tenant: Any) -> set[UUID]:
    return {row[0] for row in conn.execute(f"SELECT id FROM {tenant.schema_name}.executions_execution")}


def attempts(conn: Conn, tenant: Any) -> set[UUID]:
    return {row[0] for row in conn.execute(f"SELECT execution_id FROM {tenant.schema_name}.executions_attempt")}
