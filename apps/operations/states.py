"""Every way that an operation and its items can go, on one screen. Pure."""

from typing import NamedTuple

STATES = ("planning", "running", "paused", "undoing", "completed", "cancelled", "stopped", "failed", "undone")
ENDS = ("completed", "cancelled", "stopped", "failed", "undone")
ITEM_STATES = ("pending", "running", "succeeded", "skipped", "failed", "undone")


class Transition(NamedTuple):
    """`by` says whose decision it is: a person's, or the engine's."""

    name: str
    sources: tuple[str, ...]
    target: str
    by: str


TRANSITIONS = (
    Transition("plan", ("planning",), "running", "engine"),
    Transition("pause", ("planning", "running"), "paused", "person"),
    Transition("hold", ("running",), "paused", "engine"),  # its canary failed
    Transition("resume", ("paused",), "running", "person"),  # to planning, while that is not done
    Transition("cancel", ("planning", "running", "paused"), "cancelled", "person"),
    Transition("complete", ("running",), "completed", "engine"),
    Transition("stop", ("running",), "stopped", "engine"),  # too many items failed
    Transition("fail", ("planning", "running", "undoing"), "failed", "engine"),
    Transition("undo", ("running", "paused", "completed", "cancelled", "stopped", "failed"), "undoing", "person"),
    Transition("end_undo", ("undoing",), "undone", "engine"),
)


def sources_of(name: str) -> tuple[str, ...]:
    """The states from which the transition `name` may start; KeyError when there is none of that name."""
    for transition in TRANSITIONS:
        if transition.name == name:
            return transition.sources
    raise KeyError(name)
