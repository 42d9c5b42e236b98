"""What was missed yields: while live work of a pool waits for slots, entries that owe nothing but catch-up wait too.

An entry with an occurrence that is on time is never held back, nor what is late but was asked for; each that is held
back is looked at again when its next occurrence comes. And nothing starves: a sixteenth of a batch of them, the oldest
first, goes in each second, however long it takes.
"""

from collections.abc import Callable, Set
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.due.entries import FRESH, Entry
from apps.schedules.policy import Decision
from apps.usage import pressure
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
Place = tuple[str, str]  # pool and group of workers
ASK_EVERY_S = 2.0  # how the pools are
LOOK_EVERY_S = 0.5  # at debt, while some of it is held back
TRICKLE_EVERY_S = 1.0
TRICKLE_SHARE = 16
REMEMBERED = 20_000  # entries; more are decided again in each look, which is bounded as well
NEVER = datetime.max.replace(tzinfo=UTC)


class Held(NamedTuple):
    """Why an entry waits, since when it is due, and when it has something on time."""

    place: Place
    due_at: datetime
    until: datetime


class Deferral:
    """What a fire loop holds back. For one thread."""

    def __init__(self, *, batch: int, clock: Callable[[], float] = monotonic_s) -> None:
        self._trickle = max(1, batch // TRICKLE_SHARE)
        self._clock = clock
        self._pressed: Set[Place] = frozenset()
        self._held: dict[UUID, Held] = {}
        self._more = False  # whether some are held back that are not remembered
        self._may_go = 0
        self._asked_at = self._looked_at = self._trickled_at = float("-inf")

    @property
    def active(self) -> bool:
        """Whether something is held back."""
        return bool(self._held) or self._more

    def ask(self, conn: Conn) -> None:
        """Learns every ASK_EVERY_S which pools are pressed; none of them is when nobody measures."""
        if self._clock() - self._asked_at >= ASK_EVERY_S:
            self._asked_at = self._clock()
            self.press(pressure.pressed(conn))

    def press(self, places: Set[Place]) -> None:
        """These are pressed from now on; what was held back for others is free."""
        self._pressed = places
        self._held = {key: held for key, held in self._held.items() if held.place in places}
        self._more = self._more and bool(places)

    def looks(self) -> bool:
        """Whether this pass looks at debt; some of what is held back may go then."""
        now = self._clock()
        if not self.active:
            self._looked_at = self._trickled_at = now
            return True
        if now - self._looked_at < LOOK_EVERY_S:
            return False
        self._looked_at, self._more = now, False
        if now - self._trickled_at >= TRICKLE_EVERY_S:
            self._trickled_at, self._may_go = now, self._trickle
            for key in nsmallest(self._trickle, self._held, key=lambda key: self._held[key].due_at):
                del self._held[key]
        return True

    def keys(self, now: datetime) -> list[UUID]:
        """Entries that need no look; those whose time has come are forgotten."""
        self._held = {key: held for key, held in self._held.items() if held.until > now}
        return list(self._held)

    def holds(self, entry: Entry, decision: Decision, group: str, now: datetime) -> bool:
        """Whether this entry waits. `group` is that of its tenant's workers."""
        if not self._pressed or now - entry.due_at <= FRESH or not decision.fires:
            return False
        place = (entry.pool, group)
        if place not in self._pressed or any(fire.trigger != "catch_up" for fire in decision.fires):
            return False
        if self._may_go > 0:
            self._may_go -= 1
            return False
        if len(self._held) < REMEMBERED:
            self._held[entry.key] = Held(place, entry.due_at, decision.next_due or NEVER)
        else:
            self._more = True
        return True
