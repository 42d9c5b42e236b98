"""How many attempts of each queue end here in a second: an average that forgets, told with the heartbeat. Pure."""

from collections import Counter
from math import exp

TAU_S = 30.0  # a change is seen by two thirds after so long
TOLD_MOST = 300  # queues; the busiest
LEAST_PER_S = 0.005


class QueuePace:
    """Not safe from several threads: its owner holds a lock."""

    def __init__(self) -> None:
        self._per_s: dict[str, float] = {}
        self._ended: Counter[str] = Counter()
        self._since: float | None = None

    def ended(self, queue: str) -> None:
        """An attempt of this queue has ended."""
        self._ended[queue] += 1

    def told(self, at: float) -> dict[str, float]:
        """The rates at an instant of a clock in seconds that only grows, the busiest queues first."""
        if self._since is None:
            self._since = at
        elapsed_s = at - self._since
        if elapsed_s > 0:
            keep, self._since = exp(-elapsed_s / TAU_S), at
            names = self._per_s.keys() | self._ended.keys()
            new = {one: self._per_s.get(one, 0.0) * keep + self._ended[one] / elapsed_s * (1 - keep) for one in names}
            self._per_s = {one: per_s for one, per_s in new.items() if per_s >= LEAST_PER_S}
            self._ended.clear()
        busiest = sorted(self._per_s.items(), key=lambda pair: -pair[1])[:TOLD_MOST]
        return {queue: round(per_s, 3) for queue, per_s in busiest}
