"""Order, levels, cycles and reach of graphs, also of wrong and of very long ones."""

import json
import time
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.definitions import graphs as graphs_of_versions
from apps.workflows.definitions.definition import from_json, to_json
from apps.workflows.definitions.graph import (
    cycle_in,
    graph_of,
    levels,
    parents_of,
    reach,
    topological,
)
from apps.workflows.definitions.graphs import Graphs
from tests.workflows.making import faults, random_steps, step, workflow

graphs = st.integers(1, 8).flatmap(
    lambda count: st.fixed_dictionaries(
        {node: st.lists(st.integers(0, count - 1), max_size=3) for node in range(count)}
    )
)


def above(parents: Mapping[int, Collection[int]], node: int) -> set[int]:
    """All that is above a node, by going up until nothing new is found."""
    found: set[int] = set()
    while True:
        more = {parent for one in (found | {node}) for parent in parents[one]}
        if more <= found:
            return found
        found |= more


@given(graphs)
def test_cycles_are_found_and_are_cycles(parents: dict[int, list[int]]) -> None:
    cycle = cycle_in(parents)
    on_cycles = {node for node in parents if node in above(parents, node)}
    if cycle is None:
        assert not on_cycles
        return
    assert len(cycle) > 1 and cycle[0] == cycle[-1] and len(set(cycle)) == len(cycle) - 1
    assert all(parent in parents[child] for parent, child in pairwise(cycle))
    assert set(cycle) <= on_cycles and cycle[0] == next(node for node in parents if node in cycle)


@given(graphs)
def test_orders_and_levels(parents: dict[int, list[int]]) -> None:
    free = {node for node in parents if not ((above(parents, node) | {node}) & set(cycles(parents)))}
    order = topological(parents)
    assert set(order) == free and len(order) == len(free)
    assert all(order.index(parent) < order.index(node) for node in order for parent in parents[node])
    by_level = levels(parents)
    place = {node: at for at, nodes in enumerate(by_level) for node in nodes}
    assert place.keys() == free
    assert all(place[node] == max((place[one] + 1 for one in parents[node]), default=0) for node in free)
    children = {node: [one for one in parents if node in parents[one]] for node in parents}
    assert all(reach([node], children) == {one for one in parents if node in above(parents, one)} for node in parents)


def cycles(parents: Mapping[int, Collection[int]]) -> list[int]:
    return [node for node in parents if node in above(parents, node)]


@given(random_steps())
def test_a_graph_is_that_of_its_definition(steps: list[dict[str, object]]) -> None:
    if faults(*steps):
        return
    made = workflow(*steps)
    assert from_json(to_json(made)) == made
    graph = graph_of(made)
    edges = {(edge.parent, one.name, edge.on) for one in made.steps for edge in one.needs}
    assert {(parent, child, on) for parent, out in graph.children.items() for child, on in out} == edges
    for one in made.steps:
        assert one.name in graph.roots or one.needs
        assert all(one.name in graph.downstream([parent]) for parent in graph.upstream([one.name]))


def test_handlers_are_what_a_failure_needs() -> None:
    graph = graph_of(
        workflow(
            step("a"),
            step("b", "a"),
            step("h", "a:failed"),
            step("f", "b:finished"),
            step("t", "h", "f"),
            step("u", "t", "b", join="any"),
        )
    )
    assert graph.handlers == {"h", "f", "t"}


def test_what_a_step_reads_is_known() -> None:
    graph = graph_of(workflow(step("a"), step("b", "a", input={"rows": "{{ steps.a.result.rows }}"})))
    assert graph.reads == {"a": frozenset(), "b": {"a"}}


def test_size_costs_what_it_should() -> None:
    chain = {node: [node - 1] if node else [] for node in range(20_000)}
    began = time.process_time()
    assert len(levels(chain)) == 20_000
    chain[0] = [19_999]
    assert len(cycle_in(chain) or ()) == 20_001
    dense = {
        (level, at): [(level - 1, other) for other in range(31)] if level else []
        for level in range(31)
        for at in range(31)
    }
    assert [len(one) for one in levels(dense)] == [31] * 31
    assert time.process_time() - began < 5
    assert parents_of(workflow(step("a"), step("b", "a:finished", "a")).steps) == {"a": [], "b": ["a"]}


def test_graphs_are_remembered_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {at: to_json(workflow(*(step(f"s{n}") for n in range(10)))) for at in range(4)}
    asked: list[list[UUID]] = []

    class Connection:
        """Answers the one query of Graphs; the engine's tests ask a real one."""

        def execute(self, query: object, values: list[list[Any]]) -> list[tuple[UUID, int, str]]:
            asked.append(values[0])
            return [(id_, 1, json.dumps(stored[id_.int]) if id_.int < 3 else "{}") for id_ in values[0]]

    monkeypatch.setattr(graphs_of_versions, "REMEMBERED_EDGES", 100)
    graphs, ids = Graphs(), [UUID(int=at) for at in range(4)]

    def load(*wanted: UUID) -> set[UUID]:
        conn: Any = Connection()
        return {key for key, _ in graphs.load(conn, "acme", [(one, 1) for one in wanted])}

    assert load(ids[0], ids[1]) == {ids[0], ids[1]} and load(ids[0]) == {ids[0]} and len(asked) == 1
    assert load(ids[2]) == {ids[2]} and load(ids[3]) == set()  # there is room for two; the last can't be read
    load(ids[0])
    assert len(asked) == 3
    load(ids[1])
    assert asked[-1] == [ids[1]]
