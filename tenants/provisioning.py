"""Creating, migrating and dropping tenant schemas. Needs the migrating role (`door.connect(owner=True)`)."""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from psycopg import sql

from kernel.addressrules import read_rules
from kernel.errors import Conflict, FieldError, InvalidInput
from tenants import door, template
from tenants.models import SLUG_PATTERN, Domain, Plan, Tenant
from tenants.queues import queue_name

STATE_CHUNK = 400  # schemas per UNION ALL: bounded locks and plan size
RESERVED_SLUGS = {"public", "www", "api", "admin", "static", "localhost", "shardbeat"}


@dataclass(frozen=True, slots=True)
class Pending:
    """A tenant schema that lacks steps."""

    schema: str
    steps: tuple[template.Step, ...]


def tenant_create(
    *, slug: str, name: str = "", plan: Plan, host: str, network: Iterable[str] = ()
) -> Tenant:  # fmt: skip
    """Makes the tenant with its schema and domain in one transaction.

    InvalidInput for a slug or network that can't be one; Conflict when the slug or host is taken.
    """
    check_slug(slug)
    check_network(network := tuple(network))
    schema = _free_schema(slug)
    try:
        with transaction.atomic():
            tenant = Tenant(
                slug=slug, name=name or slug, plan=plan, schema_name=schema, status=Tenant.Status.ACTIVE,
                network=list(network), schema_version=template.version(),
            )  # fmt: skip
            tenant.save(force_insert=True)
            Domain.objects.create(tenant=tenant, domain=host, is_primary=True)
            schema_create(schema)
    except (ValidationError, IntegrityError, psycopg.errors.DuplicateSchema) as error:
        raise Conflict(f"There is already a tenant {slug!r}, its schema {schema!r} or a domain {host!r}.") from error
    return tenant


def _free_schema(slug: str) -> str:
    """A tenant that was given another slug keeps its schema's name: who has the slug after it gets the next one."""
    plain = "t_" + slug.replace("-", "_")
    taken = set(Tenant.objects.filter(schema_name__startswith=plain).values_list("schema_name", flat=True))
    if plain not in taken or Tenant.objects.filter(slug=slug).exists():
        return plain
    return next(name for number in count(2) if (name := f"{plain}_{number}") not in taken)


def check_slug(slug: str) -> None:
    """InvalidInput when the slug can't be one."""
    if not re.fullmatch(SLUG_PATTERN.removesuffix("$"), slug) or slug in RESERVED_SLUGS or "--" in slug:
        detail = "Use 1 to 40 of a-z, 0-9 and single '-', beginning with a letter; some names are reserved."
        raise InvalidInput([FieldError("/slug", "invalid_slug", detail)], detail=detail)


def check_network(network: tuple[str, ...]) -> None:
    """InvalidInput when an entry is no rule of `kernel.addressrules`: each call of the tenant would fail on it."""
    for number, cidr in enumerate(network):
        try:
            read_rules((cidr,))
        except ValueError as error:
            detail = f"{cidr!r} is no network; give one as 10.0.0.0/8, fd00::/8 or 10.0.0.7/32 25."
            raise InvalidInput([FieldError(f"/network/{number}", "invalid_network", detail)], detail=detail) from error


def schema_create(schema: str) -> None:
    """Makes a tenant schema from the template, in Django's current transaction, in one round trip."""
    conn = door.raw()
    statement = sql.SQL(
        "SET LOCAL search_path TO {schema}; CREATE SCHEMA {schema};\n{body}\n{grants}; SET LOCAL search_path TO public"
    ).format(schema=sql.Identifier(schema), body=sql.SQL(template.create_sql()), grants=grants_sql(schema))
    with conn.cursor() as cursor:
        cursor.execute(statement)
    tables = conn.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", [schema]).fetchone()
    if not tables or tables[0] != template.table_count():  # case D17: what is called ready must be usable
        raise Conflict(f"The template did not make all tables in {schema!r}.")


def schema_drop(schema: str) -> None:
    """Drops a tenant schema with everything in it."""
    door.raw().execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def grants_sql(schema: str) -> sql.Composed:
    """What the application's role may do in a schema: rows yes, definitions no."""
    role = sql.Identifier(door.application_role() or "public")
    return sql.SQL(
        "GRANT USAGE ON SCHEMA {schema} TO {role};"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
        "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    ).format(schema=sql.Identifier(schema), role=role)


def grant_shared() -> None:
    """Grants on the shared schema. Rows of the trail and its seals can only be added, the sealer's row only changed."""
    conn = door.raw()
    role = sql.Identifier(door.application_role())
    taken = sql.SQL(
        ";REVOKE UPDATE, DELETE, TRUNCATE ON audit_auditevent, audit_seal FROM {role};"
        "REVOKE INSERT, DELETE, TRUNCATE ON audit_sealstate FROM {role}"
    ).format(role=role)
    with conn.cursor() as cursor:  # several statements at once are one transaction: nothing is granted in between
        cursor.execute(grants_sql("public") + (taken if conn.info.user != door.application_role() else sql.SQL("")))


def pending() -> list[Pending]:
    """Tenant schemas that lack steps, from one look at all of them (a query per STATE_CHUNK schemas)."""
    conn = door.connect("migrate", owner=True, guarded=False)
    with conn:
        known = list(Tenant.objects.exclude(delete_after__lte=Now()).values_list("schema_name", flat=True))
        existing = {
            row[0]
            for row in conn.execute(
                "SELECT schemaname FROM pg_tables WHERE tablename = 'django_migrations' AND schemaname = ANY(%s)",
                [known],
            )
        }
        applied: dict[str, set[str]] = {schema: set() for schema in known}
        present = sorted(existing)
        for start in range(0, len(present), STATE_CHUNK):
            selects = [
                sql.SQL("SELECT {name}, app || '.' || name FROM {schema}.django_migrations").format(
                    name=sql.Literal(schema), schema=sql.Identifier(schema)
                )
                for schema in present[start : start + STATE_CHUNK]
            ]
            for schema, step in conn.execute(sql.SQL(" UNION ALL ").join(selects)):
                applied[schema].add(step)
    everything = template.steps()
    lacking = []
    for schema in known:
        missing = tuple(step for step in everything if f"{step.app}.{step.name}" not in applied[schema])
        if missing:
            lacking.append(Pending(schema, missing))
    return lacking


def migrate(schemas: list[Pending], *, jobs: int, report: Callable[[str, str], None]) -> int:
    """Brings schemas up to date, `jobs` at a time, each in a transaction of its own; returns how many failed.

    May be stopped and run again at any time: a schema is either done or untouched.
    """
    failed = 0
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as threads:
        for schema, error in threads.map(_migrate_one, schemas):
            failed += bool(error)
            report(schema, error or "migrated")
    return failed


def _migrate_one(pending_schema: Pending) -> tuple[str, str]:
    schema = pending_schema.schema
    is_new = len(pending_schema.steps) == len(template.steps())  # steps that hold Python have nothing to do there
    if not is_new and any(step.sql is None for step in pending_schema.steps):
        return schema, _migrate_with_django(schema)
    try:
        with door.connect("migrate", owner=True, guarded=False) as conn, conn.transaction():
            conn.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [schema])  # two runs of the command at once
            conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
            done = _applied(conn, schema)
            left = tuple(step for step in pending_schema.steps if f"{step.app}.{step.name}" not in done)
            with conn.cursor() as cursor:
                cursor.execute(sql.SQL(template.apply_sql(left)))
                cursor.execute(grants_sql(schema))
    except Exception as error:  # one schema's fault must not stop the others
        return schema, f"failed: {error}"
    Tenant.objects.filter(schema_name=schema).update(schema_version=template.version())
    return schema, ""


def _applied(conn: "psycopg.Connection[Any]", schema: str) -> set[str]:
    row = conn.execute("SELECT to_regclass(%s)", [f"{schema}.django_migrations"]).fetchone()
    if row is None or row[0] is None:
        conn.execute(template.MIGRATIONS_TABLE)
        return set()
    return {row[0] for row in conn.execute("SELECT app || '.' || name FROM django_migrations")}


def _migrate_with_django(schema: str) -> str:
    from django.core.management import call_command

    try:
        call_command("migrate_schemas", schema_name=schema, interactive=False, verbosity=0)
        with door.connect("migrate", owner=True, guarded=False) as conn, conn.cursor() as cursor:
            cursor.execute(grants_sql(schema))
    except Exception as error:  # one schema's fault must not stop the others
        return f"failed: {error}"
    Tenant.objects.filter(schema_name=schema).update(schema_version=template.version())
    return ""


def queue_for(tenant: Tenant, pool: str) -> str:
    """The Celery queue of a tenant in a pool."""
    group = tenant.worker_group or tenant.plan.worker_group
    return queue_name(pool=pool, tenant_id=tenant.pk, slug=tenant.slug, own=tenant.has_own_queue, group=group)
