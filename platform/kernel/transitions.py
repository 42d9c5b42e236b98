"""Every way that a ticket and an execution can go, on one screen.

The SQL in `apps.tickets.store`, the diagram in docs/architecture.md and the test matrix are checked against this
table. A transition that is not here does not exist.
"""

from typing import NamedTuple

LIVE_STATES = ("scheduled", "blocked", "ready", "queued", "running")
FINAL_STATES = ("succeeded", "dead", "cancelled", "expired", "skipped")
EXECUTION_STATES = LIVE_STATES + FINAL_STATES
TICKET_STATES = ("blocked", "ready", "queued", "running")
ATTEMPT_STATES = ("running", "succeeded", "failed", "timed_out", "lost", "cancelled", "returned")


class Transition(NamedTuple):
    """`guard` names the number that the conditional UPDATE compares besides id and state."""

    name: str
    sources: tuple[str, ...]
    target: str
    guard: str
    stamps: tuple[str, ...]


TRANSITIONS = (
    Transition("fire", ("scheduled",), "ready", "due_at, version", ("created_at",)),
    Transition("unblock", ("blocked",), "ready", "", ("available_at", "actual_at")),
    Transition("skip", ("blocked",), "skipped", "", ("finished_at", "error")),
    Transition("release", ("ready",), "queued", "", ("release", "queued_at")),
    Transition("release_again", ("queued",), "ready", "release", ("available_at",)),
    Transition("start", ("queued",), "running", "release", ("attempt", "fence", "worker", "started_at", "deadline")),
    Transition("lease", ("ready",), "running", "", ("attempt", "fence", "holder", "started_at", "deadline")),
    Transition("hand_over", ("running",), "running", "fence", ("holder", "deadline")),
    Transition("hand_back", ("running",), "ready", "fence", ("available_at",)),
    Transition("retry", ("running",), "ready", "fence", ("available_at",)),
    Transition("succeed", ("running",), "succeeded", "fence", ("finished_at", "result")),
    Transition("dead_letter", ("running",), "dead", "fence", ("finished_at", "error")),
    Transition("cancel_waiting", ("scheduled", "blocked", "ready", "queued"), "cancelled", "", ("finished_at",)),
    Transition("cancel_running", ("running",), "cancelled", "fence", ("finished_at",)),
    Transition("replace", ("blocked", "ready", "queued"), "skipped", "", ("finished_at",)),
    Transition("expire", ("ready", "queued"), "expired", "", ("finished_at",)),
    Transition("give_up", ("ready", "queued"), "dead", "", ("finished_at", "error")),
    Transition("reopen", ("dead",), "ready", "", ("available_at",)),
    Transition("take_back", ("ready", "queued"), "dead", "attempt", ("finished_at", "error")),  # undoes a reopening
    # of a workflow's run, of which steps run again
    Transition("go_on", ("succeeded", "dead", "cancelled"), "ready", "", ("available_at",)),
)


def sources_of(name: str) -> tuple[str, ...]:
    """The states from which the transition `name` may start; KeyError when there is none of that name."""
    for transition in TRANSITIONS:
        if transition.name == name:
            return transition.sources
    raise KeyError(name)
