"""What is wrong with the steps of a workflow as a whole: cycles, steps that can't start, templates that reach too far.

Pure. Sets of steps are bits of whole numbers: a graph of 1,000 steps has up to half a million pairs of which one is
above the other, and a step is added to all that is above another by one operation.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.workflows.definitions.definition import Edge, Step, Workflow
from apps.workflows.definitions.graph import MAX_DEPTH, MAX_WIDTH, cycle_in, levels, parents_of, topological
from apps.workflows.definitions.inputs import Allowed, reads_of, steps_named, template_faults
from kernel.errors import Faults

_SHOWN = 20  # steps of a cycle that are named


def check_graph(workflow: Workflow, faults: Faults) -> bool:
    """Notes what is wrong with the graph; whether it is a graph without cycles whose steps all exist."""
    steps = workflow.steps
    known = len(faults.errors)
    _check_names(steps, faults)
    _check_compensation(workflow, faults)
    parents = parents_of(steps)
    cycle = cycle_in(parents)
    if cycle is not None:
        shown = cycle if len(cycle) <= _SHOWN else (*cycle[: _SHOWN - 1], "...", cycle[-1])
        faults.add("/steps", "cycle", f"These steps wait for each other: {' -> '.join(shown)}.")
        return False
    by_level = levels(parents)
    if len(by_level) > MAX_DEPTH:
        faults.add("/steps", "too_deep", f"The longest path has {len(by_level):,} steps; {MAX_DEPTH:,} are allowed.")
    if max(map(len, by_level), default=0) > MAX_WIDTH:
        faults.add("/steps", "too_wide", f"More than {MAX_WIDTH:,} steps may run at once.")
    _check_joins(steps, faults)
    if len(faults.errors) == known:
        _check_starts(steps, faults)
    return len(parents) == len(steps) and all(parent in parents for above in parents.values() for parent in above)


def check_templates(workflow: Workflow, faults: Faults) -> None:
    """Notes templates that can't be read or name what may not be there. The graph is one without cycles."""
    place, above = {step.name: at for at, step in enumerate(workflow.steps)}, _above(workflow.steps)
    for at, step in enumerate(workflow.steps):
        base = f"/steps/{at}"
        named = [name for name in reads_of(step) | steps_named(_compensation(step)) if name in place]
        before = frozenset(name for name in named if above[step.name] >> place[name] & 1)
        plain, each = Allowed(before), Allowed(before, item=step.for_each is not None)
        parts = [(step.input, f"{base}/input", each)]
        parts += [(one.value, f"{base}/when/{number}/value", plain) for number, one in enumerate(step.when)]
        if step.for_each is not None:
            parts.append((step.for_each.items, f"{base}/for_each/items", plain))
        if step.approval is not None:
            parts.append((step.approval.message, f"{base}/approval/message", plain))
        parts.append((_compensation(step), f"{base}/compensate/input", Allowed(before | {step.name})))
        for value, pointer, allowed in parts:
            _note(value, pointer, allowed, faults)
    every = frozenset(place)
    _note(workflow.output, "/output", Allowed(every), faults)
    if workflow.on_failure is not None:
        _note(workflow.on_failure.input, "/on_failure/input", Allowed(every, failure=True), faults)


def _compensation(step: Step) -> Any:
    return None if step.compensate is None else step.compensate.input


def _note(value: Any, pointer: str, allowed: Allowed, faults: Faults) -> None:
    for where, code, detail in template_faults(value, pointer, allowed):
        faults.add(where, code, detail)


def _above(steps: Sequence[Step]) -> dict[str, int]:
    """All steps above each step, as bits of their places."""
    parents, found = parents_of(steps), dict[str, int]()
    place = {step.name: at for at, step in enumerate(steps)}
    for name in topological(parents):
        found[name] = 0
        for parent in parents[name]:
            if parent in place:
                found[name] |= found[parent] | 1 << place[parent]
    return found


def _check_names(steps: Sequence[Step], faults: Faults) -> None:
    first: dict[str, int] = {}
    for at, step in enumerate(steps):
        if step.name in first:
            detail = f"Step {first[step.name] + 1} of the list has the name {step.name!r} already."
            faults.add(f"/steps/{at}/name", "duplicate_name", detail)
        first.setdefault(step.name, at)
    for at, step in enumerate(steps):
        for place, edge in enumerate(step.needs):
            if edge.parent not in first:
                near = difflib.get_close_matches(edge.parent[:60], first, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                detail = f"There is no step {edge.parent[:60]!r}.{hint}"
                faults.add(f"/steps/{at}/needs/{place}", "unknown_step", detail)


def _check_compensation(workflow: Workflow, faults: Faults) -> None:
    for at, step in enumerate(workflow.steps):
        if step.compensate is not None and workflow.failure_policy != "compensate":
            detail = "Steps are compensated only with the failure_policy compensate."
            faults.add(f"/steps/{at}/compensate", "contradiction", detail)


def _check_joins(steps: Sequence[Step], faults: Faults) -> None:
    for at, step in enumerate(steps):
        most = _most_met(step.needs)
        if step.join == "at_least" and step.at_least > len(step.needs):
            detail = f"at_least is {step.at_least:,}, and the step has {len(step.needs):,} needs."
            faults.add(f"/steps/{at}/join", "range", detail)
        elif step.join == "at_least" and step.at_least > most:
            detail = f"At most {most:,} of these needs can be met together: a step ends in one way."
            faults.add(f"/steps/{at}/join", "contradiction", detail)
        elif step.join == "all" and most < len(step.needs):
            detail = "Two needs ask for different ends of the same step: they can't be met together."
            faults.add(f"/steps/{at}/needs", "contradiction", detail)
        elif step.join == "none_failed" and any(edge.on != "succeeded" for edge in step.needs):
            detail = "The join none_failed looks at the ends of all needs by itself: leave out on."
            faults.add(f"/steps/{at}/needs", "contradiction", detail)
        elif step.join != "all" and not step.needs:
            faults.add(f"/steps/{at}/join", "contradiction", "A step without needs has no join.")


def _most_met(needs: Sequence[Edge]) -> int:
    """How many of these needs can be met together: `finished` goes with the others, these exclude each other."""
    exclusive = {edge.parent for edge in needs if edge.on != "finished"}
    return len(exclusive) + sum(edge.on == "finished" for edge in needs)


@dataclass(frozen=True, slots=True)
class _Sure:
    """What is sure when a step has started: the steps that have succeeded, failed and been skipped, as bits."""

    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    def __or__(self, other: "_Sure") -> "_Sure":
        return _Sure(self.succeeded | other.succeeded, self.failed | other.failed, self.skipped | other.skipped)

    @property
    def conflict(self) -> int:
        return self.succeeded & self.failed | self.succeeded & self.skipped | self.failed & self.skipped


def _check_starts(steps: Sequence[Step], faults: Faults) -> None:
    """Notes steps that can never start by themselves, whatever happens above them."""
    parents, by_name = parents_of(steps), {step.name: step for step in steps}
    place = {step.name: at for at, step in enumerate(steps)}
    started: dict[str, _Sure] = {}
    dead: set[str] = set()
    for name in topological(parents):
        step = by_name[name]
        if blocking := _never_met(step, dead):
            dead.add(name)
            why = f"It needs {blocking!r}, which can never start."
            faults.add(f"/steps/{place[name]}/needs", "unreachable", f"The step {name!r} can never start. {why}")
            continue
        started[name] = _sure(step, started, place)
        if conflict := started[name].conflict:
            dead.add(name)
            other = steps[conflict.bit_length() - 1].name
            why = f"Its needs are met together only if {other!r} ends in two ways."
            faults.add(f"/steps/{place[name]}/needs", "unreachable", f"The step {name!r} can never start. {why}")


def _never_met(step: Step, dead: set[str]) -> str | None:
    """A parent that never starts and so keeps a step from starting; None when the step may start.

    What never starts is skipped: needs on `finished` and `skipped` are met.
    """
    hopeless = [edge.parent for edge in step.needs if edge.parent in dead and edge.on in ("succeeded", "failed")]
    if not hopeless:
        return None
    left = len(step.needs) - len(hopeless)
    wanted = {"all": len(step.needs), "at_least": step.at_least}.get(step.join, 1)
    return hopeless[0] if left < wanted else None


def _sure(step: Step, started: Mapping[str, _Sure], place: Mapping[str, int]) -> _Sure:
    """What is sure when `step` starts. Joins that leave a choice make nothing sure."""
    sure = _Sure()
    if step.join != "all" and len(step.needs) > 1:
        return sure
    for parent, on in step.needs:
        bit = 1 << place[parent]
        if on == "succeeded":
            sure |= started.get(parent, _Sure()) | _Sure(succeeded=bit)
        elif on == "failed":
            sure |= started.get(parent, _Sure()) | _Sure(failed=bit)
        elif on == "skipped":
            sure |= _Sure(skipped=bit)
    return sure
