"""What an explanation says, as values. Pure: the API, the consoles and the command show the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

HOLDERS_MAX = 10  # shown of those that hold what is waited for


class Thing(NamedTuple):
    """What a remedy is done to: a job, schedule, execution, queue, breaker, dead letter, the plan, the tenant."""

    kind: str
    key: str = ""


class Holder(NamedTuple):
    """A run that holds a place that another one waits for. `ends_at` is expected, at the latest its deadline."""

    execution_id: UUID
    state: str
    since: datetime
    ends_at: datetime | None


class Check(NamedTuple):
    """One predicate of admission, in its order."""

    code: str
    level: str
    ok: bool
    limit: float | None
    use: float | None
    clears_at: datetime | None


class Position(NamedTuple):
    """Its place among what waits behind the same job or concurrency key. `exact` is false where counting stopped."""

    ahead: int
    exact: bool
    key: str | None


class Delay(NamedTuple):
    """How long something held a run back, as it was recorded when the run started or ended."""

    code: str
    seconds: float


class Disposition(NamedTuple):
    """What became of an occurrence, or of the several that one row stands for."""

    execution_id: UUID
    nominal_at: datetime | None
    state: str
    reason: str
    occurrences: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cause. `check` is the predicate of admission that refuses, when it is one; `fine`: nobody need do anything.

    `clears_at` is a guess where `estimate` says how it was made, and certain where that is empty.
    """

    code: str
    detail: str
    fine: bool = False
    check: str | None = None
    limit: float | None = None
    use: float | None = None
    holders: Sequence[Holder] = ()
    since: datetime | None = None
    clears_at: datetime | None = None
    estimate: str = ""
    thing: Thing | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer about one execution or schedule at one instant. `notes` say what else is worth knowing."""

    kind: str
    id: UUID
    name: str
    state: str
    as_of: datetime
    verdict: Verdict
    checks: Sequence[Check] = ()
    position: Position | None = None
    delays: Sequence[Delay] = ()
    late_s: float | None = None
    notes: Sequence[str] = ()
    next_at: datetime | None = None
    recent: Sequence[Disposition] = field(default=())

    def refused(self) -> Iterator[Check]:
        """All that holds it back, the verdict's first."""
        return (one for one in self.checks if not one.ok)
