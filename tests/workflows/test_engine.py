"""Runs over the real tables: what starts when, once, and how a run ends."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from psycopg import sql

from apps.dispatch.repairs import run_all
from apps.outcomes.cancel import execution_cancel
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.settle import settle
from apps.schedules.definitions import Definitions
from apps.tickets import workflow_runs
from apps.tickets.values import Started
from apps.workflows.interventions.verbs import run_pause, run_resume, run_retry
from apps.workflows.runs import advancing
from kernel.clock import utc_now
from tenants import door
from tenants.registry import Registry
from tests.fixtures_flow import (
    OneLine,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    make_job,
    make_ticket,
    rows_of,
    settle_as,
    settlement,
    started_now,
    ticket_of,
)
from tests.workflows.engine import Conn, Engine, make_workflow, step


def test_a_diamond_runs_each_step_once_and_ends(engine: Engine) -> None:
    workflow = make_workflow(
        engine.tenant,
        [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c", input={"of": "{{ steps.b.result.n }}"})],
        output={"d": "{{ steps.d.state }}"},
    )
    run_id = engine.run(workflow, payload={"x": 1})
    assert engine.states(run_id) == {"a": "running", "b": "waiting", "c": "waiting", "d": "waiting"}

    engine.end(run_id, "a")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "running", "d": "waiting"}
    engine.end(run_id, "b", result='{"n": 7}')
    assert engine.states(run_id)["d"] == "waiting"
    engine.end(run_id, "c")
    d = engine.step(run_id, "d")
    assert engine.execution(d["execution_id"])["payload"] == {"of": 7}
    assert d["used"] == {"b": 1, "c": 1}
    engine.end(run_id, "d")

    assert engine.of_run(run_id)["state"] == "succeeded"
    engine.look()
    container = assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")
    assert container["result"] == {"d": "succeeded"}
    found = engine.executions(run_id)
    assert sorted(one["run_key"] for one in found) == [f"{run_id.hex}:{name}:1" for name in "abcd"]
    assert {one["trigger"] for one in found} == {"workflow"}


def test_a_failure_skips_what_needs_it_and_makes_one_letter_of_the_run(engine: Engine) -> None:
    workflow = make_workflow(
        engine.tenant,
        [step("a"), step("b", "a"), step("c", "b"), step("told", ("a", "failed")), step("clean", ("c", "finished"))],
    )
    run_id = engine.run(workflow)
    engine.end(run_id, "a", "failed")
    assert engine.states(run_id) == {
        "a": "failed", "b": "skipped: upstream_failed", "c": "skipped: upstream_failed", "told": "running",
        "clean": "running",
    }  # fmt: skip
    engine.end(run_id, "told")
    engine.end(run_id, "clean")
    engine.look()
    container = assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")
    assert container["error"]["step"] == "a"
    assert container["error"]["execution"] == str(engine.step(run_id, "a")["execution_id"])
    letters = rows_of(engine.conn, engine.tenant, "deadletters_deadletter")
    assert [one["execution_id"] for one in letters] == [run_id]
    assert ticket_of(engine.conn, run_id) is None


def test_a_step_has_its_own_retry_time_out_priority_and_concurrency(engine: Engine) -> None:
    own = {"retry": {"max_attempts": 3, "base_s": 1}, "timeout_s": 7, "priority": 9, "max_concurrency": 2}
    run_id = engine.run(make_workflow(engine.tenant, [step("a", **own), step("b", "a")]))
    execution = engine.step(run_id, "a")["execution_id"]
    ticket = ticket_of(engine.conn, execution)
    assert (ticket["timeout_s"], ticket["priority"], ticket["flow_limit"]) == (7, 9, 2)

    started = engine.start(run_id, "a")
    definition = Definitions().of_runs(engine.conn, engine.tenant.schema_name, [started])[execution]
    assert (definition.timeout_s, definition.retry.max_attempts, definition.retry.base_s) == (7, 3, 1)
    settle(
        engine.conn,
        engine.registry,
        [replace(settlement(engine.conn, engine.registry, started, "failed"), definition=definition)],
    )
    assert ticket_of(engine.conn, execution)["failures"] == 1
    assert engine.states(run_id) == {"a": "running", "b": "waiting"}  # a retry is invisible to what waits
    engine.conn.execute(
        "UPDATE tickets_ticket SET available_at = now(), rank = now() WHERE execution_id = %s", [execution]
    )
    engine.end(run_id, "a")
    assert engine.step(run_id, "b")["used"] == {"a": 2}


def test_fail_fast_stops_what_runs_and_leaves_what_is_there_for_a_failure(engine: Engine) -> None:
    steps = [step("a"), step("slow"), step("next", "slow"), step("told", ("a", "failed")), step("after", "told")]
    run_id = engine.run(make_workflow(engine.tenant, steps, failure_policy="fail_fast"))
    slow = engine.start(run_id, "slow")
    engine.end(run_id, "a", "failed")
    engine.look()
    assert engine.states(run_id) == {
        "a": "failed", "slow": "running", "next": "skipped: fail_fast", "told": "running", "after": "waiting",
    }  # fmt: skip
    assert ticket_of(engine.conn, slow.execution_id)["cancel_requested"]
    settle_as(engine.conn, engine.registry, [slow], "cancelled")
    engine.end(run_id, "told")
    engine.end(run_id, "after")
    engine.look()
    assert engine.of_run(run_id)["reason"] == "fail_fast"
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")


def test_a_cancelled_run_starts_nothing_more(engine: Engine) -> None:
    run_id = engine.run(
        make_workflow(engine.tenant, [step("a"), step("b"), step("z", ("a", "finished"), ("b", "finished"))])
    )
    a = engine.start(run_id, "a")
    execution_cancel(tenant=engine.tenant, actor=actor(engine.tenant), execution_id=run_id, now=utc_now())
    engine.look()
    assert engine.states(run_id) == {"a": "running", "b": "cancelled", "z": "cancelled"}
    settle_as(engine.conn, engine.registry, [a])  # what came in before the cancel took effect stands
    engine.look()
    assert engine.states(run_id) == {"a": "succeeded", "b": "cancelled", "z": "cancelled"}
    assert engine.of_run(run_id)["state"] == "cancelled"
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="cancelled")
    assert len(engine.executions(run_id)) == 2


def test_time_ends_delays_approvals_and_runs(engine: Engine) -> None:
    workflow = make_workflow(
        engine.tenant,
        [
            step("wait", delay_s=60),
            step("ask", approval={"timeout_s": 60, "on_timeout": "skipped"}),
            step("b", "wait"),
            step("c", ("ask", "skipped")),
            step("late", approval={"timeout_s": 60}),
        ],
        deadline_s=3_600,
    )
    run_id = engine.run(workflow)
    states = engine.states(run_id)
    assert (states["wait"], states["ask"], states["b"]) == ("running", "running", "waiting")
    assert ticket_of(engine.conn, run_id)["deadline"] == engine.step(run_id, "wait")["wake_at"]
    engine.pass_time(run_id)
    assert engine.states(run_id) == {
        "wait": "succeeded", "ask": "skipped: approval_timeout", "b": "running", "c": "running", "late": "failed",
    }  # fmt: skip
    assert "in time" in engine.of_run(run_id)["error"]["message"]
    engine.end(run_id, "b")
    engine.pass_time(run_id, whole=True)
    assert engine.of_run(run_id)["state"] == "failed"
    container = assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")
    assert container["error"]["step"] == "late"
    assert engine.of_run(run_id)["reason"] == "deadline"
    assert engine.states(run_id)["c"] == "cancelled"


def test_what_nobody_noted_is_noted_by_a_look(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", ("a", "finished"))]))
    a = engine.step(run_id, "a")["execution_id"]
    execution_cancel(tenant=engine.tenant, actor=actor(engine.tenant), execution_id=a, now=utc_now())
    assert engine.states(run_id) == {"a": "running", "b": "waiting"}
    engine.look()
    assert engine.states(run_id) == {"a": "cancelled", "b": "running"}


def test_a_job_that_is_being_changed_is_waited_for_and_one_that_is_gone_fails_its_step(engine: Engine) -> None:
    job = make_job(engine.tenant)
    workflow = make_workflow(engine.tenant, [step("a"), step("b", "a", job=str(job)), step("c", "b")])
    run_id = engine.run(workflow)
    with door.connect("test editor") as other, other.transaction():
        other.execute(
            sql.SQL("SELECT 1 FROM {}.schedules_job WHERE id = %s FOR UPDATE").format(
                sql.Identifier(engine.tenant.schema_name)
            ),
            [job],
        )
        engine.end(run_id, "a")
        waits = engine.step(run_id, "b")
        assert (waits["state"], waits["reason"]) == ("waiting", "job_changes")
    engine.pass_time(run_id)
    assert engine.states(run_id)["b"] == "running"

    other_run = engine.run(workflow)
    engine.conn.execute(
        sql.SQL("UPDATE {}.schedules_job SET deleted_at = now() WHERE id = %s").format(
            sql.Identifier(engine.tenant.schema_name)
        ),
        [job],
    )
    engine.end(other_run, "a")
    assert engine.states(other_run) == {"a": "succeeded", "b": "failed", "c": "skipped: upstream_failed"}
    assert engine.step(other_run, "b")["error"]["class"] == "job_gone"


def test_two_last_parents_that_end_at_once_start_their_child_once(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b"), step("c", "a", "b")]))
    started = [engine.start(run_id, "a"), engine.start(run_id, "b")]

    def ends(one: Started) -> None:
        with door.connect("test settler") as conn:
            settle_as(conn, Registry(OneLine(conn)), [one])  # type: ignore[arg-type]  # a line is what it gives

    at_once(*(partial(ends, one) for one in started))
    assert engine.states(run_id) == {"a": "succeeded", "b": "succeeded", "c": "running"}
    assert [one["run_key"] for one in engine.executions(run_id) if one["step"] == "c"] == [f"{run_id.hex}:c:1"]


def test_what_is_no_step_costs_no_statement_more(engine: Engine, statements: list[str]) -> None:
    [one] = started_now(engine.conn, [make_ticket(engine.tenant)], UUID(int=1))
    statements.clear()
    settle_as(engine.conn, engine.registry, [one])
    assert statements
    assert not [text for text in statements if "workflows_" in text]


def test_replaying_the_letter_of_a_run_runs_what_failed_again(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "b")]))
    engine.end(run_id, "a")
    engine.end(run_id, "b", "failed")
    engine.look()
    [letter] = rows_of(engine.conn, engine.tenant, "deadletters_deadletter")
    deadletter_replay(tenant=engine.tenant, actor=actor(engine.tenant), letter_id=letter["id"], now=utc_now())
    engine.look()
    assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "waiting"}
    engine.end(run_id, "b")
    engine.end(run_id, "c")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")
    b = engine.execution(engine.step(run_id, "b")["execution_id"])
    assert (b["attempt_count"], b["run_key"]) == (2, f"{run_id.hex}:b:1")
    [letter] = rows_of(engine.conn, engine.tenant, "deadletters_deadletter")
    assert letter["resolution"] == "replayed"


def test_who_has_seen_the_end_of_a_run_that_goes_on_settles_nothing(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a")]))
    engine.end(run_id, "a", "failed")
    [due] = workflow_runs.due(engine.conn, limit=10)
    run_retry(tenant=engine.tenant, actor=actor(engine.tenant), run_id=run_id, now=utc_now())
    assert settle_as(engine.conn, engine.registry, [due.started], "failed").counts == {"stale": 1}
    engine.end(run_id, "a")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")


@pytest.mark.long  # some forty connections are ended
def test_a_crash_between_any_two_statements_starts_each_step_once(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")])
    current: dict[str, UUID] = {}

    def work(conn: Conn) -> None:
        settle_as(conn, engine.registry, [engine.start(current["run"], "a")])

    def check(where: str) -> None:
        run_id = current["run"]
        if engine.states(run_id)["a"] == "running":  # nothing of it happened
            assert engine.states(run_id) == {"a": "running", "b": "waiting", "c": "waiting", "d": "waiting"}, where
            current["run"] = engine.run(workflow)
            return
        assert engine.states(run_id) == {"a": "succeeded", "b": "running", "c": "running", "d": "waiting"}, where
        found = engine.executions(run_id)
        assert sorted(one["step"] for one in found) == ["a", "b", "c"], where
        assert all(ticket_of(engine.conn, one["id"]) for one in found if one["step"] != "a"), where
        current["run"] = engine.run(workflow)

    current["run"] = engine.run(workflow)
    assert at_every_crash(work, check) >= 12


def test_a_failure_in_a_pause_stops_a_run_that_fails_fast_when_it_is_resumed(engine: Engine) -> None:
    steps = [step("a"), step("b"), step("next", "b")]
    run_id = engine.run(make_workflow(engine.tenant, steps, failure_policy="fail_fast"))
    who = actor(engine.tenant)
    run_pause(tenant=engine.tenant, actor=who, run_id=run_id, now=utc_now())
    engine.end(run_id, "a", "failed")
    engine.end(run_id, "b")
    engine.look()
    assert engine.states(run_id) == {"a": "failed", "b": "succeeded", "next": "waiting"}
    run_resume(tenant=engine.tenant, actor=who, run_id=run_id, now=utc_now())
    engine.look()
    assert engine.states(run_id)["next"] == "skipped: fail_fast"
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="dead")


def test_a_run_keeps_the_version_with_which_it_began(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a"), step("b", "a")])
    run_id = engine.run(workflow)
    engine.conn.execute(
        sql.SQL(
            "WITH v AS (UPDATE {schema}.schedules_job SET version = 2 WHERE id = %(id)s) INSERT INTO"
            " {schema}.schedules_jobversion (job_id, version, target, timeout_s, retry, priority, queue, created_at)"
            " SELECT job_id, 2, jsonb_set(target, '{{steps,1,name}}', '\"renamed\"'), timeout_s, retry, priority,"
            " queue, created_at FROM {schema}.schedules_jobversion WHERE job_id = %(id)s"
        ).format(schema=sql.Identifier(engine.tenant.schema_name)),
        {"id": workflow},
    )
    engine.end(run_id, "a")
    assert engine.states(run_id) == {"a": "succeeded", "b": "running"}
    newer = engine.run(workflow)
    assert set(engine.states(newer)) == {"a", "renamed"}


def test_runs_wait_for_the_limit_of_their_workflow(engine: Engine) -> None:
    workflow = make_workflow(engine.tenant, [step("a")], max_active_runs=1)
    first, second = engine.run(workflow), engine.run(workflow)
    assert ticket_of(engine.conn, second)["state"] == "ready"
    assert engine.rows("workflows_run", second, "execution_id") == []
    engine.end(first, "a")
    engine.look()
    assert engine.states(second) == {"a": "running"}


def test_a_run_whose_ticket_is_gone_gets_one_and_goes_on(engine: Engine) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a", timeout_s=7), step("b", "a")]))
    a = engine.step(run_id, "a")["execution_id"]
    engine.conn.execute("DELETE FROM tickets_ticket WHERE execution_id = ANY(%s)", [[run_id, a]])
    tenancy = engine.registry.get(engine.tenant.pk)
    assert tenancy is not None
    list(run_all(engine.conn, engine.registry, [tenancy], dry_run=False))
    ticket = ticket_of(engine.conn, a)
    assert (ticket["followed"], ticket["timeout_s"]) == (True, 7)
    engine.look()
    engine.end(run_id, "a")
    engine.end(run_id, "b")
    engine.look()
    assert_exactly_one_outcome(engine.conn, engine.tenant, run_id.hex, state="succeeded")


def test_a_step_ends_though_what_follows_from_it_fails(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = engine.run(make_workflow(engine.tenant, [step("a"), step("b", "a")]))

    def fails(*args: object, **more: object) -> None:
        raise ValueError("a fault of this run alone")

    with monkeypatch.context() as patched:
        patched.setattr(advancing, "advance", fails)
        engine.end(run_id, "a", result='{"n": 1}')
    a = engine.execution(engine.step(run_id, "a")["execution_id"])
    assert (a["state"], a["result"]) == ("succeeded", {"n": 1})
    assert engine.states(run_id) == {"a": "running", "b": "waiting"}
    engine.look()
    assert engine.states(run_id) == {"a": "succeeded", "b": "running"}
