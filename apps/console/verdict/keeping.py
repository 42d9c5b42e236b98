"""Rules about what is kept: the database, the trail, schemas, slots of celery beat, figures. Pure."""

from __future__ import annotations

from apps.console.verdict.values import Evidence, Facts, Remedy, Verdict, counted, number
from kernel.durations import span

SLOW_MS = 1_000.0
REPLICA_S = 10.0
UNSEALED_MANY = 5_000


def unread(facts: Facts) -> Verdict | None:
    """Nothing else is known then: what the page shows is what was read before."""
    if not facts.fault:
        return None
    return Verdict(
        "unread",
        "bad",
        "alert",
        "The state of the platform can't be read: the database is not as this version of the code expects it.",
        (Evidence("The database's answer", facts.fault, "the statement that failed"),),
    )


def database_slow(facts: Facts) -> Verdict | None:
    behind = facts.replica_lag_s or 0.0
    if facts.took_ms < SLOW_MS and behind < REPLICA_S:
        return None
    what = (
        f"its figures took {facts.took_ms / 1_000:.1f} s to read"
        if facts.took_ms >= SLOW_MS
        else f"a replica is {span(behind)} behind"
    )
    return Verdict(
        "database_slow",
        "warn",
        "hourglass",
        f"The database is slow: {what}.",
        (
            Evidence("Time to read these figures", f"{facts.took_ms:.0f} ms", f"usual is below {SLOW_MS:.0f} ms"),
            Evidence("Replica behind", "unknown" if facts.replica_lag_s is None else span(behind), "the slowest"),
        ),
    )


def audit_alarm(facts: Facts) -> Verdict | None:
    if not facts.alarms:
        return None
    return Verdict(
        "audit_alarm",
        "bad",
        "alert",
        "The audit trail may have been changed: its sealer found its own row altered.",
        (Evidence("Alarms", counted(facts.alarms), "all chains", "audit/auditevent/?q=audit.alarm"),),
        (Remedy("audit.verify", "operators"),),
    )


def unsealed(facts: Facts) -> Verdict | None:
    if facts.unsealed <= UNSEALED_MANY:
        return None
    return Verdict(
        "unsealed",
        "warn",
        "hourglass",
        f"{number(facts.unsealed, 'row')} of the audit trail are not sealed yet.",
        (Evidence("Not sealed", counted(facts.unsealed), "all chains", "audit/auditevent/"),),
    )


def slots_given_up(facts: Facts) -> Verdict | None:
    if not facts.slots_given_up:
        return None
    return Verdict(
        "slots_given_up",
        "warn",
        "skip",
        f"{number(facts.slots_given_up, 'periodic slot')} of celery beat did not start and will not be sent again.",
        (Evidence("Given up", counted(facts.slots_given_up), "periodic tasks", "due/beatslot/?state=given-up"),),
    )


def other_schemas(facts: Facts) -> Verdict | None:
    if not facts.other_schemas:
        return None
    return Verdict(
        "other_schemas",
        "warn",
        "stack",
        f"{number(facts.other_schemas, 'tenant schema')} of another version.",
        (Evidence("Other version", counted(facts.other_schemas), "schemas", "tenants/tenant/?schema=other"),),
    )


def unmeasured(facts: Facts) -> Verdict | None:
    """The figures of pools come from a dispatcher that holds the reconcile lease."""
    if facts.measured or not facts.alive:
        return None
    since = "never" if facts.measured_s is None else f"{span(facts.measured_s)} ago"
    return Verdict(
        "unmeasured",
        "warn",
        "gauge",
        f"The figures of pools are old: measured {since}.",
        (Evidence("Measured last", since, "pools, queues, tenants", "shards/reconcile-0/"),),
        (Remedy("lease.release", "reconcile/0"),),
    )
