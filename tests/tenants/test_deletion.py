"""Deleting tenants: at once to the eye, undone within the grace, resumed by anybody, and nothing is left (D12, D14)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

import psycopg
import pytest
from django.db import DatabaseError

from apps.audit.services import Actor
from apps.dispatch.deletion import DeletionService
from kernel.clock import utc_now
from kernel.errors import Conflict, InvalidInput
from tenants import deletion, door
from tenants.deletion import Step, delete_step, orphans, stuck, tenant_delete, tenant_undelete
from tenants.door import Line
from tenants.keys import apikey_create
from tenants.models import ApiKey, Domain, Tenant
from tenants.registry import Registry
from tests.fixtures_flow import OneLine, at_once, count, make_job, make_schedule, make_ticket, owning
from tests.schedules.cases import case
from tests.tenants.test_commands import run

Conn = psycopg.Connection[Any]
Make = Callable[..., Tenant]
OPERATOR = Actor(name="test:operator", role="admin")


@pytest.fixture
def doomed(new_tenant: Make) -> Tenant:
    """A tenant with rows in all kinds of places, marked, its grace over."""
    tenant = new_tenant()
    fill(tenant)
    mark(tenant)
    return tenant


def fill(tenant: Tenant) -> None:
    job = make_job(tenant)
    make_schedule(tenant, job)
    make_ticket(tenant, job)
    apikey_create(tenant=tenant, name="some key")
    door.raw().execute(
        "INSERT INTO api_idempotentanswer (tenant_id, key, fingerprint, status, headers, body, created_at)"
        " VALUES (%s, 'k', 'f', 201, '{}', '{}', now())",
        [tenant.pk],
    )


def mark(tenant: Tenant) -> None:
    """As if it had been marked long ago."""
    tenant_delete(tenant=tenant, actor=OPERATOR, now=utc_now(), reason="asked by the customer")
    Tenant.objects.filter(pk=tenant.pk).update(delete_after=utc_now() - timedelta(seconds=1))


def steps(conn: Conn) -> list[Step]:
    found = []
    while (step := delete_step(conn)) is not None:
        found.append(step)
    return found


def left(conn: Conn, tenant: Tenant) -> list[str]:
    """Where something of the tenant still is; the trail is meant to stay."""
    tables = conn.execute(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'tenant_id'"
    ).fetchall()
    found = [
        name for (name,) in tables
        if not name.startswith("audit_") and count(conn, f"SELECT count(*) FROM {name} WHERE tenant_id = %s", tenant.pk)
    ]  # fmt: skip
    if count(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", tenant.schema_name):
        found.append(tenant.schema_name)
    if count(conn, "SELECT count(*) FROM tenants_tenant WHERE id = %s", tenant.pk):
        found.append("tenant")
    return found


def test_deleted_is_deleted(doomed: Tenant, conn: Conn, acme: Tenant) -> None:
    """Case D12. The application's role does it all."""
    expected = case("tenancy.jsonl", "D12")["expected"]
    fill(acme)
    assert {"due_dueentry", "tickets_ticket", "tenants_apikey", "tenants_domain", "api_idempotentanswer"} <= set(
        left(conn, doomed)
    )
    done = steps(conn)
    assert done[-1].done and not any(step.done for step in done[:-1])
    assert left(conn, doomed) == []
    assert (expected["schemas_left"], expected["schedules_left"], expected["files_left"]) == (0, 0, 0)
    assert {"due_dueentry", "tickets_ticket", acme.schema_name} <= set(left(conn, acme)), "nobody else's"
    trail = conn.execute("SELECT action FROM audit_auditevent WHERE tenant_id = %s ORDER BY id", [doomed.pk]).fetchall()
    assert trail[-2:] == [("tenant.delete",), ("tenant.deleted",)] and len(trail) > 2, "the trail of its life stays"


def test_its_people_go_with_it_and_an_operator_stays(doomed: Tenant, conn: Conn, acme: Tenant) -> None:
    from django.contrib.auth.models import User

    from apps.signin.models import Identity
    from tenants.invitations import reset_create
    from tenants.models import Member
    from tenants.people import member_make
    from tenants.work import database_now

    def make(tenant: Tenant) -> Member:
        return member_make(tenant=tenant, email="ada@a.test", role="admin", name="Ada", password=None)

    mine, other, now = make(doomed), make(acme), database_now()
    reset_create(tenant=doomed, actor=Actor("test", "admin", doomed.pk), member_uid=mine.uid, now=now)
    Identity.objects.create(member=mine, tenant=doomed, issuer="https://x.test", subject="s", created_at=now)
    operator = User.objects.create_user("member-of-staff", is_staff=True)
    Member.objects.create(tenant=doomed, user=operator, role="viewer")
    assert steps(conn)[-1].done and left(conn, doomed) == []
    assert set(User.objects.values_list("pk", flat=True)) == {other.user_id, operator.pk}


def test_a_large_tenant_goes_in_steps(doomed: Tenant, conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "BATCH", 2)
    for number in range(5):
        apikey_create(tenant=doomed, name=f"key {number}")
    done = [step for step in steps(conn) if step.table == "tenants_apikey"]
    assert [step.removed for step in done] == [2, 2, 2]
    assert left(conn, doomed) == []


def test_a_killed_process_costs_nothing_and_asking_again_resumes(doomed: Tenant, conn: Conn) -> None:
    """Case D14: killed after each step in turn; another goes on, and whoever asks again is told how far it is."""
    expected = case("tenancy.jsonl", "D14")["expected"]
    assert "resumes" in expected["second"]
    while True:
        again = Tenant.objects.filter(pk=doomed.pk).first()
        if again is None:
            break
        asked = tenant_delete(tenant=again, actor=OPERATOR, now=utc_now())
        assert asked.status == "deleting" and asked.delete_after == again.delete_after
        with door.connect("killed") as killed:
            delete_step(killed)
            with killed.transaction(force_rollback=True):  # dies in the middle of the next one
                delete_step(killed)
    assert left(conn, doomed) == []


def test_two_dispatchers_at_once(doomed: Tenant, conn: Conn, second: Conn) -> None:
    done: list[Step] = []
    at_once(*[partial(lambda own: done.extend(steps(own)), one) for one in (conn, second)])
    assert sum(step.done for step in done) <= 1
    done += steps(conn)
    assert sum(step.done for step in done) == 1 and left(conn, doomed) == []


def test_nothing_fires_from_the_mark_on(new_tenant: Make, registry: Registry, conn: Conn) -> None:
    tenant = new_tenant()
    make_schedule(tenant, make_job(tenant))
    tenant_delete(tenant=tenant, actor=OPERATOR, now=utc_now())
    registry.refresh(force=True)
    seen = registry.get(tenant.pk)
    assert seen is not None and seen.suspended and not seen.active
    assert "tenant" in left(conn, tenant) and delete_step(conn) is None, "within the grace nothing is removed"


def test_it_can_be_undone_within_the_grace(new_tenant: Make, conn: Conn) -> None:
    tenant = new_tenant()
    tenant_delete(tenant=tenant, actor=OPERATOR, now=utc_now())
    kept = tenant_undelete(tenant=tenant, actor=OPERATOR, now=utc_now(), reason="a mistake")
    assert (kept.status, kept.delete_after) == ("suspended", None)
    with pytest.raises(Conflict):
        tenant_undelete(tenant=tenant, actor=OPERATOR, now=utc_now())
    mark(tenant)
    with pytest.raises(Conflict):  # whoever waited for its row asks with a time of before
        tenant_undelete(tenant=tenant, actor=OPERATOR, now=utc_now() - timedelta(minutes=1))


@pytest.mark.parametrize("grace", [timedelta(0), timedelta(seconds=59), timedelta(days=366), timedelta(-1)])
def test_a_grace_has_bounds(acme: Tenant, grace: timedelta) -> None:
    with pytest.raises(InvalidInput):
        tenant_delete(tenant=acme, actor=OPERATOR, now=utc_now(), grace=grace)


@pytest.mark.parametrize("how", ["instance", "queryset", "sql", "truncate"])
def test_there_is_no_other_way(new_tenant: Make, conn: Conn, how: str) -> None:
    """Case D12: each way that would leave the schema behind is refused as a whole, also for the owner."""
    tenant = new_tenant()
    fill(tenant)
    before = left(conn, tenant)
    ways: dict[str, Callable[[], object]] = {
        "instance": tenant.delete,
        "queryset": Tenant.objects.filter(pk=tenant.pk).delete,
        "sql": lambda: door.raw().execute("DELETE FROM tenants_tenant WHERE id = %s", [tenant.pk]),
        "truncate": lambda: door.raw().execute("TRUNCATE tenants_tenant CASCADE"),
    }
    with owning(), pytest.raises((DatabaseError, psycopg.Error), match="tenant_delete"):
        ways[how]()
    assert left(conn, tenant) == before


def test_a_schema_is_dropped_only_for_a_tenant_whose_grace_is_over(new_tenant: Make, conn: Conn) -> None:
    tenant = new_tenant()
    for status, after in (("active", None), ("deleting", utc_now() + timedelta(hours=1))):
        Tenant.objects.filter(pk=tenant.pk).update(status=status, delete_after=after)
        with pytest.raises(psycopg.errors.RestrictViolation):
            conn.execute("SELECT tenants_schema_drop(%s)", [tenant.pk])
    Tenant.objects.filter(pk=tenant.pk).update(delete_after=utc_now(), schema_name="public")
    with pytest.raises(psycopg.errors.RestrictViolation):
        conn.execute("SELECT tenants_schema_drop(%s)", [tenant.pk])
    Tenant.objects.filter(pk=tenant.pk).update(schema_name=tenant.schema_name)


def test_one_that_can_not_be_deleted_says_why_and_holds_up_nobody(
    doomed: Tenant, new_tenant: Make, conn: Conn, second: Conn
) -> None:
    other = new_tenant()
    mark(other)
    service = DeletionService(cast(Line, OneLine(conn)))
    with second.transaction(force_rollback=True):  # somebody reads its history for longer than a lock is waited for
        second.execute(f"SELECT count(*) FROM {doomed.schema_name}.executions_execution")
        counts = service.run_once().counts
        assert (counts["deleted"], counts["delete_failed"]) == (1, 1)
        assert left(conn, other) == []
        note = Tenant.objects.get(pk=doomed.pk).delete_note
        assert "lock" in note
        Tenant.objects.filter(pk=doomed.pk).update(delete_after=utc_now() - timedelta(minutes=16))
        assert [(slug, why) for slug, _, why in stuck(conn)] == [(doomed.slug, note)]
        code, out, _ = run("tenant_check", "--format", "json")
        assert code == 1 and [one["slug"] for one in json.loads(out)["stuck"]] == [doomed.slug]
    assert case("tenancy.jsonl", "D14")["expected"]["stuck_alert_after_min"] == deletion.STUCK_AFTER.seconds / 60
    assert service.run_once().counts["deleted"] == 1 and left(conn, doomed) == []


def test_a_slug_is_free_again_and_old_messages_start_nothing(doomed: Tenant, conn: Conn, new_tenant: Make) -> None:
    steps(conn)
    again = new_tenant(doomed.slug)
    assert again.pk != doomed.pk
    assert "tickets_ticket" not in left(conn, again)
    assert not ApiKey.objects.filter(tenant=again).exists()
    assert Domain.objects.filter(tenant=again).count() == 1


def test_what_belongs_to_nobody_is_found(conn: Conn, database: None) -> None:
    assert orphans(conn) == []
    with owning():
        door.raw().execute("CREATE SCHEMA t_nobody")
    try:
        door.raw().execute(
            "INSERT INTO api_idempotentanswer (tenant_id, key, fingerprint, status, headers, body, created_at)"
            " VALUES (0, 'k', 'f', 201, '{}', '{}', now())"
        )
        assert orphans(conn) == ["schema t_nobody", "rows of api_idempotentanswer"]
        assert run("tenant_check")[0] == 1
    finally:
        with owning():
            door.raw().execute("DROP SCHEMA t_nobody")


def test_the_command(new_tenant: Make) -> None:
    tenant = new_tenant()
    assert "would stop" in run("tenant_delete", tenant.slug, "--dry-run")[1]
    assert Tenant.objects.get(pk=tenant.pk).status == "active"
    code, out, _ = run("tenant_delete", tenant.slug, "--grace-s", "3600", "--format", "json", "--reason", "gone")
    assert code == 0 and json.loads(out)["status"] == "deleting"
    assert run("tenant_suspend", tenant.slug, "--dry-run")[0] == 2, "a rehearsal refuses what would be refused"
    assert run("tenant_delete", "--tenant", tenant.slug, "--undo", "--dry-run")[1].endswith("kept, suspended.\n")
    assert run("tenant_delete", tenant.slug, "--dry-run")[1].startswith(f"{tenant.slug} has stopped")
    assert Tenant.objects.get(pk=tenant.pk).status == "deleting"
    assert run("tenant_delete", tenant.slug, "--undo")[0] == 0
    assert Tenant.objects.get(pk=tenant.pk).status == "suspended"
    for rehearsed in ((), ("--dry-run",)):
        assert run("tenant_delete", tenant.slug, "--undo", *rehearsed)[0] == 2
        assert run("tenant_delete", tenant.slug, "--grace-s", "1", *rehearsed)[0] == 2
    assert run("tenant_delete", "nobody")[0] == 2
