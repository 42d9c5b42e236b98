"""A tenant into one file. With its history it stands still meanwhile; its definitions alone are one snapshot.

History is read in pieces, each in a transaction of its own, so that no long one holds back vacuum: nothing of it
changes while the tenant is suspended and nothing of it runs.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from psycopg import sql

from apps.audit.services import Actor, record
from apps.life import tables
from apps.life.access import keys_of, people_of
from apps.secrets.models import Secret
from apps.secrets.sealing import SecretUnreadable
from apps.secrets.store import value_of
from kernel.errors import Conflict
from kernel.keyring import KeyUnknown
from kernel.parcel import Row
from kernel.parcel_writing import Writer
from kernel.pools import WORKFLOW
from tenants import door, suspension
from tenants.models import Tenant
from tenants.renaming import hosts_of

Conn = psycopg.Connection[Any]
CHUNK = 2_000  # rows of one statement
SECRET_COLUMNS = (
    "name", "purpose", "description", "version", "revision", "created_at", "updated_at", "value_set_at", "expires_at",
    "value",
)  # fmt: skip
# Numbers of transactions, which mean something in one database only: the newest is -1, so all come before new ones.
NUMBERED = {"events_event": ("tx",), "webhooks_webhook": ("cursor_tx", "replay_tx")}
_TOP = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_BUSY = f"""
SELECT (SELECT count(*) FROM tickets_ticket
        WHERE tenant_id = %(tenant)s AND state IN ('queued', 'running') AND pool <> '{WORKFLOW}'),
       (SELECT count(*) FROM due_dueoperation WHERE tenant_id = %(tenant)s)
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    digest: str
    rows: dict[str, int]
    left_out: dict[str, str]


def tenant_export(
    *, tenant: Tenant, path: Path, actor: Actor, now: datetime, history: bool = True, passphrase: str = "",
    access: bool = False, report: Callable[[str, int], None] = lambda name, rows: None,
) -> Exported:  # fmt: skip
    """Writes the file; what was at its place before stays until it is whole.

    Conflict when history is asked for and the tenant does not stand still. `access` are people and API keys, which
    need a passphrase, as do values of secrets: without one their names alone are told.
    """
    left_out = dict(tables.STAYS)
    with door.connect("tenant export", guarded=False) as conn, Writer(path, passphrase=passphrase) as writer:
        stands = suspension.newest(conn, [tenant.pk]).get(tenant.pk)
        if history:
            check_still(conn, tenant)
        whole = nullcontext() if history else conn.transaction()
        with whole:
            if not history:
                conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            top = conn.execute(_TOP).fetchone()
            assert top is not None
            rows = {}
            for table in tables.order():
                if history or table not in tables.HISTORY:
                    names = tables.columns(conn, tenant.schema_name, table)
                    found = writer.table(table, [one.name for one in names], _rows(conn, tenant, table, names, top[0]))
                    rows[table] = found.rows
                    report(table, found.rows)
            for table, key in tables.LIVE.items():
                if history or table not in tables.LIVE_HISTORY:
                    shown = [one.name for one in tables.columns(conn, "public", table)]
                    if table in tables.OWN_IDS:
                        shown.remove("id")
                    rows[table] = writer.table(table, shown, _live(conn, tenant, table, shown, key, history)).rows
        if writer.seals:
            rows[tables.SECRETS] = writer.table(tables.SECRETS, SECRET_COLUMNS, _secrets(tenant), sealed=True).rows
        else:
            left_out[tables.SECRETS] = "without a passphrase: " + ", ".join(_secret_names(tenant))
        if writer.seals and access:
            for name, (columns, given) in {tables.PEOPLE: people_of(tenant), tables.KEYS: keys_of(tenant)}.items():
                rows[name] = writer.table(name, columns, given, sealed=True).rows
        else:
            left_out["access"] = "people and API keys go with --with-access and a passphrase"
        digest = writer.finish(_about(tenant, now, history, stands, left_out))
    record(
        actor=actor, action="tenant.export", object_type="tenant", object_id=tenant.pk, now=now, tenant_id=tenant.pk,
        after={"file": digest, "history": history, "secrets": bool(passphrase), "access": access},
    )  # fmt: skip
    return Exported(digest, rows, left_out)


def check_still(conn: Conn, tenant: Tenant) -> None:
    """Conflict unless the tenant is suspended and nothing of it runs."""
    if not suspension.standing_still(conn, [tenant.pk]):
        raise Conflict("Suspend the tenant first (tenant_suspend): its history must stand still.", code="not_suspended")
    row = conn.execute(_BUSY, {"tenant": tenant.pk}).fetchone()
    assert row is not None
    if row[0]:
        raise Conflict(
            f"{row[0]:,} of its runs are queued or running still: wait, or cancel them.", code="still_running"
        )
    if row[1]:
        raise Conflict(f"{row[1]:,} of its operations have not ended: cancel them.", code="still_running")


def _about(
    tenant: Tenant, now: datetime, history: bool, stands: suspension.Standstill | None, left_out: dict[str, str]
) -> dict[str, Any]:
    since = stands.since if stands is not None and stands.lasts else None
    return {
        "shardbeat": settings.VERSION, "exported_at": now.isoformat(), "history": history,
        "slug": tenant.slug, "name": tenant.name, "plan": tenant.plan.name, "hosts": hosts_of(tenant),
        "worker_group": tenant.worker_group, "network": tenant.network, "event_types": tenant.event_types,
        "signing_version": tenant.signing_version, "schema_version": tenant.schema_version,
        "suspended_since": since.isoformat() if since else None, "left_out": left_out,
    }  # fmt: skip


def _rows(conn: Conn, tenant: Tenant, table: str, columns: list[tables.Column], top: int) -> Iterator[Row]:
    """All rows in the order of their key, so many in a statement."""
    key = tables.key_of(table)
    shifted = NUMBERED.get(table, ())
    shown = [
        sql.SQL("({} - {})::text").format(sql.Identifier("t", one.name), sql.Literal(top))
        if one.name in shifted else sql.SQL("{}::text").format(sql.Identifier("t", one.name))
        for one in columns
    ]  # fmt: skip
    keys = sql.SQL(", ").join(sql.Identifier("t", name) for name in key)  # else the texts that are shown are in order
    query = sql.SQL("SELECT {shown} FROM {table} t {after} ORDER BY {keys} LIMIT {limit}")
    parts = {
        "shown": sql.SQL(", ").join(shown), "table": sql.Identifier(tenant.schema_name, table), "keys": keys,
        "limit": sql.Literal(CHUNK),
    }  # fmt: skip
    places = [[one.name for one in columns].index(name) for name in key]
    after: list[str | None] | None = None
    while True:
        where = sql.SQL("") if after is None else sql.SQL("WHERE ({}) > ({})").format(
            keys, sql.SQL(", ").join(map(sql.Literal, after))
        )  # fmt: skip
        found = conn.execute(query.format(**parts, after=where)).fetchall()
        yield from found
        if len(found) < CHUNK:
            return
        after = [found[-1][place] for place in places]


def _live(conn: Conn, tenant: Tenant, table: str, columns: list[str], key: str, history: bool) -> list[Row]:
    """The tenant's rows of a shared table."""
    shown = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(one)) for one in columns)
    only = sql.SQL(" AND kind = 'schedule'") if table == "due_dueentry" and not history else sql.SQL("")
    query = sql.SQL("SELECT {} FROM {} WHERE tenant_id = %s{} ORDER BY {}").format(
        shown, sql.Identifier("public", table), only, sql.Identifier(key)
    )
    return conn.execute(query, [tenant.pk]).fetchall()


def _secrets(tenant: Tenant) -> Iterator[Row]:
    """Secrets with their values. Conflict for one that can't be read."""
    with door.inside(tenant):
        found = list(Secret.objects.select_related("data_key").order_by("name"))
    for one in found:
        try:
            value = value_of(one, tenant_id=tenant.pk)
        except (SecretUnreadable, KeyUnknown) as error:
            raise Conflict(f"The secret {one.name} can't be read: {error.detail}", code="secret_unreadable") from None
        told = {name: getattr(one, name) for name in SECRET_COLUMNS[:-1]}
        yield [None if given is None else str(given) for given in told.values()] + [value]


def _secret_names(tenant: Tenant) -> list[str]:
    with door.inside(tenant):
        return list(Secret.objects.order_by("name").values_list("name", flat=True))
