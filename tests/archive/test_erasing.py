"""Erasing one execution: a word that only it holds is nowhere in the database afterwards; that it ran stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from apps.archive import catalogue, erasing
from apps.archive.erasing import erase_some, execution_erase, receipt, would_erase
from apps.archive.files import Store
from apps.archive.parquet import reading
from apps.archive.restoring import batch_restore
from apps.archive.verifying import batch_check
from apps.dispatch.workflow_runs import WorkflowService
from apps.usage.rolling import roll_up
from kernel.errors import Conflict, InvalidInput, NotFound
from tests.api.makers import TARGET, Makers, audit, begin, kill, settle, utc_now
from tests.archive.hands import abandon, archive, count, done_batches, history, workflow
from tests.archive.test_holds import ADMIN, place, release
from tests.fixtures_api import Api
from tests.fixtures_flow import OneLine, at_once, make_ticket, rows_of, run_to_the_end
from tests.operations.fixtures import work_off
from tests.tenants.test_commands import run as run_command
from tests.webhooks.hands import carry, deliveries_of, make_webhook
from workers.housekeeping import retention

if TYPE_CHECKING:
    from apps.dispatch.keeper import Keeper
    from tenants.door import Line
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WORD = "Mallory-7f1c"
CAUSE = "no Mallory-"  # what figures say of the failure
TABLES = """
SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND (n.nspname = 'public' OR n.nspname LIKE 't\\_%%')
"""


@pytest.fixture
def make(api: Api) -> Makers:
    return Makers(api)


def places(conn: Conn, word: str = WORD) -> set[str]:
    """The tables in which some row holds a text."""
    found = set()
    for schema, table in conn.execute(TABLES).fetchall():
        query = sql.SQL("SELECT EXISTS (SELECT 1 FROM {} r WHERE r::text LIKE %s)").format(
            sql.Identifier(schema, table)
        )
        if conn.execute(query, [f"%{word}%"]).fetchone() == (True,):
            found.add(table)
    return found


def erase(tenant: Tenant, execution_id: Any, **more: Any) -> Any:
    return execution_erase(
        tenant=tenant, actor=ADMIN, execution_id=UUID(str(execution_id)), reason="asked for", now=utc_now(), **more
    )  # fmt: skip


def fail(conn: Conn, registry: Registry, execution_id: str) -> None:
    error = {"class": "http", "status": 400, "message": f"no {WORD}"}
    settle(conn, registry, begin(conn, execution_id), "failed", error=error, retryable=False)


def test_what_it_was_about_is_nowhere_and_that_it_ran_stays(
    conn: Conn, acme: Tenant, registry: Registry, api: Api, make: Makers
) -> None:
    """Payload, labels, result, error and cause, letter, event, delivery, kept answers; a delivery is on its way."""
    webhook = make_webhook(acme, registry, now=utc_now()).webhook
    body = {"job": make.job()["id"], "payload": {"name": WORD}, "labels": {"customer": WORD}}
    one = api.post("executions", body, Idempotency_Key="k1").body["id"]
    other = make.execution(payload={"name": "somebody"})["id"]
    fail(conn, registry, one)
    kill(conn, registry, other)
    again = api.post(f"executions/{one}/rerun").body["id"]
    settle(conn, registry, begin(conn, again), "succeeded", result=f'"{WORD}"')
    carry(conn, registry, acme)
    deliveries = deliveries_of(conn, acme, webhook)
    sent = begin(conn, str(deliveries[0]["id"]))
    while roll_up(conn):
        pass
    assert "usage_failurecause" in places(conn, CAUSE)
    before = places(conn)
    assert before == {
        "executions_execution", "executions_attempt", "deadletters_deadletter", "events_event", "api_idempotentanswer"
    }  # fmt: skip

    done = api.post(f"executions/{one}/erase", {"reason": "asked for", "everything": True}).body
    assert {one, again} <= set(done["executions"]) and other not in done["executions"]
    assert done["done"] is False and set(done["left"]) == {str(deliveries[0]["id"])}
    assert "usage_failurecause" not in places(conn, CAUSE)
    assert places(conn) == {"executions_execution"}, "only what is being sent just now"
    assert conn.execute("SELECT execution_id FROM tickets_ticket WHERE cancel_requested").fetchall() == [
        (sent.execution_id,)
    ]
    settle(conn, registry, sent, "cancelled")  # its worker has stopped
    assert erase_some(acme, now=utc_now()) == 1
    assert places(conn) == set()
    assert api.get(f"executions/{one}/erase").body["left"] == []

    seen = api.get(f"executions/{one}").body
    assert (seen["state"], seen["attempt_count"], seen["payload"], seen["error"]) == ("dead", 1, None, None)
    assert seen["erased_at"] == done["erased_at"] and seen["labels"] == {}
    assert api.get(f"executions/{one}/attempts").body["items"] == []
    assert api.get(f"dead-letters?execution={one}").body["items"] == []
    assert api.get(f"dead-letters?execution={other}").body["items"] != []
    assert api.get(f"executions/{other}").body["payload"] == {"name": "somebody"}
    assert api.post(f"executions/{one}/rerun").code == "erased"
    assert api.post(f"webhooks/{webhook.pk}/deliveries/{deliveries[0]['id']}/replay").code == "erased"
    assert api.post(f"executions/{one}/erase", {"reason": "twice"}).body["reason"] == "asked for"
    assert audit(conn, one) == ["execution.submit", "execution.rerun", "execution.erase"]


def test_a_run_of_a_workflow_goes_with_its_steps_and_a_step_alone_leaves_the_others(
    conn: Conn, acme: Tenant, leader: Keeper, registry: Registry, api: Api, make: Makers
) -> None:
    runs = WorkflowService(cast("Line", OneLine(conn)), leader)
    job = {"kind": "http", "target": TARGET, "retry": {"max_attempts": 1}}
    copied = {"name": "copy", "job": job, "needs": ["read"], "input": {"of": "{{ steps.read.result }}"}}
    made = make.workflow({"name": "read", "job": job}, copied, output={"of": "{{ steps.read.result }}"})

    def started() -> tuple[str, dict[str, str]]:
        run = str(api.post(f"workflows/{made['id']}/run", {"input": {"name": WORD}}).body["id"])
        runs.run_once()
        ids = {}
        for step in ("read", "copy"):
            ids[step] = str(api.get(f"workflow-runs/{run}/steps/{step}").body["execution"])
            one = begin(conn, ids[step])
            if step == "copy":
                assert_refused(acme, ids["read"], "not_finished")
            settle(conn, registry, one, "succeeded", result=f'{{"name": "{WORD}"}}')
        runs.run_once()
        return run, ids

    run, ids = started()
    assert {"workflows_run", "executions_execution"} <= places(conn)
    erase(acme, ids["copy"])
    assert api.get(f"executions/{ids['copy']}").body["result"] is None
    assert api.get(f"executions/{ids['read']}").body["result"] == {"name": WORD}
    erase(acme, run)
    assert places(conn) == set()
    assert api.get(f"workflow-runs/{run}").body["state"] == "succeeded"
    assert api.post(f"workflow-runs/{run}/rerun", {"step": "read"}).code == "erased"

    run, ids = started()
    done = erase(acme, ids["read"], everything=True)
    assert {str(one.execution_id) for one in done.parts} == {run, *ids.values()} and done.left == []
    assert places(conn) == set()


def test_what_goes_on_or_is_held_is_not_erased_and_a_hold_that_comes_late_stops_it(
    conn: Conn, acme: Tenant, globex: Tenant, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = make_ticket(acme, payload={"name": WORD})
    assert_refused(acme, alive, "not_finished")
    with pytest.raises(NotFound):
        erase(globex, alive)
    other = make_ticket(acme, payload={"name": "somebody"})
    run_to_the_end(conn, registry, [acme])
    hold = place(acme, "execution", alive, now=utc_now())
    assert_refused(acme, alive, "held")
    release(acme, hold, now=utc_now())
    with pytest.raises(InvalidInput):
        execution_erase(tenant=acme, actor=ADMIN, execution_id=alive, reason=" ", now=utc_now())

    with monkeypatch.context() as patch:  # as if it was killed right after the request was noted
        patch.setattr(erasing, "erase_some", lambda *args, **more: 0)
        assert erase(acme, alive).left == [alive]
    hold = place(acme, "execution", alive, now=utc_now())
    assert erase_some(acme, now=utc_now()) == 0 and places(conn) == {"executions_execution"}
    release(acme, hold, now=utc_now())
    assert retention()["erased"] == 1 and places(conn) == set()
    assert receipt(acme, alive).left == []
    both = at_once(lambda: erase(acme, other), lambda: erase(acme, other))
    assert [one.left for one in both] == [[], []] and audit(conn, str(other)).count("execution.erase") == 1
    assert receipt(acme, other).left == [] and places(conn) == set()
    assert {one["id"] for one in rows_of(conn, acme, "executions_execution")} == {alive, other}


def assert_refused(tenant: Tenant, execution_id: Any, code: str) -> None:
    with pytest.raises(Conflict) as refused:
        erase(tenant, execution_id)
    assert refused.value.extra["code"] == code


def test_a_payload_that_an_operation_sent_goes_when_it_is_over(
    conn: Conn, acme: Tenant, registry: Registry, api: Api, make: Makers
) -> None:
    kill(conn, registry, make.execution()["id"])
    body = {"filter": {"all": True}, "payload": {"name": WORD}, "reason": "mended"}
    asked = api.post("dead-letters/bulk-replay", body, Idempotency_Key="k2").body["id"]
    work_off("acme", asked)
    (made,) = [one for one in rows_of(conn, acme, "executions_execution") if one["replay_of"] is not None]
    settle(conn, registry, begin(conn, str(made["id"])), "succeeded", result=f'"{WORD}"')
    assert erase(acme, made["id"]).left == [made["id"]], "the operation looks at it once more"
    assert places(conn) == {"operations_operation", "api_idempotentanswer"}
    assert work_off("acme", asked).state == "completed"
    assert erase_some(acme, now=utc_now()) == 1
    assert places(conn) == set() and receipt(acme, made["id"]).left == []


def test_archives_are_written_anew_without_it(
    conn: Conn, acme: Tenant, files: Store, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its process dies before; a step takes nothing else with it, everything takes the run; and what is
    restored has nothing of it either."""
    schema = acme.schema_name
    run = workflow(conn, schema)[1]
    ids = history(conn, schema, 12)
    again = ids[-1]
    conn.execute(f"UPDATE {schema}.executions_execution SET replay_of = %s WHERE id = %s", [ids[0], again])
    conn.execute(
        f"UPDATE {schema}.executions_execution SET payload = jsonb_build_object('name', %s::text) WHERE id = ANY(%s)",
        [WORD, [ids[0], again, *run]],
    )
    conn.execute(f"UPDATE {schema}.workflows_run SET input = jsonb_build_object('name', %s::text)", [WORD])
    conn.execute(f"UPDATE {schema}.workflows_steprun SET output = jsonb_build_object('name', %s::text)", [WORD])
    archive(conn, acme, files)
    assert in_files(files) and places(conn) == set()
    untouched = api.get(f"executions/{ids[1]}").body

    hold = place(acme, "execution", ids[0], now=utc_now())
    assert_refused(acme, ids[0], "held")
    seen = run_command("erase", "--tenant", "acme", "--execution", str(ids[0]), "--dry-run")
    assert seen[0] == 2 and "legal hold" in seen[2], "a rehearsal refuses what the erasure would"
    release(acme, hold, now=utc_now())
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "erase_some", lambda *args, **more: 0)
        assert erase(acme, ids[0]).left == [ids[0]]
    with monkeypatch.context() as patch:  # it dies when the new files are whole, before they count
        patch.setattr(catalogue, "take_place", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            erase_some(acme, now=utc_now())
    assert erase_some(acme, now=utc_now()) == 0, "somebody may be at it still"
    abandon(conn, schema)
    assert erase_some(acme, now=utc_now()) == 1 and receipt(acme, ids[0]).left == []
    seen = api.get(f"executions/{ids[0]}").body
    assert seen["payload"] is None and seen["archived"] and seen["erased_at"] and seen["run_key"]
    assert api.get(f"executions/{ids[0]}/attempts").body["items"] == []
    assert api.get(f"executions/{again}").body["payload"] == {"name": WORD}
    assert would_erase(tenant=acme, execution_id=again, now=utc_now(), everything=True) == [ids[0], again]
    erasing_it = ("erase", "--tenant", "acme", "--execution", str(again), "--everything")
    assert str(ids[0]) in run_command(*erasing_it, "--dry-run")[1] and run_command(*erasing_it)[0] == 2
    assert run_command(*erasing_it, "--reason", "asked for")[0] == 0
    assert str(again) in run_command(*erasing_it, "--status", "--format", "json")[1]
    assert run_command("erase", "--tenant", "globex", "--execution", str(again), "--reason", "x")[0] == 2
    assert {**api.get(f"executions/{ids[1]}").body, "as_of": 0} == {**untouched, "as_of": 0}

    assert [one.execution_id for one in erase(acme, run[-1]).parts] == [run[-1]] and in_files(files)
    done = erase(acme, run[2], everything=True)
    assert {one.execution_id for one in done.parts} | {run[-1]} == set(run) and done.left == []
    assert not in_files(files)
    for batch in done_batches(conn, schema):
        assert batch_check(files, batch) == []
        batch_restore(conn, acme, files, batch, keep_until=utc_now())
    assert places(conn) == set() and count(conn, schema) == 12 + len(run)
    assert api.get(f"executions/{ids[0]}").body["erased_at"] == seen["erased_at"]


def in_files(files: Store) -> bool:
    """Whether any file of the archive holds the word, in any column."""
    for path in files.files(""):
        if path.endswith(".parquet"):
            with reading(files, path) as reader:
                if any(WORD in str(table.to_pylist()) for table in reader.tables()):
                    return True
    return False
