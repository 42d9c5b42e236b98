"""The graph of a workflow: order, levels, what is above and below a step, and what is wrong with it. Pure.

Nothing here recurses: a chain may be as long as MAX_DEPTH. `Needs` of a graph are given as the parents of each step,
parents first in no order; the checks (`cycle_in`) also take graphs that are wrong.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from apps.workflows.definitions.definition import On, Step, Workflow
from apps.workflows.definitions.inputs import reads_of

MAX_STEPS = 1_000
MAX_DEPTH = 500  # steps on the longest path
MAX_WIDTH = 1_000  # steps of one level

Node = TypeVar("Node", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow made ready for the hot path. Built once a version, shared by all its runs: nobody may change it."""

    workflow: Workflow
    steps: Mapping[str, Step]
    place: Mapping[str, int]  # of a step in the definition, from 0
    children: Mapping[str, tuple[tuple[str, On], ...]]  # the edges that leave a step
    roots: tuple[str, ...]  # steps without needs
    handlers: frozenset[str]  # decided also after the run stopped: see `_handlers`
    reads: Mapping[str, frozenset[str]]  # the steps whose results a step's templates name

    def downstream(self, names: Iterable[str]) -> set[str]:
        """All steps below these, without them unless one is below another."""
        return reach(names, {name: [child for child, _ in out] for name, out in self.children.items()})

    def upstream(self, names: Iterable[str]) -> set[str]:
        """All steps above these, without them unless one is above another."""
        return reach(names, parents_of(self.workflow.steps))


def graph_of(workflow: Workflow) -> Graph:
    """Compiles a valid workflow."""
    steps = {step.name: step for step in workflow.steps}
    children: dict[str, list[tuple[str, On]]] = {name: [] for name in steps}
    for step in workflow.steps:
        for parent, on in step.needs:
            children[parent].append((step.name, on))
    return Graph(
        workflow=workflow,
        steps=steps,
        place={name: at for at, name in enumerate(steps)},
        children={name: tuple(out) for name, out in children.items()},
        roots=tuple(step.name for step in workflow.steps if not step.needs),
        handlers=_handlers(steps),
        reads={step.name: reads_of(step) for step in workflow.steps},
    )


def parents_of(steps: Iterable[Step]) -> dict[str, list[str]]:
    """The names of the parents of each step, each once."""
    return {step.name: list(dict.fromkeys(edge.parent for edge in step.needs)) for step in steps}


def cycle_in(parents: Mapping[Node, Collection[Node]]) -> tuple[Node, ...] | None:
    """One cycle as it runs, from parent to child and back to the first: (a, b, a). None when there is none.

    Parents that are no nodes are passed over. Of a cycle the node that comes first in `parents` begins it.
    """
    left = _in_cycles(parents)
    if not left:
        return None
    # Each node that is left has a parent that is left: going up must come back to where it was.
    path: list[Node] = []
    seen: dict[Node, int] = {}
    node = next(one for one in parents if one in left)
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = next(parent for parent in parents[node] if parent in left)
    ring = path[seen[node] :][::-1]
    order = {one: at for at, one in enumerate(parents)}
    first = ring.index(min(ring, key=order.__getitem__))
    ring = ring[first:] + ring[:first]
    return (*ring, ring[0])


def levels(parents: Mapping[Node, Collection[Node]]) -> list[list[Node]]:
    """The nodes by the length of the longest path to them; those of one level in the order of `parents`.

    That is the order in which they run when all succeed and take equally long. The graph has no cycle.
    """
    level: dict[Node, int] = {}
    for node in topological(parents):
        level[node] = max((level[parent] + 1 for parent in parents[node] if parent in level), default=0)
    made: list[list[Node]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for node in parents:
        if node in level:
            made[level[node]].append(node)
    return made


def topological(parents: Mapping[Node, Collection[Node]]) -> list[Node]:
    """Parents before their children; what is on a cycle or below one is left out."""
    children = reversed_of(parents)
    pending = {node: sum(parent in parents for parent in set(above)) for node, above in parents.items()}
    order = [node for node, count in pending.items() if count == 0]
    for node in order:  # grows while it is read
        for child in children[node]:
            pending[child] -= 1
            if pending[child] == 0:
                order.append(child)
    return order


def reversed_of(parents: Mapping[Node, Collection[Node]]) -> dict[Node, list[Node]]:
    """The children of each node, in the order of `parents`."""
    children: dict[Node, list[Node]] = {node: [] for node in parents}
    for node, above in parents.items():
        for parent in dict.fromkeys(above):
            if parent in children:
                children[parent].append(node)
    return children


def reach(starts: Iterable[Node], following: Mapping[Node, Collection[Node]]) -> set[Node]:
    """Everything that is reached from `starts` by at least one step along `following`."""
    found: set[Node] = set()
    waiting = [after for start in starts for after in following.get(start, ())]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(following.get(node, ()))
    return found


def _in_cycles(parents: Mapping[Node, Collection[Node]]) -> set[Node]:
    """Nodes on a cycle or between two."""
    settled: set[Node] = set(topological(parents))
    below = set(parents) - settled
    # Whatever leads nowhere inside of `below` only hangs from a cycle.
    turned = {
        node: [child for child in out if child in below] for node, out in reversed_of(parents).items() if node in below
    }
    hanging: set[Node] = set(topological(turned))
    return below - hanging


def _handlers(steps: Mapping[str, Step]) -> frozenset[str]:
    """Steps that are there for a failure: with an edge on `failed` or `finished`, or needing only such steps."""
    found: set[str] = set()
    for name in topological(parents_of(steps.values())):
        needs = steps[name].needs
        if any(edge.on in ("failed", "finished") for edge in needs) or (
            needs and all(edge.parent in found for edge in needs)
        ):
            found.add(name)
    return frozenset(found)
