"""The decisions of tests/cases/workflow.jsonl that need no database."""

from typing import Any
from uuid import uuid4

from apps.workflows.definitions.definition import After, Workflow
from apps.workflows.definitions.graph import Graph, graph_of
from apps.workflows.definitions.loops import links_of, loop_faults
from apps.workflows.runs.deciding import End, Needs, advance, begin, counted, decide, end_of_run
from tests.schedules.cases import case
from tests.workflows.making import faults, step, workflow
from tests.workflows.reference import Outcome, play

ENDS = {"success": End("succeeded"), "failed": End("failed"), "skipped": End("skipped", "when_false")}
# Their words for joins: all_done is a need on `finished`.
RULES = {"none_failed_min_one_success": {"join": "none_failed"}, "all_success": {}, "all_done": {"on": "finished"}}


def given(number: str) -> tuple[dict[str, Any], dict[str, Any]]:
    found = case("workflow.jsonl", number)
    return found["input"], found["expected"]


def steps_of(edges: list[list[str]], rules: dict[str, str] | None = None) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    made = []
    for name in names:
        rule = dict(RULES[(rules or {}).get(name, "all_success")])
        on = rule.pop("on", "succeeded")
        made.append(step(name, *(f"{parent}:{on}" for parent, child in edges if child == name), **rule))
    return made


def decided(graph: Graph, name: str, state: dict[str, str]) -> str:
    ends = {parent: ENDS[word] for parent, word in state.items() if word in ENDS}
    return decide(graph.steps[name], counted(graph.steps[name], ends)).kind


def test_f02_two_good_edits_that_make_a_cycle_together() -> None:
    race, expected = given("F02")
    for added in race["parallel_adds"]:
        assert not faults(*steps_of([*race["existing"], added]))
    both = faults(*steps_of([*race["existing"], *race["parallel_adds"]]))
    assert [fault.code for fault in both] == ["cycle"] and expected["rejected"] == 1


def test_f03_loops_between_workflows() -> None:
    loops, expected = given("F03")
    ids = {name: uuid4() for name in loops["workflows"]}

    def after(name: str) -> Workflow:
        waits_for = loops["workflows"][name]["waits_for"]
        return Workflow((), after=tuple(After(ids[other]) for other in waits_for))

    stored = {ids["W2"]: links_of("W2", after("W2"))}
    faults = {name: loop_faults(ids[name], name, after(name), stored) for name in ("W1", "W3")}
    assert {"W1_after_W2": not faults["W1"], "W3": not faults["W3"]} == expected["valid"]
    assert [fault.detail for fault in faults["W1"]] == ["Would start itself: W2 -> W1 -> W2."]
    assert [fault.detail for fault in faults["W3"]] == ["Would start itself: W3 -> W3."]
    assert not loop_faults(ids["W1"], "W1", after("W1"), {ids["W2"]: links_of("W2", Workflow(()))})


def test_f05_a_diamond() -> None:
    diamond, expected = given("F05")
    steps = steps_of(diamond["edges"])
    played = play({"steps": steps}, {name: Outcome(seconds=s) for name, s in diamond["durations_s"].items()})
    assert played.started == expected["start_s"] and played.run == "succeeded"
    graph = graph_of(workflow(*steps))
    needs = begin(graph).needs["d"]
    starts = []
    for parent in ("b", "c"):
        result = advance(graph, {parent: ENDS["success"]}, {"d": needs})
        starts += result.start
        needs = result.needs["d"]
    assert starts == ["d"] * expected["runs"]["d"]


def test_f06_a_join_after_a_branch() -> None:
    branch, expected = given("F06")
    for rule, want in zip(branch["rules"], expected["j"], strict=True):
        graph = graph_of(workflow(*steps_of(branch["edges"], rule)))
        words = {"ready": "start", "none": "wait", "skipped": "skip"}
        for state, when in zip(branch["states"], ("when_x_success", "when_x_running"), strict=True):
            if when in want:
                assert decided(graph, "j", {name: state[name] for name in ("x", "y")}) == words[want[when]]


def test_f08_clean_up_runs_and_what_follows_it() -> None:
    clean, expected = given("F08")
    graph = graph_of(workflow(*steps_of(clean["edges"], clean["rules"])))
    assert expected["t"] == "ready" and decided(graph, "t", clean["state"]) == "start"
    assert expected["n"] == "none" and decided(graph, "n", {}) == "wait"
    assert decided(graph, "n", {"t": "success"}) == "start"
    # Also in a run that stops at its first failure.
    assert graph.handlers == {"t", "n"}


def test_f19_a_retry_is_not_seen_by_the_join() -> None:
    join, expected = given("F19")
    graph = graph_of(workflow(*steps_of(join["edges"])))
    needs = begin(graph).needs["d"]
    assert needs == Needs(len(join["attempts"]))  # steps are counted, and not their attempts
    for parent in join["attempts"]:
        result = advance(graph, {parent: ENDS["success"]}, {"d": needs})
        needs = result.needs["d"]
    assert result.start == ["d"] and expected["d_runs"] == 1


def test_f20_a_failed_sub_workflow_fails_its_run_once() -> None:
    nested, expected = given("F20")
    inner = [f"i{at}" for at in range(len(nested["nested"]["inner"]))]
    fails = [text.endswith("fails") for text in nested["nested"]["inner"]]
    played = play(
        {"steps": [step(name) for name in inner], "failure_policy": "continue"},
        {name: Outcome("failed" if bad else "succeeded") for name, bad in zip(inner, fails, strict=True)},
    )
    assert played.run == expected["dag_state"] and list(played.states.values()).count("failed") == 2
    # Two steps failed, and the run failed once: that is what its handler hangs on.
    assert end_of_run(open_steps=0, failed_steps=2, cancelled=False) == "failed"
