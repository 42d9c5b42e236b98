"""A tenant into one file. With its history it stands still meanwhile; its definitions alone are one snapshot."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from psycopg import sql

from apps.archive.forgotten import archived_to
from apps.audit.services import Actor, record
from apps.life import reading, tables
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
SECRET_COLUMNS = (
    "name", "purpose", "description", "version", "revision", "created_at", "updated_at", "value_set_at", "expires_at",
    "value",
)  # fmt: skip
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
    rows = Counter[str]()
    with door.connect("tenant export", guarded=False) as conn, Writer(path, passphrase=passphrase) as writer:
        left_out = _staying(conn, tenant)

        def write(
            name: str, columns: Sequence[str], given: Iterable[Row], *, part: str = "", sealed: bool = False
        ) -> None:
            written = writer.table(name + part, columns, given, sealed=sealed).rows
            rows[name] += written
            report(name + part, written)

        schema, began = tenant.schema_name, check_still(conn, tenant, now=now) if history else None
        for table in (one for one in tables.order() if history and one in tables.HISTORY):
            write(table, *reading.settled(conn, schema, table, since=now))
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if history and check_still(conn, tenant, now=now) != began:
                raise Conflict("The tenant went on meanwhile: suspend it and begin anew.", code="not_suspended")
            for table in (one for one in reading.LATE if history):
                write(table, *reading.late(conn, schema, table, since=now), part=tables.LATE)
            for table in (one for one in tables.order() if one not in tables.HISTORY):
                write(table, *reading.whole(conn, schema, table))
            for table in (one for one in tables.LIVE if history or one not in tables.LIVE_HISTORY):
                write(table, *reading.live(conn, tenant.pk, table, history=history))
        if writer.seals:
            write(tables.SECRETS, SECRET_COLUMNS, _secrets(tenant), sealed=True)
        else:
            left_out[tables.SECRETS] = "without a passphrase: " + ", ".join(_secret_names(tenant))
        if writer.seals and access:
            write(tables.PEOPLE, *people_of(tenant), sealed=True)
            write(tables.KEYS, *keys_of(tenant), sealed=True)
        else:
            left_out["access"] = "people and API keys go with --with-access and a passphrase"
        whole_from = archived_to(conn, schema) if history else now
        digest = writer.finish(_about(tenant, now, history, left_out, whole_from))
    record(
        actor=actor, action="tenant.export", object_type="tenant", object_id=tenant.pk, now=now, tenant_id=tenant.pk,
        after={"file": digest, "history": history, "secrets": bool(passphrase), "access": access},
    )  # fmt: skip
    return Exported(digest, dict(rows), left_out)


def export_rehearse(*, tenant: Tenant, now: datetime, history: bool = True) -> dict[str, str]:
    """What would stay out of a tenant's file, and why. Conflict as for `tenant_export`."""
    with door.connect("tenant export", guarded=False) as conn:
        if history:
            check_still(conn, tenant, now=now)
        return _staying(conn, tenant)


def check_still(conn: Conn, tenant: Tenant, *, now: datetime) -> datetime | None:
    """Since when the tenant stands still, where that is known. Conflict when it does not, or something of it runs."""
    stands = suspension.stands_since(conn, tenant.pk, now=now)
    if stands is None:
        raise Conflict("Suspend the tenant first (tenant_suspend): its history must stand still.", code="not_suspended")
    row = conn.execute(_BUSY, {"tenant": tenant.pk}).fetchone()
    assert row is not None
    if row[0]:
        detail = f"{row[0]:,} of its runs are queued or running still: wait, or cancel them."
        raise Conflict(detail, code="still_running")
    if row[1]:
        raise Conflict(f"{row[1]:,} of its operations have not ended: cancel them.", code="still_running")
    return stands.since


def _staying(conn: Conn, tenant: Tenant) -> dict[str, str]:
    """What the tenant has that stays where it is, and why."""
    found = {}
    for table, why in (tables.STAYS | tables.STAYS_SHARED).items():
        if table in tables.TOLD:
            own = table in tables.STAYS
            query = sql.SQL("SELECT count(*) FROM {} {}").format(
                sql.Identifier(tenant.schema_name if own else "public", table),
                sql.SQL("") if own else sql.SQL("WHERE tenant_id = {}").format(sql.Literal(tenant.pk)),
            )
            row = conn.execute(query).fetchone()
            if row is not None and row[0]:
                found[table] = f"{row[0]:,}: {why}"
    return found


def _about(
    tenant: Tenant, now: datetime, history: bool, left_out: dict[str, str], whole_from: datetime | None
) -> dict[str, Any]:
    return {
        "shardbeat": settings.VERSION, "exported_at": now.isoformat(), "history": history,
        "slug": tenant.slug, "name": tenant.name, "plan": tenant.plan.name, "hosts": hosts_of(tenant),
        "worker_group": tenant.worker_group, "network": tenant.network, "event_types": tenant.event_types,
        "signing_version": tenant.signing_version, "schema_version": tenant.schema_version, "left_out": left_out,
        "whole_from": None if whole_from is None else whole_from.isoformat(),
    }  # fmt: skip


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
