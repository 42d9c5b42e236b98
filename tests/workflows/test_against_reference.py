"""The rules of deciding, round by round, against a reference that knows neither rounds nor counters."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.definitions.graph import graph_of
from apps.workflows.runs.deciding import (
    FINAL,
    End,
    Round,
    advance,
    begin,
    children_of,
    counted,
    cut_off,
    end_of_run,
    fails_run,
    stops_run,
)
from tests.workflows.making import faults, random_steps, workflow
from tests.workflows.reference import Outcome, Played, play

outcomes = st.builds(
    Outcome, st.sampled_from(["succeeded", "succeeded", "failed", "cancelled"]), st.integers(1, 4), st.booleans()
)


class Rounds:
    """A run in memory that goes on by the rules of `deciding`, as the engine does with rows."""

    def __init__(self, definition: Mapping[str, Any], given_: Mapping[str, Outcome]) -> None:
        self.workflow = workflow(*definition["steps"], failure_policy=definition["failure_policy"])
        self.graph, self.given, self.now = graph_of(self.workflow), given_, 0.0
        first = begin(self.graph)
        self.needs = dict(first.needs)
        self.played = Played(states=dict.fromkeys(self.graph.steps, "waiting"))
        self.failed, self.starts, self.stopped = 0, 0, False
        self._follow(self._take(first))

    def run(self) -> Played:
        while running := {
            name: self.played.started[name] + self.given[name].seconds
            for name, state in self.played.states.items()
            if state == "running"
        }:
            self.now = min(running.values())
            for name in [name for name, at in running.items() if at == self.now]:
                self._follow({name: End(self.given[name].state)})
        left = sum(state not in FINAL for state in self.played.states.values())
        self.played.run = end_of_run(open_steps=left, failed_steps=self.failed, cancelled=False) or "stuck"
        return self.played

    def _follow(self, ends: dict[str, End]) -> None:
        while ends:
            for name, end in ends.items():
                self.played.states[name], self.played.reasons[name] = end
                self.played.ended[name] = self.now
                self.failed += fails_run(self.graph.steps[name], end)
            waiting = {
                name: self.needs[name]
                for name in children_of(self.graph, ends)
                if self.played.states[name] == "waiting"
            }
            result = advance(self.graph, ends, waiting)
            self.needs |= result.needs
            known = self._ends()
            assert all(self.needs[name] == counted(self.graph.steps[name], known) for name in waiting)
            before = ends
            ends = self._take(result)
            if not self.stopped and any(
                stops_run(self.workflow, self.graph.steps[name], end) for name, end in before.items()
            ):
                self.stopped = True
                ends |= self._stop(ends)

    def _take(self, result: Round) -> dict[str, End]:
        ends = dict(result.ends)
        for name in result.start:
            if self.given[name].unwanted:
                ends[name] = End("skipped", "when_false")
            else:
                assert self.played.states[name] == "waiting"
                self.played.states[name], self.played.started[name] = "running", self.now
                self.starts += 1
        return ends

    def _stop(self, ends: Mapping[str, End]) -> dict[str, End]:
        states = self.played.states
        waits = [name for name, state in states.items() if state == "waiting" and name not in ends]
        cut = {name: End("skipped", "fail_fast") for name in cut_off(self.graph, waits)}
        runs = [name for name, state in states.items() if state == "running" and name not in self.graph.handlers]
        return cut | dict.fromkeys(runs, End("cancelled"))

    def _ends(self) -> dict[str, End]:
        states = self.played.states
        return {name: End(state, self.played.reasons[name]) for name, state in states.items() if state in FINAL}


@given(random_steps(), st.data())
def test_rounds_come_to_what_the_reference_says(steps: list[dict[str, Any]], data: st.DataObject) -> None:
    if faults(*steps):
        return
    given_ = {step["name"]: data.draw(outcomes) for step in steps}
    definition = {"steps": steps, "failure_policy": "continue"}
    rounds = Rounds(definition, given_)
    assert rounds.run() == play(definition, given_)
    assert rounds.starts == len(rounds.played.started)


@given(random_steps(), st.data())
def test_a_run_that_stops_at_its_first_failure_ends(steps: list[dict[str, Any]], data: st.DataObject) -> None:
    """Which step fails first follows from time; that all end, and as what, follows from the rules."""
    if faults(*steps):
        return
    # Each with a time of its own: of two that end at one instant either may be first.
    given_ = {
        step["name"]: Outcome(data.draw(st.sampled_from(["succeeded", "failed"])), 2.0**at)
        for at, step in enumerate(steps)
    }
    definition = {"steps": steps, "failure_policy": "fail_fast"}
    made, expected = Rounds(definition, given_).run(), play(definition, given_)
    assert (made.states, made.run) == (expected.states, expected.run)
    assert made.started == expected.started
