"""Lanes of a pool: live work before catch-up before backfill, and yet the lower lanes never starve. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from apps.tickets.values import BACKFILL, CATCH_UP, LANES, LIVE

LOWER = (CATCH_UP, BACKFILL)
LOWER_PART = 16  # one of so many runs that are released is of the lower lanes, as long as one of them waits
LOWER_HELD_MOST = 0.75  # of a pool's slots is the most that lower lanes hold: live work finds the others free


@dataclass(slots=True)
class Lanes:
    """What each lane may take. A pass is: `open`, then for each lane in order `room` and `took`, then `close`."""

    _owed: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # of their part, from passes of few runs
    _part: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    _kept: list[int] = field(default_factory=lambda: [0, 0, 0])
    _took: list[int] = field(default_factory=lambda: [0, 0, 0])
    _left: int = 0
    _lower_left: int = 0

    def open(self, *, total: int, slots: int, waits: Sequence[bool], held: Sequence[int]) -> None:
        """Begins a pass: `total` may be released; each lane has `held` so many of the pool's `slots`, and `waits`."""
        lower = [lane for lane in LOWER if waits[lane]]
        self._left = max(0, total)
        self._lower_left = max(1, int(slots * LOWER_HELD_MOST)) - sum(held[lane] for lane in LOWER)
        self._took, self._kept = [0, 0, 0], [0, 0, 0]
        free = max(0, min(self._left, self._lower_left))
        for lane in LOWER:
            self._part[lane] = 1 / LOWER_PART / len(lower) if lane in lower else 0.0
            owed = self._owed[lane] + self._left * self._part[lane] if lane in lower else 0.0
            self._kept[lane] = min(free, int(owed))
            free -= self._kept[lane]

    def room(self, lane: int) -> int:
        """How many runs of this lane may go now: what is left, but for what is kept for the lanes after it."""
        left = self._left if lane == LIVE else min(self._left, self._lower_left)
        return max(0, left - sum(self._kept[after] for after in LANES if after > lane))

    def took(self, lane: int, count: int) -> None:
        """So many of this lane went."""
        self._took[lane] += count
        self._left -= count
        if lane in LOWER:
            self._lower_left -= count

    def close(self) -> None:
        """Ends a pass. A lane is not owed what it could not use of its part, nor more than one run in any case."""
        released = sum(self._took)
        for lane in LOWER:
            owed = self._owed[lane] + released * self._part[lane] - self._took[lane]
            self._owed[lane] = min(1.0, max(0.0, owed)) if self._took[lane] >= self._kept[lane] else 0.0
