"""Persons do what they like to a run while its steps end: its counters stay true, and it can always be ended.

Random graphs with lists, workflows in workflows, compensations and handlers; random verbs, of which any may be refused.
After each of them the rows are held against what follows from their states, worked out again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from apps.outcomes.cancel import execution_cancel
from apps.workflows.definitions.definition import from_json
from apps.workflows.definitions.graph import Graph, graph_of
from apps.workflows.runs.deciding import FINAL, End, counted, fails_run
from kernel.clock import utc_now
from kernel.errors import ShardbeatError
from tests.fixtures_flow import actor, make_job, settle_as, started_now
from tests.workflows.engine import WORKER, Engine, make_workflow, step
from tests.workflows.making import faults, random_steps
from tests.workflows.test_verbs import ask

OF_RUN = ("run_pause", "run_resume", "run_retry", "cancel")
OF_STEP = ("run_rerun", "step_retry", "step_skip", "step_force", "step_cancel", "step_approve")
OWN = ("sub", "compensate", "approval")  # of a plan's step, in place of what the test makes
ENDS = ("succeeded", "succeeded", "failed")


class Plan(NamedTuple):
    """A definition, and what happens to a run of it: (verb, number of a step) or (how something ends, which)."""

    steps: list[dict[str, Any]]
    more: dict[str, Any]
    actions: list[tuple[str, int]]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps = draw(random_steps(most=6))
    for one in steps:
        kind = draw(st.sampled_from(["job", "job", "list", "sub", "sub", "approval"]))
        if kind == "list":
            one["for_each"] = {"items": [1, 2, 3], "max_in_flight": draw(st.sampled_from([None, 1, 2]))}
            one["for_each"]["max_failures"] = draw(st.integers(0, 1))
        elif kind != "job":
            del one["job"]
            one[kind] = True
        if kind == "job" and draw(st.booleans()):
            one["compensate"] = True
    policy = draw(st.sampled_from(["continue", "continue", "fail_fast", "compensate"]))
    more = {"failure_policy": policy, "on_failure": draw(st.booleans())}
    words = st.sampled_from([*ENDS, *ENDS, "look", *OF_RUN, *OF_STEP])
    return Plan(steps, more, draw(st.lists(st.tuples(words, st.integers(0, 20)), min_size=4, max_size=14)))


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_whatever_persons_do(engine: Engine, plan: Plan) -> None:
    play(engine, plan)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_whatever_many_persons_do(engine: Engine, plan: Plan) -> None:
    play(engine, plan)


def play(engine: Engine, plan: Plan) -> None:
    plain = [{name: value for name, value in one.items() if name not in OWN} for one in plan.steps]
    if faults(*(one if "job" in one else {**one, "delay_s": 1} for one in plain)):
        return
    note(repr(plan))
    engine.conn.execute("DELETE FROM tickets_ticket")  # of an example that failed
    persons = Persons(engine, plan)
    for word, number in plan.actions:
        persons.act(word, number)
        persons.assert_true()
    persons.bring_to_the_end()
    persons.assert_true()
    persons.assert_ended()
    for run in reversed(persons.runs()):  # from the innermost
        persons.ask("run_retry", run)
        persons.assert_true()
    persons.bring_to_the_end()
    persons.assert_true()
    persons.assert_ended()


class Persons:
    """One run, and what is done to it."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        job = str(make_job(engine.tenant, retry={"max_attempts": 1}))
        inner = make_workflow(engine.tenant, [step("x"), step("y", "x")])
        steps = []
        for one in plan.steps:
            made = {name: value for name, value in one.items() if name not in OWN}
            made |= {"job": job} if "job" in one else {}
            made |= {"workflow": str(inner)} if "sub" in one else {}
            made |= {"approval": {"role": "viewer"}} if "approval" in one else {}
            made |= {"compensate": {"job": job}} if "compensate" in one else {}
            steps.append(made)
        more = {**plan.more, "on_failure": {"job": job} if plan.more["on_failure"] else None}
        self.graphs: dict[UUID, Graph] = {}
        self.workflow = make_workflow(engine.tenant, steps, **more)
        self.run_id = engine.run(self.workflow)
        engine.look()

    def runs(self) -> list[dict[str, Any]]:
        """The run, and those of its sub-workflows."""
        found = self.engine.rows("workflows_run", self.run_id, "root_id")
        return sorted(found, key=lambda run: (run["depth"], run["execution_id"]))

    def rows(self, run_id: UUID) -> list[dict[str, Any]]:
        return self.engine.rows("workflows_steprun", run_id, "run_id")

    def act(self, word: str, number: int) -> None:
        if word in ENDS:
            self.end_one(word, number)
        elif word == "look":
            self.engine.look()
        else:
            runs = self.runs()
            self.ask(word, runs[number % len(runs)] if number % 3 == 0 else runs[0], number)

    def ask(self, word: str, run: dict[str, Any], number: int = 0) -> None:
        """A verb of a run, or of one of its steps."""
        engine, run_id = self.engine, run["execution_id"]
        if word == "cancel":
            who = actor(engine.tenant)
            self.refusable(
                lambda: execution_cancel(tenant=engine.tenant, actor=who, execution_id=run_id, now=utc_now())
            )
            return
        names = list(self.graph(run).steps)
        more = {"step": names[number % len(names)]} if word in OF_STEP else {}
        if word == "step_skip":
            more["reason"] = "as I like"
        self.refusable(lambda: ask(engine, word, run_id, **more))

    def refusable(self, work: Any) -> None:
        try:
            work()
        except ShardbeatError as refused:
            note(f"refused: {refused}")

    def alive(self) -> list[UUID]:
        """Executions of steps that a worker may run, or runs already."""
        rows = self.engine.conn.execute(
            "SELECT execution_id FROM tickets_ticket WHERE pool <> 'workflow' AND state IN ('ready', 'running')"
            " AND tenant_id = %s ORDER BY execution_id",
            [self.engine.tenant.pk],
        )
        return [row[0] for row in rows]

    def end_one(self, outcome: str, number: int) -> None:
        alive = self.alive()
        if alive:
            chosen = alive[number % len(alive)]
            started = started_now(self.engine.conn, [chosen], WORKER)
            settle_as(self.engine.conn, self.engine.registry, started, outcome, retryable=False)

    def bring_to_the_end(self) -> None:
        """It is let go on, everything succeeds, and whoever is asked says yes."""
        for run in self.runs():
            self.ask("run_resume", run)
        for _ in range(60):
            self.engine.look()
            if self.engine.of_run(self.run_id)["finished_at"] is not None and not self.alive():
                return
            self.end_one("succeeded", 0)
            for row in self.rows(self.run_id):
                if row["type"] == "approval" and row["state"] == "running":
                    self.refusable(lambda row=row: ask(self.engine, "step_approve", self.run_id, step=row["step"]))
        states = {one["step"]: (one["state"], one["reason"]) for one in self.rows(self.run_id)}
        pytest.fail(f"the run does not end: {self.engine.of_run(self.run_id)['state']}, {states}")

    def graph(self, run: dict[str, Any]) -> Graph:
        if run["workflow_id"] not in self.graphs:
            [version] = self.engine.rows("schedules_jobversion", run["workflow_id"], "job_id")
            self.graphs[run["workflow_id"]] = graph_of(from_json(version["target"]))
        return self.graphs[run["workflow_id"]]

    def assert_true(self) -> None:
        """Counters are what follows from the states; executions are one for each step, item and generation."""
        for run in self.runs():
            graph, rows = self.graph(run), self.rows(run["execution_id"])
            whole = {one["step"]: one for one in rows if one["item"] is None}
            ends = {
                name: End(one["state"], one["reason"])
                for name, one in whole.items()
                if one["state"] in FINAL and name in graph.steps
            }
            assert run["open"] == sum(one["state"] not in FINAL for one in whole.values()), run
            late = run["reason"] == "deadline"
            assert run["failed"] == sum(fails_run(graph.steps[name], end) for name, end in ends.items()) + late, run
            for name, one in whole.items():
                if one["state"] == "waiting" and name in graph.steps:
                    needs = (one["pending"], one["met"], one["failed"], one["succeeded"])
                    assert needs == tuple(counted(graph.steps[name], ends)), (name, needs)
                if one["items"] is not None and one["state"] == "running":
                    items = [item for item in rows if item["step"] == name and item["item"] is not None]
                    assert len(items) == one["items"]
                    assert one["items_open"] == sum(item["state"] not in FINAL for item in items)
            ended = run["finished_at"] is not None
            assert ended == (run["state"] in FINAL)
            assert not ended or run["open"] == 0
        keys = Counter(one["run_key"] for one in self.engine.executions(self.run_id))
        assert not keys or max(keys.values()) == 1

    def assert_ended(self) -> None:
        self.engine.look()
        for run in self.runs():
            execution = self.engine.execution(run["execution_id"])
            # One that has failed and is cancelled before it is settled ends as any attempt does: cancelled.
            may = {"succeeded": {"succeeded"}, "failed": {"dead", "cancelled"}, "cancelled": {"cancelled"}}
            assert execution["state"] in may[run["state"]], (run, execution["state"])
            for one in self.engine.executions(run["execution_id"]):
                assert one["finished_at"] is not None, one
        assert self.engine.conn.execute(
            "SELECT count(*) FROM tickets_ticket WHERE tenant_id = %s", [self.engine.tenant.pk]
        ).fetchone() == (0,)
