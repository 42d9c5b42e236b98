"""Runs that have ended or never were, each with the cause that must be named, over rows as the processes make them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tests.explain.situations import cancel
from tests.explain.stage import Stage
from tests.explain.table import Asked, situation
from tests.fixtures_flow import actor, executions_of, fire, make_schedule


@situation("succeeded", "It succeeded at", fine=True)
def it_succeeded(stage: Stage) -> Asked:
    stage.end(stage.begin(run := stage.run()))
    return "execution", run


@situation("started_late", "50 s after it was due", "job_concurrency for 40 s")
def it_started_late(stage: Stage) -> Asked:
    stage.end(stage.begin(run := stage.run()))
    times = {
        "actual_at": stage.at(-60),
        "created_at": stage.at(-60),
        "queued_at": stage.at(-11),
        "started_at": stage.at(-10),
    }
    told = Jsonb([{"code": "job_concurrency", "s": 40.0}, {"code": "pool_full", "s": 8.0}])
    return "execution", stage.execution(run, delays=told, **times)


@situation("max_queue_age", "had 5 s to start")
def it_expired(stage: Stage) -> Asked:
    from apps.outcomes.expire import expire_batch

    run = stage.run(stage.job(max_queue_age_s=5))
    stage.ticket(run, start_by=stage.at(-1), actual_at=stage.at(-6))
    expire_batch(stage.conn, stage.registry, now=stage.now, limit=10)
    return "execution", run


@situation("cancelled", "by test", "before it started")
def it_was_cancelled(stage: Stage) -> Asked:
    cancel(stage, run := stage.run())
    return "execution", run


@situation("attempts_used_up", "after 1 attempt of 1", "the printer burns")
def it_used_up_its_tries(stage: Stage) -> Asked:
    run = stage.run(stage.job(retry={"max_attempts": 1}))
    stage.end(stage.begin(run), "failed", error={"class": "fire", "message": "the printer burns"})
    return "execution", run


@situation("not_retryable", "(status 400)")
def it_failed_for_good(stage: Stage) -> Asked:
    stage.end(
        stage.begin(run := stage.run()),
        "failed",
        retryable=False,
        error={"class": "http", "status": 400, "message": "no"},
    )
    return "execution", run


@situation("total_timeout", "total time-out")
def its_total_time_out_ended(stage: Stage) -> Asked:
    stage.end(stage.begin(run := stage.run(stage.job(timeout_s=1, total_timeout_s=1))), "failed")
    return "execution", run


@situation("replaced", "newer run of its schedule")
def a_newer_one_took_its_place(stage: Stage) -> Asked:
    return "execution", as_left(stage, state="skipped", reason="replaced")


def passed_over(stage: Stage, schedule: UUID, minutes: int) -> UUID:
    """The row that firing makes when it is so late."""
    stage.entry(schedule, nominal_at=(due := at_minute(stage, -minutes)), due_at=due)
    fire(stage.conn, stage.registry, now=stage.now)
    found = [one for one in executions_of(stage.conn, stage.tenant, schedule) if one["state"] == "skipped"]
    assert len(found) == 1
    id_: UUID = found[0]["id"]
    return id_


def at_minute(stage: Stage, minutes: int) -> datetime:
    return stage.now.replace(second=0, microsecond=0) + timedelta(minutes=minutes)


@situation("dependency_not_met", "to succeed", "is dead")
def what_it_depends_on_failed(stage: Stage) -> Asked:
    run = stage.run(depends_on=[str(parent := stage.run())])
    stage.end(stage.begin(parent), "failed", retryable=False)
    return "execution", run


@situation("misfire_skipped", "occurrences from", "did not run")
def it_was_missed(stage: Stage) -> Asked:
    return "execution", passed_over(stage, make_schedule(stage.tenant, now=stage.now, misfire="skip"), 5)


@situation("overlap_skipped", "a run of its schedule was still under way")
def the_one_before_still_ran(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now, overlap="skip")
    stage.ticket(stage.run(), schedule_id=schedule, schedule_version=1, guarded=True)
    return "execution", passed_over(stage, schedule, 0)


@situation("daily_quota", "the day's runs of the plan are used up")
def the_days_runs_were_used(stage: Stage) -> Asked:
    stage.plan(max_runs_per_day=0)
    stage.registry.refresh(force=True)
    return "execution", passed_over(stage, make_schedule(stage.tenant, now=stage.now), 0)


@situation("backlog_full", "did not run")
def the_backlog_was_full(stage: Stage) -> Asked:
    stage.plan(max_live=1)
    stage.registry.refresh(force=True)
    stage.run()
    return "execution", passed_over(stage, make_schedule(stage.tenant, now=stage.now), 0)


@situation("tenant_suspended", "the tenant was suspended")
def the_tenant_was_suspended(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now)
    stage.conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE id = %s", [stage.tenant.pk])
    stage.registry.refresh(force=True)
    return "execution", passed_over(stage, schedule, 0)


@situation("gap_recorded", "a repair of its schedule recorded it as skipped")
def a_repair_wrote_it_off(stage: Stage) -> Asked:
    from apps.dispatch.completeness.repairing import completeness_repair

    schedule = make_schedule(stage.tenant, now=stage.at(-150))
    fire(stage.conn, stage.registry, now=stage.now)
    lost = executions_of(stage.conn, stage.tenant, schedule)[0]["id"]
    table = f"{stage.tenant.schema_name}.executions_execution"
    stage.conn.execute(f"DELETE FROM {table} WHERE id = %s", [lost])
    completeness_repair(
        tenant=stage.tenant, actor=actor(stage.tenant), schedule_id=schedule, since=stage.at(-3600), until=stage.now,
        now=stage.now, how="skip",
    )  # fmt: skip
    rows = executions_of(stage.conn, stage.tenant, schedule)
    return "execution", next(one["id"] for one in rows if one["reason"] == "gap_recorded")


@situation("misfire_capped", "more had been missed than its misfire policy makes up for")
def more_were_missed_than_are_made_up_for(stage: Stage) -> Asked:
    return "execution", passed_over(
        stage, make_schedule(stage.tenant, now=stage.now, misfire="fire_all", misfire_max=1), 5
    )


@situation("misfire_too_old", "older than its misfire policy makes up for")
def it_was_missed_for_too_long(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now, misfire="fire_all", misfire_max_age_s=120)
    return "execution", passed_over(stage, schedule, 5)


@situation("schedule_changed", "its schedule was changed before it was fired", "by test")
def its_schedule_was_changed(stage: Stage) -> Asked:
    from apps.schedules.services_schedules import schedule_update

    return "execution", dropped(stage, schedule_update, patch={"trigger": {"cron": "0 0 * * *"}})


@situation("schedule_deleted", "its schedule was deleted before it was fired", "by test")
def its_schedule_was_deleted(stage: Stage) -> Asked:
    from apps.schedules.services_schedules import schedule_delete

    return "execution", dropped(stage, schedule_delete)


@situation("schedule_paused", "the schedule is paused", "by test")
def its_schedule_was_paused(stage: Stage) -> Asked:
    from apps.schedules.services import schedule_pause

    return "execution", dropped(stage, schedule_pause, reason="holidays")


def dropped(stage: Stage, change: Callable[..., Any], **more: Any) -> UUID:
    """The row that a change of a schedule makes of what is due and was not fired."""
    schedule = make_schedule(stage.tenant, now=stage.now)
    stage.entry(schedule, nominal_at=(due := at_minute(stage, -1)), due_at=due)
    change(tenant=stage.tenant, actor=stage.actor(), schedule_id=schedule, now=stage.now, **more)
    [made] = executions_of(stage.conn, stage.tenant, schedule)
    assert made["state"] == "skipped"
    id_: UUID = made["id"]
    return id_


@situation("excluded_by_policy", "after 1 attempt.", "it went wrong")
def its_policy_does_not_try_that_again(stage: Stage) -> Asked:
    run = stage.run(stage.job(retry={"max_attempts": 3, "retry_on": ["timed_out"]}))
    stage.end(stage.begin(run), "failed")
    return "execution", run


@situation("outcome_unknown", "the line broke")
def nobody_knows_how_it_ended(stage: Stage) -> Asked:
    error = {"class": "timed_out", "message": "the line broke", "outcome_unknown": True}
    stage.end(stage.begin(run := stage.run()), "failed", error=error)
    return "execution", run


@situation("undecodable", "It failed for good")
def its_definition_could_not_be_read(stage: Stage) -> Asked:
    return "execution", as_left(stage, state="dead", reason="undecodable")


@situation("dead", "It failed for good")
def it_died_for_a_reason_of_a_later_release(stage: Stage) -> Asked:
    return "execution", as_left(stage, state="dead", reason="of a later release")


@situation("skipped", "It did not run")
def it_was_skipped_for_a_reason_of_a_later_release(stage: Stage) -> Asked:
    return "execution", as_left(stage, state="skipped", reason="of a later release")


def as_left(stage: Stage, **columns: Any) -> UUID:
    """As another release would have ended it."""
    run = stage.run()
    stage.conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [run])
    return stage.execution(run, finished_at=stage.now, **columns)
