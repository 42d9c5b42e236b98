"""Bars and the critical path of a run."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.definitions.graph import graph_of
from apps.workflows.views.critical import Times, timeline
from tests.workflows.making import faults, random_steps, step, workflow
from tests.workflows.reference import Outcome, Played, play

START = datetime(2026, 3, 9, 4, 0, tzinfo=UTC)


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


def times(state: str, released: float | None, began: float | None, ended: float | None, reason: str = "") -> Times:
    return Times(state, reason, at(released), at(began), at(ended))


def test_the_path_goes_through_what_held_the_run_up() -> None:
    graph = graph_of(workflow(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("n", "d:failed")))
    made = timeline(
        graph,
        {
            "a": times("succeeded", 0, 1, 3),
            "b": times("succeeded", 3, 3, 4),
            "c": times("succeeded", 3, 6, 11),
            "d": times("succeeded", 11, 11, 12),
            "n": times("skipped", None, None, 12, "upstream_skipped"),
        },
        started_at=START,
        now=START + timedelta(hours=1),
    )
    assert made.total_s == 12
    assert made.path == (("a", 1, 2), ("c", 3, 5), ("d", 0, 1))
    assert sum(link.waited_s + link.ran_s for link in made.path) == made.total_s
    bars = {bar.step: bar for bar in made.bars}
    assert list(bars) == ["a", "b", "c", "d", "n"]
    assert (bars["c"].start_s, bars["c"].begin_s, bars["c"].end_s, bars["c"].freed_by) == (3, 6, 11, "a")
    assert {name: bar.slack_s for name, bar in bars.items()} == {"a": 0, "b": 7, "c": 0, "d": 0, "n": 0}
    assert [name for name, bar in bars.items() if bar.critical] == ["a", "c", "d"]
    assert (bars["n"].start_s, bars["n"].end_s, bars["n"].reason) == (12, 12, "upstream_skipped")


def test_a_join_that_wants_some_is_freed_by_the_one_that_made_them_enough() -> None:
    graph = graph_of(workflow(step("a"), step("b"), step("c"), step("j", "a", "b", "c", join={"at_least": 2})))
    made = timeline(
        graph,
        {
            "a": times("failed", 0, 0, 1),
            "b": times("succeeded", 0, 0, 2),
            "c": times("succeeded", 0, 0, 5),
            "j": times("succeeded", 5, 5, 6),
        },
        started_at=START,
        now=START,
    )
    assert [link.step for link in made.path] == ["c", "j"]
    assert {bar.step: bar.slack_s for bar in made.bars} == {"a": 5, "b": 4, "c": 0, "j": 0}


def test_what_goes_on_ends_now_and_what_waits_has_no_bar() -> None:
    graph = graph_of(workflow(step("a"), step("b", "a"), step("c", "b")))
    running = {"a": times("succeeded", 0, 0, 2), "b": times("running", 2, None, None), "c": Times("waiting")}
    made = timeline(graph, running, started_at=START, now=START + timedelta(seconds=9))
    assert [(bar.step, bar.end_s, bar.begin_s) for bar in made.bars] == [("a", 2, 0), ("b", 9, 9)]
    assert made.path == (("a", 0, 2), ("b", 7, 0)) and made.total_s == 9
    assert timeline(graph, {"a": Times("waiting")}, started_at=START, now=START).bars == ()


@given(random_steps(), st.data())
def test_paths_of_played_runs_are_as_long_as_the_run(steps: list[dict[str, Any]], data: st.DataObject) -> None:
    if faults(*steps):
        return
    ends = st.builds(Outcome, st.sampled_from(["succeeded", "failed"]), st.integers(1, 5))
    outcomes = {one["name"]: data.draw(ends) for one in steps}
    played: Played = play({"steps": steps}, outcomes)
    known = {
        name: times(state, played.started.get(name), played.started.get(name), played.ended[name], played.reasons[name])
        for name, state in played.states.items()
    }
    made = timeline(graph_of(workflow(*steps)), known, started_at=START, now=START)
    assert made.total_s == max(played.ended.values())
    # Nothing waits for anything but its needs here, so the path has no gaps.
    assert sum(link.ran_s for link in made.path) == made.total_s and not any(link.waited_s for link in made.path)
    assert all(bar.slack_s == 0 for bar in made.bars if bar.critical)
    assert all(bar.end_s + bar.slack_s <= made.total_s for bar in made.bars)
