"""Keeping the forecast: changes within seconds, every shard anew now and then, and never much of the time.

A round looks at all shards one by one; between rounds only what has changed is added, from the rows that were written
with the changes. What changed in a shard while it is looked at waits until that look is written.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.forecast.looking import Crowd, ShardLook, look
from apps.dispatch.forecast.summing import clock_changes, fullest, peaks_of, summed, whole_hour, with_runs
from apps.dispatch.keeper import Keeper
from apps.due import forecast
from apps.due.forecast import MINUTE, Planned, Shard, Total
from apps.schedules.forecasting import Expander
from kernel.clock import monotonic_s
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry
from tenants.work import database_now

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
LEASE_KIND = "reconcile"
BEGIN_S = 3.0  # after the lease was taken: what is due goes first
EVERY_S = 2.0  # between looks for changes
SHARE = 20  # it takes at most one part in so many of the time
FIRST_SHARE = 5  # until all is known for the first time
STEP_S = 0.25  # of work at a time, so that a stop and what is due do not wait for it
REST_MAX_S = 60.0
ROUND_EVERY = timedelta(minutes=30)  # the end of the forecast has to move on, and what nobody said comes in
ROUND_SOON = timedelta(minutes=5)  # when another minute is the fullest one now
TOTAL_EVERY = timedelta(minutes=1)  # at least: it says that somebody keeps it
ROUND_TOTAL_EVERY = timedelta(seconds=5)  # while shards come in
CHANGES = 1_000


@dataclass(slots=True)
class Round:
    """A look over all shards that is under way."""

    began_at: datetime
    expander: Expander
    crowd: Crowd
    left: list[int]
    zones: set[str] = field(default_factory=set)
    look: ShardLook | None = None


class ForecastService:
    """Runs where the reconcile lease is held. One thread, one connection."""

    name = "forecast"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._shards: dict[int, Shard] | None = None
        self._total: Total | None = None
        self._round: Round | None = None
        self._watched = False  # whether a round has looked who is in the fullest minutes
        self._not_before = 0.0

    def run_once(self) -> Pass:
        if not self._keeper.held(LEASE_KIND):
            self._shards = self._round = None
            self._not_before = monotonic_s() + BEGIN_S
            return Pass(wait_s=EVERY_S)
        if (wait_s := self._not_before - monotonic_s()) > 0:
            return Pass(wait_s=wait_s)
        conn, began = self._line.get(), monotonic_s()
        self._registry.refresh()
        counts = self.step(conn, database_now(conn))
        took = monotonic_s() - began
        rest = min(REST_MAX_S, took * ((SHARE if self._watched else FIRST_SHARE) - 1))
        return Pass(counts, wait_s=rest if self._round is not None else max(rest, EVERY_S))

    def close(self) -> None:
        self._line.close()

    def step(self, conn: Conn, now: datetime) -> dict[str, int]:
        """A little of what there is to do: changes first, then a part of a round."""
        if self._shards is None:
            self._shards = {one.shard: one for one in forecast.read_shards(conn)}
            self._total = forecast.read(conn)
            self._watched = self._total is not None and bool(self._total.peaks)
        if self._round is None and self._wants_round(now):
            self._round = self._new_round(now)
        changed = self._add_changes(conn, now)
        in_round = self._round is not None
        written = self._go_on(conn, now) if in_round else 0
        ended = in_round and self._round is None
        age = TOTAL_EVERY if self._total is None else now - self._total.made_at
        if ended or age >= TOTAL_EVERY or (changed and self._round is None) or (written and age >= ROUND_TOTAL_EVERY):
            self._write_total(conn, now)
        return {"changes": changed, "shards": written, "rounds": int(ended)}

    def _wants_round(self, now: datetime) -> bool:
        if self._total is None or self._total.shards < settings.SHARDS or now < self._total.oldest_at:
            return True
        age = now - self._total.oldest_at
        if age >= ROUND_EVERY:
            return True
        seen = {one["at"] for one in self._total.peaks}
        unseen = any(at not in seen for at in fullest(self._total, now, 1))
        return unseen and (age >= ROUND_SOON or not self._watched)

    def _new_round(self, now: datetime) -> Round:
        start = whole_hour(now)
        watched = fullest(self._total, now) if self._total is not None else []
        crowd = Crowd({(at - start) // MINUTE for at in watched})
        return Round(now, Expander(start, now), crowd, list(range(settings.SHARDS))[::-1])

    def _go_on(self, conn: Conn, now: datetime) -> int:
        """Expands for STEP_S; how many shards were written."""
        under_way, until, written = self._round, monotonic_s() + STEP_S, 0
        assert under_way is not None
        while monotonic_s() < until:
            if under_way.look is None:
                if not under_way.left:
                    self._end_round(under_way)
                    break
                under_way.expander.look_from(now)
                under_way.look = look(
                    conn, under_way.left.pop(), now=now, until=under_way.expander.until, serves=self._serves
                )
            if under_way.look.expand(under_way.expander, under_way.crowd, for_s=until - monotonic_s()):
                self._write_shard(conn, under_way.look, under_way.expander.starts_at)
                under_way.zones |= under_way.look.zones
                under_way.look, written = None, written + 1
        return written

    def _write_shard(self, conn: Conn, done: ShardLook, starts_at: datetime) -> None:
        assert self._shards is not None
        shard = Shard(done.shard, starts_at, done.read_at, done.entries, done.bins if any(done.bins) else [])
        with conn.transaction():
            forecast.write_shard(conn, shard)
            forecast.drop_changes(conn, done.changes)
        self._shards[done.shard] = shard

    def _end_round(self, done: Round) -> None:
        self._round, self._watched = None, self._watched or bool(done.crowd.watched)
        assert self._shards is not None
        found = summed(
            self._shards.values(), now=done.began_at, peaks=peaks_of(done.crowd, done.expander.starts_at),
            clock_changes=clock_changes(done.zones, starts_at=done.began_at, until=done.expander.until),
        )  # fmt: skip
        self._total = found

    def _add_changes(self, conn: Conn, now: datetime) -> int:
        """What the entries that changed ran before is taken off, and what they run now is put on."""
        if not forecast.any_change(conn):
            return 0
        assert self._shards is not None
        held = self._round.look.shard if self._round is not None and self._round.look is not None else None
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            changed = forecast.take_changes(conn, limit=CHANGES, not_shard=held)
            after = {entry.key: entry for entry in forecast.planned_of(conn, list(changed))}
            found = {
                shard.shard: with_runs(shard, runs, more) for shard, runs, more in self._moved(changed, after, now)
            }
            for one in found.values():
                forecast.write_shard(conn, one)
        self._shards |= found
        return len(changed)

    def _moved(
        self, changed: Mapping[UUID, tuple[int, Planned | None]], after: Mapping[UUID, Planned], now: datetime
    ) -> list[tuple[Shard, Counter[int], int]]:
        by_shard = defaultdict[int, list[tuple[Planned, int]]](list)
        for key, (number, was) in changed.items():
            by_shard[number] += [(one, sign) for one, sign in ((was, -1), (after.get(key), 1)) if one is not None]
        found, expanders = [], dict[datetime, Expander]()
        for number, moved in by_shard.items():
            shard = (self._shards or {}).get(number)
            if shard is None:
                continue  # not known yet: the round that comes to it reads them
            expander = expanders.setdefault(shard.starts_at, Expander(shard.starts_at, now))
            runs, more = Counter[int](), 0
            for entry, sign in moved:
                if entry.due_at < expander.until and self._serves(entry.tenant_id):
                    more += sign
                    for index, count in expander.runs(entry):
                        runs[index] += sign * count
            found.append((shard, runs, more))
        return found

    def _write_total(self, conn: Conn, now: datetime) -> None:
        assert self._shards is not None
        before = self._total
        total = summed(
            self._shards.values(), now=now, peaks=before.peaks if before else [],
            clock_changes=before.clock_changes if before else [],
        )  # fmt: skip
        if total is not None:
            forecast.write(conn, total)
            self._total = total

    def _serves(self, tenant_id: int) -> bool:
        tenancy = self._registry.get(tenant_id)
        return tenancy is not None and tenancy.active
