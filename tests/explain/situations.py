"""Runs that wait or run, each with the cause that must be named, over rows as the processes make them."""

from __future__ import annotations

from uuid import UUID, uuid4

from tests.explain.stage import Stage
from tests.explain.table import Asked, situation
from tests.fixtures_flow import make_schedule

GONE = 1_000_000  # a tenant's number that no test has

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


@situation("platform_paused", "all tenants")
def all_dispatch_is_paused(stage: Stage) -> Asked:
    from tenants.pauses import dispatch_pause

    run = stage.run()
    dispatch_pause(actor=stage.actor(), now=stage.now)
    return "execution", run


@situation("pool_paused", "python")
def pool_is_paused(stage: Stage) -> Asked:
    from tenants.pauses import dispatch_pause

    run = stage.run()
    dispatch_pause(pool="python", tenant_id=stage.tenant.pk, actor=stage.actor(), now=stage.now)
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


@situation("returned", "handed back (returned)", fine=True, clears=True)
def its_worker_stopped(stage: Stage) -> Asked:
    run = stage.run()
    stage.end(stage.begin(run), "returned", error={"class": "returned", "message": "the worker is stopping"})
    return "execution", stage.ticket(run, available_at=stage.at(60))


@situation("returned", "handed back; it waits", fine=True, clears=True)
def its_worker_gave_it_back_and_did_not_say_why(stage: Stage) -> Asked:
    run = stage.run()
    stage.end(stage.begin(run), "returned")
    return "execution", stage.ticket(run, available_at=stage.at(60))


@situation("due_now", "It has been due for 5 min", clears=False)
def a_delayed_run_is_overdue(stage: Stage) -> Asked:
    run = stage.run(delay_s=600)
    return "execution", stage.entry(run, due_at=stage.at(-300), nominal_at=stage.at(-300))


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
