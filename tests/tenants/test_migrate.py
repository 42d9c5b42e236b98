"""Bringing all schemas up to date: one look at all, each step whole or not at all, to be stopped at any time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, cast

import psycopg
import pytest
from django.db import migrations
from django.db.migrations.state import ProjectState

from apps.secrets.vault import Vault
from kernel.clock import utc_now
from kernel.errors import Conflict
from tenants import behind, door, migrating, migrating_one, migrating_shared, provisioning, template
from tenants.behind import Pending, pending
from tenants.migrating import Rules, Tally
from tenants.migrating_one import Result
from tenants.models import Tenant
from tenants.registry import Registry
from tests.commands import run_command
from tests.conftest import wait_until
from tests.fixtures_flow import NOW, OneLine, at_once, count, owning
from tests.next_version import names_of
from tests.schedules.cases import case

Conn = psycopg.Connection[Any]
Make = Callable[..., Tenant]
CREATE = "CREATE TABLE extra_things (id int PRIMARY KEY, note text)"
NAME = "9999_extra"
AT_ONCE = Rules(lock_timeout_ms=100, retry_for_s=0)  # what is locked is not tried again


def step(*parts: str | template.Code, atomic: bool = True) -> template.Step:
    return template.Step("executions", NAME, parts, atomic)


@pytest.fixture
def owner(database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conn]:
    """A connection of the migrating role; this process works as the owner meanwhile."""
    monkeypatch.setattr(migrating, "PAUSE_S", 0.05)
    monkeypatch.setattr(migrating_shared, "PAUSE_S", 0.05)
    with owning(), door.connect("test owner", owner=True, guarded=False) as opened:
        yield opened


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch, owner: Conn) -> Iterator[Callable[[template.Step], None]]:
    """Adds a migration that no schema has."""
    known = template.steps

    def added(new: template.Step) -> None:
        monkeypatch.setattr(template, "steps", known)  # without what was added before
        for name, answer in names_of(new).items():
            monkeypatch.setattr(template, name, answer)

    yield added
    for (schema,) in owner.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 't\\_%'").fetchall():
        owner.execute(f"DROP TABLE IF EXISTS {schema}.extra_things; DROP INDEX IF EXISTS {schema}.extra_index")
        owner.execute(f"DELETE FROM {schema}.django_migrations WHERE name = %s", [NAME])
    monkeypatch.undo()
    Tenant.objects.update(schema_version=template.version())


@pytest.fixture
def extra(add: Callable[[template.Step], None]) -> None:
    """One more migration than all schemas have."""
    add(step(CREATE))


@pytest.fixture
def many(new_tenant: Make) -> list[Tenant]:
    return [new_tenant() for _ in range(4)]


def has_extra(owner: Conn, tenant: Tenant) -> bool:
    done = count(owner, f"SELECT count(*) FROM {tenant.schema_name}.django_migrations WHERE name = %s", NAME)
    there = count(
        owner, "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = 'extra_things'", tenant.schema_name
    )
    assert done == there, "a step is recorded exactly where it was done"
    return bool(done)


def lacking() -> set[str]:
    return {one.schema for one in pending()}


def migrate(schemas: list[Pending] | None = None, **rules: Any) -> tuple[Tally, dict[str, Result]]:
    results: dict[str, Result] = {}
    tally = migrating.migrate(
        pending() if schemas is None else schemas,
        rules=Rules(**rules), report=lambda one: results.__setitem__(one.schema, one),
    )  # fmt: skip
    return tally, results


def test_nothing_is_lacking_after_provisioning(owner: Conn, many: list[Tenant]) -> None:
    assert pending() == []
    assert migrate() == (Tally(), {})


def test_all_schemas_are_looked_at_in_one_query(
    owner: Conn, many: list[Tenant], extra: None, statements: list[str]
) -> None:
    assert {one.schema_name for one in many} <= lacking()
    assert sum("django_migrations" in one and "SELECT" in one and "app ||" in one for one in statements) == 1


def test_a_new_migration_reaches_all_schemas(owner: Conn, many: list[Tenant], extra: None) -> None:
    tally, results = migrate()
    assert tally.whole and tally.migrated == len(results) and {one.state for one in results.values()} == {"migrated"}
    assert all(has_extra(owner, tenant) for tenant in many)
    assert pending() == []
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
    everything = pending()
    migrate(everything[:2])
    done = {one.schema for one in everything[:2]}
    assert lacking() == {one.schema for one in everything} - done
    assert set(Tenant.objects.filter(schema_version=template.version()).values_list("schema_name", flat=True)) == done
    migrate()
    assert lacking() == set()


def test_a_schema_that_fails_is_untouched_and_stops_no_other(owner: Conn, many: list[Tenant], extra: None) -> None:
    bad = many[2]
    owner.execute(f"CREATE TABLE {bad.schema_name}.extra_things (id int)")
    tally, results = migrate()
    assert (tally.failed, tally.left) == (1, 0)
    found = results[bad.schema_name]
    assert (found.state, found.step) == ("failed", f"executions.{NAME}") and "already exists" in found.reason
    assert all(has_extra(owner, tenant) for tenant in many if tenant != bad)
    assert lacking() == {bad.schema_name}
    owner.execute(f"DROP TABLE {bad.schema_name}.extra_things")
    assert migrate() == (Tally(migrated=1), {bad.schema_name: Result(bad.schema_name, "migrated")})
    assert has_extra(owner, bad)


def test_steps_before_the_one_that_fails_stay_done(owner: Conn, many: list[Tenant], add: Any) -> None:
    add(step(CREATE))
    one = next(one for one in pending() if one.schema == many[0].schema_name)
    broken = template.Step("executions", "9999_more", ("SELECT nonsense",))
    _, results = migrate([Pending(one.schema, (*one.steps, broken))])
    assert (results[one.schema].state, results[one.schema].step) == ("failed", "executions.9999_more")
    assert has_extra(owner, many[0])


def test_what_breaks_the_first_schemas_reaches_no_other(owner: Conn, many: list[Tenant], add: Any) -> None:
    add(step(CREATE, "SELECT nonsense"))
    everything = len(pending())
    assert migrate(canary=2)[0] == Tally(failed=2, left=everything - 2)
    assert migrate(stop_after=1, jobs=1)[0] == Tally(failed=1, left=everything - 1)
    add(step(CREATE))
    assert migrate(canary=2)[0] == Tally(migrated=everything)


def test_two_runs_at_once_do_each_schema_once(owner: Conn, many: list[Tenant], extra: None) -> None:
    everything = pending()
    both = at_once(partial(migrate, everything), partial(migrate, everything[::-1]))
    assert all(tally.whole for tally, _ in both)
    assert all(has_extra(owner, tenant) for tenant in many)


@pytest.mark.parametrize("jobs", [0, 1, 16])
def test_any_number_of_schemas_at_a_time(
    owner: Conn, many: list[Tenant], extra: None, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "CONNECTION_SCHEMAS", 2)
    assert migrate(jobs=jobs)[0].whole
    assert lacking() == set()


# --- what is in use ---


def test_a_table_in_use_is_not_waited_for(owner: Conn, second: Conn, many: list[Tenant], add: Any) -> None:
    """A reader that stays would else keep all later users of the table waiting behind the change of it."""
    schema = many[1].schema_name
    add(step("ALTER TABLE executions_execution ADD COLUMN extra int", CREATE))
    with second.transaction():
        second.execute(f"SELECT count(*) FROM {schema}.executions_execution")
        tally, results = migrate(lock_timeout_ms=100, retry_for_s=0)
        assert (tally.later, tally.migrated) == (1, len(results) - 1), "the others are done"
        found = results[schema]
        assert found.state == "later" and "lock timeout" in found.reason and "shardbeat test second" in found.reason
        assert not has_extra(owner, many[1])
    assert migrate(lock_timeout_ms=100, retry_for_s=0)[0] == Tally(migrated=1)
    for (each,) in owner.execute("SELECT schema_name FROM tenants_tenant").fetchall():
        owner.execute(f"ALTER TABLE {each}.executions_execution DROP COLUMN extra")


def test_it_is_tried_again_until_it_is_free(
    owner: Conn, second: Conn, many: list[Tenant], add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, tries, real = many[1].schema_name, list[Result](), migrating.schema_migrate
    add(step(CREATE, "LOCK TABLE executions_execution"))
    second.execute("BEGIN")
    second.execute(f"SELECT count(*) FROM {schema}.executions_execution")

    def watched(one: Pending, *, lock_timeout_ms: int) -> Result:
        result = real(one, lock_timeout_ms=lock_timeout_ms)
        if result.state == "later":
            tries.append(result)
            second.execute("ROLLBACK")
        return result

    monkeypatch.setattr(migrating, "schema_migrate", watched)
    tally, results = migrate(lock_timeout_ms=100, jobs=2)
    assert tally.whole and [one.schema for one in tries] == [schema]
    assert results[schema].state == "migrated" and has_extra(owner, many[1])


def test_a_lost_connection_costs_one_try(owner: Conn, many: list[Tenant], add: Any) -> None:
    add(step(CREATE, "SELECT pg_terminate_backend(pg_backend_pid())"))
    everything = pending()
    tally, results = migrate(lock_timeout_ms=100, retry_for_s=0, jobs=1)
    assert tally == Tally(later=len(everything)) and "connection was lost" in results[many[0].schema_name].reason
    add(step(CREATE))
    assert migrate()[0] == Tally(migrated=len(everything))


def test_the_shared_schema_waits_its_turn(owner: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    said, real, tries = list[str](), migrating_shared._once, iter((True, True))

    def locked_at_first(lock_timeout_ms: int) -> None:
        if next(tries, False):
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
        real(lock_timeout_ms)

    monkeypatch.setattr(migrating_shared, "_once", locked_at_first)
    monkeypatch.setattr(migrating_shared, "shared_pending", lambda _: ["tenants.9999_new"])
    migrating_shared.shared_migrate(lock_timeout_ms=100, retry_for_s=30, say=said.append)
    assert len(said) == 2 and "lock timeout" in said[0]
    tries = iter([True] * 99)
    with pytest.raises(Conflict, match="run it again"):
        migrating_shared.shared_migrate(lock_timeout_ms=100, retry_for_s=0, say=said.append)


def test_kill_9_leaves_each_schema_done_or_untouched(
    owner: Conn, many: list[Tenant], add: Any, process_env: dict[str, str]
) -> None:
    """The command as a process, killed while it waits for a table: what it did stays, the next run does the rest."""
    both = f"{CREATE}; LOCK TABLE executions_execution"
    add(step(both))
    command = [
        sys.executable,
        "-m",
        "tests.next_version",
        NAME,
        both,
        "--",
        "--jobs",
        "1",
        "--lock-timeout-ms",
        "60000",
    ]
    waits = (
        "SELECT coalesce(min(pid), 0) FROM pg_stat_activity"
        " WHERE usename = current_user AND datname = current_database() AND wait_event_type = 'Lock'"
    )
    with door.connect("test reader", guarded=False) as reader, reader.transaction():
        reader.execute(f"SELECT count(*) FROM {many[1].schema_name}.executions_execution")
        child = subprocess.Popen(command, env=process_env)
        try:
            pid = wait_until(lambda: count(owner, waits), "the command to come to the table")
        finally:
            child.kill()
            child.wait()
    gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
    wait_until(lambda: count(owner, gone, pid), "the server to notice")
    assert has_extra(owner, many[0]) and not has_extra(owner, many[3])
    assert has_extra(owner, many[1]) == (many[1].schema_name not in lacking())
    assert migrate()[0].whole
    assert all(has_extra(owner, tenant) for tenant in many) and lacking() == set()


# --- what steps may hold ---


def test_a_step_may_hold_sql_and_python(owner: Conn, new_tenant: Make, many: list[Tenant], add: Any) -> None:
    """In an old schema both run, in one transaction; a new one has no rows that the Python could be for."""

    def fill(apps: Any, editor: Any) -> None:
        with editor.connection.cursor() as cursor:
            cursor.execute("INSERT INTO extra_things SELECT 1, current_schema()")

    python = template.Code("executions", ((migrations.RunPython(fill), ProjectState(), ProjectState()),))
    add(step(CREATE, python, "ALTER TABLE extra_things ADD COLUMN more int"))
    assert migrate()[0].whole
    schema = many[0].schema_name
    assert owner.execute(f"SELECT * FROM {schema}.extra_things").fetchall() == [(1, schema, None)]
    fresh = new_tenant().schema_name
    assert owner.execute(f"SELECT * FROM {fresh}.extra_things").fetchall() == []


def test_an_index_is_made_while_others_write(
    owner: Conn, second: Conn, many: list[Tenant], add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an interrupted try leaves behind is half an index, which is made anew."""
    monkeypatch.setattr(migrating_one, "INDEX_LOCK_TIMEOUT_MS", 100)
    schema = many[1].schema_name
    add(step('CREATE INDEX CONCURRENTLY "extra_index" ON "executions_execution" ("state")', atomic=False))
    valid = (
        "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname = 'extra_index'"
        " AND c.relnamespace = %s::regnamespace AND i.indisvalid = %s"
    )
    with second.transaction():
        second.execute(f"UPDATE {schema}.executions_execution SET state = state")
        tally, _ = migrate(retry_for_s=0)
        assert tally.later == 1
        assert count(owner, valid, schema, False) == 1
    assert migrate()[0] == Tally(migrated=1)
    assert count(owner, valid, schema, True) == 1 and count(owner, valid, schema, False) == 0
    assert "CONCURRENTLY" not in template.create_sql(), "nobody waits for an empty table"


def test_a_schema_that_is_gone_is_made_again(owner: Conn, many: list[Tenant]) -> None:
    provisioning.schema_drop(many[0].schema_name)
    assert lacking() == {many[0].schema_name}
    assert migrate()[0] == Tally(migrated=1)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = %s"
    assert count(owner, tables, many[0].schema_name) == count(owner, tables, many[1].schema_name)


def test_a_tenant_that_is_being_deleted_is_left_alone(owner: Conn, many: list[Tenant], extra: None) -> None:
    """Unless it may be kept: then it must be as the others are."""
    Tenant.objects.filter(pk=many[0].pk).update(status="deleting", delete_after=utc_now())
    Tenant.objects.filter(pk=many[1].pk).update(status="deleting", delete_after=utc_now() + timedelta(hours=1))
    assert many[0].schema_name not in lacking()
    assert many[1].schema_name in lacking()
    everything = pending()
    provisioning.schema_drop(many[1].schema_name)
    Tenant.objects.filter(pk=many[1].pk).update(delete_after=utc_now())
    migrate(everything)
    assert not count(owner, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", many[1].schema_name), "it is gone"


def test_more_schemas_than_one_query_holds(
    owner: Conn, many: list[Tenant], extra: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "CHUNK", 2)
    assert {one.schema_name for one in many} <= lacking()
    migrate()
    assert lacking() == set()


# --- the command ---


def run(*args: str) -> tuple[int, str]:
    return run_command("tenant_migrate", *args)[:2]


def test_the_command_says_what_it_did(owner: Conn, many: list[Tenant], extra: None) -> None:
    schema = many[0].schema_name
    code, out = run("--dry-run", "--format", "json")
    assert code == 1
    assert json.loads(out)["pending"][schema] == ["executions.9999_extra"]
    assert not has_extra(owner, many[0]), "a dry run changes nothing"
    assert run("--tenant", many[3].slug, "--format", "json")[0] == 0
    assert has_extra(owner, many[3]) and not has_extra(owner, many[1]), "only the one that was named"
    owner.execute(f"CREATE TABLE {schema}.extra_things (id int)")
    code, out = run("--format", "json", "--jobs", "2")
    answer = json.loads(out)
    assert (code, answer["failed"], answer["locked"], answer["left"]) == (1, 1, 0, 0)
    [found] = answer["behind"]
    assert (found["schema"], found["state"], found["step"]) == (schema, "failed", "executions.9999_extra")
    total = Tenant.objects.count()
    owner.execute(f"INSERT INTO {many[1].schema_name}.django_migrations (app, name, applied) VALUES ('x', 'y', now())")
    code, out = run("--status")
    assert code == 1
    assert out.splitlines() == [
        f"{total:,} tenant schemas: {total - 1:,} up to date, 1 behind.",
        f"executions.9999_extra is missing in 1: {schema}",
        "x.y is in 1; this version does not know it.",
    ]
    owner.execute(f"DROP TABLE {schema}.extra_things")
    code, out = run()
    assert code == 0 and out.startswith("1 migrated, 0 behind, in ")
    assert run() == (0, "All schemas are up to date.\n")
    assert run("--dry-run") == (0, "All schemas are up to date.\n")
    assert run("--tenant", "nobody")[0] == 2
    assert run("--lock-timeout-ms", "0")[0] == 2


def test_a_signing_secret_in_plain_text_is_encrypted(owner: Conn, new_tenant: Make) -> None:
    """As an installation from before apps.secrets has it: the column filled, the tables missing."""
    tenant, text = new_tenant(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    schema = tenant.schema_name
    owner.execute(f"DROP TABLE {schema}.secrets_secret, {schema}.secrets_datakey")
    owner.execute(f"DELETE FROM {schema}.django_migrations WHERE app = 'secrets'")
    owner.execute("UPDATE tenants_tenant SET signing_secret = %s WHERE id = %s", [text, tenant.pk])
    assert lacking() == {schema}
    assert migrate()[0].whole and not lacking()
    (row,) = owner.execute("SELECT signing_secret, signing_version FROM tenants_tenant WHERE id = %s", [tenant.pk])
    assert row == ("", 1)
    with door.connect("test application") as conn:  # whose role needs its grants on the new tables
        registry = Registry(cast("Any", OneLine(conn)))
        registry.refresh(force=True)
        found = registry.get(tenant.pk)
        assert found is not None
        assert Vault().signing(conn, found, now=NOW) == (text,)
