"""What an end means for the steps below it, and for the run."""

from typing import Any
from uuid import UUID

import pytest

from apps.workflows.definitions.definition import Edge, Step, Workflow
from apps.workflows.definitions.graph import graph_of
from apps.workflows.runs.deciding import (
    End,
    Needs,
    Verdict,
    advance,
    begin,
    children_of,
    counted,
    cut_off,
    decide,
    end_of_map,
    end_of_run,
    end_of_step,
    fails_run,
    is_failure,
    meets,
    stops_run,
)

OK, FAILED, CANCELLED = End("succeeded"), End("failed"), End("cancelled")
SKIPPED, BELOW_A_FAILURE = End("skipped", "upstream_skipped"), End("skipped", "upstream_failed")


def step(name: str, *needs: str, **more: Any) -> Step:
    """A step whose needs are written "parent" or "parent:on"."""
    edges = tuple(Edge(*one.split(":")) for one in needs)  # type: ignore[arg-type] # "on" is one of the literals
    return Step(name=name, type="delay", delay_s=0, needs=edges, **more)


@pytest.mark.parametrize(
    ("end", "met"),
    [
        (OK, {"succeeded", "finished"}),
        (FAILED, {"failed", "finished"}),
        (CANCELLED, {"failed", "finished"}),
        (SKIPPED, {"skipped", "finished"}),
        (BELOW_A_FAILURE, {"skipped", "finished"}),
    ],
)
def test_which_edges_an_end_meets(end: End, met: set[str]) -> None:
    assert {on for on in ("succeeded", "failed", "finished", "skipped") if meets(on, end)} == met


@pytest.mark.parametrize(
    ("join", "ends", "verdict"),
    [
        ("all", {}, "wait"),
        ("all", {"a": OK}, "wait"),
        ("all", {"a": FAILED}, "wait"),
        ("all", {"a": OK, "b": OK}, "start"),
        ("all", {"a": OK, "b": FAILED}, "upstream_failed"),
        ("all", {"a": OK, "b": BELOW_A_FAILURE}, "upstream_failed"),
        ("all", {"a": OK, "b": End("skipped", "fail_fast")}, "upstream_failed"),
        ("all", {"a": OK, "b": End("skipped", "deadline")}, "upstream_failed"),
        ("all", {"a": OK, "b": SKIPPED}, "upstream_skipped"),
        ("any", {"a": FAILED}, "wait"),
        ("any", {"b": OK}, "start"),
        ("any", {"a": FAILED, "b": OK}, "start"),
        ("any", {"a": FAILED, "b": SKIPPED}, "upstream_failed"),
        ("any", {"a": SKIPPED, "b": SKIPPED}, "upstream_skipped"),
        ("none_failed", {"a": OK}, "wait"),
        ("none_failed", {"a": OK, "b": SKIPPED}, "start"),
        ("none_failed", {"a": OK, "b": FAILED}, "upstream_failed"),
        ("none_failed", {"a": OK, "b": BELOW_A_FAILURE}, "upstream_failed"),
        ("none_failed", {"a": SKIPPED, "b": SKIPPED}, "upstream_skipped"),
        ("at_least", {"a": OK}, "wait"),
        ("at_least", {"a": OK, "b": OK}, "start"),
        ("at_least", {"a": OK, "b": SKIPPED}, "upstream_skipped"),
    ],
)
def test_joins(join: str, ends: dict[str, End], verdict: str) -> None:
    joined = step("j", "a", "b", join=join, at_least=2 if join == "at_least" else 0)
    decided = decide(joined, counted(joined, ends))
    assert decided == (Verdict(verdict) if verdict in ("wait", "start") else Verdict("skip", verdict))  # type: ignore[arg-type] # literals


def test_rounds_release_a_join_once_and_spread_skips() -> None:
    graph = graph_of(
        Workflow(
            (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e", "d"), step("n", "d:failed"))
        )
    )
    first = begin(graph)
    assert first.start == ["a"] and first.needs["d"] == Needs(2)
    assert children_of(graph, ["a"]) == ["b", "c"]
    after_a = advance(graph, {"a": OK}, {name: first.needs[name] for name in ("b", "c")})
    assert after_a.start == ["b", "c"] and not after_a.skip
    # Both parents of d at once, and one after the other, come to the same.
    both = advance(graph, {"b": OK, "c": FAILED}, {"d": first.needs["d"]})
    one = advance(graph, {"b": OK}, {"d": first.needs["d"]})
    assert not one.start and not one.skip
    assert advance(graph, {"c": FAILED}, one.needs).skip == both.skip == {"d": "upstream_failed"}
    # What was skipped is an end of its own; n asks for a failure of d itself, so it is skipped, too.
    below = advance(graph, both.ends, {name: first.needs[name] for name in ("e", "n")})
    assert below.skip == {"e": "upstream_failed", "n": "upstream_failed"}
    # A step that has started is not in `waiting`, and nothing starts it again.
    assert advance(graph, {"c": OK}, {}) == ({}, [], {})


def test_two_edges_on_one_parent_are_two_needs() -> None:
    either = step("e", "a", "a:skipped", join="any")
    graph = graph_of(Workflow((step("a"), either)))
    assert advance(graph, {"a": SKIPPED}, {"e": Needs(2)}).start == ["e"]
    assert advance(graph, {"a": OK}, {"e": Needs(2)}).start == ["e"]
    assert advance(graph, {"a": FAILED}, {"e": Needs(2)}).skip == {"e": "upstream_failed"}


def test_the_end_of_a_step_and_of_a_run() -> None:
    assert [end_of_step(state) for state in ("succeeded", "dead", "expired", "cancelled")] == [
        OK, FAILED, FAILED, CANCELLED,
    ]  # fmt: skip
    assert end_of_step("skipped", "overlap_skipped") == ("skipped", "overlap_skipped")
    assert [end_of_step(state) for state in ("scheduled", "blocked", "ready", "queued", "running")] == [None] * 5
    plain, lenient = step("a"), step("a", allow_failure=True)
    assert fails_run(plain, FAILED) and fails_run(plain, CANCELLED) and not fails_run(plain, BELOW_A_FAILURE)
    assert not fails_run(lenient, FAILED)
    assert not stops_run(Workflow((plain,)), plain, FAILED)
    assert stops_run(Workflow((plain,), failure_policy="fail_fast"), plain, FAILED)
    assert not stops_run(Workflow((lenient,), failure_policy="compensate"), lenient, FAILED)
    assert end_of_run(open_steps=1, failed_steps=1, cancelled=True) is None
    assert end_of_run(open_steps=0, failed_steps=1, cancelled=True) == "cancelled"
    assert end_of_run(open_steps=0, failed_steps=1, cancelled=False) == "failed"
    assert end_of_run(open_steps=0, failed_steps=0, cancelled=False) == "succeeded"
    assert end_of_map(open_items=1, failed_items=9, max_failures=0) is None
    assert end_of_map(open_items=0, failed_items=2, max_failures=2) == OK
    assert end_of_map(open_items=0, failed_items=3, max_failures=2) == ("failed", "items_failed")
    assert is_failure(FAILED) and is_failure(BELOW_A_FAILURE) and not is_failure(SKIPPED)


def test_fail_fast_leaves_what_is_there_for_failures() -> None:
    graph = graph_of(
        Workflow(
            (step("a"), step("b", "a"), step("clean", "a:finished"), step("tell", "clean"), step("c", "b", "tell"))
        )
    )
    assert cut_off(graph, ["b", "clean", "tell", "c"]) == ["b", "c"]


def test_the_cost_of_an_end_follows_from_its_children_alone() -> None:
    width = 998
    steps = (step("s"), *(step(f"m{n}", "s") for n in range(width)), step("j", *(f"m{n}" for n in range(width))))
    graph = graph_of(Workflow(steps))
    needs = begin(graph).needs["j"]
    for n in range(width):
        round_ = advance(graph, {f"m{n}": OK}, {"j": needs})
        assert list(round_.needs) == ["j"] and round_.start == (["j"] if n == width - 1 else [])
        needs = round_.needs["j"]


def test_ids_of_jobs_follow_places() -> None:
    id_ = UUID(int=7)
    made = Workflow((Step("a", "job"),)).with_jobs({"steps/a": id_})
    assert made.uses() == {id_} and made.steps[0].job == (id_, True)
