"""Misfire, overlap and pausing through the database: the cases from public bug reports, and their invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.repairs import run_all
from apps.schedules.services import job_pause, job_resume, schedule_pause, schedule_resume, schedule_update
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    count,
    entry_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    settle_as,
    started_now,
    ticket_of,
)
from tests.schedules.cases import case, text, utc

Conn = psycopg.Connection[Any]
SECOND = timedelta(seconds=1)


class Timeline:
    """A dispatcher that looks every second while it is up, and what happens to a schedule meanwhile."""

    def __init__(self, conn: Conn, registry: Registry, tenant: Tenant) -> None:
        self.conn, self.registry, self.tenant = conn, registry, tenant
        self.up = True

    def make(self, given: dict[str, Any], *, now: datetime, **more: Any) -> UUID:
        trigger = {"cron": given["cron"]} if "cron" in given else {"every_s": given["every"]}
        if "anchor" in given:
            trigger["anchor"] = given["anchor"]
        window = {"start_at": given["start_at"]} if "start_at" in given else {}
        zone = {"timezone": given["tz"]} if "tz" in given else {}
        return make_schedule(self.tenant, trigger=trigger, now=now, **zone, **window, **more)

    def run(self, *, after: datetime, until: datetime) -> None:
        """Looks at each second at which something is due: the others would find nothing."""
        now = after
        while self.up and now < until:
            row = self.conn.execute("SELECT min(due_at) FROM due_dueentry WHERE parked = ''").fetchone()
            due = row[0] if row else None
            if due is None:
                return
            now = max(now, due)
            if now > until:
                return
            fire_all(self.conn, self.registry, now=now)


def fires(conn: Conn, tenant: Tenant, schedule: UUID) -> list[dict[str, str]]:
    """Runs with the time at which they were made, which the cases call actual."""
    return [
        {"nominal": text(one["nominal_at"]), "actual": text(one["created_at"])}
        for one in executions_of(conn, tenant, schedule)
        if one["state"] != "skipped"
    ]


def accounted(conn: Conn, tenant: Tenant, schedule: UUID) -> int:
    """Occurrences that have a disposition: a run each, and what the skip rows stand for."""
    return sum(one["count"] for one in executions_of(conn, tenant, schedule))


TIMELINES = ("B04", "B05", "B06", "B09", "B10", "B15", "B16")


@pytest.mark.parametrize("policy", ["skip", "fire_once", "fire_all"])
@pytest.mark.parametrize("number", TIMELINES)
def test_a_timeline_fires_what_the_case_says(
    conn: Conn, registry: Registry, acme: Tenant, number: str, policy: str
) -> None:
    """The dispatcher goes down and up, the schedule is edited; then its fires are those of the case."""
    given, expected = case("dispatcher.jsonl", number)["input"], case("dispatcher.jsonl", number)["expected"]
    timeline = Timeline(conn, registry, acme)
    schedule = timeline.make(
        given["schedule"],
        now=utc(given["created_utc"]),
        misfire=policy,
        misfire_max=1000,
        grace_s=given["skip_grace_s"],
    )
    now = utc(given["created_utc"])
    for event in given["events"]:
        at = utc(event["at_utc"])
        timeline.run(after=now, until=at)
        now = at
        if event["event"] == "edit":
            change = dict(event["change"])
            patch = {"timezone": change["tz"]} if "tz" in change else {"trigger": change}
            schedule_update(tenant=acme, actor=actor(acme), schedule_id=schedule, patch=patch, now=at)
        else:
            timeline.up = event["event"] == "up"
    until = utc(given["until_utc"])
    timeline.run(after=now, until=until)
    found = fires(conn, acme, schedule)
    if "fires_by_misfire_policy" in expected:
        assert found == expected["fires_by_misfire_policy"][policy]
    elif "fires" in expected:
        assert found == expected["fires"]
    else:
        assert len(found) == expected["fire_count_by_policy"][policy]
    assert len({one["nominal"] for one in found}) == len(found)
    if number in ("B04", "B05"):
        created = utc(given["created_utc"]).replace(second=0)
        assert accounted(conn, acme, schedule) == (until - created) // MINUTE, "each minute has a disposition"
    assert entry_of(conn, schedule).due_at > until, "no number of missed slots stops a schedule"


def test_a_bounded_catch_up_keeps_the_newest_and_lists_the_rest(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case B04 with a bound of a hundred."""
    given = case("dispatcher.jsonl", "B04")
    timeline = Timeline(conn, registry, acme)
    source = given["input"]
    schedule = timeline.make(source["schedule"], now=utc(source["created_utc"]), misfire="fire_all", misfire_max=100)
    timeline.run(after=utc(source["events"][1]["at_utc"]), until=utc(source["until_utc"]))
    assert (
        len(fires(conn, acme, schedule)) == given["expected"]["fire_count_by_policy"]["fire_all_with_max_backfill_100"]
    )
    [skip] = [one for one in executions_of(conn, acme, schedule) if one["state"] == "skipped"]
    # All slots due are bounded together: at most a hundred are made at once, those on time included.
    missed = given["expected"]["missed_slots"]
    assert (skip["reason"], skip["count"]) == ("misfire_capped", missed - 100)
    assert skip["until_at"] == skip["nominal_at"] + (skip["count"] - 1) * MINUTE


@pytest.mark.parametrize("index", range(4))
def test_a_run_within_its_grace_is_not_missed(conn: Conn, registry: Registry, acme: Tenant, index: int) -> None:
    """Case B39."""
    given = case("dispatcher.jsonl", "B39")
    source, wanted = given["input"], given["expected"]["fired"][index]
    schedule = make_schedule(acme, cron=source["schedule"]["cron"], misfire="skip", grace_s=source["grace_s"], now=NOW)
    at = NOW.replace(hour=11)
    fire_all(conn, registry, now=at + source["tick_delay_s"][index] * SECOND)
    [run] = executions_of(conn, acme, schedule)
    assert run["state"] == ("ready" if wanted else "skipped")
    assert run["actual_at"] == at
    assert run["reason"] == ("" if wanted else "misfire_skipped")


def test_overlap_skip_moves_on_and_says_why(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case B42: a skipped slot does not come up again and again."""
    given = case("dispatcher.jsonl", "B42")
    source, expected = given["input"], given["expected"]
    anchor = utc(source["schedule"]["anchor"])
    schedule = make_schedule(
        acme, trigger={"every_s": source["schedule"]["every"], "anchor": text(anchor)}, overlap=source["overlap"],
        start_at=text(anchor), now=anchor - SECOND,
    )  # fmt: skip
    running: list[tuple[datetime, Any]] = []
    at = anchor
    while at <= utc(source["until_utc"]):
        for ends, started in [one for one in running if one[0] <= at]:
            settle_as(conn, registry, [started])
            running.remove((ends, started))
        fire_all(conn, registry, now=at)
        for one in executions_of(conn, acme, schedule):
            ticket = ticket_of(conn, one["id"])
            if ticket and ticket["state"] == "ready":
                [started] = started_now(conn, [one["id"]], acme_worker)
                running.append((at + source["run_duration_s"] * SECOND, started))
        at += 30 * SECOND
    runs = executions_of(conn, acme, schedule)
    assert [text(one["nominal_at"]) for one in runs if one["state"] != "skipped"] == expected["started_nominal"]
    skipped = [one for one in runs if one["state"] == "skipped"]
    assert [text(one["nominal_at"]) for one in skipped] == expected["skipped_nominal"]
    assert {one["reason"] for one in skipped} == {"overlap_skipped"}


@pytest.mark.parametrize(("overlap", "pending"), [("skip", 1), ("buffer_one", 2), ("allow", 10)])
def test_overlap_counts_what_waits_too(
    conn: Conn, registry: Registry, acme: Tenant, overlap: str, pending: int
) -> None:
    """Case B43: without workers one copy waits, not ten."""
    given = case("dispatcher.jsonl", "B43")
    schedule = make_schedule(acme, trigger={"every_s": given["input"]["schedule"]["every"]}, overlap=overlap)
    for minute in range(1, given["input"]["minutes"] + 1):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    states = Counter(one["state"] for one in executions_of(conn, acme, schedule))
    assert states["ready"] == pending
    assert states["skipped"] == given["input"]["minutes"] - pending
    if overlap == "skip":
        assert {"pending_runs": states["ready"], "skipped": states["skipped"]} == given["expected"]


def test_overlap_of_one_schedule_is_not_another_ones(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    make_schedule(acme, job, overlap="skip")
    fire_all(conn, registry, now=NOW + MINUTE)
    other = make_schedule(acme, job, overlap="skip", now=NOW + MINUTE)
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    assert [one["state"] for one in executions_of(conn, acme, other)] == ["ready"]


def pausing(tenant: Tenant, schedule: UUID, job: UUID) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    who = actor(tenant)
    of_schedule = [
        partial(do, tenant=tenant, actor=who, schedule_id=schedule) for do in (schedule_pause, schedule_resume)
    ]
    of_job = [partial(do, tenant=tenant, actor=who, job_id=job) for do in (job_pause, job_resume)]
    return {"schedule": (of_schedule[0], of_schedule[1]), "job": (of_job[0], of_job[1])}


@pytest.mark.parametrize("how", ["schedule", "job"])
@pytest.mark.parametrize("policy", ["skip", "fire_once", "fire_all"])
def test_pausing_builds_up_no_debt(conn: Conn, registry: Registry, acme: Tenant, how: str, policy: str) -> None:
    """Cases B46 and B02: whatever was paused, and under each policy, it goes on strictly from its resumption."""
    given = case("dispatcher.jsonl", "B46")
    source = given["input"]
    anchor = utc(source["schedule"]["anchor"])
    timeline = Timeline(conn, registry, acme)
    job = make_job(acme, now=anchor)
    trigger = {"every_s": source["schedule"]["every"], "anchor": text(anchor)}
    schedule = make_schedule(acme, job, trigger=trigger, misfire=policy, misfire_max=1000, now=anchor)
    pause, resume = pausing(acme, schedule, job)[how]
    paused, resumed = (utc(one) for one in source["paused_utc"])
    timeline.run(after=anchor, until=paused)
    pause(now=paused)
    assert entry_of(conn, schedule) is None
    timeline.run(after=paused, until=resumed)
    before = len(executions_of(conn, acme, schedule))
    resume(now=resumed)
    assert fire_all(conn, registry, now=resumed) == 0
    timeline.run(after=resumed, until=utc(source["until_utc"]))
    after = executions_of(conn, acme, schedule)[before:]
    assert [text(one["nominal_at"]) for one in after] == given["expected"]["fires_after_unpause"]


def test_what_was_due_and_not_fired_when_it_was_paused_has_a_row(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme)
    schedule_pause(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW + 5 * MINUTE)
    [row] = executions_of(conn, acme, schedule)
    assert (row["state"], row["reason"], row["count"]) == ("skipped", "schedule_paused", 5)
    assert (row["nominal_at"], row["until_at"]) == (NOW + MINUTE, NOW + 5 * MINUTE)


def test_an_edit_counts_from_now(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case B13."""
    given = case("dispatcher.jsonl", "B13")
    source = given["input"]
    anchor = utc(source["schedule"]["anchor"])
    schedule = make_schedule(acme, trigger={"every_s": 3600, "anchor": text(anchor)}, now=anchor)
    [event] = source["events"]
    at = utc(event["at_utc"])
    patch = {"trigger": {"every_s": event["change"]["every"]}}
    schedule_update(tenant=acme, actor=actor(acme), schedule_id=schedule, patch=patch, now=at)
    assert at < entry_of(conn, schedule).due_at <= utc(given["expected"]["first_fire_after_edit_by_utc"])


def test_a_burst_of_late_passes_gives_each_occurrence_one_disposition(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Irregular looks over a day, all policies side by side: nothing twice, nothing without a row."""
    job = make_job(acme)
    made = {
        (misfire, overlap): make_schedule(
            acme, job, trigger={"every_s": 600}, misfire=misfire, misfire_max=2, overlap=overlap
        )
        for misfire in ("skip", "fire_once", "fire_latest_n", "fire_all")
        for overlap in ("allow", "buffer_one")
    }
    at = NOW
    for minutes in (1, 9, 10, 11, 47, 3, 250, 600, 2, 2, 6, 13, 180, 10, 10, 10, 60, 216):
        at += minutes * MINUTE
        fire_all(conn, registry, now=at)
    for policies, schedule in made.items():
        owed = int((entry_of(conn, schedule).nominal_at - NOW) / (10 * MINUTE)) - 1
        assert accounted(conn, acme, schedule) == owed == 144, policies
        nominal = [one["nominal_at"] for one in executions_of(conn, acme, schedule)]
        assert len(set(nominal)) == len(nominal)
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == sum(
        one["state"] == "ready" for one in executions_of(conn, acme)
    )


acme_worker = UUID(int=1)


def suspending(tenant: Tenant, registry: Registry, status: str) -> Callable[..., None]:
    def set_status(*, now: datetime) -> None:
        Tenant.objects.filter(pk=tenant.pk).update(status=status)
        registry.refresh(force=True)

    return set_status


@pytest.mark.parametrize("how", ["schedule", "job", "tenant"])
def test_however_it_is_paused_it_goes_on_alike(conn: Conn, registry: Registry, acme: Tenant, how: str) -> None:
    """Case B02: the same next run, and nothing to catch up with."""
    given = case("dispatcher.jsonl", "B02")
    source = given["input"]
    disable, enable = utc(source["disable_utc"]), utc(source["enable_utc"])
    made = disable - timedelta(hours=1)
    job = make_job(acme, now=made)
    timeline = Timeline(conn, registry, acme)
    schedule = make_schedule(acme, job, cron=source["schedule"]["cron"], misfire="fire_all", now=made)
    ways = pausing(acme, schedule, job) | {
        "tenant": (suspending(acme, registry, "suspended"), suspending(acme, registry, "active"))
    }
    stop, go_on = ways[how]
    stop(now=disable)
    timeline.run(after=disable, until=enable)
    go_on(now=enable)
    assert fire_all(conn, registry, now=enable) == 0
    assert text(entry_of(conn, schedule).due_at) == given["expected"]["next_run_utc"]
    assert fires(conn, acme, schedule) == [] and count(conn, "SELECT count(*) FROM tickets_ticket") == 0
    rows = [(one["reason"], one["count"]) for one in executions_of(conn, acme, schedule)]
    assert rows == ([("tenant_suspended", 1)] if how == "tenant" else [])


def test_a_suspension_is_one_row_and_ends_without_a_burst(conn: Conn, registry: Registry, acme: Tenant) -> None:
    suspend, resume = (suspending(acme, registry, status) for status in ("suspended", "active"))
    schedule = make_schedule(acme, jitter_s=5, misfire="fire_all")
    timeline = Timeline(conn, registry, acme)
    timeline.run(after=NOW, until=NOW + 2.5 * MINUTE)
    suspend(now=NOW)
    timeline.run(after=NOW + 2.5 * MINUTE, until=NOW + 30.5 * MINUTE)
    fire_all(conn, registry, now=NOW + 90.5 * MINUTE)  # a dispatcher was away as well
    assert repair(conn, registry, acme) == []
    resume(now=NOW)
    timeline.run(after=NOW + 90.5 * MINUTE, until=NOW + 92.5 * MINUTE)
    runs = executions_of(conn, acme, schedule)
    assert [one["state"] for one in runs] == ["ready", "ready", "skipped", "ready", "ready"]
    gap = runs[2]
    assert (gap["nominal_at"], gap["until_at"], gap["count"]) == (NOW + 3 * MINUTE, NOW + 90 * MINUTE, 88)
    assert (gap["reason"], accounted(conn, acme, schedule)) == ("tenant_suspended", 92)
    assert [one["nominal_at"] for one in runs[3:]] == [NOW + 91 * MINUTE, NOW + 92 * MINUTE]
    suspend(now=NOW)
    timeline.run(after=NOW + 92.5 * MINUTE, until=NOW + 94.5 * MINUTE)
    assert [one["count"] for one in executions_of(conn, acme, schedule)] == [1, 1, 88, 1, 1, 2], "another suspension"


def test_a_tenant_that_was_just_let_go_is_not_skipped(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """What the dispatcher knows of tenants may be seconds old; a skip is for good, so it asks again."""
    schedule = make_schedule(acme)
    suspending(acme, registry, "suspended")(now=NOW)
    Tenant.objects.filter(pk=acme.pk).update(status="active")
    assert fire_all(conn, registry, now=NOW + MINUTE) == 1
    assert [one["state"] for one in executions_of(conn, acme, schedule)] == ["ready"]


def test_what_was_asked_for_waits_for_the_end_of_a_suspension(conn: Conn, registry: Registry, acme: Tenant) -> None:
    run = make_ticket(acme, delay_s=60)
    suspending(acme, registry, "suspended")(now=NOW)
    assert fire_all(conn, registry, now=NOW + 2 * MINUTE) == 1
    assert ticket_of(conn, run)["state"] == "ready"


def repair(conn: Conn, registry: Registry, tenant: Tenant) -> list[Any]:
    return list(run_all(conn, registry, [registry.by_id[tenant.pk]], dry_run=True))
