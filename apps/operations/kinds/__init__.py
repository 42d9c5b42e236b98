"""All kinds of operations, by what is done to what. A new kind is one class and one line here."""

from apps.operations.kinds.backfill import BackfillSchedule
from apps.operations.kinds.base import Kind
from apps.operations.kinds.definitions import (
    LabelJobs,
    LabelSchedules,
    PauseJobs,
    PauseSchedules,
    ResumeJobs,
    ResumeSchedules,
)
from apps.operations.kinds.executions import CancelExecutions, RerunExecutions
from apps.operations.kinds.letters import ReplayLetters, ResolveLetters
from kernel.errors import NotFound

_ALL: tuple[Kind, ...] = (
    CancelExecutions(),
    RerunExecutions(),
    PauseJobs(),
    ResumeJobs(),
    LabelJobs(),
    PauseSchedules(),
    ResumeSchedules(),
    LabelSchedules(),
    ReplayLetters(),
    ResolveLetters(),
    BackfillSchedule(),
)
KINDS = {(kind.action, kind.target): kind for kind in _ALL}


def kind_of(action: str, target: str) -> Kind:
    """NotFound when nothing of that name can be done to these."""
    found = KINDS.get((action, target))
    if found is None:
        raise NotFound(f"There is no operation that does {action!r} to {target!r}.")
    return found
