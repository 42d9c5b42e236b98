"""Rules about the work: what waits, for whom, and what fails. Pure."""

from __future__ import annotations

from urllib.parse import quote

from apps.console.verdict.values import (
    Evidence,
    Facts,
    Failing,
    Pool,
    Remedy,
    Shut,
    Verdict,
    counted,
    dispatchers_alive,
    number,
)
from kernel.durations import span
from kernel.pools import POOL_NUMBER, tenant_of

LATE_S = 10.0  # the target of dispatch lateness
IDLE_SHARE = 0.5  # of the slots
MANY_DUE = 100  # fewer are nobody's flood
STORM_ATTEMPTS = 100
FAILURES, FAILURES_SHARE = 20, 0.2  # of one destination in five minutes: so many, and of all attempts so much
LISTED = 8
FAILED = "dead-letters/?what=failures&window=5m"


def backlog_idle(facts: Facts) -> Verdict | None:
    """Runs wait for nothing but a slot, and there are slots."""
    found = [
        one
        for one in _pools(facts)
        if one.slots and one.oldest_wait_s >= LATE_S and one.running < IDLE_SHARE * one.slots and one.waiting
    ]
    if not found:
        return None
    most = max(found, key=lambda one: one.oldest_wait_s)
    return Verdict(
        "backlog_idle",
        "bad",
        "alert",
        f"{number(most.waiting, 'run')} wait in pool {most.name} while {most.slots - most.running:,} slots are idle.",
        tuple(_of_pool(one) for one in found[:LISTED]),
        (Remedy("lease.release", f"release/{POOL_NUMBER[most.pool]}"),) if most.pool in POOL_NUMBER else (),
    )


def unserved(facts: Facts) -> Verdict | None:
    if not facts.unserved or not facts.workers_live:
        return None
    queue, waits = facts.unserved[0]
    more = f", and {len(facts.unserved) - 1} more" if len(facts.unserved) > 1 else ""
    return Verdict(
        "unserved",
        "bad",
        "alert",
        f"Nothing consumes queue {queue}{more}: {number(waits, 'run')} wait{'s' if waits == 1 else ''} there.",
        (
            *(
                Evidence(name, number(count, "run"), "no live worker listens to it", f"queues/{quote(name, safe='@')}/")
                for name, count in facts.unserved[:LISTED]
            ),
            Evidence("Workers alive", counted(facts.workers_live), "all pools", "workers/"),
            Evidence("What workers are told to listen to", "subscriptions", "all groups", "tickets/subscription/"),
        ),
        (Remedy("tenant.plan", slug),) if (slug := tenant_of(queue)) else (),
    )


def one_tenant(facts: Facts) -> Verdict | None:
    total = sum(one.due for one in facts.shares)
    first = max((one for one in facts.shares if one.slug), key=lambda one: one.due, default=None)
    if total < MANY_DUE or first is None or first.due * 2 <= total:
        return None
    share = 100 * first.due / total
    return Verdict(
        "one_tenant",
        "warn",
        "people",
        f"Tenant {first.slug} has {share:.0f} % of what is due: {counted(first.due)} of {number(total, 'run')}.",
        tuple(
            Evidence(
                one.slug or "All others",
                f"{counted(one.due)} due, {counted(one.running)} running",
                f"{100 * one.due / total:.0f} %, without what is held",
                f"tenants/?q={one.slug}" if one.slug else "tenants/",
            )
            for one in sorted(facts.shares, key=lambda one: -one.due)[:LISTED]
        ),
        (Remedy("tenant.pause", first.slug), Remedy("tenant.plan", first.slug)),
    )


def retry_storm(facts: Facts) -> Verdict | None:
    spell = facts.lately
    if spell.attempts < STORM_ATTEMPTS or spell.attempts_failed * 2 <= spell.attempts:
        return None
    share = 100 * spell.attempts_failed / spell.attempts
    later = sum(one.later for one in _pools(facts))
    return Verdict(
        "retry_storm",
        "warn",
        "undo",
        f"Retry storm: {share:.0f} % of {number(spell.attempts, 'attempt')} failed in the last {span(spell.seconds)}.",
        (
            Evidence(
                "Attempts that failed",
                counted(spell.attempts_failed),
                f"all tenants, {span(spell.seconds)}",
                FAILED,
            ),
            Evidence("Wait for their time", counted(later), "all tenants, such as tries", "live/?state=waiting"),
            *(
                Evidence(one.host, number(one.failures, "failure"), number(one.tenants, "tenant"), _failed(one.host))
                for one in facts.failing[:LISTED]
            ),
        ),
    )


def host_failing(facts: Facts) -> Verdict | None:
    """Half of its calls fail, which opens its breaker, or it makes much of all that is tried."""
    least = max(FAILURES, FAILURES_SHARE * facts.lately.attempts)
    known = [one for one in facts.failing if one.host]
    failing = next((one for one in known if one.failures >= least), None)
    shut = next((one for one in facts.shut if failing is None or _is_of(one, failing)), None)
    if failing is None and shut is None:
        return None
    if failing is None:
        failing = next((one for one in known if shut is not None and _is_of(shut, one)), None)
    host = shut.host if shut is not None else failing.host if failing is not None else ""
    told = f"{number(failing.failures, 'failure')} in 5 min" if failing else "too many calls failed"
    held = ", and calls are held back" if shut else ""
    return Verdict(
        "host_failing",
        "warn",
        "alert",
        f"Destination {host} fails: {told}{held}.",
        (
            *(
                Evidence(
                    one.host,
                    number(one.failures, "failed attempt"),
                    f"{number(one.tenants, 'tenant')}, 5 min, the last: {one.sample}",
                    _failed(one.host),
                )
                for one in known[:LISTED]
            ),
            *(
                Evidence(
                    one.host,
                    "calls held back",
                    f"{number(one.tenants, 'tenant')}: {one.reason}",
                    "tickets/breaker/?state=open",
                    one.since,
                )
                for one in facts.shut[:LISTED]
            ),
        ),
        (Remedy("breaker.reset", shut.breaker),) if shut else (),
    )


def late(facts: Facts) -> Verdict | None:
    """Dispatchers are alive and behind."""
    if not facts.alive or facts.oldest_due_s < LATE_S:
        return None
    return Verdict(
        "late",
        "bad",
        "clock",
        f"Late: {number(facts.due, 'entry', 'entries')} due, the oldest for {span(facts.oldest_due_s)}.",
        (
            Evidence("Due now", counted(facts.due), "all tenants", "due/dueentry/?due=now"),
            dispatchers_alive(facts),
        ),
    )


def was_late(facts: Facts) -> Verdict | None:
    """What is due now may be served again; that it was not is no all-clear. Lateness counts what a tenant's own limits
    held back, too, so that is said with it."""
    spell, late = facts.lately, facts.late
    if spell.p99_s is None or spell.p99_s < LATE_S:
        return None
    own = f" Tenants at limits of their own: {late.limited:,} of {late.runs:,} late ones." if late.limited else ""
    scope = f"all tenants, {span(spell.seconds)}"
    return Verdict(
        "was_late",
        "warn",
        "clock",
        f"Late in the last {span(spell.seconds)}: p99 {span(spell.p99_s)} of {number(spell.times, 'run')}.{own}",
        (
            Evidence("Lateness p99", span(spell.p99_s), scope, "tenants/?sort=lateness"),
            Evidence("Lateness p50", span(spell.p50_s or 0.0), scope, "#lateness"),
            Evidence("Late runs", f"{late.runs:,}", f"{scope}, about {LATE_S:.0f} s and more", "tenants/?show=late"),
            Evidence(
                "Of these, of tenants at limits of their own",
                f"{late.limited:,}",
                f"{scope}; what held one of them is on its page",
                "tenants/?sort=quota",
            ),
            Evidence(
                "Due now", counted(facts.due), f"the oldest for {span(facts.oldest_due_s)}", "due/dueentry/?due=now"
            ),
            *_resumed(facts),
            *(_of_pool(one) for one in _pools(facts)[:LISTED]),
        ),
    )


def at_capacity(facts: Facts) -> Verdict | None:
    found = [one for one in _pools(facts) if one.slots and one.waiting and one.oldest_wait_s >= LATE_S]
    if not found:
        return None
    most = max(found, key=lambda one: one.oldest_wait_s)
    faster = most.out_per_s - most.in_per_s
    gone = f"gone in {span(most.waiting / faster)}" if faster > 0.01 else "and it grows"
    return Verdict(
        "at_capacity",
        "warn",
        "hourglass",
        f"All slots of pool {most.name} are taken: {number(most.waiting, 'run')} wait, the oldest for"
        f" {span(most.oldest_wait_s)}, {gone}.",
        tuple(_of_pool(one) for one in found[:LISTED]),
    )


def parked(facts: Facts) -> Verdict | None:
    if not facts.parked:
        return None
    told = number(facts.parked, "due entry", "due entries")
    return Verdict(
        "parked",
        "warn",
        "stop",
        f"{told} can't be served and {'is' if facts.parked == 1 else 'are'} put aside.",
        (Evidence("Put aside", counted(facts.parked), "all tenants", "due/dueentry/?parked=yes"),),
        (Remedy("dueentry.unpark", facts.parked_one),) if facts.parked_one else (),
    )


def _resumed(facts: Facts) -> list[Evidence]:
    """What a pause held back is late when it is let go: neither slots nor dispatchers were too few."""
    one = facts.resumed
    if one is None:
        return []
    whose = f"tenant {one.tenant}" if one.tenant else "all tenants"
    scope = f"{one.action}, {whose}: what had waited until then is late"
    return [Evidence("Resumed by an operator", one.by, scope, f"audit/?action={one.action}", one.at)]


def _is_of(shut: Shut, failing: Failing) -> bool:
    """Breakers are of a host and port, failures are told by host."""
    return shut.host == failing.host or shut.host.rpartition(":")[0] == failing.host


def _failed(host: str) -> str:
    return f"{FAILED}&host={quote(host, safe='')}"


def _pools(facts: Facts) -> tuple[Pool, ...]:
    return facts.pools if facts.measured else ()


def _of_pool(one: Pool) -> Evidence:
    return Evidence(
        f"Pool {one.name}",
        f"{counted(one.waiting)} wait, the oldest for {span(one.oldest_wait_s)}",
        f"{one.ready:,} ready ({one.held:,} of them held), {one.queued:,} queued, {one.running:,} of {one.slots:,}"
        f" slots busy, {one.in_per_s:.1f}/s in, {one.out_per_s:.1f}/s out",
        "workers/#pools",
    )
