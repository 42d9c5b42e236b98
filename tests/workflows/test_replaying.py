"""Dead letters of runs, replayed by an operation: what failed of each run runs again."""

from __future__ import annotations

from tests.fixtures_flow import assert_exactly_one_outcome, rows_of
from tests.operations.fixtures import ask, read, receipt, work_off
from tests.workflows.engine import Engine, make_workflow, step


def test_letters_of_runs_and_of_plain_executions_go_in_one_operation(engine: Engine) -> None:
    from apps.operations.services import operation_undo
    from tenants.work import database_now
    from tests.fixtures_flow import actor, make_ticket, settle_as, started_now

    acme, conn = engine.tenant, engine.conn
    workflow = make_workflow(acme, [step("a"), step("b", "a")])
    runs = [engine.run(workflow) for _ in range(2)]
    for run_id in runs:
        engine.end(run_id, "a")
        engine.end(run_id, "b", "failed")
    engine.look()
    plain = make_ticket(acme)
    settle_as(conn, engine.registry, started_now(conn, [plain], runs[0]), "failed", retryable=False)
    one = ask(acme, "replay", "dead_letters", {"all": True}, reason="n" * 500)
    going = work_off(acme, one.pk, most=4)
    assert (going.running, going.pending) == (3, 0)
    letters = rows_of(conn, acme, "deadletters_deadletter")
    assert {(row["resolution"], row["note"]) for row in letters} == {("replayed", "n" * 500)}
    assert [engine.states(run_id) for run_id in runs] == [{"a": "succeeded", "b": "running"}] * 2

    operation_undo(tenant=acme, actor=actor(acme), operation_id=one.pk, now=database_now())
    work_off(acme, one.pk, most=3)
    codes = {state: code for _, state, code in receipt(acme, one.pk)}
    assert codes == {"undone": "", "running": "already_started"}, "runs go on at once; the plain one had not begun"
    engine.look()
    for run_id in runs:
        engine.end(run_id, "b")
    engine.look()
    for run_id in runs:
        assert_exactly_one_outcome(conn, acme, run_id.hex, state="succeeded")
    work_off(acme, one.pk, most=3)
    done = read(acme, one.pk)
    assert (done.state, done.succeeded, done.undone) == ("undone", 2, 1)
