"""Downtimes of all lengths under each misfire and overlap policy: the documented runs and rows, at a bounded cost."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.schedules.services import (
    calendar_create,
    calendar_update,
    job_pause,
    job_resume,
    job_update,
    schedule_pause,
    schedule_resume,
    schedule_update,
)
from apps.schedules.timing import Spec, occurrences, spec_from_json
from apps.schedules.timing_api import ROOM
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    Fragile,
    actor,
    count,
    entry_of,
    executions_of,
    fire,
    fire_all,
    fragile,
    make_job,
    make_schedule,
    settle_as,
    started_now,
    ticket_of,
)
from tests.flow.year import DAY, MISFIRES, Row, accounted
from tests.schedules.cases import text

Conn = psycopg.Connection[Any]
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
WORKER = UUID(int=1)
OVERLAPS = ("allow", "skip", "buffer_one", "buffer_all", "cancel_running", "replace_pending")
ALIVE = ("none", "waiting", "running")
DOWN_S = (0, 90, 86_400, 30 * 86_400)


@pytest.mark.parametrize("misfire", MISFIRES)
@pytest.mark.parametrize("down_s", DOWN_S)
def test_downtime_ends_with_the_documented_runs(
    conn: Conn, registry: Registry, acme: Tenant, misfire: str, down_s: int
) -> None:
    """A schedule of every minute; at most 100 are made up for. docs/time.md has this table."""
    schedule = make_schedule(acme, misfire=misfire)
    for minute in (1, 2):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    up = NOW + 2 * MINUTE + timedelta(seconds=down_s + 5)
    fire_all(conn, registry, now=up)
    rows = executions_of(conn, acme, schedule)[2:]
    table = {  # due, on time, and per policy what is made up for
        0: (0, 0, {"skip": 0, "fire_once": 0, "fire_latest_n": 0, "fire_all": 0}),
        90: (1, 1, {"skip": 0, "fire_once": 0, "fire_latest_n": 0, "fire_all": 0}),
        86_400: (1_440, 1, {"skip": 0, "fire_once": 0, "fire_latest_n": 100, "fire_all": 99}),
        30 * 86_400: (43_200, 1, {"skip": 0, "fire_once": 0, "fire_latest_n": 100, "fire_all": 99}),
    }
    due, on_time, made_up_for = table[down_s]
    triggers = [row["trigger"] for row in rows if row["state"] == "ready"]
    assert (triggers.count("catch_up"), triggers.count("schedule")) == (made_up_for[misfire], on_time)
    skipped = [(row["nominal_at"], row["until_at"], row["count"]) for row in rows if row["state"] == "skipped"]
    left = due - on_time - made_up_for[misfire]
    assert skipped == ([(NOW + 3 * MINUTE, NOW + (2 + left) * MINUTE, left)] if left else [])
    assert entry_of(conn, schedule).due_at == NOW + (due + 3) * MINUTE


@pytest.mark.parametrize("down_s", DOWN_S)
def test_each_misfire_policy_with_each_overlap_policy(
    conn: Conn, registry: Registry, acme: Tenant, down_s: int
) -> None:
    """One row for each run and each reason, whatever is alive when the dispatcher is up again."""
    job = make_job(acme)
    made: dict[UUID, tuple[str, str, str, str]] = {}
    for (every, trigger), misfire, overlap, alive in product(
        (("minute", {"cron": "* * * * *"}), ("hour", {"every_s": 3_600, "anchor": text(NOW + MINUTE)})),
        MISFIRES, OVERLAPS, ALIVE,
    ):  # fmt: skip
        most = {"allow": 7, "buffer_all": 4}.get(overlap) or ROOM[overlap]
        made[
            make_schedule(
                acme, job, trigger=trigger, misfire=misfire, misfire_max=most, overlap=overlap, overlap_max=5,
            )
        ] = (every, misfire, overlap, alive)  # fmt: skip
    down = NOW + MINUTE
    fire_all(conn, registry, now=down)
    [before] = {len(executions_of(conn, acme, one)) for one in made}
    assert before == 1
    first = {one: executions_of(conn, acme, one)[0]["id"] for one in made}
    begun = {one: started_now(conn, [first[one]], WORKER)[0] for one, name in made.items() if name[3] != "waiting"}
    settle_as(conn, registry, [begun[one] for one, name in made.items() if name[3] == "none"])
    up = down + timedelta(seconds=down_s + 5)
    fire_all(conn, registry, now=up)
    due: dict[str, list[tuple[datetime, datetime]]] = {}
    for one, name in made.items():
        every, _, overlap, alive = name
        spec = spec_of(conn, one)
        if every not in due:
            due[every] = [(at, at) for at in occurrences(spec, after=down, until=up, limit=50_000)]
        expected = list(accounted(spec, due[every], [up]))
        live = 0 if alive == "none" else 1
        rows = executions_of(conn, acme, one)
        new = [row for row in rows if row["id"] != first[one]]
        wanted = after_overlap(expected, overlap, live, up)
        assert sorted(map(row_of, new), key=repr) == sorted(wanted, key=repr), name
        assert sum(row["count"] for row in new) == len(due[every]), name
        makes_way = overlap in ("cancel_running", "replace_pending") and any(row.state == "ready" for row in expected)
        [old] = [row for row in rows if row["id"] == first[one]]
        ticket = ticket_of(conn, first[one])
        if alive == "waiting" and makes_way:
            assert (old["state"], old["reason"], ticket) == ("skipped", "replaced", None), name
        elif alive == "running":
            assert ticket["cancel_requested"] is (makes_way and overlap == "cancel_running"), name
        else:
            assert old["state"] == ("succeeded" if alive == "none" else "ready"), name
        assert entry_of(conn, one).due_at == next(occurrences(spec, after=up, limit=1)), name
    assert fire_all(conn, registry, now=up) == 0, "nothing comes up twice"


def after_overlap(rows: list[Row], overlap: str, live: int, up: datetime) -> list[Row]:
    """docs/time.md's table of overlap policies: which of the runs find room, and the row of those that do not."""
    runs = [row for row in rows if row.state == "ready"]
    others = [row for row in rows if row.state != "ready"]
    if overlap == "allow" or not runs:
        return rows
    if overlap in ("cancel_running", "replace_pending"):
        kept, dropped, reason = runs[-1:], runs[:-1], "replaced"
    else:
        room = {"skip": 1, "buffer_one": 2, "buffer_all": 6}[overlap] - live
        kept, dropped, reason = runs[:room], runs[room:], "overlap_skipped"
    if dropped:
        first, last = dropped[0].nominal_at, dropped[-1].nominal_at
        others.append(Row(first, last, len(dropped), "schedule", "skipped", reason, first, up))
    return others + kept


def row_of(row: dict[str, Any]) -> Row:
    return Row(**{name: row[name] for name in Row.__dataclass_fields__})


def spec_of(conn: Conn, schedule: UUID) -> Spec:
    row = conn.execute("SELECT spec FROM due_dueentry WHERE key = %s", [schedule]).fetchone()
    assert row is not None
    return spec_from_json(row[0])


@pytest.fixture
def counting() -> Any:
    """A connection that counts how often it waits for the server."""
    conn = fragile(0, after=False)
    yield conn
    conn.close()


@pytest.mark.parametrize(("misfire", "overlap"), [*product(MISFIRES, ["allow"]), *product(["fire_once"], OVERLAPS[1:])])
def test_a_month_of_seconds_costs_little(
    conn: Conn, counting: Fragile, registry: Registry, acme: Tenant, misfire: str, overlap: str
) -> None:
    """2.6 million missed: one pass, few round trips, at most the rows of the policy's maximum and of the grace."""
    schedule = make_schedule(acme, cron="* * * * * *", misfire=misfire, misfire_max=1000, overlap=overlap)
    registry.refresh(force=True)
    waits = counting.waits
    tracemalloc.start()
    begun = time.process_time()
    counts = fire(counting, registry, now=NOW + 30 * DAY)
    took_s, (_, peak) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts["entries"] == 1 and counting.waits - waits <= 40  # COPY sends a thousand tickets in pieces
    assert fire(conn, registry, now=NOW + 30 * DAY) == {"entries": 0}, "one pass does all of it"
    rows = executions_of(conn, acme, schedule)
    on_time = 61
    made_up_for = {"fire_latest_n": 1_000, "fire_all": 1_000 - on_time}.get(misfire, 0)
    runs = {"allow": on_time + made_up_for, "buffer_one": 2, "buffer_all": 11}.get(overlap, 1)
    assert sum(row["count"] for row in rows) == 30 * 86_400
    assert sum(row["state"] == "ready" for row in rows) == runs == count(conn, "SELECT count(*) FROM tickets_ticket")
    assert len(rows) == runs + (overlap != "allow") + 1
    assert took_s < 5 and peak < 20_000_000  # tracemalloc makes it several times slower


def test_what_is_on_time_is_worked_off_in_bounded_passes(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """A grace of a day calls a day of seconds on time: all of it runs, a thousand in a pass."""
    schedule = make_schedule(acme, cron="* * * * * *", grace_s=86_400, overlap="buffer_one")
    passes, at = 0, NOW + HOUR
    while counts := fire(conn, registry, now=at):
        if not counts["entries"]:
            break
        passes += 1
        assert counts["fired"] + counts["skipped"] <= 1_000
    rows = executions_of(conn, acme, schedule)
    assert passes == 4 and len(rows) <= 2 + passes and sum(row["count"] for row in rows) == 3_600


def edits(tenant: Tenant, job: UUID, schedule: UUID, calendar: UUID) -> dict[str, list[Callable[..., Any]]]:
    """Everything that changes when a schedule runs, each as the calls that do it."""
    who = actor(tenant)
    change = partial(schedule_update, tenant=tenant, actor=who, schedule_id=schedule)
    pause = partial(schedule_pause, tenant=tenant, actor=who, schedule_id=schedule)
    resume = partial(schedule_resume, tenant=tenant, actor=who, schedule_id=schedule)
    return {
        "trigger": [partial(change, patch={"trigger": {"cron": "*/2 * * * *"}})],
        "kind of trigger": [partial(change, patch={"trigger": {"every_s": 60, "anchor": text(NOW)}})],
        "zone ahead": [partial(change, patch={"timezone": "Pacific/Kiritimati"})],
        "zone behind": [partial(change, patch={"timezone": "Pacific/Pago_Pago"})],
        "start in the past": [partial(change, patch={"start_at": text(NOW - DAY)})],
        "misfire": [partial(change, patch={"misfire": "fire_all", "misfire_max": 2, "overlap": "allow"})],
        "grace": [partial(change, patch={"grace_s": 7 * 86_400})],
        "clock changes": [partial(change, patch={"dst_gap": "skip", "dst_fold": "both"})],
        "windows": [partial(change, patch={"windows": [{"from": "00:00", "to": "23:59:59"}]})],
        "calendar": [
            partial(
                calendar_update, tenant=tenant, actor=who, calendar_id=calendar, patch={"dates": ["2031-01-01"]}
            )
        ],
        "resume": [pause, resume],
        "resume of the job": [
            partial(job_pause, tenant=tenant, actor=who, job_id=job),
            partial(job_resume, tenant=tenant, actor=who, job_id=job),
        ],
    }  # fmt: skip


EDITS = (
    "trigger", "kind of trigger", "zone ahead", "zone behind", "start in the past", "misfire", "grace",
    "clock changes", "windows", "calendar", "resume", "resume of the job",
)  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_or_a_resume_never_fires_by_itself(conn: Conn, registry: Registry, acme: Tenant, edit: str) -> None:
    """Down for an hour, then edited, then up: no run, whatever the policies; a row for what was owed."""
    calendar = calendar_create(tenant=acme, actor=actor(acme), data={"name": "c", "dates": ["2030-01-01"]}, now=NOW).pk
    made: dict[UUID, tuple[str, str]] = {}
    for misfire, overlap in product(MISFIRES, OVERLAPS):
        job = make_job(acme)
        most = {"allow": 7, "buffer_all": 4}.get(overlap) or ROOM[overlap]
        key = make_schedule(
            acme, job, misfire=misfire, overlap=overlap, misfire_max=most, overlap_max=5, calendar=str(calendar)
        )
        made[key] = (misfire, overlap)
    at = NOW + HOUR + timedelta(seconds=30)
    jobs = {one: row_job(conn, one) for one in made}
    for one in list(made)[: 1 if edit == "calendar" else None]:  # which changes all of them at once
        for number, call in enumerate(edits(acme, jobs[one], one, calendar)[edit]):
            call(now=at + number * timedelta(milliseconds=1))
    done = at + timedelta(milliseconds=2)
    assert fire_all(conn, registry, now=done) == 0
    for one, name in made.items():
        rows = [
            (row["state"], row["nominal_at"], row["until_at"], row["count"]) for row in executions_of(conn, acme, one)
        ]
        assert rows == [("skipped", NOW + MINUTE, NOW + HOUR, 60)], name
        assert entry_of(conn, one).due_at > done, name
    # From then on it runs as it says now.
    fire_all(conn, registry, now=done + 2 * MINUTE)
    assert all(executions_of(conn, acme, one)[1]["nominal_at"] > done for one in made)


def row_job(conn: Conn, schedule: UUID) -> UUID:
    row = conn.execute("SELECT job_id FROM due_dueentry WHERE key = %s", [schedule]).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def test_an_edit_that_does_not_change_when_keeps_what_is_owed(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """A new name, payload or job definition leaves the debt to the misfire policy."""
    job = make_job(acme)
    schedule = make_schedule(acme, job, misfire="fire_latest_n", misfire_max=3)
    at = NOW + HOUR + timedelta(seconds=30)
    who = actor(acme)
    schedule_update(
        tenant=acme, actor=who, schedule_id=schedule, patch={"name": "other", "payload": {"a": 1}}, now=at
    )  # fmt: skip
    job_update(tenant=acme, actor=who, job_id=job, patch={"priority": 9}, now=at)
    assert fire_all(conn, registry, now=at) == 4
    rows = executions_of(conn, acme, schedule)
    assert [(row["trigger"], row["count"]) for row in rows] == [
        ("schedule", 56),
        *[("catch_up", 1)] * 3,
        ("schedule", 1),
    ]


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_million_overdue_entries_let_live_work_through(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """All overdue for an hour; ten schedules fire on time meanwhile, in each pass before the debt."""
    made = 1_000_000
    job = make_job(acme)
    template = make_schedule(acme, job, cron="0 0 1 1 *")
    names = (
        "shard, kind, tenant_id, due_at, nominal_at, version, spec, job_id, job_version, pool, queue, priority,"
        " timeout_s, max_concurrency, own_payload, parked"
    )
    picked = names.replace("shard,", "(n %% 64)::smallint,").replace("due_at, nominal_at", "%s, %s")
    conn.execute(
        f"INSERT INTO due_dueentry (key, {names}) SELECT gen_random_uuid(), {picked}"
        " FROM due_dueentry d CROSS JOIN generate_series(1, %s) AS n WHERE d.key = %s",
        [NOW - timedelta(hours=1), NOW - timedelta(hours=1), made, template],
    )
    conn.execute("ANALYZE due_dueentry")
    live = [make_schedule(acme, job) for _ in range(10)]
    at, fired, passes = NOW + MINUTE, 0, 0
    counts = fire(conn, registry, now=at)
    assert {entry_of(conn, one).due_at for one in live} == {at + MINUTE}  # the first pass has served them all
    while counts["entries"]:
        fired, passes = fired + counts["fired"], passes + 1
        at += timedelta(milliseconds=100)
        counts = fire(conn, registry, now=at)
        if passes % 200 == 0:
            assert all(entry_of(conn, one).due_at > at - timedelta(seconds=1) for one in live)
    assert count(conn, "SELECT count(*) FROM due_dueentry WHERE due_at <= %s", at) == 0
    assert fired >= made
