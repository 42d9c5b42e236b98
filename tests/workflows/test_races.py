"""Two connections at one run: whichever comes first, the run has one outcome and each step one execution a generation.

`in_turn` holds the lock of a run until all of them wait for it, in the order that the test says; both orders are tried.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from apps.outcomes.cancel import execution_cancel
from apps.tickets.values import Started
from kernel.clock import utc_now
from kernel.errors import Conflict
from tenants import door
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    OneLine,
    actor,
    assert_exactly_one_outcome,
    at_once,
    count,
    settle_as,
    started_now,
    ticket_of,
)
from tests.workflows.engine import WORKER, Engine, make_workflow, step
from tests.workflows.test_verbs import ask

Conn = psycopg.Connection[Any]
Work = Callable[[], object]
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pg_blocking_pids(pid) <> '{}'"


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_two_parents(engine: Engine, second: Conn, first: int) -> None:
    """One succeeds and one fails: what waits for both, for any and for a failure is decided once."""
    steps = [
        step("a"), step("b"), step("both", "a", "b"), step("any", "a", "b", join="any"),
        step("told", ("a", "failed"), ("b", "failed"), join="any"), step("done", ("a", "finished"), ("b", "finished")),
    ]  # fmt: skip
    run_id = engine.run(make_workflow(engine.tenant, steps))
    a, b = engine.start(run_id, "a"), engine.start(run_id, "b")
    in_turn(engine, second, run_id, first, ends(engine, a), ends(engine, b, "failed"))
    assert engine.states(run_id) == {
        "a": "succeeded", "b": "failed", "both": "skipped: upstream_failed", "any": "running", "told": "running",
        "done": "running",
    }  # fmt: skip
    for name in ("any", "told", "done"):
        engine.end(run_id, name)
    assert_once(engine, run_id, "dead", a=1, b=1, any=1, told=1, done=1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_cancel_and_the_end_that_would_start_more(engine: Engine, second: Conn, first: int) -> None:
    """F10."""
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("z", ("a", "finished"))]))
    a = engine.start(run_id, "a")
    in_turn(engine, second, run_id, first, cancels(engine, run_id), ends(engine, a))
    engine.look()
    assert engine.states(run_id) == {"a": "succeeded", "z": "cancelled"}
    made = {"a": 1} if first == 0 else {"a": 1, "z": 1}
    assert_once(engine, run_id, "cancelled", **made)
    assert all(one["attempt_count"] == 0 for one in engine.executions(run_id) if one["step"] == "z")


def test_a_cancel_and_a_worker_that_starts_a_step(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a"), step("z", ("a", "finished"))])
    for _ in range(4):
        run_id = engine.run(workflow)
        execution = engine.step(run_id, "a")["execution_id"]

        def starts(execution: UUID = execution) -> list[Started]:
            with door.connect("test worker") as conn:
                return started_now(conn, [execution], WORKER)

        def stops(run_id: UUID = run_id) -> None:
            cancels(engine, run_id)()
            engine.look()

        started, _ = at_once(starts, stops)
        engine.look()
        if started:
            assert ticket_of(engine.conn, execution)["cancel_requested"]
            settle_as(engine.conn, engine.registry, started, "cancelled")
        assert engine.states(run_id) == {"a": "cancelled", "z": "cancelled"}
        assert_once(engine, run_id, "cancelled", a=1)
        assert engine.execution(execution)["attempt_count"] == len(started)


def test_a_cancel_and_the_loop_that_begins_the_run(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a"), step("z", "a")])
    for _ in range(4):
        run_id = submit(engine, workflow)
        at_once(engine.look, cancels(engine, run_id))
        engine.look()
        assert engine.execution(run_id)["state"] == "cancelled"
        assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="cancelled")
        assert all(one["state"] == "cancelled" for one in engine.executions(run_id))


@pytest.mark.parametrize("first", [0, 1])
def test_a_retry_and_the_end_of_the_run(engine: Engine, second: Conn, first: int) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b"), step("c", "a", "b")]))
    engine.end(run_id, "a", "failed")
    b = engine.start(run_id, "b")
    in_turn(engine, second, run_id, first, partial(ask, engine, "run_retry", run_id), ends(engine, b))
    assert engine.states(run_id) == {"a": "running", "b": "succeeded", "c": "waiting"}
    engine.look()
    engine.end(run_id, "a")
    engine.end(run_id, "c")
    assert_once(engine, run_id, "succeeded", a=1, b=1, c=1)


def test_a_retry_and_the_loop_that_settles_the_run(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a"), step("b", "a")])
    for _ in range(4):
        run_id = engine.run(workflow)
        engine.end(run_id, "a", "failed")
        at_once(engine.look, partial(ask, engine, "run_retry", run_id))
        engine.look()
        assert engine.states(run_id) == {"a": "running", "b": "waiting"}
        assert engine.execution(run_id)["state"] in ("ready", "running")
        engine.end(run_id, "a")
        engine.end(run_id, "b")
        assert_once(engine, run_id, "succeeded", a=1, b=1)
        assert engine.executions(run_id)[0]["attempt_count"] == 2


@pytest.mark.parametrize("verb", ["run_retry", "run_rerun"])
def test_two_persons_who_ask_for_the_same(engine: Engine, second: Conn, verb: str) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a")]))
    engine.end(run_id, "a", "failed" if verb == "run_retry" else "succeeded")
    if verb == "run_rerun":
        engine.end(run_id, "b", "failed")
    engine.look()
    more = {"step": "a"} if verb == "run_rerun" else {}
    refused = in_turn(engine, second, run_id, 0, *[partial(ask, engine, verb, run_id, **more)] * 2, may=Conflict)
    assert len(refused) == 1
    assert engine.states(run_id) == {"a": "running", "b": "waiting"}
    engine.end(run_id, "a")
    engine.end(run_id, "b")
    again = 1 if verb == "run_retry" else 2
    assert_once(engine, run_id, "succeeded", a=again, b=again)


@pytest.mark.parametrize("first", [0, 1])
def test_a_pause_and_the_end_that_would_start_more(engine: Engine, second: Conn, first: int) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "b")]))
    a = engine.start(run_id, "a")
    in_turn(engine, second, run_id, first, partial(ask, engine, "run_pause", run_id), ends(engine, a))
    engine.look()
    assert engine.states(run_id)["b"] == ("waiting" if first == 0 else "running")
    if first == 1:  # what had started before the pause ends, and starts nothing
        engine.end(run_id, "b")
    assert engine.states(run_id)["c"] == "waiting"
    ask(engine, "run_resume", run_id)
    engine.look()
    if first == 0:
        engine.end(run_id, "b")
    engine.end(run_id, "c")
    assert_once(engine, run_id, "succeeded", a=1, b=1, c=1)


def test_a_resume_and_the_last_end_of_a_paused_run(engine: Engine, second: Conn) -> None:
    for first in (0, 1):
        run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a")]))
        a = engine.start(run_id, "a")
        ask(engine, "run_pause", run_id)
        in_turn(engine, second, run_id, first, partial(ask, engine, "run_resume", run_id), ends(engine, a))
        engine.look()
        engine.end(run_id, "b")
        assert_once(engine, run_id, "succeeded", a=1, b=1)


def test_the_same_attempt_reported_twice_at_once(engine: Engine, second: Conn) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("told", ("a", "failed"))]))
    a = engine.start(run_id, "a")
    in_turn(engine, second, run_id, 0, ends(engine, a), ends(engine, a, "failed"))
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "told": "skipped: upstream_skipped"}
    engine.end(run_id, "b")
    assert_once(engine, run_id, "succeeded", a=1, b=1)


def test_an_edit_and_runs_that_are_made_and_begin(engine: Engine) -> None:
    """Each run has the steps of one version from its beginning to its end."""
    from apps.workflows.definitions.services import workflow_create, workflow_update

    who: dict[str, Any] = {"tenant": engine.tenant, "actor": actor(engine.tenant)}

    def steps(names: str) -> list[dict[str, Any]]:
        return [{"name": name, "delay_s": 3_600} for name in names]

    made = workflow_create(**who, data={"name": "edited", "steps": steps("ab")}, now=utc_now()).job.pk
    runs = []
    for number in range(4):
        begun = submit(engine, made)
        names = "abc"[: 1 + number % 3]

        def edits(names: str = names) -> None:
            workflow_update(**who, workflow_id=made, patch={"steps": steps(names)}, now=utc_now())

        _, _, third = at_once(edits, engine.look, partial(submit, engine, made))
        runs += [begun, third]
    engine.look()
    known = dict(
        engine.conn.execute(
            sql.SQL("SELECT version, target FROM {} WHERE job_id = %s").format(
                sql.Identifier(engine.tenant.schema_name, "schedules_jobversion")
            ),
            [made],
        ).fetchall()
    )
    for run_id in runs:
        run, execution = engine.of_run(run_id), engine.execution(run_id)
        assert run["version"] == execution["job_version"] == ticket_of(engine.conn, run_id)["job_version"]
        assert list(engine.states(run_id)) == [one["name"] for one in known[run["version"]]["steps"]]
        engine.pass_time(run_id)
        assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")


def in_turn(
    engine: Engine, holder: Conn, run_id: UUID, first: int, *works: Work, may: type[Exception] | None = None
) -> list[Exception]:
    """Lets `works` wait for the run's lock, the one at `first` before the others, and then lets them go.

    Returns the exceptions of the kind that `may` come; any other fails the test.
    """
    order = [works[first], *(work for at, work in enumerate(works) if at != first)]
    errors: list[Exception] = []
    with threads(errors) as begin, locked(engine, holder, run_id):
        for at, work in enumerate(order, start=1):
            begin(work)
            wait_until(lambda at=at: count(engine.conn, BLOCKED) == at, f"{at} to wait for the run")  # type: ignore[misc]  # bound now
    for error in errors:
        if may is None or not isinstance(error, may):
            raise error
    return errors


@contextmanager
def threads(errors: list[Exception]) -> Iterator[Callable[[Work], None]]:
    """Gives what starts a thread; all have ended afterwards."""
    from django.db import connection

    started: list[threading.Thread] = []

    def run(work: Work) -> None:
        try:
            work()
        except Exception as error:  # the caller looks at it
            errors.append(error)
        finally:
            connection.close()

    def begin(work: Work) -> None:
        started.append(threading.Thread(target=run, args=[work]))
        started[-1].start()

    try:
        yield begin
    finally:
        for one in started:
            one.join()


@contextmanager
def locked(engine: Engine, holder: Conn, run_id: UUID) -> Iterator[None]:
    """Holds the lock of a run's root."""
    table = sql.Identifier(engine.tenant.schema_name, "workflows_run")
    with holder.transaction():
        holder.execute(sql.SQL("SELECT 1 FROM {} WHERE execution_id = %s FOR UPDATE").format(table), [run_id])
        yield


def ends(engine: Engine, started: Started, outcome: str = "succeeded") -> Work:
    """A worker that settles an attempt, on a connection of its own."""

    def work() -> None:
        with door.connect("test settler") as conn:
            settle_as(conn, Registry(OneLine(conn)), [started], outcome, retryable=False)  # type: ignore[arg-type]  # a line is what it gives

    assert engine.registry.get(started.tenant_id) is not None
    return work


def cancels(engine: Engine, run_id: UUID) -> Work:
    return lambda: execution_cancel(
        tenant=engine.tenant, actor=actor(engine.tenant), execution_id=run_id, now=utc_now()
    )


def submit(engine: Engine, workflow: UUID) -> UUID:
    """A run that nobody has begun yet."""
    from apps.schedules.running import Run, run_start, share_job
    from tenants.work import in_tenant

    run = Run(trigger="api", fired_by="test", payload_from="job")
    return in_tenant(
        engine.tenant, lambda: run_start(engine.tenant, share_job(engine.tenant, workflow), run, now=utc_now())
    )


def assert_once(engine: Engine, run_id: UUID, state: str, **executions: int) -> None:
    """The run has ended so, once; steps have so many executions, one for each generation, and nothing is alive."""
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state=state)
    found = engine.executions(run_id)
    assert Counter(one["step"] for one in found) == executions
    keys = [f"{run_id.hex}:{name}:{at + 1}" for name, number in executions.items() for at in range(number)]
    assert sorted(one["run_key"] for one in found) == sorted(keys)
    assert all(one["finished_at"] is not None and ticket_of(engine.conn, one["id"]) is None for one in found)
    run = engine.of_run(run_id)
    assert run["finished_at"] is not None and run["open"] == 0
