"""Legal holds: what they keep, whom they wait for, and what they refuse."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.conf import settings

from apps.archive import holds
from apps.archive.files import Store
from apps.archive.holding import hold_place, hold_release
from apps.audit.services import Actor
from kernel.clock import utc_now
from kernel.errors import Conflict, Forbidden, InvalidInput
from tenants.deletion import StepFailed, delete_step, orphans, tenant_delete
from tenants.models import Tenant
from tests.archive.hands import archive, history
from tests.beat.test_housekeeping import OLD, execution, executions, forget, letter
from tests.fixtures_flow import NOW, at_once, make_job, make_schedule
from tests.tenants.test_commands import run
from tests.tenants.test_deletion import mark, steps

Conn = psycopg.Connection[Any]
ADMIN = Actor(name="key:admin", role="admin")


def place(
    tenant: Any, scope: str = "tenant", object_id: UUID | None = None, *, now: Any = NOW, by_operator: bool = False,
    **more: Any,
) -> Any:  # fmt: skip
    data = {"scope": scope, "object": None if object_id is None else str(object_id), "reason": "case 4711", **more}
    return hold_place(tenant=tenant, actor=ADMIN, data=data, now=now, by_operator=by_operator)


def release(tenant: Any, hold: Any, *, now: Any = NOW, **more: Any) -> Any:
    return hold_release(tenant=tenant, actor=ADMIN, hold_id=hold.pk, reason="settled", now=now, **more)


def test_nothing_of_what_is_held_is_deleted_until_it_is_released(conn: Conn, acme: Any, globex: Any) -> None:
    """By job, schedule, execution and time; with a resolved letter and an event of it."""
    job, schedule = make_job(acme), make_schedule(acme)
    of_job, of_schedule, one, late, other = (execution(conn, acme, at=OLD) for _ in range(5))
    table = f"{acme.schema_name}.executions_execution"
    conn.execute(f"UPDATE {table} SET job_id = %s WHERE id = %s", [job, of_job])
    conn.execute(f"UPDATE {table} SET schedule_id = %s, trigger = 'manual' WHERE id = %s", [schedule, of_schedule])
    conn.execute(f"UPDATE {table} SET created_at = %s WHERE id = %s", [OLD + timedelta(hours=2), late])
    for key in (one, other):
        letter(conn, acme, key, resolved_at=OLD)
        conn.execute(
            f"INSERT INTO {acme.schema_name}.events_event (id, tx, type, at, execution_id, data)"
            " VALUES (%s, 1, 'execution.dead', %s, %s, '{}')",
            [key, OLD, key],
        )
    conn.execute(f"UPDATE {acme.schema_name}.deadletters_deadletter SET created_at = %s", [OLD])
    placed = [
        place(acme, "job", job), place(acme, "schedule", schedule), place(acme, "execution", one),
        place(acme, from_at=OLD + timedelta(hours=1), until_at=OLD + timedelta(hours=3)),
    ]  # fmt: skip
    gone = forget(conn, acme)
    assert (gone["executions"], gone["dead_letters"], gone["events"]) == (1, 1, 1)
    assert executions(conn, acme) == {of_job, of_schedule, one, late}
    assert holds.held(conn, acme.schema_name, [of_job, of_schedule, one, late, other]) == sorted(
        [of_job, of_schedule, one, late]
    )
    young = execution(conn, globex, at=OLD)
    assert forget(conn, globex)["executions"] == 1 and young not in executions(conn, globex), "nobody else's"
    for hold in placed:
        release(acme, hold)
    gone = forget(conn, acme)
    assert (gone["executions"], gone["dead_letters"], gone["events"]) == (4, 1, 1)
    assert holds.open_holds(conn, acme.schema_name) == []


def test_a_hold_on_one_step_holds_its_whole_run(conn: Conn, acme: Any) -> None:
    root, below, step, lone = (execution(conn, acme, at=OLD) for _ in range(4))
    for one, depth in ((root, 0), (below, 1)):
        conn.execute(
            f"INSERT INTO {acme.schema_name}.workflows_run (execution_id, root_id, parent_step_id, depth, workflow_id,"
            " version, state, reason, open, failed, started_at, finished_at, paused_by, paused_reason, generation,"
            " revision) VALUES (%s, %s, %s, %s, %s, 1, 'succeeded', '', 0, 0, %s, %s, '', '', 1, 1)",
            [one, root, 1 if depth else None, depth, root, OLD, OLD],
        )
    for one, of in ((root, root), (below, below), (step, below)):
        conn.execute(
            f"UPDATE {acme.schema_name}.executions_execution SET workflow_run_id = %s WHERE id = %s", [of, one]
        )
    hold = place(acme, "execution", step)
    assert forget(conn, acme)["executions"] == 1
    assert executions(conn, acme) == {root, below, step} and lone not in executions(conn, acme)
    release(acme, hold)
    assert forget(conn, acme)["executions"] == 3


def test_placing_waits_for_the_batch_that_is_being_deleted(conn: Conn, second: Conn, acme: Any) -> None:
    """Either the batch is over when the hold is there, or it leaves out what is held: on two connections."""

    def hold() -> tuple[Any, set[UUID]]:
        return place(acme), executions(second, acme)

    for _ in range(5):
        made = {execution(conn, acme, at=OLD) for _ in range(5)}
        _, (placed, seen) = at_once(lambda: forget(conn, acme), hold)
        assert executions(conn, acme) == seen, "nothing went after the hold was placed"
        release(acme, placed)
        forget(conn, acme)
        assert not executions(conn, acme) & made


def test_what_is_refused(conn: Conn, acme: Any) -> None:
    for wrong in (
        {"scope": "job", "object_id": uuid.uuid4()}, {"scope": "tenant", "object_id": uuid.uuid4()},
        {"scope": "schedule"}, {"scope": "all"}, {"from_at": NOW, "until_at": NOW}, {"from_at": "soon"},
        {"reason": " "}, {"who": "me"},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            place(acme, **wrong)
    hold = place(acme, by_operator=True)
    with pytest.raises(Forbidden):
        release(acme, hold)
    released = release(acme, hold, by_operator=True)
    assert released.released_by == "key:admin" and released.released_reason == "settled"
    with pytest.raises(Conflict):
        release(acme, hold, by_operator=True)
    trail = conn.execute("SELECT action, reason FROM audit_auditevent WHERE tenant_id = %s ORDER BY id", [acme.pk])
    assert trail.fetchall() == [("hold.create", "case 4711"), ("hold.release", "settled")]


def test_a_tenant_is_not_deleted_while_anything_of_it_is_held(conn: Conn, new_tenant: Any) -> None:
    """Neither marked, nor, when it was held after the mark, removed; it goes on by itself when the hold is released."""
    tenant = new_tenant()
    hold = place(tenant, "job", make_job(tenant))
    with pytest.raises(Conflict, match="case 4711") as refused:
        tenant_delete(tenant=tenant, actor=ADMIN, now=utc_now())
    assert refused.value.extra["code"] == "held"
    release(tenant, hold)
    mark(tenant)
    Tenant.objects.filter(pk=tenant.pk).update(delete_after=utc_now() + timedelta(hours=1))
    hold = place(tenant, now=utc_now())
    Tenant.objects.filter(pk=tenant.pk).update(delete_after=utc_now() - timedelta(seconds=1))
    with pytest.raises(StepFailed):
        delete_step(conn)
    assert "legal hold" in Tenant.objects.get(pk=tenant.pk).delete_note
    release(tenant, hold)
    with pytest.raises(Conflict, match="being removed"):  # whoever waited for its row asks with a time of before
        place(tenant, now=utc_now() - timedelta(minutes=1))
    assert steps(conn)[-1].done
    assert not Tenant.objects.filter(pk=tenant.pk).exists()


def test_the_command(acme: Any, globex: Any) -> None:
    """Places, shows and releases; what it placed the tenant itself can't release."""
    assert run("legal_hold", "--tenant", "acme")[:2] == (0, "There is no legal hold.\n")
    job = str(make_job(acme))
    placing = ("legal_hold", "--tenant", "acme", "--place", "job", "--object", job, "--reason", "case 4711")
    assert (
        "would be placed" in run(*placing, "--dry-run")[1] and run("legal_hold", "--tenant", "acme")[1][:5] == "There"
    )
    code, out, _ = run(*placing, "--format", "json")
    hold = json.loads(out)
    assert code == 0 and hold["object_id"] == job and hold["by_operator"] is True
    with pytest.raises(Forbidden):
        hold_release(tenant=acme, actor=ADMIN, hold_id=UUID(hold["id"]), reason="mine", now=NOW)
    assert "case 4711" in run("legal_hold", "--tenant", "acme")[1]
    releasing = ("legal_hold", "--tenant", "acme", "--release", hold["id"])
    assert run(*releasing)[0] == 2
    assert run(*releasing, "--reason", "settled")[0] == 0
    assert run(*releasing, "--reason", "settled")[0] == 2
    assert "released" in run("legal_hold", "--tenant", "acme", "--all")[1]
    code, _, err = run("legal_hold", "--tenant", "globex", "--place", "job", "--object", job, "--reason", "x")
    assert code == 2 and "There is no such job" in err


def test_a_deleted_tenant_takes_its_archive_with_it(conn: Conn, new_tenant: Any, acme: Any, files: Store) -> None:
    """In steps, also when a process dies between them; what belongs to nobody is found."""
    tenant = new_tenant()
    for one in (tenant, acme):
        history(conn, one.schema_name, 5, letters=False)
        archive(conn, one, files)
    folder = f"{tenant.schema_name}-{tenant.pk}"
    assert files.files(folder) and files.files(f"{acme.schema_name}-{acme.pk}")
    mark(tenant)
    url, settings.ARCHIVE_URL = settings.ARCHIVE_URL, ""
    with pytest.raises(StepFailed, match="ARCHIVE_URL"):
        steps(conn)
    settings.ARCHIVE_URL = url
    done = steps(conn)
    assert [step.removed for step in done if not step.table and not step.done] == [1] and done[-1].done
    assert files.files(folder) == [] and files.folders() == [f"{acme.schema_name}-{acme.pk}"]
    with files.create("t_nobody-999999/x") as sink:
        sink.write(b"x")
    assert orphans(conn) == ["archive t_nobody-999999"]
