"""The last step of an import: what is alive, secrets, access; then the tenant is there, suspended.

Due entries and tickets come as they were, with what only means something in an installation set anew: shard, queue,
release, fence. What was due while the tenant was on its way counts as due in its suspension, so nothing is owed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.archive.forgotten import forgotten
from apps.due import bells, entries
from apps.life import access, tables
from apps.secrets.models import Secret
from apps.secrets.store import put_value
from kernel.errors import Conflict
from kernel.parcel import Damaged
from kernel.parcel_reading import Reader
from kernel.pools import POOLS, PULL, WORKFLOW
from tenants import door
from tenants.models import Suspension, Tenant
from tenants.provisioning import queue_for

Conn = psycopg.Connection[Any]
Named = dict[str, str | None]
IN_USE = "Ids of it are in use here: is the tenant that it was made from still in this installation?"


@dataclass(slots=True)
class Arrived:
    """Rows by table, and what is to be done by hand."""

    rows: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def arrive(file: Reader, tenant: Tenant, *, now: datetime) -> Arrived:
    """In the current transaction, as the owner. Damaged; Conflict when ids are in use."""
    conn, found, about = door.raw(), Arrived(), file.manifest.about
    _count_on(conn, tenant)
    for table in tables.LIVE:
        if table in file.manifest.tables:
            found.rows[table] = _live(conn, file, tenant, table, now)
    if file.opens:
        _opened(file, tenant, found, now)
    since = _since(conn, tenant, about, now)
    Suspension.objects.filter(tenant=tenant, ended_at=None, began_at__gt=now).update(began_at=now)  # another clock's
    Suspension.objects.get_or_create(tenant=tenant, ended_at=None, defaults={"began_at": since, "reason": "imported"})
    tenant.status = Tenant.Status.SUSPENDED
    tenant.signing_version = _whole(about.get("signing_version")) if tables.SECRETS in found.rows else 0
    tenant.event_types = [one for one in about.get("event_types") or [] if isinstance(one, str)][:100]
    tenant.save(update_fields=["status", "signing_version", "event_types"])
    bells.ring(conn, tenant.pk)
    if about.get("whole_from") is not None:  # what stayed where it was is forgotten here
        forgotten(conn, tenant.schema_name, before=min(now, datetime.fromisoformat(str(about["whole_from"]))))
    return found


def _opened(file: Reader, tenant: Tenant, found: Arrived, now: datetime) -> None:
    """What is sealed with the passphrase."""
    given = file.manifest.tables
    if tables.SECRETS in given:
        found.rows[tables.SECRETS] = _secrets(tenant, named(file, tables.SECRETS), now)
    if tables.PEOPLE in given:
        found.rows[tables.PEOPLE] = access.take_people(tenant, named(file, tables.PEOPLE))
    if tables.KEYS in given:
        found.rows[tables.KEYS], there = access.take_keys(tenant, named(file, tables.KEYS))
        found.notes += [f"API key {name} is here already, of another tenant: it was left out" for name in there]


def named(file: Reader, table: str) -> Iterator[Named]:
    """The rows of a table by the names of their columns."""
    columns = file.manifest.tables[table].columns
    return (dict(zip(columns, row, strict=True)) for row in file.rows(table))


def _count_on(conn: Conn, tenant: Tenant) -> None:
    """Numbers that the tables give go on after those that came."""
    for table in tables.order():
        place = f'"{tenant.schema_name}"."{table}"'
        row = conn.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attidentity <> ''", [place]
        ).fetchone()
        if row is not None:
            conn.execute(
                sql.SQL(
                    "SELECT setval(pg_get_serial_sequence(%s, %s), (SELECT greatest(max({id}), 1) FROM {table}))"
                ).format(id=sql.Identifier(row[0]), table=sql.Identifier(tenant.schema_name, table)),
                [place, row[0]],
            )  # fmt: skip


def _live(conn: Conn, file: Reader, tenant: Tenant, table: str, now: datetime) -> int:
    """The tenant's rows of a shared table."""
    columns = file.manifest.tables[table].columns
    reason = tables.unknown_columns(tables.columns(conn, "public", table), columns)
    if reason or "tenant_id" not in columns or (table in tables.OWN_IDS and "id" in columns):
        raise Damaged(f"{table} {reason or 'has other columns than it should'}.")
    count = 0
    running = table == "tickets_ticket" and sum(row["state"] == "running" for row in named(file, table))
    fresh = _Fresh(conn, tenant, now, fences=int(running))
    try:
        with conn.cursor().copy(tables.copy_in("public", table, columns)) as copy:
            for row in _made_anew(fresh, table, named(file, table)):
                copy.write_row([row[name] for name in columns])
                count += 1
    except psycopg.errors.UniqueViolation as error:
        raise Conflict(IN_USE, code="ids_in_use") from error
    return count


class _Fresh:
    """What is given anew in this installation."""

    def __init__(self, conn: Conn, tenant: Tenant, now: datetime, *, fences: int) -> None:
        self.tenant_id, self.now = str(tenant.pk), now.isoformat()
        numbers = conn.execute("SELECT nextval('ticket_fence')::text FROM generate_series(1, %s)", [fences])
        self.fences: Iterator[str] = iter([one for (one,) in numbers.fetchall()])
        self._queues = {pool: queue_for(tenant, pool) for pool in POOLS if pool != PULL}

    def queue(self, row: Named) -> str | None:
        pool = row["pool"]
        if pool == PULL:
            return row["queue"]
        if pool not in self._queues:
            raise Damaged(f"There is no pool {pool!r}.")
        return self._queues[pool]


def _made_anew(fresh: _Fresh, table: str, rows: Iterable[Named]) -> Iterator[Named]:
    for row in rows:
        row["tenant_id"] = fresh.tenant_id
        if table == "due_dueentry":
            row |= {"shard": str(entries.shard_for(UUID(row["key"] or ""))), "queue": fresh.queue(row)}
        elif table == "tickets_ticket":
            row |= {"queue": fresh.queue(row), "release": None, "queued_at": None, "releases": "0", "worker_id": None}
            row["fence"] = None
            if row["state"] == "running" and row["pool"] == WORKFLOW:
                row |= {"deadline": fresh.now, "fence": next(fresh.fences)}
            elif row["state"] not in ("ready", "blocked"):
                raise Damaged("A run that is queued or running can't be imported.")
        yield row


def _secrets(tenant: Tenant, rows: Iterator[Named], now: datetime) -> int:
    count = 0
    with door.inside(tenant):
        for row in rows:
            expires = row["expires_at"]
            made = Secret(
                name=row["name"] or "", purpose=row["purpose"] or "", description=row["description"] or "",
                version=_whole(row["version"]), revision=_whole(row["revision"]),
                created_at=datetime.fromisoformat(row["created_at"] or ""), updated_at=now,
                expires_at=None if expires is None else datetime.fromisoformat(expires),
            )  # fmt: skip
            put_value(made, row["value"] or "", tenant_id=tenant.pk, now=now)
            made.save(force_insert=True)
            count += 1
    return count


def _since(conn: Conn, tenant: Tenant, about: Any, now: datetime) -> datetime:
    """When a tenant that came without a suspension stood still: before anything of it was due."""
    row = conn.execute("SELECT min(due_at) FROM due_dueentry WHERE tenant_id = %s", [tenant.pk]).fetchone()
    first = row[0] if row is not None and row[0] is not None else now
    return min(now, first, datetime.fromisoformat(str(about.get("exported_at"))))


def _whole(text: Any) -> int:
    number = int(text)
    if not 0 <= number < 2**31:
        raise ValueError(f"{number} is out of range")
    return number
