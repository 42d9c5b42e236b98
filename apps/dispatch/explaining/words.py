"""Every code that an explanation may have: what it means, and what to do about it. Pure.

`docs/explain.md` lists the same; a test compares. Whatever a text says must hold each time its code is given.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Words(NamedTuple):
    """`remedy` is empty where nothing is to be done."""

    title: str
    remedy: str = ""


# In the order of admission.
ADMISSION_WORDS: Mapping[str, Words] = {
    "tenant_inactive": Words(
        "The tenant is not active",
        "An operator makes the tenant active again (admin: Tenants). What waits goes on then.",
    ),
    "platform_paused": Words(
        "Operators have paused the runs of all tenants",
        "An operator resumes all dispatch (admin: Overview). Nothing is lost meanwhile.",
    ),
    "dispatch_paused": Words(
        "The operator has paused this tenant's runs",
        "An operator clears 'dispatch paused' of the tenant (admin: Tenants). Nothing is lost meanwhile.",
    ),
    "pool_paused": Words(
        "Operators have paused this pool, for all tenants or for this one",
        "An operator resumes the pool (admin: Workers and queues). Nothing is lost meanwhile.",
    ),
    "schedule_paused": Words("The schedule is paused", "Resume the schedule."),
    "job_paused": Words("The job or workflow is paused", "Resume it; what waits starts at once."),
    "queue_paused": Words("The pull queue is paused", "Resume the queue; its workers get what waits."),
    "not_yet_due": Words("It is not due yet"),
    "expired": Words(
        "It has waited for longer than it may",
        "It ends by itself within seconds. Give the job a longer max_queue_age_s, or see what made it wait.",
    ),
    "workflow_blocked": Words("Executions that it depends on have not ended", "See to those, or cancel it."),
    "overlap": Words(
        "Another run of its schedule is under way",
        "Wait for that run or cancel it. A schedule with overlap 'allow' does not wait.",
    ),
    "job_concurrency": Words(
        "As many runs of the job as may run at once are under way",
        "Raise the job's max_concurrency, make its runs shorter, or cancel some.",
    ),
    "tenant_concurrency": Words(
        "As many runs of the tenant as its plan allows are under way",
        "Cancel runs, or ask an operator for a plan with a higher max_running.",
    ),
    "pool_maximum": Words(
        "The tenant holds as many slots of this pool as its plan allows",
        "Cancel runs of this pool, or ask an operator for a higher maximum of the pool in the plan.",
    ),
    "concurrency_key": Words(
        "As many runs with this concurrency key as may run at once are under way",
        "Raise max of the job's concurrency_key, or cancel the runs that hold it.",
    ),
    "tenant_rate": Words(
        "The tenant starts as many runs a minute as its plan allows",
        "It goes by itself when tokens come back; a plan with a higher max_runs_per_min or runs_burst lets more start.",
    ),
    "job_rate": Words(
        "The job starts as many runs as its rate limit allows",
        "It goes by itself when tokens come back; a higher rate_limit of the job lets more start.",
    ),
    "daily_quota": Words(
        "The day's runs of the plan are used up",
        "It goes on with the next day of UTC, or with a plan that has a higher max_runs_per_day.",
    ),
    "breaker_open": Words(
        "Its destination has failed too often and is not called for a while",
        "Mend the destination; one call tries by itself, or reset the circuit breaker.",
    ),
    "no_workers": Words(
        "No live worker serves its queue",
        "Start workers of this pool, or have them subscribe to the queue (manage.py worker_queues).",
    ),
    "pool_full": Words(
        "All that the workers of its pool can take is taken",
        "Start more workers (manage.py pool_wanted says how many), or wait.",
    ),
    "fair_share": Words(
        "Other work has its turn first",
        "It goes by itself. Reserved slots or a higher weight in the plan, or a higher priority of the job, help.",
    ),
}

WAITING_WORDS: Mapping[str, Words] = {
    "delayed": Words("It was asked for later"),
    "retry_backoff": Words("It waits to be tried again", "See the error of its last attempt; the wait is its job's."),
    "returned": Words("An attempt was handed back and is about to begin anew"),
    "release_backoff": Words(
        "It was handed to a queue and nobody took it in time",
        "See whether workers of the queue are alive and have free slots; it is handed out again by itself.",
    ),
    "behind_others": Words("Others that wait for the same job come first", "Wait; a higher priority comes earlier."),
    "about_to_start": Words("Nothing holds it back: it goes with the next pass"),
    "waits_for_pull": Words(
        "It waits for a worker of yours to ask for it",
        "Have a worker lease from the queue (POST /queues/{name}/lease).",
    ),
    "no_dispatcher": Words(
        "No dispatcher is alive that would serve it",
        "Start a dispatcher (manage.py dispatcher), or see why those that run hold no lease (admin: Shard leases).",
    ),
    "queued": Words("It is at the broker for a worker to take"),
    "no_ticket": Words(
        "It is alive and nothing would run it",
        "Reconcile repairs it within minutes; manage.py reconcile --tenant does so at once.",
    ),
    "entry_missing": Words(
        "It is waited for and has no place in the due-time index",
        "Reconcile repairs it within minutes; manage.py reconcile --tenant does so at once.",
    ),
    "entry_parked": Words(
        "Its due entry can't be served and was put aside",
        "Save the schedule's trigger again; an operator can serve it again as it is (admin: Due entries, unpark).",
    ),
}

RUNNING_WORDS: Mapping[str, Words] = {
    "running": Words("It runs"),
    "running_long": Words(
        "It runs for longer than runs of its job do", "Look at its progress and its worker; cancel it if it hangs."
    ),
    "cancel_requested": Words("It was asked to stop", "Its worker stops it, at the latest at its deadline."),
    "held_outside": Words("Somebody outside has it", "Its holder ends it over the API, or lets the lease run out."),
    "worker_lost": Words(
        "Its worker is gone", "The attempt is ended as lost within seconds, and tried again where the job says so."
    ),
    "past_deadline": Words("Its deadline has passed", "The attempt is ended as lost within seconds."),
}

ENDED_WORDS: Mapping[str, Words] = {
    "succeeded": Words("It succeeded"),
    "started_late": Words("It succeeded, and started late", "See what held it back, the longest first."),
    "cancelled": Words("It was cancelled"),
    "max_queue_age": Words(
        "It could not start in time and expired",
        "See what held it back; rerun it if it is still wanted, or give it a longer max_queue_age_s.",
    ),
    "attempts_used_up": Words("All its attempts failed", "See the last error, mend the cause and replay it."),
    "not_retryable": Words("It failed in a way that is not tried again", "Mend the cause and replay it."),
    "excluded_by_policy": Words(
        "It failed, and the job's retry policy does not try that again", "Mend the cause and replay it."
    ),
    "outcome_unknown": Words(
        "Nobody knows whether its call had an effect, so it is not tried again",
        "Look at the receiver, then replay or resolve it. retry_on can name what may be repeated.",
    ),
    "total_timeout": Words(
        "Its total time-out ended before an attempt succeeded",
        "Mend the cause and replay it, or raise total_timeout_s.",
    ),
    "undecodable": Words("Its job's definition can't be read", "Save the job again and replay it."),
    "dead": Words("It failed for good", "See the last error, mend the cause and replay it."),
}

SKIPPED_WORDS: Mapping[str, Words] = {
    "overlap_skipped": Words(
        "A run of its schedule was still under way",
        "Make the runs shorter or the schedule rarer, or choose another overlap policy.",
    ),
    "replaced": Words("A newer run of its schedule took its place", "Its overlap policy says so; nothing is wrong."),
    "misfire_skipped": Words(
        "Its time passed while nothing could fire it, and its misfire policy does not make up for it",
        "Choose misfire 'fire_all' or 'fire_latest_n' where missed runs matter; a backfill can run it now.",
    ),
    "misfire_capped": Words(
        "More had been missed than its misfire policy makes up for", "Raise misfire_max, or backfill the range."
    ),
    "misfire_too_old": Words(
        "It was older than its misfire policy makes up for", "Raise misfire_max_age_s, or backfill the range."
    ),
    "tenant_suspended": Words(
        "The tenant was suspended", "Nothing is owed for that time; backfill it where it matters."
    ),
    "gap_recorded": Words(
        "Nothing was written of it, and a repair of its schedule recorded it as skipped",
        "A backfill can run it; docs/operations.md tells what may be behind it.",
    ),
    "backlog_full": Words(
        "The tenant had as many unfinished runs as its plan allows",
        "See why runs wait, or ask an operator for a plan with a higher max_live.",
    ),
    "schedule_changed": Words("Its schedule was changed before it was fired"),
    "schedule_deleted": Words("Its schedule was deleted before it was fired"),
    "dependency_not_met": Words(
        "An execution that it depends on did not end as it was to",
        "Mend what went wrong there; a rerun of this one waits for nothing.",
    ),
    "skipped": Words("It was skipped"),
}

SCHEDULE_WORDS: Mapping[str, Words] = {
    "next_run": Words("It runs as planned"),
    "due_now": Words("It is due and about to be fired"),
    "schedule_auto_paused": Words(
        "The platform paused it after failures", "See why its runs died, mend the cause, then resume it."
    ),
    "schedule_completed": Words("It has nothing left to run", "Give it another trigger, end_at or max_runs to go on."),
    "clock_implausible": Words(
        "Its debt is implausibly long, so it is held until somebody has looked",
        "See whether the database's clock is right; then edit, or pause and resume the schedule.",
    ),
    "nothing_ahead": Words(
        "Nothing falls into its windows as far as was searched", "Look at its windows, calendar and trigger."
    ),
    "excluded": Words("Its calendar excludes that day"),
    "outside_window": Words("It lies outside of its daily windows"),
    "dst_gap_skipped": Words("The clock skips that time, and its rule is not to run then"),
    "not_an_occurrence": Words("Its trigger does not fall on that time"),
    "not_recorded": Words(
        "There is no record of it", "It lies before the schedule's present definition, or is not kept any more."
    ),
    "to_come": Words("That time is still to come"),
    "made": Words("It was made a run", "Ask for that run."),
    "run_waits": Words("Its latest run was made and waits", "Ask for that run: what holds it back is said there."),
}

# Of steps and runs of workflows.
STEP_WORDS: Mapping[str, Words] = {
    "waits_for_steps": Words("Steps that it needs have not ended"),
    "waits_for_previous": Words(
        "The same step of the run before has not succeeded",
        "See to that run: retry the step there, or skip it with a reason.",
    ),
    "items_in_flight": Words("As many items of its list as may run at once are under way"),
    "items_running": Words("Items of its list run"),
    "awaits_approval": Words("A person has to approve it", "Approve or reject the step."),
    "step_delay": Words("It waits for its time"),
    "sub_workflow": Words("It is a run of another workflow"),
    "run_goes_on": Words("It goes on"),
    "run_paused": Words("The run is paused", "Resume the run."),
    "run_cancelling": Words("The run was cancelled and what runs of it stops", "Wait; it ends by itself."),
    "run_failed": Words("A step failed the run", "Mend the cause and retry the run: what failed runs again."),
    "run_deadline": Words(
        "The run was not done by its deadline", "Retry the run: it gets its time again. Or raise deadline_s."
    ),
    "step_failed": Words("The step failed", "Mend the cause and retry the step, or skip it with a reason."),
    "upstream_failed": Words(
        "A step that it needs failed", "Mend and retry that step; this one is decided again. Or force this one."
    ),
    "upstream_skipped": Words("Steps that it needs did not end as it asks", "Force the step to run it nevertheless."),
    "when_false": Words("Its condition did not hold"),
    "fail_fast": Words(
        "Another step had failed, and the workflow stops at its first failure", "Mend the cause and retry the run."
    ),
    "deadline": Words(
        "The run's deadline had passed before it could start",
        "Retry the run: it gets its time again. Or raise deadline_s.",
    ),
    "approval_timeout": Words(
        "Nobody had decided in time", "Retry the step to ask once more, or give it a longer timeout_s."
    ),
    "by_person": Words("A person decided so"),
    "items_failed": Words("Too many items of its list failed", "Mend the cause and retry the step."),
}

WORDS: Mapping[str, Words] = {
    **ADMISSION_WORDS, **WAITING_WORDS, **RUNNING_WORDS, **ENDED_WORDS, **SKIPPED_WORDS, **SCHEDULE_WORDS,
    **STEP_WORDS,
}  # fmt: skip


def words_of(code: str) -> Words:
    """Of a code that nobody knows, too."""
    return WORDS.get(code) or Words(code.replace("_", " ").capitalize())


def because(code: str) -> str:
    """The title as the end of a sentence."""
    title = words_of(code).title
    return f"{title[0].lower()}{title[1:]}"
