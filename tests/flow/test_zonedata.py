"""New time zone data: what moves, what is reported, and what stays."""

from __future__ import annotations

import functools
import gc
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from apps.dispatch import zonedata, zonerules
from apps.dispatch.completeness.checking import completeness_of
from apps.dispatch.repairs import run_all
from apps.schedules import timing_zones
from apps.schedules.services import schedule_pause
from apps.schedules.timing_rezoned import ZONE_SHIFT_MAX
from tenants.models import Tenant
from tenants.registry import Registry
from tenants.work import in_tenant
from tests.fixtures_flow import NOW, actor, entry_of, executions_of, fire_all, make_schedule

Conn = psycopg.Connection[Any]
HOUR = timedelta(hours=1)


def as_if_computed_with_other_data(conn: Conn, *schedules: Any) -> None:
    conn.execute(
        "UPDATE due_dueentry SET due_at = due_at + interval '1 hour', nominal_at = nominal_at + interval '1 hour'"
        " WHERE key = ANY(%s)",
        [list(schedules)],
    )
    conn.execute("INSERT INTO due_zonedata (id, version, applied_at) VALUES (1, '1999a', %s)", [NOW])


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


# --- two versions of the data ---

Versions = Callable[[str, str], None]
PLACE = "Europe/Berlin"  # has the clock of another place in the old data; the new data is the installed one
DAY = timedelta(days=1)


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Iterator[Versions]:
    """`data("old", "Europe/Helsinki")`: that version is installed from here on; in it PLACE has that zone's clock."""
    real = timing_zones.zone_file

    def install(version: str, zone: str) -> None:
        monkeypatch.setattr(timing_zones, "zone_file", lambda name: real(zone if name == PLACE else name))
        monkeypatch.setattr(zonerules, "zone_file", timing_zones.zone_file)
        for module in (zonerules, zonedata):
            monkeypatch.setattr(module, "installed", lambda: version)
        forget()

    yield install
    monkeypatch.undo()
    forget()


def forget() -> None:
    """What is remembered of zones, as in a new process."""
    for one in gc.get_objects():
        # Not isinstance: it would wake what is lazy.
        if type(one) is functools._lru_cache_wrapper and str(one.__module__).startswith("apps.schedules"):
            one.cache_clear()


def runs_of(conn: Conn, tenant: Tenant, schedule: Any) -> list[str]:
    """The instants of what has run."""
    found = executions_of(conn, tenant, schedule)
    return [f"{one['nominal_at']:%d %H:%M}" for one in found if one["state"] != "skipped"]


def played(conn: Conn, registry: Registry, *, until: datetime) -> None:
    """Fires each instant in its time."""
    while (row := conn.execute("SELECT min(due_at) FROM due_dueentry").fetchone()) and row[0] and row[0] <= until:
        assert fire_all(conn, registry, now=row[0]) >= 0


def at(hour: int, minute: int = 0, *, day: int = 6) -> datetime:
    return NOW.replace(day=day, hour=hour, minute=minute)


def test_a_wall_time_that_has_run_does_not_run_again_when_its_instant_moves_later(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions
) -> None:
    """12:00 was 10:00 UTC and is 11:00 UTC; the data changes in between."""
    data("old", "Europe/Helsinki")
    zonedata.check(conn, now=NOW)
    daily = make_schedule(acme, cron="0 12 * * *", timezone=PLACE, now=at(8))
    played(conn, registry, until=at(10, 10))
    data("new", PLACE)
    [moved] = list(zonedata.report(conn, registry, now=at(10, 30), dry_run=False))
    assert (moved.before, moved.after) == (at(10, day=7), at(11, day=7))
    played(conn, registry, until=at(12, day=10))
    assert runs_of(conn, acme, daily) == ["06 10:00", "07 11:00", "08 11:00", "09 11:00", "10 11:00"]
    assert list(run_all(conn, registry, list(registry.by_id.values()), dry_run=True)) == [], "no gap either"
    now = at(12, day=10)
    found = in_tenant(acme, lambda: completeness_of(acme, daily, since=NOW, until=now, now=now))
    assert found.complete and found.found.ran == 2, "what is sure"
    [unsure] = found.expected.unknown
    assert (unsure.until, unsure.reason) == (at(10, 30) + 2 * ZONE_SHIFT_MAX, "zone_data_changed")


def test_a_run_whose_instant_moves_before_now_is_not_lost(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions
) -> None:
    """12:00 was 11:00 UTC and is 10:00 UTC; the data changes at 10:30."""
    data("old", PLACE)
    zonedata.check(conn, now=NOW)
    daily = make_schedule(acme, cron="0 12 * * *", timezone=PLACE, now=at(8))
    fresh = make_schedule(acme, cron="0 12 * * *", timezone=PLACE, now=at(9, 30))
    skips = make_schedule(acme, cron="0 12 * * *", timezone=PLACE, misfire="skip", now=at(8))
    data("new", "Europe/Helsinki")
    moved = list(zonedata.report(conn, registry, now=at(10, 30), dry_run=False))
    assert {(one.before, one.after) for one in moved} == {(at(11), at(10))} and len(moved) == 3
    assert fire_all(conn, registry, now=at(10, 30)) == 2
    played(conn, registry, until=at(11, day=7))
    assert runs_of(conn, acme, daily) == runs_of(conn, acme, fresh) == ["06 10:00", "07 10:00"]
    assert [one["reason"] for one in executions_of(conn, acme, skips)] == ["misfire_skipped", ""]


@pytest.mark.parametrize("checked", [True, False])
def test_times_that_follow_one_another_are_told_apart(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions, checked: bool
) -> None:
    """10:00 by the new data is the instant at which 11:00 was to run: both fit, and 10:00 has run."""
    data("old", "Europe/Helsinki")
    zonedata.check(conn, now=NOW)
    schedule = make_schedule(acme, cron="0 9,10,11 * * *", timezone=PLACE, now=at(6))
    played(conn, registry, until=at(8, 10))
    data("new", PLACE)
    if checked:
        zonedata.check(conn, now=at(8, 20))
    list(zonedata.report(conn, registry, now=at(8, 30), dry_run=False))
    played(conn, registry, until=at(11))
    assert runs_of(conn, acme, schedule) == ["06 07:00", "06 08:00", "06 10:00"], "9, 10 and 11 o'clock, once each"


def test_what_ran_by_the_new_data_before_the_report_is_not_converted(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions
) -> None:
    data("old", "Europe/Helsinki")
    zonedata.check(conn, now=NOW)
    data("new", PLACE)
    zonedata.check(conn, now=at(6))
    schedule = make_schedule(acme, cron="0 9,10,11 * * *", timezone=PLACE, now=at(7))
    played(conn, registry, until=at(8, 10))
    assert list(zonedata.report(conn, registry, now=at(8, 30), dry_run=False)) == []
    played(conn, registry, until=at(11))
    assert runs_of(conn, acme, schedule) == ["06 08:00", "06 09:00", "06 10:00"]


def test_what_fired_as_promised_after_the_new_data_came_does_not_run_again(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions
) -> None:
    """The entry stood at 10:00 UTC, was 12:00, and moved on by the new data to 12:00 of the same day."""
    data("old", "Europe/Helsinki")
    zonedata.check(conn, now=NOW)
    schedule = make_schedule(acme, cron="0 12 * * *", timezone=PLACE, now=at(6))
    data("new", PLACE)
    zonedata.check(conn, now=at(9))
    played(conn, registry, until=at(10, 10))
    assert entry_of(conn, schedule).nominal_at == at(11)
    list(zonedata.report(conn, registry, now=at(10, 30), dry_run=False))
    played(conn, registry, until=at(11, day=7))
    assert runs_of(conn, acme, schedule) == ["06 10:00", "07 11:00"]


@pytest.mark.parametrize(
    "trigger",
    [{"cron": "*/5 * * * *"}, {"cron": "0 * * * *"}, {"every_s": 300}, {"at": "2025-01-06T12:00:00Z"}],
)
def test_what_follows_real_time_stays(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions, trigger: dict[str, Any]
) -> None:
    data("old", "Europe/Helsinki")
    zonedata.check(conn, now=NOW)
    schedule = make_schedule(acme, trigger=trigger, timezone=PLACE, now=at(8))
    other = make_schedule(acme, cron="0 12 * * *", timezone="Europe/Paris", now=at(8))
    before = [entry_of(conn, one) for one in (schedule, other)]
    data("new", PLACE)
    assert list(zonedata.report(conn, registry, now=at(8), dry_run=False)) == []
    assert [entry_of(conn, one) for one in (schedule, other)] == before


def test_six_hourly_by_half_an_hour(conn: Conn, registry: Registry, acme: Tenant, data: Versions) -> None:
    """It follows real time, and its instant is none any more: the wall time decides."""
    data("old", "Asia/Kolkata")
    zonedata.check(conn, now=NOW)
    schedule = make_schedule(acme, cron="0 */6 * * *", timezone=PLACE, now=at(1))
    played(conn, registry, until=at(7))
    data("new", PLACE)
    list(zonedata.report(conn, registry, now=at(7), dry_run=False))
    played(conn, registry, until=at(18))
    assert runs_of(conn, acme, schedule) == ["06 06:30", "06 17:00"], "12:00 and 18:00"


def test_without_history_the_entry_itself_says_where_it_goes_on(
    conn: Conn, registry: Registry, acme: Tenant, data: Versions
) -> None:
    """Retention has taken the rows of a yearly schedule."""
    data("old", "Europe/Helsinki")
    zonedata.check(conn, now=NOW)
    schedule = make_schedule(acme, cron="0 12 1 2 *", timezone=PLACE, now=at(8))
    fire_all(conn, registry, now=datetime(2026, 2, 1, 10, tzinfo=UTC))
    conn.execute(f"DELETE FROM {acme.schema_name}.executions_execution")
    data("new", PLACE)
    now = datetime(2026, 2, 1, 10, 30, tzinfo=UTC)
    list(zonedata.report(conn, registry, now=now, dry_run=False))
    assert entry_of(conn, schedule).nominal_at == datetime(2027, 2, 1, 11, tzinfo=UTC)
