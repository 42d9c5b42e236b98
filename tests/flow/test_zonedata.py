"""New time zone data: what moves, what is reported, and what stays."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from apps.dispatch import zonedata
from apps.schedules.services import schedule_pause
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import NOW, actor, entry_of, make_schedule

Conn = psycopg.Connection[Any]
HOUR = timedelta(hours=1)


def as_if_computed_with_other_data(conn: Conn, *schedules: Any) -> None:
    conn.execute(
        "UPDATE due_dueentry SET due_at = due_at + interval '1 hour', nominal_at = nominal_at + interval '1 hour'"
        " WHERE key = ANY(%s)",
        [list(schedules)],
    )
    conn.execute("INSERT INTO due_zonedata VALUES (1, '1999a', %s)", [NOW])


def test_affected_entries_move_with_an_audit_row_each(conn: Conn, registry: Registry, acme: Tenant) -> None:
    moved, stays = (make_schedule(acme, cron="0 9 * * *", timezone="Europe/Berlin", now=NOW) for _ in range(2))
    resumes = make_schedule(acme, cron="0 9 * * *", timezone="Europe/Berlin", now=NOW)
    schedule_pause(
        tenant=acme, actor=actor(acme), schedule_id=resumes, now=NOW, resume_at=NOW + timedelta(days=30)
    )  # fmt: skip
    right = entry_of(conn, moved).due_at
    waits = entry_of(conn, resumes).due_at
    as_if_computed_with_other_data(conn, moved)
    [found] = list(zonedata.report(conn, registry, now=NOW, dry_run=True))
    assert (found.tenant, found.schedule_id, found.before, found.after) == ("acme", moved, right + HOUR, right)
    assert entry_of(conn, moved).due_at == right + HOUR and zonedata.stored(conn) == "1999a"
    assert list(zonedata.report(conn, registry, now=NOW, dry_run=False)) == [found]
    assert {entry_of(conn, one).due_at for one in (moved, stays)} == {right}
    assert entry_of(conn, resumes).due_at == waits
    rows = conn.execute("SELECT before, after, reason FROM audit_auditevent WHERE action = 'schedule.tzdata'"
                        " AND object_id = %s", [str(moved)]).fetchall()  # fmt: skip
    assert [row[1] for row in rows] == [{"next_at": f"{right:%Y-%m-%dT%H:%M:%SZ}"}]
    assert rows[0][2] == f"time zone data 1999a -> {zonedata.installed()}"
    assert zonedata.stored(conn) == zonedata.installed()
    assert not list(zonedata.report(conn, registry, now=NOW, dry_run=True))


def test_what_is_due_already_stays(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, cron="0 9 * * *", timezone="Europe/Berlin", now=NOW)
    due = entry_of(conn, schedule).due_at
    assert not list(zonedata.report(conn, registry, now=due + HOUR, dry_run=False))
    assert entry_of(conn, schedule).due_at == due


def test_a_dispatcher_says_when_the_data_has_changed(
    conn: Conn, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    zonedata.check(conn, now=NOW)
    assert zonedata.stored(conn) == zonedata.installed() and not caplog.records
    conn.execute("UPDATE due_zonedata SET version = '1999a'")
    zonedata.check(conn, now=NOW)
    assert "tzdata_report" in caplog.text and zonedata.stored(conn) == "1999a"


def test_the_command(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, cron="0 9 * * *", timezone="Europe/Berlin", end_at="2099-01-01T00:00:00Z")
    conn.execute("UPDATE due_dueentry SET due_at = '2098-01-01', nominal_at = '2098-01-01' WHERE key = %s", [schedule])
    out = io.StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("tzdata_report", "--dry-run", "--format", "json", stdout=out)
    assert caught.value.code == 1
    assert [one["schedule"] for one in json.loads(out.getvalue())["moved"]] == [str(schedule)]
    call_command("tzdata_report", stdout=out)
    assert "1 due entries moved." in out.getvalue()
