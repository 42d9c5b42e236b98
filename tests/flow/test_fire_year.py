"""What a preview promises for a year is what then fires: each zone, clock-change rule, misfire policy and trigger kind.

All schedules lie in one database and are fired by the real step, with a clock that goes from due instant to due
instant around the changes of the zones' clocks and by days in between. For some changes the dispatcher is down.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from apps.due import entries
from apps.due.entries import Entry
from apps.schedules.policy import first_due
from apps.schedules.timing import Spec, spec_to_json
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import count, fire_all, make_job, queue_of
from tests.flow.year import DAY, HOUR, MISFIRES, YEAR, ZONES, Row, accounted, changes_of, crossed, promised

Conn = psycopg.Connection[Any]
Name = tuple[str, str, str, str, str]
QUANTUM = timedelta(minutes=5)  # the driven dispatcher's looks around a change: jitter makes each second a due instant
BATCH = 4_000
TOGETHER = (
    ("Europe/Berlin", "Antarctica/Troll"), ("America/New_York", "Australia/Lord_Howe"),
    ("Pacific/Apia", "Africa/Casablanca", "America/Santiago"), ("Asia/Kathmandu",),
)  # fmt: skip


def put_all(conn: Conn, registry: Registry, tenant: Tenant, specs: dict[UUID, Spec], *, now: datetime) -> None:
    """Due entries for these specs, as a new schedule's is made."""
    job, queue, made = make_job(tenant, now=now), queue_of(registry, tenant), []
    for key, spec in specs.items():
        first = first_due(spec, key=str(key), after=now)
        if first is None:  # e.g. one instant that the zone skips
            continue
        made.append(
            Entry(
                key, entries.shard_for(key), "schedule", tenant.pk, first[1], first[0], 1, spec_to_json(spec), job, 1,
                "python", queue, 5, 60, None, False, None, None, None,
            )
        )  # fmt: skip
    with conn.transaction(), conn.cursor() as cursor:
        cursor.executemany(entries.PUT, [one._asdict() for one in made])
    conn.execute("ANALYZE due_dueentry")


def drive(
    conn: Conn, registry: Registry, *, start: datetime, until: datetime, close: Sequence[datetime] = (),
    down: Sequence[datetime] = (),
) -> list[datetime]:  # fmt: skip
    """Lets a dispatcher look until nothing is left, and returns when it did: at least once a day while it is up.

    From 12 h before to 12 h after the instants in `close` it looks whenever something is due. From 40 h before to 40 h
    after those in `down` there is none.
    """
    looks, now = [], start
    while now < until:
        following = now + DAY
        if any(at - 12 * HOUR <= now < at + 12 * HOUR for at in close):
            row = conn.execute("SELECT min(due_at) FROM due_dueentry WHERE parked = ''").fetchone()
            due = row and row[0]
            if due is not None and due < following:
                following = start + -((start - due) // QUANTUM) * QUANTUM
        else:
            following = min([following, *(at - 12 * HOUR for at in close if at - 12 * HOUR > now)])
        for at in down:
            if at - 40 * HOUR < following < at + 40 * HOUR:
                following = at + 40 * HOUR
        now = following
        fire_all(conn, registry, now=now, limit=BATCH)
        looks.append(now)
    return looks


def rows_written(conn: Conn, tenant: Tenant) -> dict[UUID, list[Row]]:
    """All rows of the tenant by schedule, in the order of their nominal instants."""
    found: dict[UUID, list[Row]] = {}
    columns = "schedule_id, nominal_at, until_at, count, trigger, state, reason, actual_at, created_at"
    table = sql.Identifier(tenant.schema_name, "executions_execution")
    query = sql.SQL(f"SELECT {columns} FROM {{}} ORDER BY schedule_id, nominal_at").format(table)
    for schedule, *row in conn.execute(query):
        found.setdefault(schedule, []).append(Row(*row))
    return found


def check(
    conn: Conn, registry: Registry, tenant: Tenant, year: datetime, zones: Sequence[str], *, whole_year: bool,
    down: Sequence[datetime], close: Sequence[datetime],
) -> list[tuple[Name, Row]]:  # fmt: skip
    """Previews, fires and compares the year of these zones; all rows that were written."""
    named = {uuid.uuid4(): each for zone in zones for each in crossed(zone, year, whole_year=whole_year)}
    specs = {key: spec for key, (_, spec) in named.items()}
    shown = {key: promised(spec, str(key), year) for key, spec in specs.items()}
    put_all(conn, registry, tenant, specs, now=year)
    looks = drive(conn, registry, start=year, until=year + 366 * DAY, close=close, down=down)
    written = rows_written(conn, tenant)
    for key, (name, spec) in named.items():
        assert written.get(key, []) == list(accounted(spec, shown[key], looks)), name
    assert written.keys() <= named.keys()
    assert count(conn, "SELECT count(*) FROM due_dueentry") == 0, "the year is over: each schedule is completed"
    return [(named[key][0], row) for key, rows in written.items() for row in rows]


@pytest.mark.parametrize("zones", TOGETHER, ids=lambda zones: zones[0])
def test_a_years_preview_is_what_fires(conn: Conn, registry: Registry, acme: Tenant, zones: tuple[str, ...]) -> None:
    """Every second change of a zone finds the dispatcher down: what was missed has the documented rows."""
    year = ZONES[zones[0]]
    changes = [changes_of(zone, year) for zone in zones]
    down = [change.at for each in changes for change in each[1::2]]
    close = [change.at for each in changes for change in each[::2]]
    found = check(conn, registry, acme, year, zones, whole_year=False, down=down, close=close)
    for zone, misfire in product(zones if down else (), MISFIRES):
        kept = {(row.trigger, row.state) for name, row in found if (name[0], name[4]) == (zone, misfire)}
        made_up_for = set() if misfire == "skip" else {("catch_up", "ready")}
        assert kept == {("schedule", "ready"), ("schedule", "skipped")} | made_up_for


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("zone", ZONES)
def test_a_whole_year_of_each_day_and_hour(conn: Conn, registry: Registry, acme: Tenant, zone: str, up: bool) -> None:
    """Daily and hourly schedules too; all changes of the year find the dispatcher up, or all of them down."""
    changes = [change.at for change in changes_of(zone, ZONES[zone])]
    check(
        conn, registry, acme, ZONES[zone], [zone], whole_year=True, close=changes if up else [],
        down=[] if up else changes,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("zone", [zone for zone, year in ZONES.items() if year == YEAR and zone != "Pacific/Apia"])
def test_this_years_changes(conn: Conn, registry: Registry, acme: Tenant, zone: str) -> None:
    """By the rules of 2026: Casablanca's Ramadan, Santiago's longer summer."""
    year = datetime(2026, 1, 1, tzinfo=UTC)
    changes = [change.at for change in changes_of(zone, year)]
    check(conn, registry, acme, year, [zone], whole_year=False, close=changes[::2], down=changes[1::2])
