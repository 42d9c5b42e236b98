"""Which tenant schemas lack steps of this version, and which have steps that it does not know."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db.models.functions import Now
from psycopg import sql

from tenants import door, template
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
CHUNK = 400  # schemas a query and a connection: bounded locks, plans, and memory of the server's process


@dataclass(frozen=True, slots=True)
class Pending:
    """A tenant schema that lacks steps."""

    schema: str
    steps: tuple[template.Step, ...]


@dataclass(slots=True)
class Standing:
    """All schemas against this version."""

    schemas: int = 0
    behind: list[Pending] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)  # steps that only a newer version has, by how many schemas

    def missing(self) -> dict[str, list[str]]:
        """The schemas that lack each step, by the step's name, in the order of the steps."""
        found: dict[str, list[str]] = {label: [] for label in template.labels()}
        for one in self.behind:
            for step in one.steps:
                found[step.label].append(one.schema)
        return {label: schemas for label, schemas in found.items() if schemas}


def standing(only: Iterable[str] | None = None) -> Standing:
    """Looks at all tenant schemas, or at `only` these, CHUNK in a query; not at those whose grace is over."""
    chosen = Tenant.objects.exclude(delete_after__lte=Now()).order_by("id").values_list("schema_name", flat=True)
    known = list(chosen if only is None else chosen.filter(schema_name__in=list(only)))
    found = Standing(schemas=len(known))
    labels = set(template.labels())
    lacking: dict[frozenset[str], tuple[template.Step, ...]] = {}  # thousands of schemas lack the same
    for start in range(0, len(known), CHUNK):
        some = known[start : start + CHUNK]
        applied = _applied(some)
        for schema in some:
            done = applied.get(schema, frozenset())
            found.unknown.update(done - labels)
            if missing := frozenset(labels - done):
                if missing not in lacking:
                    lacking[missing] = tuple(step for step in template.steps() if step.label in missing)
                found.behind.append(Pending(schema, lacking[missing]))
    return found


def pending(only: Iterable[str] | None = None) -> list[Pending]:
    """The schemas that lack steps."""
    return standing(only).behind


def shared_pending(conn: Conn) -> list[str]:
    """Steps that the shared schema lacks; all of them in an empty database."""
    row = conn.execute("SELECT to_regclass('public.django_migrations')").fetchone()
    if row is None or row[0] is None:
        return list(template.shared_labels())
    done = {label for (label,) in conn.execute("SELECT app || '.' || name FROM public.django_migrations")}
    return [label for label in template.shared_labels() if label not in done]


def other_version(conn: Conn) -> int:
    """How many tenant schemas are not of this process's version, as the last run left them: older, or newer already."""
    row = conn.execute(
        "SELECT count(*) FROM public.tenants_tenant WHERE schema_version <> %s"
        " AND (delete_after IS NULL OR delete_after > clock_timestamp())",
        [template.version()],
    ).fetchone()
    return int(row[0]) if row else 0


def _applied(schemas: list[str]) -> dict[str, frozenset[str]]:
    """The steps that are recorded in each schema that there is."""
    while True:
        try:
            return _applied_once(schemas)
        except psycopg.errors.UndefinedTable:  # a tenant's deletion has dropped one in between
            continue


def _applied_once(schemas: list[str]) -> dict[str, frozenset[str]]:
    with door.connect("migrate look", owner=True, guarded=False) as conn:
        present = conn.execute(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'django_migrations' AND schemaname = ANY(%s)", [schemas]
        )
        selects = [
            sql.SQL("SELECT {name}, array_agg(app || '.' || name) FROM {schema}.django_migrations").format(
                name=sql.Literal(schema), schema=sql.Identifier(schema)
            )
            for (schema,) in present
        ]
        if not selects:
            return {}
        return {schema: frozenset(done or ()) for schema, done in conn.execute(sql.SQL(" UNION ALL ").join(selects))}
