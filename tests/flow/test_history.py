"""From when to when each version of a schedule decided: what the services write is what `history` reads."""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.schedules.history import History, Stopped, Version, history_of
from apps.schedules.history_store import history_read
from apps.schedules.pausing import pause_by_system
from apps.schedules.services import (
    calendar_create,
    calendar_update,
    job_pause,
    job_resume,
    schedule_delete,
    schedule_pause,
    schedule_resume,
    schedule_update,
)
from apps.schedules.timing_triggers import instant_text
from tenants.models import Tenant
from tests.fixtures_flow import MINUTE, NOW, actor, make_job, make_schedule

Conn = psycopg.Connection[Any]
Told = tuple[int, datetime, datetime | None, str]


def history(conn: Conn, tenant: Tenant, schedule: UUID) -> History:
    found = history_read(conn, tenant.schema_name, schedule)
    assert found is not None
    return found


def told(found: History) -> list[Told]:
    return [(one.version, one.after, one.until, one.ended_by) for one in found.stretches]


def at(minutes: int) -> datetime:
    return NOW + minutes * MINUTE


def test_each_service_writes_when_a_version_begins_and_what_stops_it(conn: Conn, acme: Tenant) -> None:
    by: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    job = make_job(acme)
    days = calendar_create(**by, data={"name": "closed", "dates": ["2030-01-01"]}, now=NOW)
    schedule = make_schedule(acme, job, calendar="closed")
    one: dict[str, Any] = {**by, "schedule_id": schedule}
    schedule_update(**one, patch={"trigger": {"cron": "*/5 * * * *"}}, now=at(10))  # 2
    schedule_update(**one, patch={"payload": {"a": 1}}, now=at(15))  # 3
    schedule_pause(**one, now=at(20))
    schedule_update(**one, patch={"grace_s": 30}, now=at(22))  # 4, of no time
    schedule_resume(**one, now=at(30))  # 5
    schedule_pause(**one, now=at(40), resume_at=at(60))  # 6, from then on
    schedule_resume(**one, now=at(50))  # 7
    job_pause(**by, job_id=job, now=at(70))
    job_resume(**by, job_id=job, now=at(80))  # 8
    calendar_update(**by, calendar_id=days.pk, patch={"dates": ["2030-01-02"]}, now=at(90))  # 9
    schedule_pause(**one, now=at(100))
    schedule_resume(**one, now=at(110), catch_up=True)  # 10, from when the pause began
    assert pause_by_system(
        conn, acme.schema_name, tenant_id=acme.pk, schedule_id=schedule, reason="gone", now=at(120), resume_at=at(130)
    )  # 11
    schedule_delete(**one, now=at(140))
    found = history(conn, acme, schedule)
    assert found.known_from is None, "it is known from its beginning"
    assert told(found) == [
        (1, at(0), at(10), ""), (2, at(10), at(15), ""), (3, at(15), at(20), "paused"), (5, at(30), at(40), "paused"),
        (7, at(50), at(70), "job_paused"), (8, at(80), at(90), ""), (9, at(90), at(100), "paused"),
        (10, at(100), at(120), "paused"), (11, at(130), at(140), "deleted"),
    ]  # fmt: skip


def test_behind_a_paused_job_only_what_is_made_up_for_is_due(conn: Conn, acme: Tenant) -> None:
    by: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    job = make_job(acme)
    schedule = make_schedule(acme, job, max_runs=100)
    schedule_pause(**by, schedule_id=schedule, now=at(10))
    job_pause(**by, job_id=job, now=at(20))
    schedule_resume(**by, schedule_id=schedule, now=at(30), catch_up=True)
    late = make_schedule(acme, job, start_at=instant_text(at(29)), now=at(30))
    assert told(history(conn, acme, late)) == []
    job_resume(**by, job_id=job, now=at(40))
    assert told(history(conn, acme, schedule)) == [
        (1, at(0), at(10), "paused"), (2, at(10), at(30), "job_paused"), (4, at(40), None, ""),
    ]  # fmt: skip
    assert told(history(conn, acme, late)) == [(2, at(40), None, "")]
    just = make_schedule(acme, start_at=instant_text(at(29)), now=at(30) - timedelta(seconds=1))
    assert told(history(conn, acme, just)) == [(1, at(29) - timedelta(microseconds=1), None, "")]


def test_the_migration_knows_what_the_rows_say(conn: Conn, acme: Tenant) -> None:
    by: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    job = make_job(acme)
    runs, paused, waits, gone, held = *(make_schedule(acme) for _ in range(4)), make_schedule(acme, job)
    schedule_update(**by, schedule_id=runs, patch={"grace_s": 30}, now=at(5))
    schedule_pause(**by, schedule_id=paused, now=at(10))
    schedule_update(**by, schedule_id=paused, patch={"grace_s": 30}, now=at(15))
    schedule_pause(**by, schedule_id=waits, now=at(10), resume_at=at(60))
    schedule_delete(**by, schedule_id=gone, now=at(10))
    job_pause(**by, job_id=job, now=at(10))
    versions = sql.Identifier(acme.schema_name, "schedules_scheduleversion")
    conn.execute(sql.SQL("UPDATE {} SET from_at = NULL, until_at = NULL, ended_by = ''").format(versions))
    migration = import_module("apps.schedules.migrations.0008_history")
    with conn.transaction():
        conn.execute(sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(acme.schema_name)))
        conn.execute(migration.KNOWN)
        conn.execute(migration.WAITING)
    assert {one: told(history(conn, acme, one)) for one in (runs, paused, waits, gone, held)} == {
        runs: [(2, at(5), None, "")], paused: [], waits: [(2, at(60), None, "")],
        gone: [(1, at(0), at(10), "deleted")], held: [(1, at(0), at(10), "job_paused")],
    }  # fmt: skip
    assert history(conn, acme, runs).known_from == at(5) and history(conn, acme, gone).known_from is None


def test_what_nobody_wrote_down_is_not_known() -> None:
    def version(number: int, from_at: datetime | None) -> Version:
        return Version(number, "{}", at(number * 10), from_at, None, "")

    found = history_of([version(1, at(10)), version(2, None), version(3, at(30)), version(4, at(40))])
    assert (found.known_from, told(found)) == (at(30), [(3, at(30), at(40), ""), (4, at(40), None, "")])
    assert found.stretches[0].spec is None, "its text can't be read"
    found = history_of([version(1, at(10)), version(2, None)], stopped=Stopped(at(25), "paused"))
    assert (found.known_from, told(found)) == (at(20), [(2, at(20), at(25), "paused")])
