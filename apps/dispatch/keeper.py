"""The keeper: this dispatcher's heartbeat and its leases.

Trust window: a lease that was renewed at monotonic time r is trusted until r + TTL - margin by this process alone;
after that it serves nothing until a renewal succeeds. Others may take it when the database says that it has run out,
which is later. A loop that makes no progress loses its leases: renewal asks for a pass since the last one.

Anyone may take a lease that has run out. Rendezvous hashing over the live dispatchers decides who gives up what, and
who may take a free lease first (others wait FREE_GRACE_S).
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import orjson
import psycopg
from django.conf import settings

from apps.due import leases
from apps.due.leases import Lease, Slice
from kernel.clock import monotonic_s, utc_now
from kernel.service import Pass
from tenants.door import Line

log = logging.getLogger(__name__)
FREE_GRACE_S = 1.0
PREPARED_MAX = 4_096  # statements a connection keeps prepared: an insert per tenant schema is worth its place
Conn = psycopg.Connection[Any]


class Keeper:
    """Renews, takes and gives up leases, every LEASE_LOOK_S. `held()` is safe from any thread."""

    name = "keeper"

    def __init__(
        self, *, wants: Callable[[Slice], bool], progressed: Callable[[str], bool], stats: Callable[[], dict[str, Any]]
    ) -> None:
        if settings.LEASE_TTL_S < 3 * settings.LEASE_RENEW_S:
            raise ValueError("LEASE_TTL_S must be at least three times LEASE_RENEW_S.")
        self._conns: list[Conn] = []
        self.id: UUID = uuid4()  # unique per process start, not per host or pid
        self._wants = wants
        self.skew_ms = 0
        self.draining = False
        self._drain_wanted = False  # operators told it to stand back
        self._line = self.line(self.name)
        self._progressed = progressed
        self._stats = stats
        self._lock = threading.Lock()
        self._held: dict[Slice, int] = {}
        self._odd_since: dict[Slice, float] = {}  # leases that hold for an impossible time
        self._kinds: set[str] = set()  # that this process serves
        self._trusted_until = float("-inf")
        self._renewed_at = float("-inf")

    def line(self, name: str) -> Line:
        """A connection line under this dispatcher's name: a successor finds its sessions and can end them."""
        return Line(f"{str(self.id)[:8]} {name}", opened=self._opened)

    def held(self, kind: str) -> dict[int, int]:
        """Shard -> term of what this process may serve now; empty when it can't trust itself."""
        with self._lock:
            if monotonic_s() >= self._trusted_until:
                return {}
            return {shard: term for (its_kind, shard), term in self._held.items() if its_kind == kind}

    def signature(self, term: int | None) -> str:
        """Who fires, for the record: dispatcher and term."""
        return f"{self.id}/{term if term is not None else '?'}"

    def run_once(self) -> Pass:
        try:
            return self._pass()
        except psycopg.Error:
            self._line.close()  # no path serves after an error while leasing: what is held runs out by its trust window
            raise

    def close(self) -> None:
        """Gives everything up, so that nobody has to wait for the leases to run out."""
        with self._lock:
            held, self._held = self._held, {}
            self._trusted_until = float("-inf")
        conn = self._line.get()
        leases.give_up(conn, owner=self.id, held=held)
        leases.remove_dispatcher(conn, self.id)
        conn.close()

    def _opened(self, conn: Conn) -> None:
        conn.prepared_max = PREPARED_MAX
        self._conns = [one for one in self._conns if not one.closed] + [conn]

    def _pass(self) -> Pass:
        conn = self._line.get()
        counts: dict[str, int] = {}
        if monotonic_s() - self._renewed_at >= settings.LEASE_RENEW_S:
            counts["renewed"] = self._renew(conn)
        if self._clock_is_wrong():
            self._give_up(conn, dict(self._held), "clock")
            self._renewed_at = float("-inf")  # the others are told at the next look
            return Pass(counts, wait_s=settings.LEASE_LOOK_S)
        live = leases.live_dispatchers(conn)
        found = leases.read(conn)
        self._drop_lost(found)
        counts["taken"] = self._take(conn, found, live)
        counts["given_up"] = self._spread(conn, live)
        return Pass(counts, wait_s=settings.LEASE_LOOK_S)

    def _renew(self, conn: Conn) -> int:
        started = monotonic_s()
        before = utc_now()
        beat = leases.heartbeat(
            conn,
            dispatcher=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=settings.VERSION,
            ttl_s=settings.LEASE_TTL_S,
            backends=[one.info.backend_pid for one in self._conns if not one.closed],
            draining=self.draining or not self._is_able(),
            skew_ms=self.skew_ms,
            stats=orjson.dumps(self._stats()).decode(),
        )
        self.skew_ms = _skew_ms(before, beat.now, utc_now())
        self._drain_wanted = beat.drain_wanted
        if abs(self.skew_ms) > settings.CLOCK_WARN_S * 1_000:
            log.warning("this machine's clock is %+d ms off the database's", self.skew_ms)
        wanted = {slice_: term for slice_, term in self._held.items() if self._progressed(slice_[0])}
        stuck = {slice_: term for slice_, term in self._held.items() if slice_ not in wanted}
        kept = leases.renew(conn, owner=self.id, held=wanted, ttl_s=settings.LEASE_TTL_S)
        for slice_ in set(wanted) - set(kept):
            log.warning("lease %s/%d was taken by another dispatcher", *slice_)
        if stuck:
            log.warning("%d leases are not renewed: their loop makes no progress", len(stuck))
            self._give_up(conn, stuck, "stuck")
        with self._lock:
            self._held = kept
            self._trusted_until = started + settings.LEASE_TTL_S - settings.LEASE_MARGIN_S
        self._renewed_at = started
        return len(kept)

    def _drop_lost(self, found: list[Lease]) -> None:
        """Leases that an operator has released are not served until the next renewal either."""
        ours = {(one.kind, one.shard): one.term for one in found if one.owner == self.id}
        with self._lock:
            self._held = {slice_: term for slice_, term in self._held.items() if ours.get(slice_) == term}

    def _take(self, conn: Conn, found: list[Lease], live: list[UUID]) -> int:
        self._kinds = {lease.kind for lease in found if self._wants((lease.kind, lease.shard))}
        if self.draining or (self._drain_wanted and live):  # alone it goes on: late is better than never
            return 0
        mine = {
            (lease.kind, lease.shard): lease
            for lease in found
            if self._wants((lease.kind, lease.shard))
            and self._has_run_out(lease)
            and (lease.kind, lease.shard) not in self._held
            and self._progressed(lease.kind)
            and (leases.preferred((lease.kind, lease.shard), live) == self.id or lease.expired_s > FREE_GRACE_S)
        }
        if not mine:
            return 0
        former = sorted({lease.owner for lease in mine.values() if lease.owner not in (None, self.id)}, key=str)
        if former:
            ended = leases.end_backends(conn, [owner for owner in former if owner is not None])
            log.warning("taking over from %s (%d database sessions ended)", ", ".join(map(str, former)), ended)
        taken = leases.take(
            conn, owner=self.id, seen={slice_: lease.term for slice_, lease in mine.items()}, ttl_s=settings.LEASE_TTL_S
        )
        with self._lock:
            self._held.update(taken)
        return len(taken)

    def _has_run_out(self, lease: Lease) -> bool:
        """Whether anybody may take it. After the clock went back, its holder has the time of a lease to renew it."""
        slice_ = (lease.kind, lease.shard)
        if lease.expired_s > -leases.IMPLAUSIBLE_S:
            self._odd_since.pop(slice_, None)
            return lease.expired_s >= 0
        return monotonic_s() - self._odd_since.setdefault(slice_, monotonic_s()) > settings.LEASE_TTL_S

    def _spread(self, conn: Conn, live: list[UUID]) -> int:
        """Gives up what another live dispatcher should have."""
        leaves = self.draining or self._drain_wanted
        others = [one for one in live if one != self.id] if leaves else live
        if not others or others == [self.id] or (not leaves and self.id not in live):
            return 0
        extra = {
            slice_: term
            for slice_, term in self._held.items()
            if leases.preferred(slice_, others) not in (self.id, None)
        }
        self._give_up(conn, extra, "drained" if leaves else "spread")
        return len(extra)

    def _give_up(self, conn: Conn, given: dict[Slice, int], why: str) -> None:
        if not given:
            return
        with self._lock:
            self._held = {slice_: term for slice_, term in self._held.items() if slice_ not in given}
        leases.give_up(conn, owner=self.id, held=given, why=why)

    def _is_able(self) -> bool:
        """Whether it would take what the others give up for it: else nobody would serve that."""
        right_clock = abs(self.skew_ms) <= settings.CLOCK_REFUSE_S * 1_000
        return right_clock and all(self._progressed(kind) for kind in self._kinds)

    def _clock_is_wrong(self) -> bool:
        wrong = abs(self.skew_ms) > settings.CLOCK_REFUSE_S * 1_000
        if wrong:
            log.error("this machine's clock is %+d ms off the database's: it owns no shard", self.skew_ms)
        return wrong


def _skew_ms(before: datetime, database: datetime, after: datetime) -> int:
    """This clock minus the database's, in milliseconds; half of the round trip is taken as the way there."""
    middle = before + (after - before) / 2
    return round((middle - database).total_seconds() * 1_000)
