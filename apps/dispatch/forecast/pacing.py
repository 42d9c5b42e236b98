"""When the forecast works, so that it never takes much of the time. Pure: all times are given, monotonic, in seconds.

What changes is added within EVERY_S. A shard is looked at in small steps with rests between them, and then there is a
rest until that shard has taken no more than its share of the time: a small one, unless all shards could not be looked
at in CYCLE_S that way. Until all shards are known for the first time it is more.
"""

from dataclasses import dataclass

EVERY_S = 2.0  # between looks for changes
NOTHING_S = 10.0  # until it is asked again whether a shard is old
CHANGES_SHARE = 1 / 20
FIRST_SHARE = 1 / 5  # while something is not known yet
WITHIN_SHARE = 1 / 50  # within a shard
LEAST_SHARE, MOST_SHARE = 1 / 400, 1 / 20  # the most also while all shards are known to be wrong
CYCLE_S = 44 * 3_600.0  # less than SLACK_HOURS: the rest is for what comes between


def share_of(shard_s: float, *, shards: int) -> float:
    """The share of the time in which so many shards, each with so much work, are looked at in CYCLE_S."""
    return min(MOST_SHARE, max(LEAST_SHARE, shards * shard_s / CYCLE_S))


@dataclass(slots=True)
class Pace:
    """What has been done, and when the next looks may be."""

    changes_at: float
    looks_at: float
    _began: float | None = None  # with what is looked at now
    _spent_s: float = 0.0
    _shard_s: float = 0.0  # the work of the last whole one

    def wait_s(self, now: float) -> float:
        """Until there is something to do."""
        return max(0.0, min(self.changes_at, self.looks_at) - now)

    def changed(self, now: float, took_s: float) -> None:
        """Changes were looked for and added, up to now."""
        self.changes_at = now + max(EVERY_S, took_s * (1 / CHANGES_SHARE - 1))

    def looked(self, now: float, took_s: float, *, whole: int, shards: int, least: float = LEAST_SHARE) -> None:
        """A step of work has ended now, with which so many shards are whole; it may take `least` of the time."""
        began = now - took_s if self._began is None else self._began
        self._began, self._spent_s = began, self._spent_s + took_s
        within = max(WITHIN_SHARE, least, share_of(self._shard_s, shards=shards))
        self.looks_at = now + took_s * (1 / within - 1)
        if whole:
            self._shard_s = self._spent_s / whole
            share = max(least, share_of(self._shard_s, shards=shards))
            self.looks_at = max(self.looks_at, began + self._spent_s / share)
            self._began, self._spent_s = None, 0.0

    def nothing(self, now: float) -> None:
        """There was nothing to look at."""
        self.looks_at = now + NOTHING_S
        self._began, self._spent_s = None, 0.0
