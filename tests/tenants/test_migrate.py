"""Bringing all schemas up to date: one look at all of them, each whole or untouched, to be stopped at any time."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, cast

import psycopg
import pytest
from django.core.management import call_command

from apps.secrets.vault import Vault
from kernel.clock import utc_now
from tenants import door, provisioning, template
from tenants.models import Tenant
from tenants.provisioning import Pending
from tenants.registry import Registry
from tests.fixtures_flow import NOW, OneLine, at_once, count, owning
from tests.schedules.cases import case

Conn = psycopg.Connection[Any]
Make = Callable[..., Tenant]
EXTRA = template.Step("executions", "9999_extra", "CREATE TABLE extra_things (id int PRIMARY KEY, note text)")


@pytest.fixture
def owner(database: None) -> Iterator[Conn]:
    """A connection of the migrating role; this process works as the owner meanwhile."""
    with owning(), door.connect("test owner", owner=True, guarded=False) as opened:
        yield opened


@pytest.fixture
def extra(monkeypatch: pytest.MonkeyPatch, owner: Conn) -> Iterator[None]:
    """One more migration than all schemas have."""
    known = template.steps()
    monkeypatch.setattr(template, "steps", lambda: (*known, EXTRA))
    yield
    for (schema,) in owner.execute("SELECT schema_name FROM tenants_tenant").fetchall():
        owner.execute(f"DROP TABLE IF EXISTS {schema}.extra_things")
        owner.execute(f"DELETE FROM {schema}.django_migrations WHERE name = %s", [EXTRA.name])
    monkeypatch.undo()
    Tenant.objects.update(schema_version=template.version())


@pytest.fixture
def many(new_tenant: Make) -> list[Tenant]:
    return [new_tenant() for _ in range(4)]


def has_extra(owner: Conn, tenant: Tenant) -> bool:
    done = count(owner, f"SELECT count(*) FROM {tenant.schema_name}.django_migrations WHERE name = %s", EXTRA.name)
    there = count(
        owner, "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = 'extra_things'", tenant.schema_name
    )
    assert done == there, "a step is recorded exactly where it was done"
    return bool(done)


def lacking() -> set[str]:
    return {one.schema for one in provisioning.pending()}


def migrate(pending: list[Pending] | None = None, *, jobs: int = 4) -> tuple[int, dict[str, str]]:
    results: dict[str, str] = {}
    failed = provisioning.migrate(
        provisioning.pending() if pending is None else pending, jobs=jobs, report=results.__setitem__
    )
    return failed, results


def test_nothing_is_lacking_after_provisioning(owner: Conn, many: list[Tenant]) -> None:
    assert provisioning.pending() == []
    assert migrate() == (0, {})


def test_all_schemas_are_looked_at_in_one_query(
    owner: Conn, many: list[Tenant], extra: None, statements: list[str]
) -> None:
    assert {one.schema_name for one in many} <= lacking()
    assert sum("django_migrations" in one and "SELECT" in one and "app ||" in one for one in statements) == 1


def test_a_new_migration_reaches_all_schemas(owner: Conn, many: list[Tenant], extra: None) -> None:
    failed, results = migrate()
    assert failed == 0 and set(results.values()) == {"migrated"}
    assert all(has_extra(owner, tenant) for tenant in many)
    assert provisioning.pending() == []
    assert set(Tenant.objects.values_list("schema_version", flat=True)) == {template.version()}


def test_the_applications_role_may_use_what_was_added(owner: Conn, conn: Conn, many: list[Tenant], extra: None) -> None:
    migrate()
    schema = many[0].schema_name
    conn.execute(f"INSERT INTO {schema}.extra_things VALUES (1, 'x')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(f"DROP TABLE {schema}.extra_things")


def test_stopped_half_way_it_goes_on_with_the_rest(owner: Conn, many: list[Tenant], extra: None) -> None:
    """Case D15."""
    expected = case("tenancy.jsonl", "D15")["expected"]
    assert expected["report"].startswith("per-schema version table lists exactly")
    everything = provisioning.pending()
    migrate(everything[:2])
    done = {one.schema for one in everything[:2]}
    assert lacking() == {one.schema for one in everything} - done
    assert set(Tenant.objects.filter(schema_version=template.version()).values_list("schema_name", flat=True)) == done
    migrate()
    assert lacking() == set()


def test_a_schema_that_fails_is_untouched_and_stops_no_other(owner: Conn, many: list[Tenant], extra: None) -> None:
    bad = many[2]
    owner.execute(f"CREATE TABLE {bad.schema_name}.extra_things (id int)")
    failed, results = migrate()
    assert failed == 1
    assert results[bad.schema_name].startswith("failed: ") and "already exists" in results[bad.schema_name]
    assert all(has_extra(owner, tenant) for tenant in many if tenant != bad)
    assert lacking() == {bad.schema_name}
    owner.execute(f"DROP TABLE {bad.schema_name}.extra_things")
    assert migrate() == (0, {bad.schema_name: "migrated"})
    assert has_extra(owner, bad)


def test_two_runs_at_once_do_each_schema_once(owner: Conn, many: list[Tenant], extra: None) -> None:
    everything = provisioning.pending()
    both = at_once(partial(migrate, everything), partial(migrate, everything[::-1]))
    assert [failed for failed, _ in both] == [0, 0]
    assert all(has_extra(owner, tenant) for tenant in many)


@pytest.mark.parametrize("jobs", [0, 1, 16])
def test_any_number_of_schemas_at_a_time(owner: Conn, many: list[Tenant], extra: None, jobs: int) -> None:
    assert migrate(jobs=jobs)[0] == 0
    assert lacking() == set()


def test_a_schema_that_is_gone_is_made_again(owner: Conn, many: list[Tenant]) -> None:
    provisioning.schema_drop(many[0].schema_name)
    assert lacking() == {many[0].schema_name}
    assert migrate()[0] == 0
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = %s"
    assert count(owner, tables, many[0].schema_name) == count(owner, tables, many[1].schema_name)


def test_a_tenant_that_is_being_deleted_is_left_alone(owner: Conn, many: list[Tenant], extra: None) -> None:
    """Unless it may be kept: then it must be as the others are."""
    Tenant.objects.filter(pk=many[0].pk).update(status="deleting", delete_after=utc_now())
    Tenant.objects.filter(pk=many[1].pk).update(status="deleting", delete_after=utc_now() + timedelta(hours=1))
    assert many[0].schema_name not in lacking()
    assert many[1].schema_name in lacking()


def test_more_schemas_than_one_query_holds(
    owner: Conn, many: list[Tenant], extra: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "STATE_CHUNK", 2)
    assert {one.schema_name for one in many} <= lacking()
    migrate()
    assert lacking() == set()


# --- the command ---


def run(*args: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("tenant_migrate", *args, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_the_command_says_what_it_did(owner: Conn, many: list[Tenant], extra: None) -> None:
    schema = many[0].schema_name
    code, out = run("--dry-run", "--format", "json")
    assert code == 1
    assert json.loads(out)["pending"][schema] == ["executions.9999_extra"]
    assert not has_extra(owner, many[0]), "a dry run changes nothing"
    owner.execute(f"CREATE TABLE {schema}.extra_things (id int)")
    code, out = run("--format", "json", "--jobs", "2")
    answer = json.loads(out)
    assert (code, answer["failed"]) == (1, 1)
    assert answer["schemas"][many[1].schema_name] == "migrated"
    owner.execute(f"DROP TABLE {schema}.extra_things")
    assert run() == (0, f"{schema}: migrated\n")
    assert run() == (0, "All schemas are up to date.\n")
    assert run("--dry-run") == (0, "All schemas are up to date.\n")


def test_a_signing_secret_in_plain_text_is_encrypted(owner: Conn, new_tenant: Make) -> None:
    """As an installation from before apps.secrets has it: the column filled, the tables missing."""
    tenant, text = new_tenant(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    schema = tenant.schema_name
    owner.execute(f"DROP TABLE {schema}.secrets_secret, {schema}.secrets_datakey")
    owner.execute(f"DELETE FROM {schema}.django_migrations WHERE app = 'secrets'")
    owner.execute("UPDATE tenants_tenant SET signing_secret = %s WHERE id = %s", [text, tenant.pk])
    assert lacking() == {schema}
    assert migrate()[0] == 0 and not lacking()
    (row,) = owner.execute("SELECT signing_secret, signing_version FROM tenants_tenant WHERE id = %s", [tenant.pk])
    assert row == ("", 1)
    with door.connect("test application") as conn:  # whose role needs its grants on the new tables
        registry = Registry(cast("Any", OneLine(conn)))
        registry.refresh(force=True)
        found = registry.get(tenant.pk)
        assert found is not None
        assert Vault().signing(conn, found, now=NOW) == (text,)
