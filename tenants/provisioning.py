"""Creating and dropping tenant schemas. Needs the migrating role (`door.connect(owner=True)`)."""

import re
from collections.abc import Iterable
from itertools import count

import psycopg
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from psycopg import sql

from kernel.addressrules import read_rules
from kernel.errors import Conflict, FieldError, InvalidInput
from tenants import door, template
from tenants.models import SLUG_PATTERN, Domain, Plan, Tenant
from tenants.queues import queue_name

MISSING_TABLES = (
    "SELECT count(*) FROM unnest(%s::text[]) AS name WHERE to_regclass(format('%%I.%%I', %s, name)) IS NULL"
)
RESERVED_SLUGS = {"public", "www", "api", "admin", "static", "localhost", "shardbeat"}


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
        "CREATE SCHEMA {schema};{grants};SET LOCAL search_path TO {schema};\n{body}\nSET LOCAL search_path TO public"
    ).format(schema=sql.Identifier(schema), body=sql.SQL(template.create_sql()), grants=grants_sql(schema))
    with conn.cursor() as cursor:
        cursor.execute(statement)
    row = conn.execute(MISSING_TABLES, [template.tables(), schema]).fetchone()
    if row is None or row[0]:  # case D17: what is called ready must be usable
        raise Conflict(f"The template did not make all tables in {schema!r}.")


def schema_drop(schema: str) -> None:
    """Drops a tenant schema with everything in it."""
    door.raw().execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def grants_sql(schema: str) -> sql.Composed:
    """What the application's role may do with all that is made in a schema from now on: rows yes, definitions no.

    Not granted ON ALL TABLES of it: that reads the catalogue of all tenants.
    """
    role = sql.Identifier(door.application_role() or "public")
    return sql.SQL(
        "GRANT USAGE ON SCHEMA {schema} TO {role};"
        "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};"
        "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE, SELECT ON SEQUENCES TO {role}"
    ).format(schema=sql.Identifier(schema), role=role)


def grant_shared() -> None:
    """Grants on the shared schema. Rows of the trail and its seals can only be added, the sealer's row only changed."""
    conn = door.raw()
    role = sql.Identifier(door.application_role())
    given = sql.SQL(
        "GRANT USAGE ON SCHEMA public TO {role};"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};"
        "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}"
    ).format(role=role)
    taken = sql.SQL(
        ";REVOKE UPDATE, DELETE, TRUNCATE ON audit_auditevent, audit_seal FROM {role};"
        "REVOKE INSERT, DELETE, TRUNCATE ON audit_sealstate FROM {role}"
    ).format(role=role)
    with conn.cursor() as cursor:  # several statements at once are one transaction: nothing is granted in between
        cursor.execute(given + (taken if conn.info.user != door.application_role() else sql.SQL("")))


def host_for(slug: str) -> str:
    """The host of a tenant that is given none."""
    return f"{slug}.{settings.TENANT_DOMAIN}"


def queue_for(tenant: Tenant, pool: str) -> str:
    """The Celery queue of a tenant in a pool."""
    group = tenant.worker_group or tenant.plan.worker_group
    return queue_name(pool=pool, tenant_id=tenant.pk, slug=tenant.slug, own=tenant.has_own_queue, group=group)
