"""The tests' database: made by the owner's role, used as the application's role, shared by a whole run.

Tests commit for real (races and processes need it); rows are removed after each test that asked for the database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

# Rows that belong to the database itself; audit rows need their own way.
KEEP = {
    "django_migrations", "django_content_type", "auth_permission", "auth_group", "auth_group_permissions",
    "tenants_plan", "tenants_tenant", "tenants_domain",
    "due_shardlease", "audit_auditevent", "audit_seal", "audit_sealstate",
}  # fmt: skip
TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (n.nspname = 'public' OR n.nspname LIKE 't\\_%%') AND c.relname <> ALL(%s)
  AND c.relname NOT LIKE 'django_celery_beat%%'
ORDER BY 1, 2
"""
TRAIL = ("audit_auditevent", "audit_seal", "audit_sealstate")
EMPTIED = "ALTER TABLE {0} DISABLE TRIGGER USER; DELETE FROM {0}; ALTER TABLE {0} ENABLE TRIGGER USER"
FRESH_SEALER = (
    "UPDATE audit_sealstate SET step = 0, at_txid = 0, at_id = 0, late = '{}', rescan_id = NULL, total = 0, mac = '',"
    " wrapped = NULL, kek_id = ''"
)
REFERENCES = """
SELECT cn.nspname, c.relname, pn.nspname, p.relname FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace WHERE k.contype = 'f'
"""
AS_BEFORE = """
UPDATE due_shardlease SET owner = NULL, expires_at = '2000-01-01', taken_at = NULL, taken_from = NULL;
UPDATE tenants_tenant SET status = 'active', delete_after = NULL, dispatch_paused = false, signing_version = 0,
       event_types = '[]'
WHERE status <> 'active' OR dispatch_paused OR signing_version <> 0 OR event_types <> '[]'
"""
TENANTS = ("acme", "globex")
Table = tuple[str, str]  # schema and name
_kept: psycopg.Connection[Any] | None = None


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[None]:
    """Replaces pytest-django's: one database a process, with the tenants acme and globex."""
    from django.conf import settings
    from django.db import connection

    name = "test_" + os.environ.get("PYTEST_XDIST_WORKER", "main")
    owner_url = settings.MIGRATION_DATABASE_URL
    database_drop(name, application_url=settings.DATABASE_URL, owner_url=owner_url)
    with psycopg.connect(owner_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with django_db_blocker.unblock():
        connection.close()
        connection.settings_dict["NAME"] = name
        settings.DATABASE_URL = with_database(settings.DATABASE_URL, name)
        settings.MIGRATION_DATABASE_URL = with_database(owner_url, name)
        _migrate(connection)
    yield
    with django_db_blocker.unblock():
        connection.close()
    database_drop(name, application_url=os.environ["DATABASE_URL"], owner_url=owner_url)


def database_drop(name: str, *, application_url: str, owner_url: str) -> None:
    """Drops a database that sessions of both roles may still be in.

    Not WITH (FORCE): that refuses the owner, who may end neither the application's sessions nor an autovacuum that
    happens to be at work. Each role ends its own sessions; a plain drop ends autovacuum by itself and waits for it.
    """
    for url in (application_url, owner_url):
        with psycopg.connect(url, autocommit=True) as own:
            own.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = %s AND usename = current_user AND pid <> pg_backend_pid()",
                [name],
            )
    with psycopg.connect(owner_url, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def _migrate(connection: Any) -> None:
    from django.core.management import call_command

    from tenants import door
    from tenants.models import Plan
    from tenants.provisioning import tenant_create

    application = {key: connection.settings_dict[key] for key in ("USER", "PASSWORD")}
    door.become_owner()
    with open(os.devnull, "w") as nowhere:
        call_command("tenant_migrate", stdout=nowhere)
    plan = Plan.objects.create(name="standard")
    for slug in TENANTS:
        tenant_create(slug=slug, plan=plan, host=f"{slug}.localhost", network=["127.0.0.0/8", "::1/128"])
    connection.close()
    connection.settings_dict.update(application)


@pytest.fixture
def database(transactional_db: None, django_db_blocker: Any) -> Iterator[None]:
    """The database with committed data; emptied afterwards of all but tenants, plans and leases."""
    yield


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Replaces pytest-django's flush, which knows no tenant schemas: rows go, sequences stay, as the owner."""
    from django.db import connection

    with django_db_blocker.unblock():
        yield
        connection.close()
        clean()


@pytest.fixture
def db(transactional_db: None) -> None:
    """The same: nothing here relies on a transaction that is rolled back."""


def clean() -> None:
    """Removes what a test may have written, in all schemas, children before parents; leases are free again."""
    from apps.audit import personal
    from apps.schedules.loads import glance

    personal.forget()
    glance.forget()
    conn = _cleaner()
    filled = _filled(conn)
    if filled:
        deletes = [sql.SQL("DELETE FROM {}").format(sql.Identifier(*table)) for table in _children_first(conn, filled)]
        _script(conn, sql.SQL(";").join(deletes))
    written = [sql.Identifier(name) for name in ("audit_auditevent", "audit_seal") if _has_rows(conn, name)]
    trail = [sql.SQL(EMPTIED).format(table) for table in written] + ([sql.SQL(FRESH_SEALER)] if written else [])
    _script(conn, sql.SQL(";").join([*trail, sql.SQL(AS_BEFORE)]))


def _filled(conn: psycopg.Connection[Any]) -> list[Table]:
    """The tables that hold rows, in two round trips however many tables there are."""
    tables = tuple(conn.execute(TABLES, [sorted(KEEP)], prepare=True).fetchall())
    return [tables[number] for (number,) in conn.execute(_looks(tables), prepare=True)]


@lru_cache(maxsize=4)
def _looks(tables: tuple[Table, ...]) -> bytes:
    """A query for the numbers of those that hold rows; planned once as long as there are no others."""
    looks = [
        sql.SQL("SELECT {number} WHERE EXISTS (SELECT FROM {table})").format(
            number=sql.Literal(number), table=sql.Identifier(*table)
        )
        for number, table in enumerate(tables)
    ]
    return sql.SQL(" UNION ALL ").join(looks).as_bytes()


def _children_first(conn: psycopg.Connection[Any], tables: list[Table]) -> list[Table]:
    left = set(tables)
    refers: dict[Table, set[Table]] = {table: set() for table in tables}  # who refers to it
    for child, parent in _references(conn):
        if child in left and parent in left and child != parent:
            refers[parent].add(child)
    found: list[tuple[str, str]] = []
    while left:
        free = sorted(table for table in left if not refers[table] & left)
        assert free, f"tables refer to each other in a circle: {sorted(left)}"
        found += free
        left -= set(free)
    return found


def _references(conn: psycopg.Connection[Any]) -> list[tuple[Table, Table]]:
    return [((row[0], row[1]), (row[2], row[3])) for row in conn.execute(REFERENCES, prepare=True)]


def _script(conn: psycopg.Connection[Any], statements: sql.SQL | sql.Composed) -> None:
    """Several statements in one transaction and one round trip."""
    with conn.cursor() as cursor:
        cursor.execute(statements)


def _has_rows(conn: psycopg.Connection[Any], table: str) -> bool:
    row = conn.execute(sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(sql.Identifier(table))).fetchone()
    return bool(row and row[0])


def _cleaner() -> psycopg.Connection[Any]:
    """The owner's connection, kept for the whole run: a new one for each test costs more than the cleaning."""
    from tenants import door

    global _kept
    if _kept is None or _kept.closed or _kept.broken:
        _kept = door.connect("tests clean", owner=True, guarded=False)
        _kept.execute("SET plan_cache_mode = force_generic_plan")  # the same few statements, thousands of times
    return _kept


@contextmanager
def unguarded_trail(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """The owner may switch off what keeps rows of the trail from being changed; nobody else can."""
    for table in TRAIL:
        conn.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    try:
        yield
    finally:
        for table in TRAIL:
            conn.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


@pytest.fixture
def conn(database: None) -> Iterator[psycopg.Connection[Any]]:
    """A raw connection, autocommit, as the application."""
    from tenants import door

    with door.connect("test") as opened:
        yield opened


@pytest.fixture
def second(database: None) -> Iterator[psycopg.Connection[Any]]:
    """A second one, for races."""
    from tenants import door

    with door.connect("test second") as opened:
        yield opened


@pytest.fixture
def acme(database: None) -> Tenant:
    return _tenant("acme")


@pytest.fixture
def globex(database: None) -> Tenant:
    return _tenant("globex")


@pytest.fixture
def registry(database: None) -> Iterator[Registry]:
    """The tenants as the hot paths see them."""
    from tenants.door import Line
    from tenants.registry import Registry as Real

    line = Line("test registry")
    found = Real(line)
    found.refresh(force=True)
    yield found
    line.close()


@pytest.fixture
def process_env(database: None) -> dict[str, str]:
    """The environment of a real process that works on this test's database and broker."""
    from django.conf import settings

    root = str(settings.BASE_DIR)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "DATABASE_URL": settings.DATABASE_URL,
        "MIGRATION_DATABASE_URL": settings.MIGRATION_DATABASE_URL,
        "BROKER_URL": settings.BROKER_URL,
        "PYTHONPATH": f"{root}:{root}/platform",
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _tenant(slug: str) -> Tenant:
    from tenants.models import Tenant

    found: Tenant = Tenant.objects.select_related("plan").get(slug=slug)
    return found
