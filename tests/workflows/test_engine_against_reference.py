"""Random graphs over the real engine end as the reference says, and nothing starts earlier or later than it says.

Time is played: the test ends steps in the order of their durations. Attempts fail or lose their worker before, delays
come to their end, persons cancel, and runs are looked at more often than needed: none of that changes how a run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from psycopg import sql

from apps.dispatch.reconcile import end_lost
from apps.outcomes.cancel import execution_cancel
from apps.outcomes.settle import settle
from apps.schedules.definitions import Definitions
from apps.tickets.values import Started
from kernel.clock import utc_now
from tests.fixtures_flow import (
    actor,
    assert_exactly_one_outcome,
    live_worker,
    make_job,
    settle_as,
    settlement,
    started_now,
    ticket_of,
)
from tests.workflows.engine import WORKER, Engine, make_workflow
from tests.workflows.making import faults, random_steps
from tests.workflows.reference import Outcome, play

DEAD = UUID(int=8)
ATTEMPTS = 9  # of the job: a failure is final where the test says so
UNWANTED = [{"value": "{{ input.n }}", "equals": 2}]  # it is 1


class Plan(NamedTuple):
    """A definition, how its steps end, what each attempt before its last one came to, and when a person cancels.

    `restless`: the run is looked at after each end. `together`: what ends at one instant is settled in one batch.
    """

    definition: Mapping[str, Any]
    outcomes: Mapping[str, Outcome]
    before: Mapping[str, list[str]]
    cancel_at: float | None
    restless: bool
    together: bool


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps = draw(random_steps(most=7))
    policy = draw(st.sampled_from(["continue", "continue", "fail_fast"]))
    outcomes, before = {}, {}
    for at, step in enumerate(steps):
        name, is_delay = step["name"], draw(st.integers(0, 7)) == 0
        state = "succeeded" if is_delay else draw(st.sampled_from(["succeeded", "succeeded", "failed", "cancelled"]))
        # Where the first failure stops a run each has a time of its own: of two at one instant either may be first.
        seconds = 2.0**at if policy == "fail_fast" else draw(st.integers(1, 4))
        outcomes[name] = Outcome(state, seconds, draw(st.integers(0, 5)) == 0)
        before[name] = [] if is_delay else draw(st.lists(st.sampled_from(["failed", "lost"]), max_size=2))
        if is_delay:
            del step["job"]
            step["delay_s"] = 3_600
    # Between two ends, which come at whole seconds.
    cancel_at = draw(st.one_of(st.none(), st.none(), st.integers(0, 6).map(lambda whole: whole + 0.5)))
    return Plan(
        {"steps": steps, "failure_policy": policy},
        outcomes,
        before,
        cancel_at,
        draw(st.booleans()),
        draw(st.booleans()),
    )


def checked(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """With so many examples; all use one database and one tenant."""
    ours = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda test: given(plan=plans())(ours(test))


@checked(12)
def test_a_run_ends_as_the_reference_says(engine: Engine, without_grace: None, plan: Plan) -> None:
    hold_against_the_reference(engine, plan)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@checked(200)
def test_many_runs_end_as_the_reference_says(engine: Engine, without_grace: None, plan: Plan) -> None:
    hold_against_the_reference(engine, plan)


@pytest.fixture
def without_grace(settings: Any) -> None:
    """The database of the tests may have started a moment ago."""
    settings.WORKER_TTL_S = 0.0


def hold_against_the_reference(engine: Engine, plan: Plan) -> None:
    if faults(*plan.definition["steps"], failure_policy=plan.definition["failure_policy"]):
        return
    note(repr(plan))
    expected = play(plan.definition, plan.outcomes)
    if plan.cancel_at is not None and plan.cancel_at < max(expected.ended.values()):
        expected = play(plan.definition, plan.outcomes, cancel_at=plan.cancel_at)
    played = Player(engine, plan)
    played.play()
    rows = played.rows()
    assert {name: one["state"] for name, one in rows.items()} == expected.states
    skips = {name: one["reason"] for name, one in rows.items() if one["state"] == "skipped"}
    assert skips == {name: expected.reasons[name] for name in skips}
    assert played.started == expected.started
    assert engine.of_run(played.run_id)["state"] == expected.run
    engine.look()
    ended = {"succeeded": "succeeded", "failed": "dead", "cancelled": "cancelled"}[expected.run]
    assert_exactly_one_outcome(engine.conn, engine.tenant, played.run_id.hex, state=ended)
    executions = engine.executions(played.run_id)
    ran = {name for name in expected.started if rows[name]["type"] == "job"}
    assert sorted(one["step"] for one in executions) == sorted(ran), "each step has one execution"
    for one in executions:
        assert one["run_key"] == f"{played.run_id.hex}:{one['step']}:1"
        assert one["finished_at"] is not None and ticket_of(engine.conn, one["id"]) is None
        if one["state"] == plan.outcomes[one["step"]].state and one["state"] != "cancelled":
            assert one["attempt_count"] == 1 + len(plan.before[one["step"]])


class Player:
    """Ends the steps of one run in the order of their times."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        live_worker(engine.conn, queues=[], worker=WORKER)
        steps = [
            {**one, "when": UNWANTED} if plan.outcomes[one["name"]].unwanted else one
            for one in plan.definition["steps"]
        ]
        job = str(make_job(engine.tenant, retry={"max_attempts": ATTEMPTS}))
        steps = [{**one, "job": job} if "job" in one else one for one in steps]
        workflow = make_workflow(engine.tenant, steps, failure_policy=plan.definition["failure_policy"])
        self.engine, self.plan, self.now = engine, plan, 0.0
        self.run_id = engine.run(workflow, payload={"n": 1})
        self.started: dict[str, float] = {}
        self.going: dict[str, Started] = {}

    def rows(self) -> dict[str, dict[str, Any]]:
        return {one["step"]: one for one in self.engine.rows("workflows_steprun", self.run_id, "run_id")}

    def play(self) -> None:
        while running := self.running():
            ends = {name: self.started[name] + self.plan.outcomes[name].seconds for name in running}
            at = min(ends.values())
            if self.plan.cancel_at is not None and at > self.plan.cancel_at:
                self.now = self.plan.cancel_at
                self.cancel()
                continue
            self.now = at
            self.end([name for name in running if ends[name] == at])

    def running(self) -> list[str]:
        """Begins what has just started and stops what is asked to stop; the steps that go on."""
        if self.plan.restless:
            self.engine.look()
        rows = self.begin_new()
        if self.engine.of_run(self.run_id)["reason"] == "fail_fast":
            self.stop()
            rows = self.begin_new()  # what is there for a failure
        return [name for name, row in rows.items() if row["state"] == "running"]

    def begin_new(self) -> dict[str, dict[str, Any]]:
        rows = self.rows()
        for name, row in rows.items():
            if row["state"] in ("waiting", "skipped") or (row["state"] == "cancelled" and row["started_at"] is None):
                assert name not in self.started
            elif name not in self.started:
                self.started[name] = self.now
                if row["type"] == "job":
                    self.going[name] = self.begin(name, row["execution_id"])
        return rows

    def begin(self, name: str, execution: UUID) -> Started:
        """The last attempt of a step, after those that came to nothing."""
        for outcome in self.plan.before[name]:
            if outcome == "lost":
                started_now(self.engine.conn, [execution], DEAD)
                counts = end_lost(self.engine.conn, self.engine.registry, Definitions()).counts
                assert counts == {"lost": 1, "lost_retry": 1}
            else:
                settle_as(self.engine.conn, self.engine.registry, self.start(execution), "failed", retryable=True)
            self.engine.conn.execute(
                "UPDATE tickets_ticket SET available_at = now(), rank = now() WHERE execution_id = %s", [execution]
            )
        [last] = self.start(execution)
        return last

    def start(self, execution: UUID) -> list[Started]:
        return started_now(self.engine.conn, [execution], WORKER)

    def end(self, names: list[str]) -> None:
        delays = [name for name in names if name not in self.going]
        ended = [
            settlement(
                self.engine.conn, self.engine.registry, self.going[name], self.plan.outcomes[name].state,
                worker=WORKER, retryable=False,
            )
            for name in names
            if name in self.going
        ]  # fmt: skip
        for batch in [ended] if self.plan.together else [[one] for one in ended]:
            settle(self.engine.conn, self.engine.registry, batch)
        late = [one.started for one in ended]
        if late:  # who reports once more changes nothing
            again = settle_as(self.engine.conn, self.engine.registry, late, "failed", retryable=False)
            assert again.counts == {"stale": len(late)}
        if delays:
            self.engine.conn.execute(
                sql.SQL("UPDATE {} SET wake_at = clock_timestamp() WHERE run_id = %s AND step = ANY(%s)").format(
                    sql.Identifier(self.engine.tenant.schema_name, "workflows_steprun")
                ),
                [self.run_id, delays],
            )
            self.engine.conn.execute(
                "UPDATE tickets_ticket SET deadline = clock_timestamp() WHERE execution_id = %s", [self.run_id]
            )
            self.engine.look()

    def cancel(self) -> None:
        execution_cancel(
            tenant=self.engine.tenant, actor=actor(self.engine.tenant), execution_id=self.run_id, now=utc_now()
        )
        self.stop()

    def stop(self) -> None:
        """What is asked to stop does."""
        self.engine.look()
        asked = "SELECT execution_id FROM tickets_ticket WHERE cancel_requested AND execution_id = ANY(%s)"
        ids = {row[0] for row in self.engine.conn.execute(asked, [[one.execution_id for one in self.going.values()]])}
        stopping = [one for one in self.going.values() if one.execution_id in ids]
        if stopping:
            settle_as(self.engine.conn, self.engine.registry, stopping, "cancelled", worker=WORKER)
