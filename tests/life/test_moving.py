"""A tenant in one file, and from it again in another installation: a second database with keys and names of its own."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from apps.audit.services import Actor
from apps.life import importing, tables
from apps.life.exporting import tenant_export
from apps.life.importing import tenant_abandon, tenant_import
from apps.life.suspending import tenant_resume, tenant_suspend
from apps.secrets.services import secret_create
from apps.secrets.signing import signing_rotate
from kernel.clock import utc_now
from kernel.errors import Conflict
from kernel.parcel import Damaged, NotWritten, PassphraseWrong
from kernel.parcel_writing import Writer
from tenants import deletion, door, template
from tenants.keys import apikey_create, apikey_find
from tenants.models import Plan, Tenant
from tenants.people import member_add
from tests.fixtures_db import _cleaner, database_drop, with_database
from tests.fixtures_flow import (
    MINUTE,
    OneLine,
    actor,
    assert_exactly_one_outcome,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    owning,
    remove_tenant,
    run_to_the_end,
    settle_as,
    started_now,
    ticket_of,
)
from tests.tenants.test_commands import run

Conn = psycopg.Connection[Any]
Make = Callable[..., Tenant]
OPERATOR = Actor(name="test:operator", role="admin")
PASSPHRASE = "correct horse battery"
WORKER = UUID(int=9)


def everything(conn: Conn, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a schema as texts, but for what is of one installation: keys, and numbers of transactions."""
    found = {}
    for table in tables.order():
        names = [one.name for one in tables.columns(conn, schema, table) if one.name not in ("tx", "cursor_tx")]
        shown = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
        query = sql.SQL("SELECT {} FROM {} ORDER BY 1, 2").format(shown, sql.Identifier(schema, table))
        found[table] = conn.execute(query).fetchall()
    return found


@pytest.fixture
def elsewhere(database: None, settings: Any) -> Iterator[Callable[[], Any]]:
    """`with elsewhere(): ...` is in another installation: another database, other keys, another number of shards."""
    name = f"{connection.settings_dict['NAME']}_elsewhere"
    here = {key: getattr(settings, key) for key in ("DATABASE_URL", "MIGRATION_DATABASE_URL", "SECRETS_KEYS", "SHARDS")}
    there = {
        "DATABASE_URL": with_database(here["DATABASE_URL"], name), "SHARDS": 16,
        "MIGRATION_DATABASE_URL": with_database(here["MIGRATION_DATABASE_URL"], name),
        "SECRETS_KEYS": "other:" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU=",
    }  # fmt: skip

    @contextmanager
    def going() -> Iterator[None]:
        was = connection.settings_dict["NAME"]
        connection.close()
        connection.settings_dict["NAME"] = name
        for key, value in there.items():
            setattr(settings, key, value)
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = was
            for key, value in here.items():
                setattr(settings, key, value)

    urls = {"application_url": here["DATABASE_URL"], "owner_url": here["MIGRATION_DATABASE_URL"]}
    database_drop(name, **urls)
    mine = connection.settings_dict["NAME"]
    _cleaner().close()
    connection.close()  # a database that somebody uses can't be copied, so tests ask for this fixture first
    with psycopg.connect(with_database(here["MIGRATION_DATABASE_URL"], "postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(mine)))
    yield going
    database_drop(name, **urls)


@pytest.fixture
def full(new_tenant: Make, conn: Conn, registry: Any) -> Tenant:
    """A tenant with something everywhere: what ended, what died, what waits, what is delayed; now it is suspended."""
    now = utc_now()
    tenant = new_tenant("mover")
    registry.refresh(force=True)
    signing_rotate(tenant=tenant, actor=OPERATOR, now=now)
    secret_create(tenant=tenant, actor=OPERATOR, name="TOKEN", value="s3cret, äöü", now=now)
    job = make_job(tenant, now=now, retry={"max_attempts": 2})
    make_schedule(tenant, job, now=now - 3 * MINUTE)
    fire_all(conn, registry, now=now)
    run_to_the_end(conn, registry, [tenant])
    [dead, again] = started_now(conn, [make_ticket(tenant, job, now=now), make_ticket(tenant, job, now=now)], WORKER)
    settle_as(conn, registry, [dead], "failed", retryable=False)
    settle_as(conn, registry, [again], "failed")
    make_ticket(tenant, job, now=now, delay_s=3600, payload={"text": "tab\t, line\n, \\N and 'quotes' äöü"})
    member_add(
        tenant=tenant,
        actor=actor(tenant),
        email="ada@a.test",
        role="admin",
        name="Ada",
        now=now,
        password="long enough 7",
    )
    tenant_suspend(tenant=tenant, actor=OPERATOR, now=now)
    tenant.refresh_from_db()
    return tenant


def export(tenant: Tenant, path: Path, **more: Any) -> Any:
    given = {"passphrase": PASSPHRASE, "access": True, **more}
    return tenant_export(tenant=tenant, path=path, actor=OPERATOR, now=utc_now(), **given)


def take_in(path: Path, slug: str = "mover", **more: Any) -> Any:
    given = {"passphrase": PASSPHRASE, **more}
    with owning():
        return tenant_import(
            path=path, plan=Plan.objects.get(name="standard"), slug=slug, host=f"{slug}.test", actor=OPERATOR,
            now=utc_now(), **given,
        )  # fmt: skip


def test_a_tenant_moves_with_all_that_it_is(
    elsewhere: Any, full: Tenant, tmp_path: Path, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows under the same ids; what waited waits, nothing is owed, secrets and keys work on."""
    path = tmp_path / "mover.zip"
    _, key = apikey_create(tenant=full, name="k")
    with door.connect("here") as conn:

        def time_passes(table: str, rows: int) -> None:
            if table == "executions_execution":  # what had ended is written: now a delayed run becomes due, and skips
                assert fire_all(conn, registry, now=utc_now() + timedelta(hours=2)) == 1

        done = export(full, path, report=time_passes)
        before = everything(conn, full.schema_name)
        waiting = [ticket_of(conn, one["id"]) for one in executions_of(conn, full) if one["finished_at"] is None]
    assert path.stat().st_mode & 0o077 == 0, "nobody else may read it"
    assert done.rows["executions_execution"] == len(before["executions_execution"]) > 4
    assert b"s3cret" not in path.read_bytes() and b"ada@a.test" not in path.read_bytes()
    monkeypatch.setattr(importing, "CHUNK", 3)
    with elsewhere():
        loads: list[str] = []

        def dies(table: str, rows: int) -> None:
            loads.append(table)
            if table == "executions_attempt" and loads.count(table) < 3:
                raise ConnectionError("killed")

        with pytest.raises(ConnectionError):
            take_in(path, report=dies)
        assert Tenant.objects.get(slug="mover").status == "provisioning"
        with pytest.raises(Conflict):
            take_in(path, slug="globex")
        assert "import has not come to its end: mover" in run("tenant_check")[1]
        rehearsed = run("tenant_import", "--abandon", "--tenant", "mover", "--dry-run")
        assert rehearsed == (0, "mover could be taken back.\n", "")
        with door.connect("there") as conn:
            kept = "SELECT 1 FROM tenants_tenant JOIN pg_namespace ON nspname = schema_name WHERE slug = 'mover'"
            assert conn.execute(kept).fetchall() == [(1,)], "a rehearsal takes nothing away"
        assert run("tenant_import", "--abandon", "--slug", "globex", "--dry-run")[0] == 2
        assert run("tenant_import", "--abandon", "--slug", "mover") == (0, "mover was taken back.\n", "")
        assert run("tenant_import", "--abandon", "--slug", "globex")[0] == run("tenant_import")[0] == 2
        with pytest.raises(ConnectionError):
            take_in(path, report=dies)
        again = take_in(path, report=dies)
        assert again.resumed
        there = Tenant.objects.select_related("plan").get(slug="mover")
        with door.connect("there") as conn:
            assert everything(conn, there.schema_name) == before
            registry = type(registry)(OneLine(conn))
            registry.refresh(force=True)
            assert (there.status, registry.by_id[there.pk].suspended) == ("suspended", True)
            for one in filter(None, waiting):
                ticket = ticket_of(conn, one["execution_id"])
                anew = dict.fromkeys(("tenant_id", "fence", "release", "queued_at"))
                assert {**ticket, **anew} == {**one, **anew}
            assert _value(conn, registry, there) == "s3cret, äöü"
            found = apikey_find(key, now=utc_now())
            assert found is not None and found.tenant == there
            ada = there.members.get(email="ada@a.test")
            assert ada.user.check_password("long enough 7") and ada.role == "admin"
            count = len(executions_of(conn, there))
            later = utc_now() + timedelta(hours=5)
            assert fire_all(conn, registry, now=later) == 0, "nothing is owed for the time on the way"
            tenant_resume(tenant=there, actor=OPERATOR, now=later)
            registry.refresh(force=True)
            assert fire_all(conn, registry, now=later + MINUTE) == 1
            new = [one for one in executions_of(conn, there) if one["schedule_id"]][-2:]
            assert [one["state"] for one in new] == ["skipped", "ready"] and new[0]["count"] > 250
            run_to_the_end(conn, registry, [there])
            assert len(executions_of(conn, there)) == count + 1
            for one in filter(None, waiting):
                assert_exactly_one_outcome(conn, there, one["run_key"], state="succeeded")
            make_job(there)  # numbers that tables give go on
        trail = [row.action for row in _trail(there)]
        assert trail[0] == "tenant.import" and "tenant.resume" in trail


def _value(conn: Conn, registry: Any, tenant: Tenant) -> str:
    from apps.secrets.vault import Vault

    vault, tenancy = Vault(), registry.by_id[tenant.pk]
    assert vault.signing(conn, tenancy, now=utc_now())
    return vault.values(conn, tenancy, ["TOKEN"], now=utc_now()).values["TOKEN"]


def _trail(tenant: Tenant) -> Any:
    from apps.audit.models import AuditEvent

    return AuditEvent.objects.filter(tenant_id=tenant.pk).order_by("pk")


def test_what_can_not_be_is_told_and_leaves_nothing(
    full: Tenant, tmp_path: Path, conn: Conn, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mover.zip"
    export(full, path, passphrase="", access=False)
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 't\\_mover%'"
    with pytest.raises(Conflict, match="still in this installation"):
        take_in(path, slug="mover-2")
    assert conn.execute(schemas).fetchone() == (1,)
    with pytest.raises(Conflict, match="another slug"):
        take_in(path)
    tenant_resume(tenant=full, actor=OPERATOR, now=utc_now())
    with pytest.raises(Conflict, match="Suspend"):
        export(full, path)
    runs = started_now(conn, [make_ticket(full, now=utc_now())], WORKER)
    tenant_suspend(tenant=full, actor=OPERATOR, now=utc_now())
    with pytest.raises(Conflict, match="running"):
        export(full, path)
    settle_as(conn, registry, runs)
    with pytest.raises(PassphraseWrong):
        export(full, path, passphrase="short")
    with pytest.raises(Conflict):
        tenant_abandon(full)
    assert not list(tmp_path.glob("*.part"))
    (part := tmp_path / "left.zip.part").write_text("of a killed process")
    part.chmod(0o644)
    with Writer(tmp_path / "left.zip") as first:
        assert part.stat().st_mode & 0o077 == 0 and b"killed" not in part.read_bytes()
        with pytest.raises(NotWritten, match="another process"):
            Writer(tmp_path / "left.zip")
        first.finish({})
    where = {"no folder": tmp_path / "none" / "x.zip", "is a folder": tmp_path, "full": tmp_path / "full.zip"}

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_room)
    for what, to in where.items():
        code, out, err = run("tenant_export", "--tenant", "mover", "--to", str(to), "--force", "--without-history")
        assert (code, out) == (2, "") and f"{to} can't be written: " in err, what
    assert not list(tmp_path.glob("*.part")) and not (tmp_path / "full.zip").exists()


def test_definitions_alone_come_without_history_and_without_debt(
    elsewhere: Any, full: Tenant, tmp_path: Path, registry: Any
) -> None:
    """By the commands. The tenant goes on meanwhile; values of secrets are left out and named."""
    path, words = tmp_path / "mover.zip", ("--without-history", "--format", "json")
    tenant_resume(tenant=full, actor=OPERATOR, now=utc_now())
    assert run("tenant_export", "--tenant", "mover", "--to", str(path), "--dry-run")[0] == 2, "it does not stand still"
    assert run("tenant_export", "--tenant", "mover", "--to", str(path), "--dry-run", *words)[0] == 0
    assert not path.exists()
    code, _, err = run("tenant_export", "--tenant", "mover", "--to", str(path), *words)
    assert code == 0 and "schedules_job: 1" in err
    assert run("tenant_export", "--tenant", "mover", "--to", str(path))[0] == 2, "it is there already"
    assert run("tenant_export", "--tenant", "mover", "--to", str(path), "--force", "--with-access")[0] == 2
    with elsewhere():
        code, out, _ = run("tenant_import", str(path), "--dry-run")
        assert code == 0 and "schedules_schedule: 1 rows" in out and "It could be imported as mover." in out
        for more, why in ((("--plan", "no such"), "There is no plan"), (("--slug", "globex"), "There is a tenant")):
            code, out, _ = run("tenant_import", str(path), "--dry-run", *more)
            assert code == 1 and f"It would be refused: {why}" in out
        assert run("tenant_import", str(path), "--plan", "no such")[0] == 2
        code, out, _ = run("tenant_import", str(path), "--slug", "copy", "--host", "copy.test")
        assert code == 0 and "TOKEN" in out and "tenant_resume" in out
        there = Tenant.objects.select_related("plan").get(slug="copy")
        with door.connect("there") as conn:
            known = type(registry)(OneLine(conn))
            known.refresh(force=True)
            assert executions_of(conn, there) == []
            assert fire_all(conn, known, now=utc_now() + 9 * MINUTE) == 0
            assert {one["state"] for one in executions_of(conn, there)} == {"skipped"}


JOB = ("id", "name", "kind", "version", "revision", "paused_reason", "labels", "created_at", "updated_at")
ENTRY = (
    "key", "shard", "kind", "tenant_id", "due_at", "nominal_at", "version", "spec", "job_id", "job_version", "pool",
    "queue", "priority", "timeout_s", "own_payload", "followed", "parked",
)  # fmt: skip
AT, ID = "2026-01-01 00:00:00+00", "01a22c7a-08f3-73d0-b82c-182d129d407b"
A_JOB = (ID, "a job", "http", "1", "1", "", "{}", AT, AT)
AN_ENTRY = (ID, "9999", "schedule", "1", AT, AT, "1", "{}", ID, "1", "http", "http.own.globex", "5", "60", "f", "f", "")


def by_hand(path: Path, given: dict[str, tuple[Any, Any]], *, version: str = "", **more: Any) -> Path:
    with Writer(path) as writer:
        for name, (columns, rows) in given.items():
            writer.table(name, columns, rows)
        about = {"slug": "made", "exported_at": AT, "network": ["127.0.0.0/8"], "event_types": [7, "x"]}
        writer.finish(about | {"schema_version": version or template.version()} | more)
    return path


@pytest.mark.parametrize(
    ("table", "columns", "rows", "says"),
    [
        ("schedules_job", JOB, [("no id", *A_JOB[1:])], "invalid input syntax"),
        ("schedules_job", JOB, [A_JOB, A_JOB], "duplicate key"),
        ("schedules_job", JOB, [(ID, "x" * 301, *A_JOB[2:])], "too long"),
        ("schedules_job", JOB, [(ID, "x", "rocket", *A_JOB[3:])], "job_kind_is_known"),
        ("schedules_job", (*JOB, "more"), [(*A_JOB, "x")], "newer version"),
        ("schedules_job", JOB[:-1], [A_JOB[:-1]], "older version"),
        ("tenants_tenant", ("id",), [("1",)], "no tables that are known here"),
        ("audit_auditevent", ("id",), [("1",)], "no tables that are known here"),
        ("due_dueentry", tuple(one for one in ENTRY if one != "tenant_id"), [], "lacks tenant_id"),
        ("due_dueentry", ENTRY, [(*AN_ENTRY[:10], "nowhere", *AN_ENTRY[11:])], "no pool"),
        ("tickets_ticket", ("execution_id", "tenant_id", "state", "pool"), [], "lacks"),
    ],
)
def test_a_file_that_was_made_by_hand_takes_nothing_from_anybody(
    conn: Conn, acme: Tenant, tmp_path: Path, table: str, columns: Any, rows: Any, says: str
) -> None:
    """What the database refuses takes all of it back."""
    path = by_hand(tmp_path / "made.zip", {table: (columns, rows)})
    with pytest.raises(Damaged, match=says):
        take_in(path, slug="made", passphrase="")
    assert not Tenant.objects.filter(slug="made").exists()
    assert conn.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 't_made'").fetchone() == (0,)


def test_rows_of_a_file_are_its_tenants_alone(conn: Conn, acme: Tenant, globex: Tenant, tmp_path: Path) -> None:
    """Whatever tenant, shard and queue they name; what it may call is the operator's to say."""
    with pytest.raises(Damaged, match="same one"):
        take_in(by_hand(tmp_path / "old.zip", {}, version="an older one"), slug="made", passphrase="")
    path = by_hand(tmp_path / "made.zip", {"schedules_job": (JOB, [A_JOB]), "due_dueentry": (ENTRY, [AN_ENTRY])})
    try:
        done = take_in(path, slug="made", passphrase="")
        [row] = conn.execute("SELECT tenant_id, shard < 64, queue FROM due_dueentry").fetchall()
        assert row == (done.tenant.pk, True, "http.own.made")
        assert (done.tenant.network, done.tenant.event_types, done.tenant.status) == ([], ["x"], "suspended")
        assert any("127.0.0.0/8" in one for one in done.notes)
    finally:
        with owning():
            for one in Tenant.objects.filter(slug="made"):
                conn.execute("DELETE FROM tenants_suspension WHERE tenant_id = %s", [one.pk])
                remove_tenant(one)


def test_what_a_file_says_of_itself_is_only_text(conn: Conn, acme: Tenant, tmp_path: Path) -> None:
    """It neither speaks to a terminal, nor ends the import half-way, nor reaches into times to come."""
    path = by_hand(
        tmp_path / "made.zip", {}, name="\x1b[2J\x00a\nglobex: fine", left_out=["a"], whole_from="9999-12-31T00:00:00Z"
    )
    code, out, _ = run("tenant_import", str(path), "--plan", "standard", "--dry-run")
    assert code == 0 and "\x1b" not in out and "\nglobex" not in out and "name: \\u001b[2J" in out
    old = by_hand(tmp_path / "old.zip", {}, version="old", shardbeat="\x1b[2J")
    code, out, _ = run("tenant_import", str(old), "--plan", "standard", "--dry-run")
    assert code == 1 and "\x1b" not in out and "another version" in out
    code, _, err = run("tenant_import", str(old), "--plan", "standard")
    assert code == 2 and "\x1b" not in err and "another version" in err
    try:
        made = take_in(path, slug="made", passphrase="").tenant
        assert made.name == "\\u001b[2J\\u0000a\\nglobex: fine"
        assert conn.execute(f"SELECT before <= now() FROM {made.schema_name}.archive_forgotten").fetchone() == (True,)
    finally:
        with owning():
            for one in Tenant.objects.filter(slug="made"):
                conn.execute("DELETE FROM tenants_suspension WHERE tenant_id = %s", [one.pk])
                remove_tenant(one)


def test_every_table_is_named(conn: Conn) -> None:
    """Whoever adds a table says what becomes of it when its tenant moves."""
    mine = {row[0] for row in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 't_acme'")}
    said = "apps/life/tables.py says of each table what becomes of it when its tenant moves"
    assert (
        mine - {"django_migrations"} == tables.HISTORY | tables.DEFINITIONS | {tables.SECRETS} | tables.STAYS.keys()
    ), said
    shared = {row[0] for row in conn.execute(deletion.TABLES)}
    assert shared == tables.LIVE.keys() | tables.STAYS_SHARED.keys(), said
