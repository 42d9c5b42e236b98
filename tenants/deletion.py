"""Deleting tenants: a mark that stops everything at once, a grace in which it can be undone, then the work in steps.

From the mark on nothing of the tenant fires, starts or answers, exactly as when it is suspended. When the grace is over
a dispatcher removes its rows of the shared schema in batches, then what it has outside of the database, then its schema
and the tenant itself in one transaction. While something of it is held (`tenants.keepers`) none of that begins.
Each step looks at what is left, so that a killed process costs nothing and any other goes on. Rows of the audit trail
stay. The application's role can't drop schemas: `tenants_schema_drop` of the database does, for tenants whose grace is
over, and a trigger refuses every other way to delete a tenant.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.db import transaction
from psycopg import sql

from apps.audit import personal
from apps.audit.services import Actor, Entry, record, record_by_system
from kernel.errors import Conflict, FieldError, InvalidInput, ShardbeatError
from tenants import door, keepers, suspension
from tenants.models import Tenant
from tenants.people import USER_PREFIX

Conn = psycopg.Connection[Any]
GRACE = timedelta(days=7)
GRACE_MIN = timedelta(minutes=1)  # all processes have read the tenants again, and requests in flight have ended
GRACE_MAX = timedelta(days=365)
STUCK_AFTER = timedelta(minutes=15)
BATCH = 5_000
NOTE_CHARS = 300
SUSPENDED_BY = "marked for deletion"

# All shared tables whose rows belong to a tenant, those that refer to others first.
TABLES = """
WITH RECURSIVE owned AS (
    SELECT c.oid, c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND NOT starts_with(c.relname::text, 'audit_')
), depth (oid, level) AS (
    SELECT oid, 0 FROM owned
    UNION
    SELECT k.confrelid, d.level + 1 FROM depth d JOIN pg_constraint k ON k.conrelid = d.oid AND k.contype = 'f'
    JOIN owned o ON o.oid = k.confrelid
    WHERE k.conrelid <> k.confrelid AND d.level < 20
)
SELECT o.name FROM owned o JOIN depth d ON d.oid = o.oid GROUP BY o.name ORDER BY max(d.level), o.name
"""
# A member's login is of its tenant alone and goes with it; an operator's stays.
MEMBERS = """
WITH gone AS (DELETE FROM tenants_member WHERE ctid = ANY (ARRAY(
                  SELECT ctid FROM tenants_member WHERE tenant_id = %(tenant)s LIMIT %(limit)s)) RETURNING user_id),
     logins AS (DELETE FROM auth_user u USING gone g WHERE u.id = g.user_id AND u.username LIKE %(prefix)s
                AND NOT u.is_staff RETURNING 1)
SELECT FROM gone
"""
NEXT = """
SELECT id, slug, schema_name FROM tenants_tenant
WHERE status = 'deleting' AND delete_after <= clock_timestamp() AND id > %s
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
GRACE_OVER = "SELECT delete_after <= greatest(%s, clock_timestamp()) FROM tenants_tenant WHERE id = %s"
LOCK = "SELECT 1 FROM tenants_tenant WHERE id = %s AND status = 'deleting' FOR UPDATE SKIP LOCKED"
ORPHANED_SCHEMAS = """
SELECT n.nspname::text FROM pg_namespace n
WHERE n.nspname LIKE 't\\_%%' AND NOT EXISTS (SELECT 1 FROM tenants_tenant t WHERE t.schema_name = n.nspname)
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the work did."""

    tenant_id: int
    slug: str
    removed: int = 0  # rows of the shared schema, or things outside of the database
    table: str = ""  # the one that they were in; empty for what is outside
    done: bool = False  # schema and tenant are gone


class Kept(Exception):
    """Something of the tenant must be kept."""


class StepFailed(Exception):
    """One tenant's step was refused; the others do not wait for it."""

    def __init__(self, tenant_id: int, slug: str, reason: str) -> None:
        super().__init__(reason)
        self.tenant_id, self.slug = tenant_id, slug


def tenant_delete(*, tenant: Tenant, actor: Actor, now: datetime, grace: timedelta = GRACE, reason: str = "") -> Tenant:
    """Marks a tenant for deletion. Asked again, it goes on as it was asked first.

    InvalidInput for the grace; Conflict while something of it is under a legal hold.
    """
    if not GRACE_MIN <= grace <= GRACE_MAX:
        detail = f"must be {GRACE_MIN.seconds} seconds to {GRACE_MAX.days} days."
        raise InvalidInput([FieldError("/grace", "range", detail)], f"The grace {detail}")
    with transaction.atomic():
        found: Tenant = Tenant.objects.select_for_update(of=("self",)).select_related("plan").get(pk=tenant.pk)
        if found.status == Tenant.Status.DELETING:
            return found
        kept = keepers.kept_by(door.raw(), found.schema_name)
        if kept:
            raise Conflict(f"{kept} Release it before the tenant is deleted.", code="held")
        before = found.status
        found.status, found.delete_after, found.delete_note = Tenant.Status.DELETING, now + grace, ""
        found.save(update_fields=["status", "delete_after", "delete_note"])
        if before == Tenant.Status.ACTIVE:
            suspension.begin(found, now=now, reason=SUSPENDED_BY)
        record(
            actor=actor, action="tenant.delete", object_type="tenant", object_id=found.pk, now=now,
            tenant_id=found.pk, before={"status": before}, reason=reason,
            after={"status": found.status, "delete_after": found.delete_after.isoformat()},
        )  # fmt: skip
        return found


def tenant_undelete(*, tenant: Tenant, actor: Actor, now: datetime, reason: str = "") -> Tenant:
    """Takes the mark away: the tenant is suspended. Conflict when it has none, or its grace is over."""
    with transaction.atomic():
        locked = Tenant.objects.select_for_update(of=("self",)).select_related("plan")
        found: Tenant | None = locked.filter(pk=tenant.pk).first()
        if found is None or found.delete_after is None:
            raise Conflict("The tenant is not marked for deletion.", code="not_deleting")
        if _grace_is_over(found, now):
            raise Conflict("The grace is over: its data are being removed.", code="grace_over")
        found.status, found.delete_after = Tenant.Status.SUSPENDED, None
        found.save(update_fields=["status", "delete_after"])
        record(
            actor=actor, action="tenant.undelete", object_type="tenant", object_id=found.pk, now=now,
            tenant_id=found.pk, before={"status": "deleting"}, after={"status": found.status}, reason=reason,
        )  # fmt: skip
        return found


def _grace_is_over(locked: Tenant, now: datetime) -> bool:
    """By the clock that the work goes by, too: whoever waited for the tenant's row asks with a time that has passed."""
    row = door.raw().execute(GRACE_OVER, [now, locked.pk]).fetchone()
    return row is None or bool(row[0])


def delete_step(conn: Conn, *, after: int = 0) -> Step | None:
    """One bounded step for the next tenant whose id is above `after` and whose grace is over; None when there is none.

    Several processes may call it at once: a tenant that another one works at is passed over. StepFailed when the
    database refused; the reason is noted at the tenant.
    """
    chosen: tuple[int, str, str] | None = None
    try:
        with conn.transaction():
            chosen = conn.execute(NEXT, [after]).fetchone()
            if chosen is None:
                return None
            step = _rows_step(conn, *chosen)
        if step is None:  # not in a transaction: it may take long, and whatever is left is found again
            removed = keepers.remove_some(conn, chosen[0], chosen[2])
            step = Step(chosen[0], chosen[1], removed) if removed else _last_step(conn, *chosen)
        return step or delete_step(conn, after=chosen[0])
    except (psycopg.Error, ShardbeatError, Kept) as error:
        if chosen is None or conn.closed:
            raise
        reason = str(error).partition("\n")[0][:NOTE_CHARS]
        conn.execute("UPDATE tenants_tenant SET delete_note = %s WHERE id = %s", [reason, chosen[0]])
        raise StepFailed(chosen[0], chosen[1], reason) from error


def stuck(conn: Conn) -> list[tuple[str, datetime, str]]:
    """Slug, end of the grace and last failure of tenants whose deletion should long be over."""
    return conn.execute(
        "SELECT slug, delete_after, delete_note FROM tenants_tenant"
        " WHERE status = 'deleting' AND delete_after < clock_timestamp() - %s ORDER BY id LIMIT 1000",
        [STUCK_AFTER],
    ).fetchall()


def orphans(conn: Conn) -> list[str]:
    """What belongs to tenants that do not exist: schemas, shared tables with rows of them, files."""
    found = [f"schema {name}" for (name,) in conn.execute(ORPHANED_SCHEMAS)]
    for (table,) in conn.execute(TABLES).fetchall():
        query = sql.SQL(
            "SELECT EXISTS (SELECT 1 FROM {table} r WHERE r.tenant_id IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM tenants_tenant t WHERE t.id = r.tenant_id))"
        ).format(table=sql.Identifier("public", table))
        row = conn.execute(query).fetchone()
        if row and row[0]:
            found.append(f"rows of {table}")
    return [*found, *(what for one in keepers.keepers() for what in one.orphans(conn))]


def _rows_step(conn: Conn, tenant_id: int, slug: str, schema: str) -> Step | None:
    """Removes some rows of the shared schema; None when none is left. Kept."""
    kept = keepers.kept_by(conn, schema)
    if kept:
        raise Kept(kept)
    for (table,) in conn.execute(TABLES).fetchall():
        removed = _remove_some(conn, table, tenant_id)
        if removed:
            return Step(tenant_id, slug, removed, table)
    return None


def _last_step(conn: Conn, tenant_id: int, slug: str, schema: str) -> Step | None:
    """Removes the schema and the tenant; None when somebody else is at it, or was quicker. Kept."""
    with conn.transaction():
        if conn.execute(LOCK, [tenant_id]).fetchone() is None:
            return None
        if (step := _rows_step(conn, tenant_id, slug, schema)) is not None:
            return step  # rows came meanwhile, as of a request that was on its way
        conn.execute("SELECT tenants_schema_drop(%s)", [tenant_id])
        conn.execute("DELETE FROM tenants_tenant WHERE id = %s", [tenant_id])
        _record_end(conn, tenant_id, slug, schema)
    return Step(tenant_id, slug, done=True)


def _remove_some(conn: Conn, table: str, tenant_id: int) -> int:
    if table == "tenants_member":
        return conn.execute(MEMBERS, {"tenant": tenant_id, "limit": BATCH, "prefix": f"{USER_PREFIX}%"}).rowcount
    query = sql.SQL(
        "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE tenant_id = %s LIMIT %s))"
    ).format(table=sql.Identifier("public", table))
    return conn.execute(query, [tenant_id, BATCH]).rowcount


def _record_end(conn: Conn, tenant_id: int, slug: str, schema: str) -> None:
    personal.erase_tenant(conn, tenant_id)  # the trail stays, and names nobody any more
    ended = Entry("tenant.deleted", "tenant", tenant_id, before={"slug": slug, "schema": schema})
    record_by_system(conn, ended, tenant_id=tenant_id, name="system:deletion")
