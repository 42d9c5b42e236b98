"""What a callable that the operator registered gets and may raise: `def report(payload, context): ...`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_FACTS = ("run_key", "attempt", "nominal_at", "deadline", "tenant", "execution_id")


@dataclass(frozen=True, slots=True)
class TaskContext(Mapping[str, Any]):
    """The run that a callable works for, as attributes and as a mapping of facts."""

    run_key: str  # the same over retries and replays: use it to make side effects happen once
    attempt: int
    nominal_at: datetime | None
    deadline: datetime
    tenant: str  # slug
    execution_id: str
    cancel_requested: Callable[[], bool] = field(repr=False)  # for loops that want to stop at a good moment
    # report_progress({"done": 3, "of": 10}): small JSON for whoever looks at the run; the latest counts
    report_progress: Callable[[Any], None] = field(repr=False)
    tenant_id: int = field(repr=False)
    schema: str = field(repr=False)  # of the tenant; where Django is set up its connection is in it already

    def __getitem__(self, name: str) -> Any:
        if name not in _FACTS:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(_FACTS)

    def __len__(self) -> int:
        return len(_FACTS)


class SoftTimeout(Exception):
    """Raised inside the callable at its soft time-out. It may clean up until the hard one, which kills."""


class Cancelled(BaseException):
    """Raised inside the callable when its run is cancelled; a moment later its process is killed."""


class NoRetry(Exception):
    """Raise it when another attempt makes no sense: the run fails for good, whatever the job's retry policy says."""


class RetryAfter(Exception):
    """Raise it to fail this attempt and to ask for a pause, in seconds, before the next."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"asked to be tried again in {seconds:g} s")
        self.seconds = max(0.0, float(seconds))


class Final(Exception):
    """Ends the run for good with the error inside: for adapters that know that no retry is wanted."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
