"""What of a tenant goes into a file, table by table, and what stays where it is.

A table that is named nowhere here fails a test: whoever adds one says what becomes of it when its tenant moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db.models import ForeignKey, Model
from psycopg import sql

from tenants import template

Conn = psycopg.Connection[Any]

# Of the tenant's schema. Left out by --without-history:
HISTORY = frozenset({
    "executions_execution", "executions_attempt", "executions_erasure", "deadletters_deadletter", "events_event",
    "workflows_run", "workflows_steprun", "workflows_dependency", "operations_operation", "operations_item",
})  # fmt: skip
DEFINITIONS = frozenset({
    "schedules_job", "schedules_jobversion", "schedules_schedule", "schedules_scheduleversion", "schedules_calendar",
    "webhooks_webhook", "archive_legalhold", "archive_forgotten",
})  # fmt: skip
SECRETS = "secrets_secret"  # by value, sealed with the passphrase
STAYS = {
    "secrets_datakey": "each installation has its own keys",
    "archive_archivebatch": "archived rows are in files of this installation",
}

LATE = "__late"  # names the second part of a table, which was read when nothing of it changed any more

# Of these people are told when a tenant has some.
TOLD = ("archive_archivebatch", "signin_provider", "tenants_invitation")

# Of the shared schema, the tenant's rows. What of them only means something where they are is set anew.
LIVE = {
    "due_dueentry": "key", "tickets_ticket": "execution_id", "tickets_pullqueue": "name", "tickets_bucket": "owner",
    "tenants_suspension": "began_at",
}  # fmt: skip
LIVE_HISTORY = frozenset({"tickets_ticket"})  # without history there is nothing that they are of
OWN_IDS = frozenset({"tickets_pullqueue", "tenants_suspension"})  # ids that are given anew
PEOPLE, KEYS = "people", "api_keys"  # with --with-access, sealed
STAYS_SHARED = {
    "tenants_domain": "hosts are given when it is imported",
    "tenants_dispatchpause": "what operators hold back there is theirs to say",
    "tenants_member": "with --with-access",
    "tenants_apikey": "with --with-access",
    "tenants_invitation": "invite again",
    "signin_provider": "its address is registered at the provider: set it up again",
    "signin_identity": "people sign in again",
    "due_eventbell": "rung when it is imported",
    "due_dueoperation": "operations have ended before",
    "due_forecastchange": "what is expected is found out anew",
    "due_operationoutline": "operations have ended before",
    "tickets_breaker": "what is called from there is found out anew",
    "tickets_hold": "what is held back is found out anew",
    "tickets_consumer": "who asks for work there is found out anew",
    "usage_archivestanding": "archived rows are in files of this installation",
    "usage_rollup": "usage is counted where it was",
    "usage_failure": "usage is counted where it was",
    "usage_failurecause": "usage is counted where it was",
    "console_assignment": "operators there see to its failures",
    "usage_notice": "usage is counted where it was",
    "usage_daycount": "usage is counted where it was",
    "api_idempotentanswer": "requests that are sent again there are new ones",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the database has it."""

    name: str
    required: bool  # a row without it can't be


def order() -> list[str]:
    """The tables of a tenant's schema that go into a file, those that others refer to first."""
    models, found = template.models(), list[str]()

    def visit(model: type[Model]) -> None:
        table = model._meta.db_table
        if table in found or model not in models:
            return
        for one in model._meta.concrete_fields:
            if isinstance(one, ForeignKey) and one.related_model is not model:
                visit(one.related_model)
        found.append(table)

    for model in models:
        visit(model)
    return [table for table in found if table not in STAYS and table != SECRETS]


def key_of(table: str) -> tuple[str, ...]:
    """The columns by which a tenant's table is read in order."""
    model = next(one for one in template.models() if one._meta.db_table == table)
    fields = getattr(model._meta.pk, "fields", None) or (model._meta.pk,)
    return tuple(str(one.column) for one in fields)


def columns(conn: Conn, schema: str, table: str) -> list[Column]:
    """The columns of a table, in their order."""
    rows = conn.execute(
        "SELECT a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' FROM pg_attribute a"
        " WHERE a.attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text)) AND a.attnum > 0 AND NOT a.attisdropped"
        " ORDER BY a.attnum",
        [schema, table],
    )
    return [Column(*row) for row in rows]


def copy_in(schema: str, table: str, names: Sequence[str]) -> sql.Composed:
    """The statement that takes rows with these columns in, as texts."""
    return sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(schema, table), sql.SQL(", ").join(map(sql.Identifier, names))
    )


def unknown_columns(mine: list[Column], given: tuple[str, ...]) -> str:
    """Why rows with these columns can't be loaded; empty when they can."""
    known: Mapping[str, Column] = {one.name: one for one in mine}
    more = sorted(set(given) - known.keys())
    if more or len(set(given)) != len(given):
        return f"has columns that are not known here ({', '.join(more)}): the file is of a newer version"
    lacking = sorted(one.name for one in mine if one.required and one.name not in given)
    return f"lacks {', '.join(lacking)}: the file is of an older version; update there first" if lacking else ""
