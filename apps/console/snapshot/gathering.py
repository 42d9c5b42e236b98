"""Reads what is known of the platform: shared tables only, no more than some 10,000 rows, sums where there are any.

What hardly changes from one second to the next (`slow`) is read every SLOW_S and remembered between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.conf import settings

from apps.audit import chain
from apps.console.snapshot import reading
from apps.console.verdict.keeping import UNSEALED_MANY
from apps.console.verdict.values import CAP, NO_LATE, Facts, Failing, Late, Pool, Resumed, Spell, TenantPause
from apps.console.verdict.work import LATE_S
from apps.dispatch.forecast.capacity import capacity_of
from apps.dispatch.pressure.gauging import pools_of
from apps.dispatch.pressure.queueing import queues_of
from apps.due import entries, forecast, slots
from apps.usage import failures, loads, platform, pressure
from apps.usage.figures import start_of
from apps.usage.reading import Period, Spread
from tenants import behind, pauses

Conn = psycopg.Connection[Any]
Memory = dict[str, Any]
SLOW_S = 5.0
LATELY = timedelta(minutes=5)
PAST, AHEAD = timedelta(hours=1), 60  # that the pictures show: behind us, and minutes before us
ENDS = ("succeeded", "dead", "cancelled", "expired")
HOSTS_KEPT, HELD_KEPT, TOP = 8, 8, 8
STALE_WINDOW_S = 300.0
TIMED = 3
RESUMES = ("dispatch.resume", "tenant.resume")


def gather(conn: Conn, memory: Memory) -> tuple[Facts, Memory]:
    """What is known now, and what the next reading has to remember."""
    now, earliest = entries.peek(conn, range(settings.SHARDS))
    oldest = min((at for at in earliest.values() if at <= now), default=None)
    slow = memory.get("slow", {})
    if not slow or not 0 <= (now - datetime.fromisoformat(slow["at"])).total_seconds() < SLOW_S:  # clocks are set back
        slow = _slow(conn, now)
    measured, load = pressure.read(conn), loads.read(conn)
    figures = measured.figures if measured is not None else {}
    fresh = measured is not None and not measured.stale
    workers, live = reading.workers(conn)
    dispatchers = reading.dispatchers(conn)
    stale = _stale_writes(memory.get("stale"), {one.id: one.stale for one in (*dispatchers, *workers)}, now)
    queues = {one.queue: one.depth for one in queues_of(figures) if one.depth} if fresh else {}
    capacity = capacity_of(measured)
    held = pauses.HeldBack(*slow.get("held", ()))  # which the version before does not keep
    facts = Facts(
        now=now, replica_lag_s=slow["replica_lag_s"], dispatchers=dispatchers, workers=workers,
        workers_live=live, slices=reading.slices(conn), due=reading.due(conn, now) if oldest is not None else 0,
        oldest_due_s=(now - oldest).total_seconds() if oldest is not None else 0.0,
        measured_s=measured.age_s if measured is not None else None,
        stale_after_s=pressure.STALE_S + pressure.STALE_ROUNDS * measured.every_s if measured is not None else 0.0,
        pools=tuple(_pool(one) for one in pools_of(figures)) if fresh else (),
        capacity=capacity.per_minute if capacity is not None else 0.0,
        unserved=tuple((name, queues[name]) for name in reading.unheard(conn, list(queues))),
        shares=reading.shares(conn, load) if load is not None and not load.stale else (),
        minute=Spell(*slow["minute"]), lately=Spell(*slow["lately"]), hour=Spell(*slow["hour"]),
        week_ago=Spell(*slow["week_ago"]), late=Late(*slow.get("late", NO_LATE)),
        failing=tuple(Failing(*one) for one in slow["failing"]), shut=reading.shut(conn),
        pauses=reading.pauses(conn), tenant_pauses=held.total,
        tenants_paused=tuple(TenantPause(*one) for one in held.first), resumed=_resumed(slow.get("changes", ()), now),
        stale_writes=sum(count for _, count in stale["grown"]),
        stale_at=datetime.fromisoformat(stale["grown"][-1][0]) if stale["grown"] else None,
        next_due_at=min((at for at in earliest.values() if at > now), default=None),
        parked=slow["parked"], parked_one=slow.get("parked_one", ""),  # which the version before does not keep
        alarms=slow["alarms"], unsealed=slow["unsealed"], other_schemas=slow["other_schemas"],
        slots_given_up=slow["slots_given_up"], **_counts(conn, load, fresh),
    )  # fmt: skip
    return facts, {"slow": slow, "stale": stale, "took_ms": memory.get("took_ms", [])}


def timed(facts: Facts, memory: Memory, *, took_ms: float) -> tuple[Facts, Memory]:
    """With how long readings take: the fastest of the last few, since a process that has just begun is slow once."""
    took = [*memory.get("took_ms", ())[1 - TIMED :], round(took_ms)]
    return replace(facts, took_ms=min(took) if len(took) == TIMED else 0.0), memory | {"took_ms": took}


def _slow(conn: Conn, now: datetime) -> Memory:
    lately, an_hour = start_of(now - LATELY, 60), start_of(now - PAST, 60)  # as the pages behind the numbers begin
    hour = platform.failure_rate(conn, now=now)
    past = platform.history(conn, step="minute", start=now - PAST, end=now)
    groups = failures.groups(conn, step="minute", since=lately).groups
    samples = {group.cause.host: group.cause.message for group in groups if group.cause}
    hosts = failures.hosts(groups)[:HOSTS_KEPT]
    spread = platform.lateness(conn, now=now, window=LATELY)
    is_late = spread.p99_s is not None and spread.p99_s >= LATE_S
    return {
        "at": now.isoformat(),
        "replica_lag_s": reading.replica_lag_s(conn),
        "minute": _minute(past, now),
        "lately": _with_lateness(_spell(past, now - LATELY, 300.0), spread),
        "late": reading.late(conn, since=lately) if is_late else NO_LATE,
        "hour": _rate(hour.now),
        "week_ago": _rate(hour.week_ago) if hour.week_ago is not None else Spell(3_600.0),
        "failing": [
            Failing(one.host, one.attempts, len(one.tenants), samples.get(one.host, "")[:200]) for one in hosts
        ],
        **reading.put_aside(conn, sends=slots.SENDS_MAX),
        "alarms": chain.alarms(conn, most=CAP + 1),
        "unsealed": chain.waiting(conn, most=UNSEALED_MANY + 1),
        "other_schemas": behind.other_version(conn),
        "past": [
            [one.starts_at.isoformat(), *(one.counts[name] for name in ENDS), one.spreads["dispatch"].p50_s,
             one.spreads["dispatch"].p99_s]
            for one in past
        ],
        "backlog": [
            [one.minute.isoformat(), one.due, one.ready + one.queued, one.running, one.slots, one.ready, one.queued]
            for one in loads.samples(conn, start=now - PAST, end=now + timedelta(minutes=1))
        ],
        "top": [
            [one.fingerprint, f"{one.cause.error_class} {one.cause.status}".strip(), one.cause.host,
             one.cause.message[:200], one.attempts, one.letters, len(one.tenants), one.cause.last_at.isoformat()]
            for one in failures.groups(conn, step="minute", since=an_hour, most=TOP).groups if one.cause
        ],
        "held": pauses.held_back(conn, most=HELD_KEPT),
        "changes": reading.changes(conn, since=now - PAST),
        "ahead": _ahead(conn, now),
    }  # fmt: skip


def _ahead(conn: Conn, now: datetime) -> list[tuple[str, int]]:
    """Expected runs in each minute of the next hour; nothing where the forecast is missing or too old."""
    found = forecast.read(conn)
    return [] if found is None else [(f"{at:%H:%M}", runs) for at, runs in found.of_minutes(now, AHEAD)]


def _resumed(changes: Sequence[Sequence[Any]], now: datetime) -> Resumed | None:
    """The newest resume in the minutes of `lately`; `changes` are newest first."""
    since = start_of(now - LATELY, 60)
    for at, action, _, _, by, _, slug, allowed in changes:
        if action in RESUMES and allowed and datetime.fromisoformat(at) >= since:
            return Resumed(action, by, datetime.fromisoformat(at), slug)
    return None


def _rate(one: platform.Rate) -> Spell:
    return Spell(3_600.0, one.ended, one.dead, one.attempts, one.attempts_failed)


def _minute(past: list[Period], now: datetime) -> Spell:
    """The last whole minute; the one that is going on where nothing ended in that."""
    began = now.replace(second=0, microsecond=0)
    for at in (began - timedelta(minutes=1), began):
        found = next((one for one in past if one.starts_at == at), None)
        if found is not None and (spell := _spell([found], at, 60.0)).ended:
            return _with_lateness(spell, found.spreads["dispatch"])
    return Spell(60.0)


def _spell(past: list[Period], since: datetime, seconds: float) -> Spell:
    """The minutes that were going on then or later; without lateness."""
    found = [one.counts for one in past if one.starts_at + timedelta(minutes=1) > since]
    total = {name: sum(one[name] for one in found) for name in (*ENDS, "attempts", "attempts_failed")}
    ended = sum(total[name] for name in ENDS)
    return Spell(seconds, ended, total["dead"], total["attempts"], total["attempts_failed"])


def _with_lateness(spell: Spell, late: Spread) -> Spell:
    """With how late its first releases were."""
    return spell._replace(times=late.times, p50_s=late.p50_s, p99_s=late.p99_s)


def _pool(one: Any) -> Pool:
    return Pool(
        one.pool, one.group, one.slots, one.running, one.queued, sum(one.ready.values()), one.held, one.later,
        one.oldest_wait_s["live"], one.arrivals_per_s, one.ended_per_s,
    )  # fmt: skip


def _counts(conn: Conn, load: loads.Loads | None, fresh: bool) -> dict[str, Any]:
    """Tickets by state: as they were measured, else counted, no further than COUNTED."""
    if load is not None and fresh and not load.stale:
        total = load.total()
        names = ("ready", "queued", "running", "later")
        return {"counts": {name: getattr(total, name) for name in names}}
    return {"counts": reading.counted(conn), "counts_most": reading.COUNTED}


def _stale_writes(before: Memory | None, now_told: Mapping[str, int], now: datetime) -> Memory:
    """By how much the processes' counters of refused writes have grown, with the time, in the last five minutes."""
    told = {key: count for key, count in now_told.items() if count}
    if before is None:
        return {"told": told, "grown": []}
    grown = sum(max(0, count - before["told"].get(key, 0)) for key, count in told.items())
    kept = [
        one for one in before["grown"]
        if 0 <= (now - datetime.fromisoformat(one[0])).total_seconds() < STALE_WINDOW_S
    ]  # fmt: skip
    return {"told": told, "grown": [*kept, [now.isoformat(), grown]] if grown else kept}
