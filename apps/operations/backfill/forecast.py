"""When a backfill will have ended, and what it uses up of its tenant's plan. Pure; all of it is an estimate."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

STEP_S = 0.5  # from the end of one run to the start of the next one: how often an operation is looked at


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast runs go: how long one takes (None: nobody knows), how many at once, how many begin in a second."""

    run_s: float | None
    at_once: int
    per_s: float | None = None

    def seconds(self, runs: int) -> float | None:
        """How long so many runs take."""
        if not runs:
            return 0.0
        if self.run_s is None:
            return None
        by_places = ceil(runs / self.at_once) * (self.run_s + STEP_S)
        return max(by_places, runs / self.per_s) if self.per_s else by_places


@dataclass(frozen=True, slots=True)
class Use:
    """A limit of the plan, what counts against it now, and the most that the backfill adds to that at once."""

    quota: str
    limit: int
    use: int
    adds: int

    @property
    def room(self) -> int:
        return max(0, self.limit - self.use)

    @property
    def enough(self) -> bool:
        """Whether it fits beside what is there."""
        return self.adds <= self.room


def uses(
    runs: int, *, at_once: int, per_day: tuple[int, int] | None, live: tuple[int, int] | None
) -> list[Use]:  # fmt: skip
    """What `runs` mean for limits, given as (limit, use): of runs in a day, and of executions that are not finished."""
    found = []
    if per_day is not None:
        found.append(Use("max_runs_per_day", *per_day, adds=runs))
    if live is not None:
        found.append(Use("max_live", *live, adds=min(runs, at_once)))
    return found


def expected_end(runs: int, pace: Pace, *, now: datetime, per_day: tuple[int, int] | None = None) -> datetime | None:
    """When so many runs will have ended; None when that can't be said, as where the plan allows none on any day.

    What a day has no room for waits for the next one, which begins at midnight UTC.
    """
    if per_day is None or per_day[0] - per_day[1] >= runs:
        seconds = pace.seconds(runs)
        return None if seconds is None else _after(now, seconds)
    limit, use = per_day
    if limit <= 0:
        return None
    left = runs - max(0, limit - use)
    days = ceil(left / limit)
    seconds = pace.seconds(left - (days - 1) * limit)
    midnight = datetime.combine(now.astimezone(UTC).date(), datetime.min.time(), UTC)
    whole = pace.seconds(runs)
    if seconds is None or whole is None:
        return None
    last = _after(midnight, days * 86_400 + seconds)
    straight = _after(now, whole)
    return None if last is None or straight is None else max(last, straight)


def measured_end(left: int, *, done: int, since: datetime, now: datetime) -> datetime | None:
    """The same of one that is on its way, from how fast it went until now; None before anything is done."""
    elapsed_s = (now - since).total_seconds()
    if not left or done <= 0 or elapsed_s <= 0:
        return None
    return _after(now, left * elapsed_s / done)


def _after(at: datetime, seconds: float) -> datetime | None:
    try:
        return at + timedelta(seconds=round(seconds))
    except OverflowError:
        return None
