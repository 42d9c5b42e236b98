"""A backfill from the wish to its last run: exact over a clock change, once each, what ran is seen, live first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.fixtures_flow import (
    actor,
    at_once,
    end_backend,
    executions_of,
    fire_all,
    make_schedule,
    rows_of,
    run_to_the_end,
    settle_as,
    started_now,
    ticket_of,
)
from tests.operations.fixtures import passes, read, receipt, work_off

if TYPE_CHECKING:
    from apps.operations.backfill.outlook import Outlook
    from apps.operations.models import Operation
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURLY: dict[str, Any] = {"trigger": {"cron": "0 * * * *"}, "timezone": "Europe/Berlin"}
CHANGE = {"from": "2024-03-30T20:00:00", "to": "2024-03-31T06:00:00"}  # ten hours on the wall, nine in fact


def backfill(tenant: Tenant, schedule: UUID, **data: Any) -> Operation:
    """An operation that was asked for now."""
    from apps.operations.backfill.services import backfill_ask
    from apps.operations.models import Operation
    from tenants.work import database_now

    found = backfill_ask(tenant=tenant, actor=actor(tenant), schedule_id=schedule, data=data, now=database_now())
    assert isinstance(found, Operation)
    return found


def rehearse(tenant: Tenant, schedule: UUID, **data: Any) -> Outlook:
    from apps.operations.backfill.services import Rehearsal, backfill_ask
    from tenants.work import database_now

    found = backfill_ask(
        tenant=tenant, actor=actor(tenant), schedule_id=schedule, data={**data, "dry_run": True}, now=database_now()
    )
    assert isinstance(found, Rehearsal)
    return found.seen


def turns(tenant: Tenant, operation_id: UUID, *, most: int = 4) -> Operation:
    """The operation after so many turns, of which the last ones only look."""
    return work_off(tenant, operation_id, most=most)


def runs(conn: Conn, tenant: Tenant, schedule: UUID) -> list[dict[str, Any]]:
    """What backfills have made, by nominal instant and age."""
    return [one for one in executions_of(conn, tenant, schedule) if one["trigger"] == "backfill"]


def settle(conn: Conn, registry: Registry, some: Sequence[UUID], outcome: str = "succeeded") -> None:
    settle_as(conn, registry, started_now(conn, list(some), WORKER), outcome)


def test_a_range_over_a_clock_change_runs_once_each_and_in_order(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, **HOURLY, max_queue_age_s=60)
    seen = rehearse(acme, schedule, **CHANGE)
    first, last = datetime(2024, 3, 30, 19, tzinfo=UTC), datetime(2024, 3, 31, 3, tzinfo=UTC)
    assert (seen.count, seen.first, seen.last) == (9, first, last)
    assert executions_of(conn, acme, schedule) == []
    one = backfill(acme, schedule, **CHANGE, max_in_flight=4, order="desc")
    for made in (4, 8, 9):
        assert len(runs(conn, acme, schedule)) < made
        now = turns(acme, one.pk)
        assert (now.running, len(runs(conn, acme, schedule))) == (made - now.succeeded, made)
        run_to_the_end(conn, registry, [acme])
    done = turns(acme, one.pk)
    assert (done.state, done.planned, done.succeeded) == ("completed", 9, 9)
    found = runs(conn, acme, schedule)
    assert [run["nominal_at"] for run in found] == [first + n * HOUR for n in range(9)]
    assert [run["id"] for run in found] == sorted((run["id"] for run in found), reverse=True), "the last one first"
    assert {run["state"] for run in found} == {"succeeded"}
    assert {run["priority"] for run in found} == {0}
    assert found[0]["run_key"] == f"{one.pk.hex}.20240330T190000Z"
    again = backfill(acme, schedule, **CHANGE)
    assert turns(acme, again.pk).planned == 0, "all of it ran"


def test_a_clock_change_runs_once_each_through_crashes(
    conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher's connection ends in the middle of a chunk, three times: the chunk was not done, and is then."""
    from django.db import OperationalError

    from apps.operations.kinds import backfill as kind
    from tenants import door

    plain, calls = kind.occurrence_start, count(1)

    def dies(**given: Any) -> Any:
        made = plain(**given)
        if next(calls) in (3, 20, 50):
            end_backend(door.raw().info.backend_pid)
        return made

    monkeypatch.setattr(kind, "occurrence_start", dies)
    schedule = make_schedule(acme, **HOURLY)
    days = {"from": "2024-03-30", "to": "2024-04-02"}
    assert rehearse(acme, schedule, **days).count == 71
    one = backfill(acme, schedule, **days, max_in_flight=60)
    crashes = 0
    while (now := read(acme, one.pk)).state in ("planning", "running"):
        try:
            turns(acme, one.pk, most=3)
        except OperationalError:
            crashes += 1
        run_to_the_end(conn, registry, [acme])
    assert (crashes, now.state, now.planned, now.succeeded) == (3, "completed", 71, 71)
    found = runs(conn, acme, schedule)
    assert len(found) == len({run["nominal_at"] for run in found}) == 71
    assert {(run["state"], run["attempt_count"]) for run in found} == {("succeeded", 1)}


@pytest.fixture
def hour(conn: Conn) -> datetime:
    """The last full hour of the database's clock."""
    row = conn.execute("SELECT date_trunc('hour', clock_timestamp(), 'UTC')").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


def text(at: datetime) -> str:
    return at.isoformat()


def test_what_ran_is_recognised_and_the_newest_run_of_an_occurrence_counts(
    conn: Conn, registry: Registry, acme: Tenant, hour: datetime
) -> None:
    """Of ten hours: 0 to 2 never ran, 3 succeeded, 4 died, 5 was cancelled before its start, 6 is alive, 7 is due."""
    from apps.outcomes.cancel import execution_cancel

    began = hour - 10 * HOUR
    # Made then; the first three hours are missed in one go, and the policy skips them.
    schedule = make_schedule(acme, **HOURLY, misfire="skip", now=began - HOUR / 2)
    for n in (2, 3, 4, 5, 6):
        fire_all(conn, registry, now=began + n * HOUR + (HOUR / 2 if n == 2 else timedelta(seconds=1)))
    made = {one["nominal_at"]: one["id"] for one in executions_of(conn, acme, schedule)}
    assert len(made) == 5, "one row for three hours"
    settle(conn, registry, [made[began + 3 * HOUR]])
    died = made[began + 4 * HOUR]
    conn.execute("UPDATE tickets_ticket SET failures = 2 WHERE execution_id = %s", [died])
    settle(conn, registry, [died], "failed")
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=made[began + 5 * HOUR], now=hour)
    whole = {"from": text(began), "to": text(hour)}

    seen = rehearse(acme, schedule, **whole)
    assert seen.standings == {"missing": 4, "ran": 1, "failed": 1, "alive": 1, "due": 3}
    assert (seen.count, seen.first, seen.last) == (4, began, began + 5 * HOUR)
    assert rehearse(acme, schedule, **whole, only="failed").count == 1
    assert rehearse(acme, schedule, **whole, only="all").count == 6

    failed = turns(acme, backfill(acme, schedule, **whole, only="failed").pk)
    [again] = runs(conn, acme, schedule)
    assert (failed.planned, again["nominal_at"], again["replay_of"]) == (1, began + 4 * HOUR, died)
    settle(conn, registry, [again["id"]])
    assert rehearse(acme, schedule, **whole).standings["ran"] == 2, "the newer run is what counts"

    missing, rival = (backfill(acme, schedule, **whole) for _ in range(2))
    for one in (missing, rival):
        turns(acme, one.pk, most=1)  # both are planned before either begins
    assert turns(acme, missing.pk).running == 4
    late = turns(acme, rival.pk)
    assert (late.state, receipt(acme, rival.pk)) == ("completed", [(n, "skipped", "still_alive") for n in range(1, 5)])
    skipped = made[began]
    links = {one["nominal_at"]: one["replay_of"] for one in runs(conn, acme, schedule)}
    assert [links[began + n * HOUR] for n in (0, 1, 2)] == [skipped] * 3
    run_to_the_end(conn, registry, [acme])
    assert rehearse(acme, schedule, **whole).count == 0

    everything = turns(acme, backfill(acme, schedule, **whole, only="all").pk)
    assert everything.planned == 7, "what was alive ran meanwhile; what is due is the dispatcher's"
    newest = [one for one in runs(conn, acme, schedule) if one["nominal_at"] == began]
    assert len(newest) == 2 and newest[1]["replay_of"] == newest[0]["id"]


def test_runs_that_never_overlap_go_one_by_one_and_leave_room_for_the_schedule(
    conn: Conn, registry: Registry, acme: Tenant, hour: datetime
) -> None:
    from apps.operations.backfill.yielding import NEXT_IS_NEAR, RUNS_ALREADY

    schedule = make_schedule(acme, **HOURLY, overlap="skip", now=hour)
    range_ = {"from": text(hour - 5 * HOUR), "to": text(hour - 2 * HOUR)}
    one = backfill(acme, schedule, **range_)
    assert one.max_in_flight == 1
    fire_all(conn, registry, now=hour + HOUR)  # a live run, while nothing of it is in flight
    held = turns(acme, one.pk, most=2)
    assert (held.pending, held.waits_for) == (3, RUNS_ALREADY)
    run_to_the_end(conn, registry, [acme])
    conn.execute("UPDATE t_acme.operations_operation SET next_at = NULL")  # a second later
    [(nominal_at,)] = conn.execute("SELECT nominal_at FROM due_dueentry WHERE key = %s", [schedule]).fetchall()
    near = "UPDATE due_dueentry SET nominal_at = %s, due_at = %s WHERE key = %s"
    conn.execute(near, [hour, datetime.now(UTC) + timedelta(milliseconds=900), schedule])
    assert turns(acme, one.pk, most=1).waits_for == NEXT_IS_NEAR
    conn.execute(near, [nominal_at, nominal_at, schedule])
    for made in (1, 2, 3):
        assert turns(acme, one.pk).running == 1
        fire_all(conn, registry, now=hour + (made + 1) * HOUR)  # its policy finds a run alive
        run_to_the_end(conn, registry, [acme])
        assert len(runs(conn, acme, schedule)) == made
    assert turns(acme, one.pk).succeeded == 3
    reasons = [row["reason"] for row in executions_of(conn, acme, schedule) if row["trigger"] == "schedule"]
    assert reasons == ["", *["overlap_skipped"] * 3]

    beside = backfill(acme, schedule, **range_, only="all", overlap="allow")
    turns(acme, beside.pk)
    fire_all(conn, registry, now=hour + 5 * HOUR)
    states = [row["state"] for row in executions_of(conn, acme, schedule) if row["trigger"] == "schedule"]
    assert states[-1] == "ready", "what is beside the others does not count for its policy"


def test_it_yields_to_live_work_and_waits_for_room_in_the_plan(
    conn: Conn, registry: Registry, new_tenant: Any, hour: datetime
) -> None:
    from apps.operations.backfill.reading import backfill_shape
    from apps.operations.backfill.yielding import PRESSED
    from apps.tickets.values import BACKFILL
    from apps.usage import pressure
    from tenants import door
    from tenants.work import database_now

    tenant = new_tenant(max_runs_per_day=6, max_live=5)
    schedule = make_schedule(tenant, **HOURLY, max_queue_age_s=60)
    range_ = {"from": "2024-02-01", "to": "2024-02-02"}
    seen = rehearse(tenant, schedule, **range_, max_in_flight=3)
    assert [(use.quota, use.adds, use.enough) for use in seen.uses] == [
        ("max_runs_per_day", 24, False), ("max_live", 3, True),
    ]  # fmt: skip
    one = backfill(tenant, schedule, **range_, max_in_flight=3)
    pressed = {"pressed": [["python", ""]]}
    pressure.write(conn, every_s=60, live=0, ended_per_s=0, figures=pressed)
    turns(tenant, one.pk, most=2)
    made = [run["id"] for run in runs(conn, tenant, schedule)]
    tickets = [ticket_of(conn, run) for run in made]
    assert len(made) == 3
    assert {(row["lane"], row["priority"], row["start_by"], row["guarded"]) for row in tickets} == {
        (BACKFILL, 0, None, False)
    }
    settle(conn, registry, made[:1])
    held = turns(tenant, one.pk, most=1)
    assert (held.running, held.waits_for) == (2, PRESSED)
    pressure.write(conn, every_s=60, live=0, ended_per_s=0, figures={"pressed": []})
    assert turns(tenant, one.pk, most=1).running == 3
    for _ in range(2):
        run_to_the_end(conn, registry, [tenant])
        held = turns(tenant, one.pk)
    assert (held.succeeded, held.failed, held.pending, held.waits_for) == (6, 0, 18, "quota_exceeded")
    with door.inside(tenant):
        ends = backfill_shape(tenant, held, now=database_now())["expected_end"]
    assert ends >= database_now() + 2 * DAY, "the plan has room for six of them on each of the next three days"


def test_occurrences_of_then_run_with_the_version_of_then(
    conn: Conn, registry: Registry, acme: Tenant, hour: datetime
) -> None:
    """Every hour for six hours, then every two hours, then paused for two hours."""
    from apps.schedules.services import schedule_pause, schedule_resume, schedule_update

    began = hour - 20 * HOUR
    schedule = make_schedule(acme, trigger={"every_s": 3_600, "anchor": text(began)}, now=began)
    given: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "schedule_id": schedule}
    changed = {"trigger": {"every_s": 7_200, "anchor": text(began)}, "payload": {"new": True}}
    schedule_update(**given, patch=changed, now=began + 6 * HOUR + HOUR / 2, expect=None)
    schedule_pause(**given, now=began + 10 * HOUR + HOUR / 2)
    schedule_resume(**given, now=began + 12 * HOUR + HOUR / 2)
    conn.execute(f"DELETE FROM {acme.schema_name}.executions_execution")  # what was passed over
    conn.execute("UPDATE due_dueentry SET nominal_at = %(at)s, due_at = %(at)s", {"at": hour})  # nothing is due
    range_ = {"from": text(began - DAY), "to": text(began + 15 * HOUR)}
    assert rehearse(acme, schedule, **range_).count == 20, "every two hours, also before there was any of it"
    seen = rehearse(acme, schedule, **range_, definition="then")
    assert (seen.count, seen.first, seen.last) == (9, began + HOUR, began + 14 * HOUR)
    one = backfill(acme, schedule, **range_, definition="then", order="desc", max_in_flight=20)
    turns(acme, one.pk)
    made = [((run["nominal_at"] - began) // HOUR, run["schedule_version"]) for run in runs(conn, acme, schedule)]
    assert made == [*((at, 1) for at in range(1, 7)), (8, 2), (10, 2), (14, 3)]
    sources = {ticket_of(conn, run["id"])["payload_from"] for run in runs(conn, acme, schedule)[:6]}
    assert sources == {"job"}, "only the later versions have a payload of their own"


def test_it_is_cancelled_and_undone_by_its_operation(
    conn: Conn, registry: Registry, acme: Tenant, hour: datetime
) -> None:
    from apps.operations.services import operation_cancel, operation_pause, operation_resume, operation_undo

    schedule = make_schedule(acme, **HOURLY)
    one = backfill(acme, schedule, **{"from": "2024-02-01", "to": "2024-02-02"}, max_in_flight=6)
    turns(acme, one.pk)
    given: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "operation_id": one.pk, "now": hour}
    operation_pause(**given, reason="the target is down")
    begun, *waiting = (run["id"] for run in runs(conn, acme, schedule))
    [started] = started_now(conn, [begun], WORKER)
    assert turns(acme, one.pk).running == 6, "a pause starts nothing and stops nothing"
    operation_resume(**given)
    operation_cancel(**given)
    assert operation_undo(**given).state == "undoing"
    settle_as(conn, registry, [started])
    done = turns(acme, one.pk)
    assert (done.state, done.undone, done.succeeded, done.pending) == ("undone", 5, 1, 18)
    states = {run["id"]: run["state"] for run in runs(conn, acme, schedule)}
    assert states == {begun: "succeeded", **dict.fromkeys(waiting, "cancelled")}
    assert read(acme, one.pk).finished_at is not None
    [told] = rows_of(conn, acme, "events_event")
    assert (told["type"], told["schedule_id"], told["data"]["state"]) == ("backfill.done", schedule, "undone")
    assert told["data"]["counts"]["undone"] == 5


def test_two_backfills_and_the_dispatcher_at_once_run_each_occurrence_once(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant, hour: datetime
) -> None:
    """All of them want the same hours; each is decided under the locks of the schedule."""
    from django.db import connection

    schedule = make_schedule(acme, **HOURLY, misfire="fire_all", now=hour - DAY)
    range_ = {"from": text(hour - 2 * DAY), "to": text(hour)}
    both = [backfill(acme, schedule, **range_, max_in_flight=100) for _ in range(2)]

    def worked_off() -> None:
        try:
            passes(10)
        finally:
            connection.close()

    at_once(worked_off, worked_off, lambda: fire_all(second, registry, now=hour))
    ended = [turns(acme, one.pk) for one in both]
    found = executions_of(conn, acme, schedule)
    assert len({one["nominal_at"] for one in found}) == len(found) == 49
    made = sum(one["trigger"] == "backfill" for one in found)
    assert made == sum(one.running for one in ended) == 25, "what was due is not theirs"
    assert sum(one.running + one.skipped for one in ended) == sum(one.planned for one in ended)
