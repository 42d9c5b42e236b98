"""Situations that people ask about, each with the cause that must be named, over rows as the processes make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from tests.explain.stage import Stage
from tests.fixtures_flow import executions_of, fire, make_schedule

GONE = 1_000_000  # a tenant's number that no test has
Asked = tuple[str, UUID] | tuple[str, UUID, datetime]


@dataclass(frozen=True)
class Situation:
    """`says`: parts of the sentence. `holders`: how many are named. `clears`: whether a time is given."""

    name: str
    code: str
    make: Callable[[Stage], Asked]
    fine: bool
    says: tuple[str, ...]
    holders: int
    clears: bool


SITUATIONS: list[Situation] = []


def situation(
    code: str, *says: str, fine: bool = False, holders: int = 0, clears: bool = False
) -> Callable[[Callable[[Stage], Asked]], Callable[[Stage], Asked]]:
    def add(make: Callable[[Stage], Asked]) -> Callable[[Stage], Asked]:
        SITUATIONS.append(Situation(make.__name__, code, make, fine, says, holders, clears))
        return make

    return add


# --- waiting: every rule of admission ---


@situation("tenant_inactive", "suspended")
def tenant_is_suspended(stage: Stage) -> Asked:
    run = stage.run()
    stage.conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE id = %s", [stage.tenant.pk])
    return "execution", run


@situation("dispatch_paused", "operator")
def dispatch_is_paused(stage: Stage) -> Asked:
    run = stage.run()
    stage.conn.execute("UPDATE tenants_tenant SET dispatch_paused = true WHERE id = %s", [stage.tenant.pk])
    return "execution", run


@situation("job_paused", "maintenance", "by test")
def job_is_paused(stage: Stage) -> Asked:
    from apps.schedules.services import job_pause

    run = stage.run(job := stage.job())
    job_pause(tenant=stage.tenant, actor=stage.actor(), job_id=job, now=stage.now, reason="maintenance")
    return "execution", run


@situation("queue_paused", "printer is away")
def queue_is_paused(stage: Stage) -> Asked:
    from apps.tickets import pull_queues

    run = stage.run(stage.job(kind="pull", queue="invoices", target={}))
    pull_queues.pause(
        stage.conn, tenant_id=stage.tenant.pk, name="invoices", now=stage.now, reason="the printer is away"
    )
    return "execution", run


@situation("delayed", "asked for later", fine=True, clears=True)
def it_was_asked_for_later(stage: Stage) -> Asked:
    return "execution", stage.run(delay_s=600)


@situation("not_yet_due", "due at", fine=True, clears=True)
def catch_up_is_spread(stage: Stage) -> Asked:
    return "execution", stage.ticket(stage.run(), available_at=stage.at(30), actual_at=stage.at(30), rank=None)


@situation("retry_backoff", "attempt 1 failed of 3", clears=True)
def it_waits_for_its_next_try(stage: Stage) -> Asked:
    run = stage.run()
    stage.end(stage.begin(run), "failed")
    return "execution", stage.ticket(run, available_at=stage.at(60))


@situation("release_backoff", "handed out 2 times", clears=True)
def nobody_took_it(stage: Stage) -> Asked:
    return "execution", stage.ticket(stage.run(), available_at=stage.at(60), rank=None, releases=2)


@situation("breaker_open", "hooks.example:443", "connection refused", clears=True)
def its_destination_is_down(stage: Stage) -> Asked:
    from apps.tickets import breakers

    given = {"tenant_id": stage.tenant.pk, "destination": "hooks.example:443", "open_s": 60.0, "max_s": 600.0}
    breakers.open_(stage.conn, failures=10, reason="connection refused", **given)
    reason = "breaker_open hooks.example:443"
    return "execution", stage.ticket(stage.run(), available_at=stage.at(60), rank=None, wait_reason=reason)


@situation("expired", "had to start by")
def it_waited_for_too_long(stage: Stage) -> Asked:
    return "execution", stage.ticket(stage.run(), start_by=stage.at(-1))


@situation("workflow_blocked", "1 of 2 that it depends on", "succeeds (it is ready)", holders=1)
def it_depends_on_others(stage: Stage) -> Asked:
    first, second = stage.run(), stage.run()
    run = stage.run(depends_on=[str(first), str(second)])
    stage.end(stage.begin(first))
    return "execution", run


@situation("workflow_blocked", "reconcile")
def it_was_forgotten(stage: Stage) -> Asked:
    return "execution", stage.ticket(stage.run(), state="blocked", rank=None)


@situation("overlap", "its overlap policy", holders=1)
def another_run_of_its_schedule_goes_on(stage: Stage) -> Asked:
    job = stage.job()
    schedule = make_schedule(stage.tenant, job, now=stage.now, overlap="buffer_one")
    first, second = stage.run(job), stage.run(job)
    for run in (first, second):
        stage.ticket(run, schedule_id=schedule, schedule_version=1, guarded=True)
    stage.begin(first)
    return "execution", stage.execution(second, schedule_id=schedule, schedule_version=1)


@situation("job_concurrency", "2 of 2 runs of the job", holders=2)
def as_many_as_the_job_allows_run(stage: Stage) -> Asked:
    job = stage.job(max_concurrency=2)
    stage.begin(stage.run(job), stage.run(job))
    return "execution", stage.run(job)


@situation("job_concurrency", "1 of 1 runs", holders=1, clears=True)
def as_many_run_and_such_runs_have_a_usual_length(stage: Stage) -> Asked:
    job = stage.job(max_concurrency=1)
    for _ in range(3):
        stage.end(stage.begin(run := stage.run(job)))
        stage.execution(run, started_at=stage.at(-20), finished_at=stage.at(-10))
    stage.begin(stage.run(job))
    return "execution", stage.run(job)


@situation("tenant_concurrency", "3 of 3 runs of the tenant", "max_running", holders=3)
def as_many_as_the_plan_allows_run(stage: Stage) -> Asked:
    stage.plan(max_running=3)
    stage.begin(*(stage.run() for _ in range(3)))
    return "execution", stage.run()


@situation("pool_maximum", "2 of 2 slots of the pool python", holders=2)
def the_pools_maximum_is_reached(stage: Stage) -> Asked:
    stage.conn.execute(
        "INSERT INTO tenants_planpool (plan_id, pool, reserved_slots, max_slots) VALUES (%s, 'python', 0, 2)",
        [stage.tenant.plan_id],
    )
    stage.begin(stage.run(), stage.run())
    return "execution", stage.run()


@situation("concurrency_key", "1 of 1 runs", "customer=42", holders=1)
def its_key_is_held(stage: Stage) -> Asked:
    job, flow = stage.job(), uuid4()
    first, second = stage.run(job), stage.run(job)
    for run in (first, second):
        stage.ticket(run, flow=flow, flow_limit=1, key="customer=42")
    stage.begin(first)
    return "execution", second


@situation("tenant_rate", "60 runs start a minute", "at most 10 at once", clears=True)
def the_plans_rate_is_used(stage: Stage) -> Asked:
    stage.plan(max_runs_per_min=60)
    bucket(stage, UUID(int=0), per_s=1.0, burst=10)
    return "execution", stage.run()


@situation("job_rate", "rate_limit", "at most 2 at once", clears=True)
def the_jobs_rate_is_used(stage: Stage) -> Asked:
    run = stage.run(job := stage.job())
    bucket(stage, job, per_s=0.01, burst=2)
    return "execution", run


def bucket(stage: Stage, owner: UUID, *, per_s: float, burst: int) -> None:
    """An empty one."""
    stage.conn.execute(
        "INSERT INTO tickets_bucket (tenant_id, owner, per_s, burst, tokens, at) VALUES (%s, %s, %s, %s, 0, %s)",
        [stage.tenant.pk, owner, per_s, burst, stage.now],
    )


@situation("no_workers", "No live worker of the pool python")
def no_worker_is_alive(stage: Stage) -> Asked:
    stage.conn.execute("DELETE FROM tickets_worker")
    return "execution", stage.run()


@situation("no_workers", "python.own.acme")
def no_worker_has_its_queue(stage: Stage) -> Asked:
    stage.work(queues=["python.shared.0"])
    return "execution", stage.run()


@situation("no_workers", "python.own.acme@big")
def its_group_has_no_worker(stage: Stage) -> Asked:
    run = stage.run()
    stage.plan(worker_group="big")
    return "execution", run


@situation("about_to_start", "next pass", fine=True)
def its_tenant_moved_and_workers_have_its_queue_of_today(stage: Stage) -> Asked:
    run = stage.run()
    stage.plan(worker_group="big")
    stage.work(queues=["python.own.acme@big"])
    return "execution", run


@situation("pool_full", "the tenant has 2 of it", holders=2)
def the_pool_is_full(stage: Stage) -> Asked:
    stage.work(slots=1)
    stage.begin(stage.run(), stage.run())
    return "execution", stage.run()


@situation("about_to_start", "next pass", fine=True)
def a_flood_of_others_leaves_places_to_who_comes_new(stage: Stage) -> Asked:
    flooded(stage)
    held_by(stage, "fair_share")  # of the last time that it waited
    return "execution", stage.ticket(stage.run(), available_at=stage.now)


@situation("behind_others", "1 waiting of its job come first")
def who_comes_new_has_as_many_places_as_there_are(stage: Stage) -> Asked:
    flooded(stage)
    job = stage.job()
    for run in sorted(stage.run(job) for _ in range(2)):
        stage.ticket(run, available_at=stage.now)
    return "execution", run


@situation("pool_full", "All that the workers of the pool python can take")
def who_was_passed_over_is_not_new(stage: Stage) -> Asked:
    flooded(stage)
    stage.ticket(stage.run(), available_at=stage.at(-10))
    return "execution", stage.ticket(stage.run(), available_at=stage.now)


@situation("pool_full", "All that the workers of the pool python can take")
def places_of_newcomers_are_taken(stage: Stage) -> Asked:
    flooded(stage, more=1)
    return "execution", stage.ticket(stage.run(), available_at=stage.now)


@situation("pool_full", "All that the workers of the pool python can take")
def what_is_made_up_for_has_no_place_of_newcomers(stage: Stage) -> Asked:
    flooded(stage)
    return "execution", stage.ticket(stage.run(), available_at=stage.now, lane=1)


def flooded(stage: Stage, *, more: int = 0) -> None:
    """Runs of another tenant hold the two places of the only slot, and `more`; released five seconds ago."""
    stage.work(slots=1)
    for run in [stage.run() for _ in range(2 + more)]:
        stage.ticket(run, tenant_id=GONE, queue="python.own.acme", state="queued", release=1, queued_at=stage.at(-5))


def held_by(stage: Stage, code: str) -> None:
    stage.conn.execute(
        "INSERT INTO tickets_hold (pool, tenant_id, flow, code, since, seen_at)"
        " VALUES ('python', %s, NULL, %s, %s, %s)",
        [stage.tenant.pk, code, stage.at(-20), stage.now],
    )


@situation("fair_share", "Other work has its turn")
def its_share_is_spent(stage: Stage) -> Asked:
    held_by(stage, "fair_share")
    return "execution", stage.run()


# --- waiting: what no rule is about ---


@situation("no_dispatcher", "No live dispatcher releases the pool python")
def nobody_releases_its_pool(stage: Stage) -> Asked:
    stage.conn.execute("UPDATE due_shardlease SET owner = NULL WHERE kind = 'release'")
    return "execution", stage.run()


@situation("no_dispatcher", "shard")
def nobody_fires_its_shard(stage: Stage) -> Asked:
    stage.conn.execute("UPDATE due_shardlease SET owner = NULL WHERE kind = 'fire'")
    return "execution", stage.run(delay_s=600)


@situation("behind_others", "1 waiting of its job come first")
def others_come_first(stage: Stage) -> Asked:
    run = stage.run(job := stage.job(), priority=1)
    stage.run(job, priority=9)
    return "execution", run


@situation("behind_others", "2 waiting of its job come first")
def others_were_made_with_it_and_come_first(stage: Stage) -> Asked:
    job = stage.job()
    *_, run, _ = sorted(stage.run(job) for _ in range(4))
    return "execution", run


@situation("about_to_start", "next pass", fine=True)
def nothing_holds_it_back(stage: Stage) -> Asked:
    return "execution", stage.run()


@situation("waits_for_pull", "no worker has asked")
def no_worker_of_the_tenants_asks(stage: Stage) -> Asked:
    return "execution", stage.run(stage.job(kind="pull", queue="invoices", target={}))


@situation("queued", "handed to a queue of live workers", fine=True)
def it_is_at_the_broker(stage: Stage) -> Asked:
    return "execution", queued(stage)


@situation("no_workers", "serves that queue any more")
def its_worker_left(stage: Stage) -> Asked:
    run = queued(stage)
    stage.conn.execute("DELETE FROM tickets_worker")
    return "execution", run


@situation("no_workers", "handed to the queue python.own.acme ", "serves that queue any more")
def its_tenant_moved_and_nobody_has_the_old_queue(stage: Stage) -> Asked:
    run = queued(stage)
    stage.plan(worker_group="big")
    stage.work(queues=["python.own.acme@big"])
    return "execution", run


@situation("queued", "handed to a queue of live workers", fine=True)
def its_tenant_moved_and_the_old_queue_is_served_still(stage: Stage) -> Asked:
    run = queued(stage)
    stage.plan(worker_group="big")
    return "execution", run


def queued(stage: Stage) -> UUID:
    from apps.tickets import releasing

    run = stage.run()
    releasing.release(stage.conn, [run], release=releasing.next_release(stage.conn), now=stage.now)
    return run


@situation("no_ticket", "no ticket stands for it")
def its_ticket_is_lost(stage: Stage) -> Asked:
    run = stage.run()
    stage.conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [run])
    return "execution", run


@situation("entry_parked", "it can't be read")
def its_entry_was_put_aside(stage: Stage) -> Asked:
    return "execution", stage.entry(stage.run(delay_s=600), parked="it can't be read")


# --- running ---


@situation("running", "Attempt 1 has run for", fine=True)
def it_runs(stage: Stage) -> Asked:
    stage.begin(run := stage.run())
    return "execution", run


@situation("running_long", "took 5.0 s (median)", clears=True)
def it_runs_for_long(stage: Stage) -> Asked:
    job = stage.job()
    for _ in range(3):
        stage.end(stage.begin(run := stage.run(job)))
        stage.execution(run, started_at=stage.at(-20), finished_at=stage.at(-15))
    stage.begin(run := stage.run(job))
    return "execution", stage.ticket(run, started_at=stage.at(-50), deadline=stage.at(30))


@situation("cancel_requested", "asked to stop by test", clears=True)
def it_was_asked_to_stop(stage: Stage) -> Asked:
    stage.begin(run := stage.run())
    cancel(stage, run)
    return "execution", run


@situation("held_outside", "the till holds it from outside", fine=True, clears=True)
def somebody_outside_has_it(stage: Stage) -> Asked:
    stage.begin(run := stage.run())
    return "execution", stage.ticket(run, remote=True, worker_id=None, holder="the till", lease_s=60)


@situation("worker_lost", "lease of its worker ran out")
def its_worker_is_dead(stage: Stage) -> Asked:
    stage.begin(run := stage.run())
    stage.conn.execute("UPDATE tickets_worker SET expires_at = %s", [stage.at(-5)])
    return "execution", run


@situation("past_deadline", "its deadline was")
def its_deadline_has_passed(stage: Stage) -> Asked:
    stage.begin(run := stage.run())
    return "execution", stage.ticket(run, deadline=stage.at(-1))


def cancel(stage: Stage, run: UUID) -> None:
    from apps.outcomes.cancel import execution_cancel

    execution_cancel(tenant=stage.tenant, actor=stage.actor(), execution_id=run, now=stage.now)


# --- ended ---


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
    run = stage.run()
    stage.conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [run])
    return "execution", stage.execution(run, state="skipped", reason="replaced", finished_at=stage.now)


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


@situation("dependency_not_met", "to be succeeded", "is dead")
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


# --- schedules ---


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
