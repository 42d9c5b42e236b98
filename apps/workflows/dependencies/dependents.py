"""What the ends of executions mean for those that wait for them, outside any workflow: pure, over values.

An execution with dependencies starts when all of them are met, and is skipped as soon as one can't be met any more.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from apps.workflows.definitions.definition import On
from apps.workflows.runs.deciding import end_of_step, meets

REASON = "dependency_not_met"  # of an execution that is skipped
SKIPPED = "skipped"


class Edge(NamedTuple):
    """`child` waits for `parent` to end as `on` says. `met` is None until it has ended."""

    parent: UUID
    child: UUID
    on: On
    met: bool | None


class Unmet(NamedTuple):
    """The dependency that an execution is skipped for, and the state in which its parent ended."""

    edge: Edge
    state: str


class Decided(NamedTuple):
    """What some ends come to: edges that are decided now, executions that may start, those that are skipped."""

    edges: list[Edge]
    free: list[UUID]
    skipped: dict[UUID, Unmet]


def fits(on: On, state: str) -> bool:
    """Whether an execution that ended in this state is what its dependents wait for."""
    end = end_of_step(state)
    return end is not None and meets(on, end)


def decide(ended: Mapping[UUID, str], edges: Iterable[Edge], blocked: Collection[UUID]) -> Decided:
    """What follows from ends, by final state. `edges` are all those of `blocked`, and those of what they may skip.

    Only what is `blocked` starts or is skipped; for others it is only noted how their parents ended. An execution that
    is skipped is an end as well. What was decided before without being carried out is carried out.
    """
    below: dict[UUID, list[Edge]] = defaultdict(list)
    left: dict[UUID, int] = dict.fromkeys(blocked, 0)
    found = Decided([], [], {})
    ends: list[tuple[UUID, str]] = list(ended.items())
    for edge in edges:
        below[edge.parent].append(edge)
        if edge.child not in left:
            continue
        if edge.met is None:
            left[edge.child] += 1
        elif not edge.met and edge.child not in found.skipped:
            found.skipped[edge.child] = Unmet(edge, "")
            ends.append((edge.child, SKIPPED))
    known: set[UUID] = set()
    while ends:
        parent, state = ends.pop()
        if parent in known:
            continue
        known.add(parent)
        for edge in below[parent]:
            if edge.met is not None:
                continue
            edge = edge._replace(met=fits(edge.on, state))
            found.edges.append(edge)
            if edge.child not in left or edge.child in found.skipped:
                continue
            left[edge.child] -= 1
            if not edge.met:
                found.skipped[edge.child] = Unmet(edge, state)
                ends.append((edge.child, SKIPPED))
    found.free.extend(child for child in left if not left[child] and child not in found.skipped)
    return found
