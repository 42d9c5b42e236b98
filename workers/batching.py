"""How long a start or a settlement waits for more to come with it: many at once cost little more than one. Pure.

It is a small part of what runs take here, so that nothing is noticeably later for it.
"""

SHARE = 0.1  # of the time that a run takes
SLOTS_PART = 0.5  # of that for starts: slots are empty meanwhile
MOST_S = 0.02
WEIGHT = 0.1  # of one run in the average


def worth_s(took_s: float) -> float:
    """What one more run may wait that took, or will take, so many seconds."""
    return min(MOST_S, max(0.0, took_s) * SHARE)


class Usual:
    """A moving average of how long runs hold their slot, in seconds. Its owner holds a lock."""

    def __init__(self) -> None:
        self._usual_s = 0.0

    def saw(self, took_s: float) -> None:
        """A run gave its slot back. What took much longer than matters counts as what just does."""
        self._usual_s += (min(took_s, MOST_S / SHARE) - self._usual_s) * WEIGHT

    @property
    def wait_s(self) -> float:
        """How long slots that have become free may wait for others that are about to."""
        return worth_s(self._usual_s) * SLOTS_PART
