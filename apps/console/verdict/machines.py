"""Rules about what serves: dispatchers, leases, workers, their clocks, and pauses. Pure."""

from __future__ import annotations

from apps.console.verdict.values import (
    Evidence,
    Facts,
    Process,
    Remedy,
    Slice,
    Verdict,
    counted,
    dispatchers_alive,
    due_now,
    number,
)
from kernel.durations import span

LOST_S = 900.0  # a dispatcher that died is news for so long
SKEW_MS = 500
LISTED = 8
NAMED = 3  # in a sentence


def no_dispatcher(facts: Facts) -> Verdict | None:
    if facts.alive:
        return None
    last = min(facts.dispatchers, key=lambda one: one.silent_s, default=None)
    heard = f"The last one, {last.name}, is gone for {span(last.silent_s)}." if last else "There never was one lately."
    return Verdict(
        "no_dispatcher",
        "bad",
        "alert",
        f"Nothing is dispatched: no dispatcher is alive. {heard}",
        (
            Evidence("Dispatchers alive", "0", "heartbeats that hold", "due/dispatcher/"),
            *_gone(facts.dispatchers),
            due_now(facts),
            Evidence("Slices without a live holder", str(len(_unheld(facts))), "shards, pools", "shards/?show=unheld"),
        ),
    )


def paused(facts: Facts) -> Verdict | None:
    """All of it."""
    return _paused(facts, "paused", "All dispatch is") if any(not one.pool for one in facts.pauses) else None


def pool_paused(facts: Facts) -> Verdict | None:
    """A pool of all tenants, while the others go on."""
    if not facts.pauses or any(not one.pool for one in facts.pauses):
        return None
    more = f" and {len(facts.pauses) - 1} more" if len(facts.pauses) > 1 else ""
    verb = "are" if more else "is"
    return _paused(facts, "pool_paused", f"Pool {facts.pauses[0].pool}{more} of all tenants {verb}")


def tenant_paused(facts: Facts) -> Verdict | None:
    """Tenants, or pools of theirs, while all others go on. It is meant, and may have been forgotten."""
    held, count = facts.tenants_paused, facts.tenant_pauses
    if not held:
        return None
    names = [f"pool {one.pool} of {one.slug}" if one.pool else one.slug for one in held[:NAMED]]
    told = ", ".join(names) + (f" and {counted(count - len(names))} more" if count > len(names) else "")
    if count > len(held) or any(one.pool for one in held):  # of what is not named it may be pools
        what = f"{number(count, 'pause')} of single tenants: {told}."
    else:
        what = f"Dispatch of {number(count, 'tenant')} is paused: {told}."
    return Verdict(
        "tenant_paused",
        "warn",
        "pause",
        what,
        (
            *(
                Evidence(one.slug, "paused", f"pool {one.pool}" if one.pool else "all runs", f"tenants/?q={one.slug}")
                for one in held[:LISTED]
            ),
            Evidence(
                "Pauses of single tenants", counted(count), "the list has suspended ones, too", "tenants/?show=stopped"
            ),
        ),
        tuple(
            Remedy("queue.resume", f"{one.pool}@{one.slug}") if one.pool else Remedy("tenant.resume", one.slug)
            for one in held[:2]
        ),
    )


def unheld(facts: Facts) -> Verdict | None:
    """Some moments without a holder are a takeover at work."""
    found = [one for one in _unheld(facts) if one.unheld_s >= 2.0] if facts.alive else []
    if not found:
        return None
    oldest = max(found, key=lambda one: one.unheld_s)
    return Verdict(
        "unheld",
        "bad",
        "alert",
        f"Nobody serves {number(len(found), 'slice')}: {_named(found)}, for {span(oldest.unheld_s)}.",
        (
            *(
                Evidence(
                    f"{one.kind}/{one.shard}",
                    f"unheld for {span(one.unheld_s)}",
                    f"last held by {one.holder or 'nobody'}, term {one.term}",
                    f"shards/{one.kind}-{one.shard}/",
                )
                for one in found[:LISTED]
            ),
            due_now(facts),
            dispatchers_alive(facts),
            *_gone(facts.dispatchers),
        ),
        tuple(Remedy("lease.release", f"{one.kind}/{one.shard}") for one in found[:1]),
    )


def dispatcher_lost(facts: Facts) -> Verdict | None:
    """It did not say goodbye. Others serve what it had; the platform has one less."""
    gone = [one for one in facts.dispatchers if 0 <= one.silent_s < LOST_S]
    if not gone or not facts.alive:
        return None
    last = min(gone, key=lambda one: one.silent_s)
    taken = [one for one in facts.slices if one.ran_out and one.taken_from == last.id]
    by = sorted({one.holder for one in taken if one.unheld_s < 0})
    served = (
        f"{', '.join(by)} took over its {number(len(taken), 'slice')}."
        if taken and by
        else f"{number(len(facts.alive), 'other')} {'serves' if len(facts.alive) == 1 else 'serve'} its slices."
    )
    soonest = max((one.taken_s for one in taken if one.taken_s is not None), default=None)
    after = None if soonest is None else max(0.0, last.silent_s - soonest)
    return Verdict(
        "dispatcher_lost",
        "warn",
        "alert",
        f"A dispatcher died {span(last.silent_s)} ago: {last.name}. {served}",
        (
            *_gone(gone),
            Evidence("Slices taken over", str(len(taken)), f"from {last.name}", "shards/"),
            *(
                [Evidence("Until the first was served again", span(after), "after its lease ran out", "shards/")]
                if after is not None
                else []
            ),
            dispatchers_alive(facts),
            due_now(facts),
        ),
        (Remedy("lease.rebalance", "all"),),
    )


def no_worker(facts: Facts) -> Verdict | None:
    waits = facts.counts.get("ready", 0) + facts.counts.get("queued", 0)
    if facts.workers_live or not waits:
        return None
    told = f"{facts.tickets('ready', 'queued')} run{'s wait' if waits > 1 else ' waits'}"
    return Verdict(
        "no_worker",
        "bad",
        "alert",
        f"Nothing runs: no worker is alive, and {told}.",
        (
            Evidence("Workers alive", "0", "heartbeats that hold", "workers/"),
            *_gone(facts.workers, "tickets/worker/?live=no"),
            Evidence("Tickets ready", facts.tickets("ready"), "all tenants", "live/?state=ready"),
            Evidence("Tickets queued", facts.tickets("queued"), "all tenants", "live/?state=queued"),
        ),
    )


def stale_writes(facts: Facts) -> Verdict | None:
    """Shown as safe: a process that was cut off came back late, and the rows refused it."""
    if not facts.stale_writes:
        return None
    return Verdict(
        "stale_writes",
        "run",
        "check",
        f"{number(facts.stale_writes, 'late write')} refused in the last 5 min. This is safe: nothing counts twice.",
        (
            Evidence(
                "Refused", counted(facts.stale_writes), "workers and dispatchers, 5 min", "shards/", facts.stale_at
            ),
            *(Evidence(one.name, counted(one.stale), "since its start", url) for one, url in _told(facts)),
        ),
    )


def clock_skew(facts: Facts) -> Verdict | None:
    wrong = [one for one in (*facts.alive, *facts.workers) if one.silent_s < 0 and abs(one.skew_ms) >= SKEW_MS]
    if not wrong:
        return None
    most = max(wrong, key=lambda one: abs(one.skew_ms))
    told = f"{number(len(wrong), 'clock')} {'is' if len(wrong) == 1 else 'are'} wrong"
    return Verdict(
        "clock_skew",
        "warn",
        "clock",
        f"{told}: {most.name} by {most.skew_ms:+,} ms.",
        tuple(
            Evidence(one.name, f"{one.skew_ms:+,} ms", "against the database's clock", _page(facts, one))
            for one in wrong[:LISTED]
        ),
        (Remedy("dispatcher.drain" if most in facts.alive else "worker.drain", most.id),),
    )


def _paused(facts: Facts, code: str, what: str) -> Verdict:
    first = next((one for one in facts.pauses if not one.pool), facts.pauses[0])
    since = span(max(0.0, (facts.now - first.at).total_seconds()))
    rows = "audit/?action=dispatch.pause"
    return Verdict(
        code,
        "warn",
        "pause",
        f"{what} paused for {since}: schedules fire, their runs wait.",
        (
            *(
                Evidence("Paused by", one.by, f"pool {one.pool}" if one.pool else "all pools", rows, one.at)
                for one in facts.pauses[:LISTED]
            ),
            Evidence("Reason", first.reason or "none given", "all tenants", rows, first.at),
            Evidence("Tickets ready", facts.tickets("ready"), "all tenants", "live/?state=ready"),
        ),
        tuple(
            Remedy("queue.resume", one.pool) if one.pool else Remedy("dispatch.resume", "all")
            for one in facts.pauses[:2]
        ),
    )


def _told(facts: Facts) -> list[tuple[Process, str]]:
    """Processes whose late writes were refused, each with its page."""
    found = [one for one in (*facts.dispatchers, *facts.workers) if one.stale]
    return [(one, _page(facts, one)) for one in found[:LISTED]]


def _page(facts: Facts, one: Process) -> str:
    return f"{'dispatchers' if one in facts.dispatchers else 'workers'}/{one.id}/"


def _unheld(facts: Facts) -> list[Slice]:
    return [one for one in facts.slices if one.unheld_s >= 0]


def _named(slices: list[Slice]) -> str:
    kinds: dict[str, list[int]] = {}
    for one in slices:
        kinds.setdefault(one.kind, []).append(one.shard)
    parts = [
        f"{kind} {', '.join(map(str, found))}" if len(found) <= 4 else f"{kind} ({len(found)})"
        for kind, found in kinds.items()
    ]
    return "; ".join(parts)


def _gone(found: tuple[Process, ...] | list[Process], url: str = "due/dispatcher/?live=no") -> list[Evidence]:
    return [
        Evidence("Gone", f"{one.name}, {span(one.silent_s)} ago", "its lease ran out", url)
        for one in sorted(found, key=lambda one: one.silent_s)[:LISTED]
        if one.silent_s >= 0
    ]
