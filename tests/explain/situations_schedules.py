"""Schedules, now and at an instant, each with the cause that must be named, over rows as the processes make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from tests.explain.situations_ended import at_minute, passed_over
from tests.explain.stage import Stage
from tests.explain.table import Asked, situation
from tests.fixtures_flow import executions_of, fire, make_schedule


@situation("next_run", "The next run is due in", fine=True, clears=True)
def it_runs_as_planned(stage: Stage) -> Asked:
    return "schedule", make_schedule(stage.tenant, now=stage.now)


@situation("schedule_paused", "by test", "holidays", "It goes on by itself", clears=True)
def somebody_paused_it(stage: Stage) -> Asked:
    from apps.schedules.services import schedule_pause

    schedule = make_schedule(stage.tenant, now=stage.now)
    schedule_pause(
        tenant=stage.tenant, actor=stage.actor(), schedule_id=schedule, now=stage.now, reason="holidays",
        resume_at=stage.at(3600),
    )  # fmt: skip
    return "schedule", schedule


@situation("schedule_auto_paused", "the platform", "A run has died")
def it_was_paused_after_failures(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, stage.job(retry={"max_attempts": 1}), now=stage.now, pause_after_failures=1)
    stage.entry(schedule, nominal_at=(due := at_minute(stage, 0)), due_at=due)
    fire(stage.conn, stage.registry, now=stage.now)
    [made] = executions_of(stage.conn, stage.tenant, schedule)
    stage.end(stage.begin(made["id"]), "failed")
    return "schedule", schedule


@situation("schedule_completed", "no further instant")
def it_has_run_for_the_last_time(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now, trigger={"at": stage.at(60).isoformat()})
    stage.conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
    stage.now += timedelta(seconds=120)
    return "schedule", schedule


@situation("tenant_inactive", "suspended")
def its_tenant_is_suspended(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now)
    stage.conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE id = %s", [stage.tenant.pk])
    return "schedule", schedule


@situation("job_paused", "maintenance", "by test")
def its_job_is_paused(stage: Stage) -> Asked:
    from apps.schedules.services import job_pause

    schedule = make_schedule(stage.tenant, job := stage.job(), now=stage.now)
    job_pause(tenant=stage.tenant, actor=stage.actor(), job_id=job, now=stage.now, reason="maintenance")
    return "schedule", schedule


@situation("entry_parked", "ValueError")
def its_due_entry_is_parked(stage: Stage) -> Asked:
    return "schedule", stage.entry(make_schedule(stage.tenant, now=stage.now), parked="ValueError: no")


@situation("clock_implausible", "longer than the clock can be right about")
def its_due_entry_is_held(stage: Stage) -> Asked:
    long_ago = datetime(2001, 1, 1, tzinfo=UTC)
    return "schedule", stage.entry(make_schedule(stage.tenant, now=stage.now), nominal_at=long_ago, due_at=long_ago)


@situation("entry_missing", "has no due entry")
def its_due_entry_is_lost(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now)
    stage.conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
    return "schedule", schedule


@situation("no_dispatcher", "No live dispatcher holds shard")
def its_shard_has_no_dispatcher(stage: Stage) -> Asked:
    stage.conn.execute("UPDATE due_shardlease SET owner = NULL WHERE kind = 'fire'")
    return "schedule", make_schedule(stage.tenant, now=stage.now)


@situation("due_now", "It has been due for")
def the_dispatcher_is_behind(stage: Stage) -> Asked:
    due = at_minute(stage, -3)
    return "schedule", stage.entry(make_schedule(stage.tenant, now=stage.now), nominal_at=due, due_at=due)


@situation("dispatch_paused", "they wait")
def its_runs_are_held(stage: Stage) -> Asked:
    stage.conn.execute("UPDATE tenants_tenant SET dispatch_paused = true WHERE id = %s", [stage.tenant.pk])
    return "schedule", make_schedule(stage.tenant, now=stage.now)


@situation("overlap_skipped", "still under way", "The next run is due in", clears=True)
def its_last_occurrence_was_skipped(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now, overlap="skip")
    stage.ticket(stage.run(), schedule_id=schedule, schedule_version=1, guarded=True)
    passed_over(stage, schedule, 0)
    return "schedule", schedule


@situation("run_waits", "has waited for")
def its_last_run_waits(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now, grace_s=3600)
    stage.entry(schedule, nominal_at=(due := at_minute(stage, -2)), due_at=due)
    fire(stage.conn, stage.registry, now=stage.now)
    newest = executions_of(stage.conn, stage.tenant, schedule)[-1]
    stage.execution(newest["id"], actual_at=stage.at(-120))
    return "schedule", schedule


@situation("excluded", "excluded by the calendar")
def its_calendar_excludes_that_day(stage: Stage) -> Asked:
    day = (stage.now + timedelta(days=2)).date()
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    schedule = make_schedule(stage.tenant, cron="0 12 * * *", now=stage.now, calendar=calendar(stage, day.isoformat()))
    return "schedule", schedule, noon


def calendar(stage: Stage, *dates: str) -> str:
    from apps.schedules.services_calendars import calendar_create

    made = calendar_create(
        tenant=stage.tenant, actor=stage.actor(), data={"name": f"days {uuid4().hex[:8]}", "dates": list(dates)},
        now=stage.now,
    )  # fmt: skip
    return str(made.pk)


@situation("outside_window", "outside of the daily windows")
def it_lies_outside_of_its_windows(stage: Stage) -> Asked:
    window = [{"from": "08:00", "to": "09:00"}]
    schedule = make_schedule(stage.tenant, cron="0 * * * *", now=stage.now, windows=window, outside="skip")
    return "schedule", schedule, midnight(stage) + timedelta(hours=12)


def midnight(stage: Stage) -> datetime:
    """Of tomorrow."""
    return stage.now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


@situation("not_an_occurrence", "before it on", "after it on")
def it_does_not_fall_on_that_time(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, cron="0 12 * * *", now=stage.now)
    return "schedule", schedule, midnight(stage) + timedelta(hours=13)


@situation("to_come", "still to come", fine=True)
def that_time_is_to_come(stage: Stage) -> Asked:
    return (
        "schedule",
        make_schedule(stage.tenant, cron="0 12 * * *", now=stage.now),
        midnight(stage) + timedelta(hours=12),
    )


@situation("misfire_skipped", "did not run")
def that_time_was_missed(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now, misfire="skip")
    passed_over(stage, schedule, 5)
    return "schedule", schedule, at_minute(stage, -4)


@situation("made", "was made a run, which is ready")
def that_time_was_made_a_run(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, now=stage.now)
    stage.entry(schedule, nominal_at=(due := at_minute(stage, 0)), due_at=due)
    fire(stage.conn, stage.registry, now=stage.now)
    return "schedule", schedule, due


@situation("not_recorded", "before the schedule's present definition")
def that_time_was_before_it_was_defined(stage: Stage) -> Asked:
    return "schedule", make_schedule(stage.tenant, now=stage.now), at_minute(stage, -60)


@situation("dst_gap_skipped", "does not run")
def the_clock_skips_that_time(stage: Stage) -> Asked:
    schedule = make_schedule(stage.tenant, cron="30 2 28 3 *", now=stage.now, timezone="Europe/Berlin", dst_gap="skip")
    return "schedule", schedule, datetime(2027, 3, 28, 1, tzinfo=UTC)


@situation("nothing_ahead", "Nothing was found up to", clears=True)
def nothing_was_found_for_years(stage: Stage) -> Asked:
    """As firing leaves it where a search gave up: the entry is no occurrence, and says from where to look again."""
    later = datetime(2048, 1, 1, microsecond=1, tzinfo=UTC)
    return "schedule", stage.entry(make_schedule(stage.tenant, now=stage.now), nominal_at=later, due_at=later)


@situation("not_an_occurrence", "before it on 2028-02-29", "after it on 2032-02-29")
def it_falls_between_leap_days(stage: Stage) -> Asked:
    return "schedule", make_schedule(stage.tenant, cron="0 12 29 2 *", now=stage.now), datetime(2029, 1, 1, tzinfo=UTC)
