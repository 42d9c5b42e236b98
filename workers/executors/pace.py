"""How many works a child process may have at once, from how long works take here.

Works are sent ahead so that short ones cost no round trip. What is sent ahead can't run elsewhere meanwhile, so it
should be worth a moment only: many short works, or one long one.
"""

BATCH_S = 0.1  # what a child has, the running work included, should be done by then
FIRST_DEPTH = 2  # until it is known how long works take
RISE = 0.5  # weight of a work that took longer than usual: one or two are enough to hold back
FALL = 0.125  # weight of a work that took no longer than usual


class Pace:
    """A moving average of run times, and the depth that follows from it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._usual_s = BATCH_S / FIRST_DEPTH
        self.depth = min(FIRST_DEPTH, most)

    def saw(self, ran_s: float) -> None:
        """A work ended after `ran_s`. Longer than BATCH_S is long, however long: one of them is soon outweighed."""
        ran_s = min(max(ran_s, 0.0), BATCH_S)
        self._usual_s += (ran_s - self._usual_s) * (RISE if ran_s > self._usual_s else FALL)
        self.depth = max(1, min(self._most, int(BATCH_S / max(self._usual_s, 1e-6) + 1e-6)))
