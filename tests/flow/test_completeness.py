"""Completeness: what the definitions of then expected against what is written; what is missing is found exactly."""

from __future__ import annotations

import uuid
import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from apps.archive.forgotten import forgotten
from apps.dispatch.completeness.checking import Completeness, completeness_of
from apps.dispatch.completeness.comparing import Record, compare
from apps.dispatch.completeness.expecting import Part
from apps.dispatch.completeness.mending import mended
from apps.dispatch.completeness.repairing import Repair, completeness_repair
from apps.schedules.models import Schedule
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
from apps.schedules.timing import Cron, Spec
from apps.schedules.timing_rezoned import ZONE_SHIFT_MAX
from apps.schedules.timing_zones import zone_file
from kernel.errors import Conflict, InvalidInput
from tenants.models import Tenant
from tenants.registry import Registry
from tenants.work import in_tenant
from tests.fixtures_flow import MINUTE, NOW, actor, at_once, count, executions_of, fire_all, make_job, make_schedule

Conn = psycopg.Connection[Any]
HOUR = timedelta(hours=1)
FAR = timedelta(days=400)
SEEDS = 4


def look(conn: Conn, tenant: Tenant, schedule: UUID, *, now: datetime, since: datetime = NOW - FAR) -> Completeness:
    return in_tenant(tenant, lambda: completeness_of(tenant, schedule, since=since, until=now + FAR, now=now))


def mend(tenant: Tenant, schedule: UUID, *, now: datetime, **more: Any) -> Repair:
    return completeness_repair(
        tenant=tenant, actor=actor(tenant), schedule_id=schedule, since=NOW - FAR, until=now + FAR, now=now, **more
    )


def lose(conn: Conn, tenant: Tenant, *ids: UUID) -> None:
    """Rows go, as no service removes them."""
    table = sql.Identifier(tenant.schema_name, "executions_execution")
    conn.execute(sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(table), [list(ids)])
    conn.execute("DELETE FROM tickets_ticket WHERE execution_id = ANY(%s)", [list(ids)])


def gaps(found: Completeness) -> list[tuple[int, datetime, datetime, int]]:
    return [(gap.version, gap.first, gap.last, gap.count) for gap in found.found.gaps]


def at(minutes: float) -> datetime:
    return NOW + minutes * MINUTE


CHANGES = (
    "edit",
    "payload",
    "policy",
    "max_runs",
    "calendar",
    "down",
    "suspend",
    "stand_of_job",
    "stand",
    "stand",
    "stand",
)


class Life:
    """A schedule of every 7 minutes with jitter, to which things are done at random, beside a driven dispatcher."""

    def __init__(self, conn: Conn, registry: Registry, tenant: Tenant, seed: int) -> None:
        self.conn, self.registry, self.tenant, self.random, self.now = conn, registry, tenant, Random(seed), NOW
        self.by: dict[str, Any] = {"tenant": tenant, "actor": actor(tenant)}
        self.up, self.suspended, self.job_stands = True, False, False
        name, overlap = f"days {uuid.uuid4()}", self.random.choice(["allow", "skip", "buffer_one"])
        self.days = calendar_create(**self.by, data={"name": name, "dates": ["2025-01-01"]}, now=NOW)
        self.job = make_job(tenant)
        self.schedule = make_schedule(
            tenant, self.job, cron="*/7 * * * *", calendar=name, jitter_s=20, overlap=overlap, misfire_max=1
        )  # fmt: skip

    def step(self) -> None:
        """Some time passes, then something is done."""
        self.now += timedelta(seconds=self.random.randint(1, 6_000))
        if self.up and self.random.random() < 0.8:
            fire_all(self.conn, self.registry, now=self.now)
        with suppress(Conflict, InvalidInput):  # nothing is left to pause, or to run
            getattr(self, self.random.choice(CHANGES))()

    def end(self) -> None:
        self.now += HOUR
        if self.suspended:
            self.suspend()
        fire_all(self.conn, self.registry, now=self.now)

    def update(self, **patch: Any) -> None:
        schedule_update(**self.by, schedule_id=self.schedule, patch=patch, now=self.now)

    def edit(self) -> None:
        self.update(trigger={"cron": f"*/{self.random.randint(1, 30)} * * * *"})

    def payload(self) -> None:
        self.update(payload={"n": self.random.random()})

    def policy(self) -> None:
        misfire = self.random.choice(["skip", "fire_once", "fire_latest_n", "fire_all"])
        self.update(misfire=misfire, grace_s=self.random.randint(0, 300))

    def max_runs(self) -> None:
        self.update(max_runs=self.random.choice([None, self.random.randint(1, 200)]))

    def calendar(self) -> None:
        dates = [f"2025-01-{self.random.randint(6, 9):02}"]
        calendar_update(**self.by, calendar_id=self.days.pk, patch={"dates": dates}, now=self.now)

    def down(self) -> None:
        self.up = not self.up

    def suspend(self) -> None:
        self.suspended = not self.suspended
        status = "suspended" if self.suspended else "active"
        self.conn.execute("UPDATE tenants_tenant SET status = %s WHERE id = %s", [status, self.tenant.pk])
        self.registry.refresh(force=True)

    def stand_of_job(self) -> None:
        self.job_stands = not self.job_stands
        (job_pause if self.job_stands else job_resume)(**self.by, job_id=self.job, now=self.now)

    def stand(self) -> None:
        """The schedule is paused, until some time or not, or goes on, making up for it or not."""
        one: dict[str, Any] = {**self.by, "schedule_id": self.schedule, "now": self.now}
        paused = (
            in_tenant(
                self.tenant, lambda: Schedule.objects.filter(pk=self.schedule).values_list("status", flat=True).get()
            )
            == Schedule.Status.PAUSED
        )
        if paused and self.random.random() < 0.8:
            schedule_resume(**one, catch_up=self.random.random() < 0.6)
        else:
            until = self.now + timedelta(seconds=self.random.randint(1, 6_000))
            schedule_pause(**one, resume_at=self.random.choice([None, until]))


def check(conn: Conn, registry: Registry, tenant: Tenant, seed: int) -> None:
    life = Life(conn, registry, tenant, seed)
    for _ in range(25):
        life.step()
    life.end()
    schedule, now = life.schedule, life.now
    found = look(conn, tenant, schedule, now=now)
    assert gaps(found) == [] and found.expected.unknown == (), seed
    rows = executions_of(conn, tenant, schedule)
    assert found.found.expected == sum(row["count"] for row in rows) + found.found.pending, seed
    lost = life.random.choice(rows)
    lose(conn, tenant, lost["id"])
    missing = look(conn, tenant, schedule, now=now).found
    assert missing.missing == lost["count"], seed
    ends = missing.gaps[0].first, missing.gaps[-1].last
    assert ends == (lost["nominal_at"], lost["until_at"] or lost["nominal_at"]), seed
    mend(tenant, schedule, now=now)
    after = look(conn, tenant, schedule, now=now)
    assert after.complete and after.found.expected == found.found.expected, seed


def test_whatever_is_done_to_a_schedule_it_is_complete_and_a_row_that_goes_is_the_gap(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    for seed in range(SEEDS):
        check(conn, registry, acme, seed)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_the_same_of_many_schedules(conn: Conn, registry: Registry, acme: Tenant) -> None:
    for seed in range(SEEDS, 400):
        check(conn, registry, acme, seed)


def test_what_is_missing_is_made_up_for_as_its_policies_say(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Under the version of then; what stands still now makes no run; what is said twice is done once."""
    schedule = make_schedule(acme, misfire="fire_latest_n", misfire_max=2, misfire_max_age_s=3_300)
    for minute in range(1, 61):
        fire_all(conn, registry, now=at(minute))
    schedule_update(
        tenant=acme, actor=actor(acme), schedule_id=schedule, patch={"misfire": "fire_once"}, now=at(60)
    )  # fmt: skip
    for minute in range(61, 71):
        fire_all(conn, registry, now=at(minute))
    rows = {row["nominal_at"]: row["id"] for row in executions_of(conn, acme, schedule)}
    lost = [5, 20, 21, 22, 40, 62]
    lose(conn, acme, *(rows[at(minute)] for minute in lost))
    now = at(70.5)
    wanted = [(1, at(5), at(5), 1), (1, at(20), at(22), 3), (1, at(40), at(40), 1), (2, at(62), at(62), 1)]
    assert gaps(look(conn, acme, schedule, now=now)) == wanted
    would = mend(acme, schedule, now=now, dry_run=True)
    assert (would.made, would.skipped, would.put_back) == (2, 4, False)
    assert gaps(look(conn, acme, schedule, now=now)) == wanted, "nothing is written"
    done = mend(acme, schedule, now=now)
    assert (done.made, done.skipped) == (2, 4)
    found = {row["nominal_at"]: row for row in executions_of(conn, acme, schedule)}
    assert {minute: found[at(minute)]["reason"] or found[at(minute)]["trigger"] for minute in lost if minute != 21} == {
        5: "misfire_too_old", 20: "misfire_skipped", 22: "catch_up", 40: "catch_up", 62: "misfire_skipped",
    }  # fmt: skip
    assert (found[at(20)]["until_at"], found[at(20)]["count"]) == (at(21), 2)
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE trigger = 'catch_up'") == 2
    again = mend(acme, schedule, now=now)
    assert (again.before.complete, again.made, again.skipped) == (True, 0, 0)
    assert count(conn, "SELECT count(*) FROM audit_auditevent WHERE action = 'schedule.repair'") == 1

    lose(conn, acme, found[at(30)]["id"], found[at(69)]["id"])
    schedule_pause(tenant=acme, actor=actor(acme), schedule_id=schedule, now=now)
    assert (mend(acme, schedule, now=now).made, mend(acme, schedule, now=now).skipped) == (0, 0)
    found = {row["nominal_at"]: row for row in executions_of(conn, acme, schedule)}
    assert {found[at(30)]["reason"], found[at(69)]["reason"]} == {"schedule_paused"}
    lose(conn, acme, found[at(31)]["id"])
    assert mend(acme, schedule, now=now, how="skip").skipped == 1
    [row] = [row for row in executions_of(conn, acme, schedule) if row["nominal_at"] == at(31)]
    assert (row["state"], row["reason"]) == ("skipped", "gap_recorded")
    schedule_delete(tenant=acme, actor=actor(acme), schedule_id=schedule, now=now)
    lose(conn, acme, row["id"])
    assert (mend(acme, schedule, now=at(75)).skipped, look(conn, acme, schedule, now=at(75)).complete) == (1, True)


def test_two_repairs_beside_the_dispatcher_make_one_run(conn: Conn, registry: Registry, acme: Tenant) -> None:
    for _ in range(3):
        schedule = make_schedule(acme, misfire="fire_all", overlap="buffer_all", overlap_max=150)
        fire_all(conn, registry, now=at(10))
        lose(conn, acme, executions_of(conn, acme, schedule)[4]["id"])
        repair = partial(mend, acme, schedule, now=at(20))
        _, *done = at_once(partial(fire_all, conn, registry, now=at(20)), repair, repair)
        assert sum(one.made for one in done) == 1
        found = look(conn, acme, schedule, now=at(20))
        assert found.complete and found.found.ran + found.found.pending == 20


def test_what_nobody_can_know_is_said_and_is_no_gap(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """What retention deleted for good, and zone data that was other: only where the rules differ."""
    schedule = make_schedule(
        acme, cron="0 9 * * *", timezone="Europe/Berlin", misfire="fire_all", misfire_max=500, now=NOW
    )  # fmt: skip
    now = NOW + timedelta(days=200)
    fire_all(conn, registry, now=now)
    rows = executions_of(conn, acme, schedule)
    assert look(conn, acme, schedule, now=now).complete and len(rows) == 200
    lose(conn, acme, *(row["id"] for row in rows[:30]))
    assert look(conn, acme, schedule, now=now).found.missing == 30
    forgotten(conn, acme.schema_name, before=NOW + timedelta(days=31))
    forgotten(conn, acme.schema_name, before=NOW + timedelta(days=30))
    found = look(conn, acme, schedule, now=now)
    assert found.complete and found.found.expected == 169
    assert [(part.until, part.reason) for part in found.expected.unknown] == [(NOW + timedelta(days=31), "not_kept")]

    # As if the data had first been the same, and then without summer time until ten days ago.
    lose(conn, acme, rows[100]["id"], rows[-1]["id"])
    for zone, days in (("Europe/Berlin", 120), ("Africa/Algiers", 190)):  # Algiers is Berlin's winter time
        conn.execute(
            "INSERT INTO due_zonechange (zone, at, file) VALUES ('Europe/Berlin', %s, %s)",
            [NOW + timedelta(days=days), zlib.compress(zone_file(zone))],
        )
    found = look(conn, acme, schedule, now=now)
    summer = found.expected.unknown[1]
    begins = datetime(2025, 3, 30, 1, tzinfo=UTC)
    assert (summer.after, summer.until) == (begins - ZONE_SHIFT_MAX, NOW + timedelta(days=190) + 2 * ZONE_SHIFT_MAX)
    assert gaps(found) == [(1, rows[-1]["nominal_at"], rows[-1]["nominal_at"], 1)], "what is sure is told"


@given(
    every=st.integers(1, 20), lost=st.sets(st.integers(0, 199), max_size=60), live=st.integers(0, 3),
    misfire=st.sampled_from(["skip", "fire_once", "fire_latest_n", "fire_all"]), most=st.integers(1, 8),
    policy=st.sampled_from(["allow", "skip", "buffer_one", "replace_pending", "cancel_running"]),
    age_s=st.none() | st.integers(61, 200_000), ran=st.booleans(), newest=st.booleans(),
)  # fmt: skip
def test_each_missing_occurrence_becomes_one_run_or_is_in_one_row(
    every: int, lost: set[int], live: int, misfire: str, most: int, policy: str, age_s: int | None, ran: bool,
    newest: bool,
) -> None:  # fmt: skip
    spec = Spec(
        Cron((f"*/{every} * * * *",)), misfire=misfire, misfire_max=most, overlap=policy, misfire_max_age_s=age_s,
        misfire_order="newest" if newest else "oldest",
    )  # fmt: skip
    part = Part(1, spec, NOW, NOW + timedelta(days=3))
    instants = list(islice(part.instants(), 200))
    part = Part(1, spec, NOW, instants[-1])
    records = [Record(one, None, "succeeded", "") for number, one in enumerate(instants) if number not in lost]
    found = compare([part], records, due_from=None, later=lambda first, last: ())
    assert (found.expected, found.missing, found.ran) == (200, len(lost), 200 - len(lost))
    now = NOW + timedelta(days=3)
    plans = mended(found.gaps, now=now, live=live, ran_since=ran)
    fired = [fire.nominal_at for plan in plans for fire in plan.fires]
    told = [one for plan in plans for skip in plan.skips for one in instants if skip.nominal_at <= one <= skip.until]
    assert sorted(fired + told) == [instants[number] for number in sorted(lost)]
    assert sum(skip.count for plan in plans for skip in plan.skips) == len(told)
    assert len(fired) <= {"skip": 0, "fire_once": int(not ran)}.get(misfire, most)
    if policy not in ("allow", "buffer_one"):
        assert len(fired) <= int(not live)
