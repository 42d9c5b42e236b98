"""What a workflow should come to, worked out again and naively: no counters, no rounds, no code of the platform.

`play` reads the definition as it is sent to the API. It keeps the states of all steps and looks at all of them after
each end, in the time that the given durations make. Retries, lost workers and queues are not in it: they change when a
step ends and never how.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FINAL = ("succeeded", "failed", "skipped", "cancelled")


@dataclass(frozen=True)
class Outcome:
    """How a step ends once it runs, after how many seconds; `unwanted` means that its condition is false."""

    state: str = "succeeded"
    seconds: float = 1.0
    unwanted: bool = False


@dataclass
class Played:
    """The end: states and reasons of steps, when they started and ended, and the state of the run."""

    states: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    run: str = "running"


def play(definition: Mapping[str, Any], outcomes: Mapping[str, Outcome], *, cancel_at: float | None = None) -> Played:
    """Runs a definition. Steps without an outcome succeed after a second. `cancel_at` is when a person cancels."""
    steps = {step["name"]: step for step in definition["steps"]}
    played = Played(states=dict.fromkeys(steps, "waiting"))
    now, stopped = 0.0, False
    while True:
        settled = False
        while not settled:
            settled = True
            for name, step in steps.items():
                if played.states[name] == "waiting" and (what := _verdict(step, played)) is not None:
                    settled = False
                    if what != "start":
                        _end(played, name, "skipped", what, now)
                    elif outcomes.get(name, Outcome()).unwanted:
                        _end(played, name, "skipped", "when_false", now)
                    else:
                        played.states[name], played.started[name] = "running", now
        running = {
            name: played.started[name] + outcomes.get(name, Outcome()).seconds
            for name, state in played.states.items()
            if state == "running"
        }
        if cancel_at is not None and (not running or min(running.values()) > cancel_at):
            for name in steps:
                if played.states[name] not in FINAL:
                    _end(played, name, "cancelled", "cancelled", cancel_at)
            played.run = "cancelled"
            return played
        if not running:
            bad = [name for name, step in steps.items() if _is_bad(played, name) and not step.get("allow_failure")]
            played.run = "failed" if bad else "succeeded"
            return played
        now = min(running.values())
        for name in [name for name, at in running.items() if at == now]:
            _end(played, name, outcomes.get(name, Outcome()).state, "", now)
            fails = _is_bad(played, name) and not steps[name].get("allow_failure")
            if fails and not stopped and definition.get("failure_policy", "continue") != "continue":
                stopped = True
                _stop(steps, played, now)


def _stop(steps: Mapping[str, Any], played: Played, now: float) -> None:
    # Children of what has just failed were decided before the run stopped, and before anything else was stopped.
    decided = {name: _verdict(steps[name], played) for name, state in played.states.items() if state == "waiting"}
    for name, state in list(played.states.items()):
        if state not in FINAL and not _is_handler(steps, name):
            if state == "running":
                _end(played, name, "cancelled", "", now)
            else:
                what = decided[name]
                _end(played, name, "skipped", what if what not in (None, "start") else "fail_fast", now)


def _is_handler(steps: Mapping[str, Any], name: str) -> bool:
    needs = _needs(steps[name])
    if any(on in ("failed", "finished") for _, on in needs):
        return True
    return bool(needs) and all(_is_handler(steps, parent) for parent, _ in needs)


def _verdict(step: Mapping[str, Any], played: Played) -> str | None:
    """ "start", a reason to skip, or None to wait on."""
    needs = _needs(step)
    if not needs:
        return "start"
    final = [(parent, on) for parent, on in needs if played.states[parent] in FINAL]
    met = sum(_fits(on, played.states[parent]) for parent, on in final)
    join = step.get("join", "all")
    wanted = 1 if join == "any" else join["at_least"] if isinstance(join, Mapping) else None
    if wanted is not None and met >= wanted:
        return "start"
    if len(final) < len(needs):
        return None
    bad = any(_is_bad_below(played, parent) for parent, _ in needs)
    if join == "all" and met == len(needs):
        return "start"
    if join == "none_failed" and not bad and any(played.states[parent] == "succeeded" for parent, _ in needs):
        return "start"
    return "upstream_failed" if bad else "upstream_skipped"


def _needs(step: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (need, "succeeded") if isinstance(need, str) else (need["step"], need.get("on", "succeeded"))
        for need in step.get("needs", [])
    ]


def _fits(on: str, state: str) -> bool:
    return on == "finished" or state == on or (on == "failed" and state == "cancelled")


def _is_bad(played: Played, name: str) -> bool:
    return played.states[name] in ("failed", "cancelled")


def _is_bad_below(played: Played, name: str) -> bool:
    return _is_bad(played, name) or played.reasons.get(name) in ("upstream_failed", "fail_fast", "deadline")


def _end(played: Played, name: str, state: str, reason: str, at: float) -> None:
    played.states[name], played.reasons[name], played.ended[name] = state, reason, at
