"""The rules in their order: the first that holds is the sentence on every page, the others are told beside it. Pure.

A rule is a function from Facts to a Verdict, or None where it does not hold. What explains others comes before them.
Where no rule holds all is well, and that is said with what has run lately: figures of what has ended look perfect, too,
when nothing runs any more.
"""

from __future__ import annotations

from collections.abc import Callable

from apps.console.verdict import keeping, machines, work
from apps.console.verdict.values import Evidence, Facts, Verdict, counted, due_now, number
from kernel.durations import span

Rule = Callable[[Facts], Verdict | None]
RULES: tuple[Rule, ...] = (
    keeping.unread,
    machines.no_dispatcher,
    machines.paused,
    machines.unheld,
    machines.no_worker,
    work.backlog_idle,
    work.unserved,
    work.one_tenant,
    work.retry_storm,
    work.host_failing,
    keeping.database_slow,
    machines.clock_skew,
    work.late,
    keeping.audit_alarm,
    # What is safe, meant, or served by others comes behind all that is not: it must not hide it.
    machines.dispatcher_lost,
    machines.pool_paused,
    machines.stale_writes,
    work.at_capacity,
    work.was_late,
    keeping.unsealed,
    work.parked,
    keeping.slots_given_up,
    keeping.other_schemas,
    keeping.unmeasured,
    machines.tenant_paused,
)


def verdicts(facts: Facts) -> list[Verdict]:
    """All that hold, in their order; at least one."""
    return [found for rule in RULES if (found := rule(facts)) is not None] or [on_time(facts)]


def on_time(facts: Facts) -> Verdict:
    """The all-clear, with its evidence."""
    minute, lately = facts.minute, facts.lately
    if minute.ended:
        late = f", p99 {span(minute.p99_s)}" if minute.p99_s is not None else ""
        sentence = f"On time. {number(minute.ended, 'run')} in the last minute{late}."
    elif lately.ended:
        sentence = (
            f"On time. {number(lately.ended, 'run')} in the last {span(lately.seconds)}, none in the last minute."
        )
    else:
        soon = (facts.next_due_at - facts.now).total_seconds() if facts.next_due_at is not None else 0
        ahead = f" The next is due in {span(soon)}." if soon > 0 else ""
        sentence = f"On time: nothing is due, and nothing ran in the last {span(lately.seconds)}.{ahead}"
    beat = max((-one.silent_s for one in facts.alive), default=0.0)
    evidence = (
        Evidence(
            "Dispatchers alive",
            str(len(facts.alive)),
            f"their leases hold for {span(beat)}",
            "due/dispatcher/?live=yes",
        ),
        Evidence("Workers alive", counted(facts.workers_live), "all pools", "workers/"),
        Evidence("Runs that ended", counted(lately.ended), f"all tenants, {span(lately.seconds)}", "tenants/"),
        due_now(facts),
    )
    return Verdict("on_time", "ok", "check", sentence, evidence)
