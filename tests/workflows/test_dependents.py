"""What ends mean for those that wait for them, held against a plain evaluator: random graphs, in any order."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.dependencies.dependents import Edge, decide, fits
from apps.workflows.dependencies.depending_input import CONDITIONS
from kernel.transitions import FINAL_STATES

ROOTS = 3


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[UUID, str], list[Edge]]:
    """Ends of some roots, and edges from earlier executions to later ones; no two of the same pair."""
    ids = [UUID(int=number) for number in range(draw(st.integers(ROOTS + 1, 10)))]
    ends = {one: draw(st.sampled_from(FINAL_STATES)) for one in ids[:ROOTS] if draw(st.booleans())}
    edges = [
        Edge(parent, child, draw(st.sampled_from(CONDITIONS)), None)
        for place, child in enumerate(ids[ROOTS:], ROOTS)
        for parent in draw(st.lists(st.sampled_from(ids[:place]), min_size=1, max_size=4, unique=True))
    ]
    return ends, draw(st.permutations(edges))


def plainly(ends: dict[UUID, str], edges: list[Edge]) -> tuple[set[UUID], set[UUID]]:
    """What may start and what is skipped, by looking at everything until nothing changes."""
    states, skipped = dict(ends), set[UUID]()
    while True:
        new = {
            edge.child
            for edge in edges
            if edge.parent in states and not fits(edge.on, states[edge.parent]) and edge.child not in states
        }
        if not new:
            break
        skipped |= new
        states |= dict.fromkeys(new, "skipped")
    children = {edge.child for edge in edges} - skipped
    free = {one for one in children if all(edge.parent in states for edge in edges if edge.child == one)}
    return free, skipped


@given(graphs())
def test_all_ends_at_once_and_one_after_the_other_come_to_what_a_plain_look_finds(
    graph: tuple[dict[UUID, str], list[Edge]],
) -> None:
    ends, edges = graph
    children = {edge.child for edge in edges}
    free, skipped = plainly(ends, edges)
    found = decide(ends, edges, children)
    assert (set(found.free), set(found.skipped)) == (free, skipped)
    assert all(not unmet.edge.met for unmet in found.skipped.values())

    waiting, so_far, freed = set(children), list(edges), set[UUID]()
    for parent, state in ends.items():
        one = decide({parent: state}, so_far, waiting)
        noted = {(edge.parent, edge.child): edge for edge in one.edges}
        so_far = [noted.get((edge.parent, edge.child), edge) for edge in so_far]
        assert not freed & set(one.free), "nothing starts twice"
        freed |= set(one.free)
        waiting -= set(one.free) | one.skipped.keys()
    assert (freed, children - waiting - freed) == (free, skipped)


@given(graphs())
def test_what_is_not_blocked_is_only_noted(graph: tuple[dict[UUID, str], list[Edge]]) -> None:
    ends, edges = graph
    found = decide(ends, edges, [])
    assert (found.free, found.skipped) == ([], {})
    assert {(edge.parent, edge.child, edge.met) for edge in found.edges} == {
        (edge.parent, edge.child, fits(edge.on, ends[edge.parent])) for edge in edges if edge.parent in ends
    }


def test_what_was_decided_and_not_carried_out_is_carried_out() -> None:
    one, two, three = (UUID(int=number) for number in range(3))
    assert decide({}, [Edge(one, two, "succeeded", True)], [two]).free == [two]
    found = decide({}, [Edge(one, two, "succeeded", False), Edge(two, three, "skipped", None)], [two, three])
    assert (list(found.skipped), found.free) == ([two], [three])
