"""A tenant from a file: all of it or nothing, under the ids that it had, suspended until somebody lets it go on.

The file is read to its end before anything is written. Then the tenant is there as `provisioning`, which nothing
serves, and its tables are filled in pieces; whoever asks again with the same file goes on where it stopped. The last
transaction brings what is alive, secrets and access, and makes it a suspended tenant. A file whose rows the database
refuses takes everything back.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
from django.db import DatabaseError, transaction
from psycopg import sql

from apps.audit.services import Actor, record
from apps.life import tables
from apps.life.arriving import IN_USE, Arrived, arrive, named
from kernel.errors import Conflict
from kernel.parcel import Damaged, Manifest
from kernel.parcel_reading import Reader
from kernel.printing import printable
from tenants import door, template
from tenants.models import Domain, Plan, Tenant
from tenants.provisioning import schema_drop, tenant_create
from tenants.work import rehearsing

Conn = psycopg.Connection[Any]
CHUNK = 5_000  # rows of one transaction
REFUSED = (psycopg.errors.DataError, psycopg.errors.IntegrityError)
_BUSY = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


@dataclass(slots=True)
class Imported:
    """A tenant that is here now, suspended."""

    tenant: Tenant
    rows: dict[str, int] = field(default_factory=dict)
    resumed: bool = False  # another run had begun it
    notes: list[str] = field(default_factory=list)  # what is to be done by hand


def tenant_import(
    *, path: Path, plan: Plan, slug: str, host: str, actor: Actor, now: datetime, name: str = "", passphrase: str = "",
    report: Callable[[str, int], None] = lambda table, rows: None,
) -> Imported:  # fmt: skip
    """Makes the tenant of a file, or goes on with it. Needs the owner's role (`door.become_owner`).

    Damaged and PassphraseWrong for the file; Conflict when slug, host or ids are in use here, or another run is at it.
    """
    with Reader(path, passphrase=passphrase) as file:
        _check_tables(file.manifest)
        file.verify()
        with door.connect("tenant import", owner=True, guarded=False) as conn:
            row = conn.execute(_BUSY, [f"tenant import {slug}"]).fetchone()
            if row is None or not row[0]:
                raise Conflict("Another run is importing a tenant of this slug.", code="busy")
            tenant, resumed = _begun(conn, file, plan=plan, slug=slug, host=host, name=name)
            done = Imported(tenant, resumed=resumed)
            try:
                for table in tables.order():
                    done.rows[table] = _load(conn, file, tenant, table)
                    report(table, done.rows[table])
                found = _finish(file, tenant, actor=actor, now=now)
            except (Damaged, Conflict):
                tenant_abandon(tenant)
                raise
    done.rows |= found.rows
    done.notes = [*found.notes, *_notes(file.manifest)]
    done.tenant.refresh_from_db()
    return done


def import_rehearse(*, path: Path, plan: Plan, slug: str, host: str, passphrase: str = "") -> None:
    """Makes the tenant of a file without its rows, and takes that back: refuses what `tenant_import` would refuse then.

    Needs the owner's role.
    """
    with (
        Reader(path, passphrase=passphrase) as file,
        door.connect("tenant import", owner=True, guarded=False) as conn,
        rehearsing(True),
    ):
        _check_tables(file.manifest)
        _begun(conn, file, plan=plan, slug=slug, host=host, name="")


def tenant_abandon(tenant: Tenant) -> None:
    """Takes an import back that has not come to its end. Conflict for any other tenant."""
    with transaction.atomic():
        found = Tenant.objects.select_for_update(of=("self",)).filter(pk=tenant.pk).first()
        if found is None or found.status != Tenant.Status.PROVISIONING:
            raise Conflict("This tenant is not being imported.", code="not_importing")
        schema_drop(found.schema_name)
        Domain.objects.filter(tenant=found).delete()
        Tenant.objects.filter(pk=found.pk).delete()


def _check_tables(manifest: Manifest) -> None:
    own = tables.order()
    known = {*own, *(one + tables.LATE for one in own), *tables.LIVE, tables.SECRETS, tables.PEOPLE, tables.KEYS}
    strange = sorted(manifest.tables.keys() - known)
    if strange:
        raise Damaged(f"{', '.join(strange)}: no tables that are known here. The file is of a newer version.")
    if manifest.about.get("schema_version") != template.version():  # columns may fit, and rows mean something else
        raise Damaged(
            f"The file is of another version of Shardbeat ({str(manifest.about.get('shardbeat'))[:40]}): bring both"
            " installations to the same one, then export again."
        )
    sealed = {tables.SECRETS, tables.PEOPLE, tables.KEYS}
    for one in manifest.tables.values():
        if one.sealed != (one.name in sealed):
            raise Damaged(f"{one.name} is not as it should be: sealed or not.")


def _check_ids(conn: Conn, file: Reader) -> None:
    """Conflict when something that is alive here has an id of it: told before the work, not after it."""
    for table, key in {"due_dueentry": "key", "tickets_ticket": "execution_id"}.items():
        if table not in file.manifest.tables:
            continue
        ids = (row.get(key) for row in named(file, table))
        query = sql.SQL("SELECT EXISTS (SELECT 1 FROM {} WHERE {} = ANY(%s::uuid[]))").format(
            sql.Identifier("public", table), sql.Identifier(key)
        )
        while chunk := list(islice(ids, CHUNK)):
            with refusing(table):
                row = conn.execute(query, [chunk]).fetchone()
            if row is not None and row[0]:
                raise Conflict(IN_USE, code="ids_in_use")


def _begun(conn: Conn, file: Reader, *, plan: Plan, slug: str, host: str, name: str) -> tuple[Tenant, bool]:
    """The tenant that is being made: new, or of an earlier run with the same file."""
    found: Tenant | None = Tenant.objects.select_related("plan").filter(slug=slug).first()
    if found is not None:
        if found.status != Tenant.Status.PROVISIONING or _file_of(conn, found) != file.manifest.digest:
            raise Conflict(f"There is a tenant {slug!r} here: give another slug.", code="name_taken")
        return found, True
    _check_ids(conn, file)
    with transaction.atomic():
        made = tenant_create(
            slug=slug, name=name or printable(str(file.manifest.about.get("name") or slug))[:200], plan=plan, host=host
        )
        made.status = Tenant.Status.PROVISIONING
        made.save(update_fields=["status"])
        door.raw().execute(
            sql.SQL("COMMENT ON SCHEMA {} IS {}").format(
                sql.Identifier(made.schema_name), sql.Literal(f"import of {file.manifest.digest}")
            )
        )
    return made, False


def _file_of(conn: Conn, tenant: Tenant) -> str:
    """The digest of the file that a tenant is being made from; empty for any other."""
    row = conn.execute("SELECT obj_description(to_regnamespace(%s), 'pg_namespace')", [tenant.schema_name]).fetchone()
    return str(row[0]).removeprefix("import of ") if row is not None and row[0] else ""


def _load(conn: Conn, file: Reader, tenant: Tenant, table: str) -> int:
    """Fills a table from where an earlier run stopped; how many rows it has."""
    place = sql.Identifier(tenant.schema_name, table)
    row = conn.execute(sql.SQL("SELECT count(*) FROM {}").format(place)).fetchone()
    there, rows = int(row[0]) if row is not None else 0, 0
    for part in (table, table + tables.LATE):
        if part in file.manifest.tables:
            _load_part(conn, file, tenant, table, part, done=max(0, there - rows))
            rows += file.manifest.tables[part].rows
    return rows


def _load_part(conn: Conn, file: Reader, tenant: Tenant, table: str, part: str, *, done: int) -> None:
    columns = file.manifest.tables[part].columns
    reason = tables.unknown_columns(tables.columns(conn, tenant.schema_name, table), columns)
    if reason:
        raise Damaged(f"{part} {reason}.")
    into = tables.copy_in(tenant.schema_name, table, columns)
    left = islice(file.rows(part), done, None)
    while chunk := list(islice(left, CHUNK)):
        with refusing(part), conn.transaction(), conn.cursor().copy(into) as copy:
            for one in chunk:
                copy.write_row(one)


def _finish(file: Reader, tenant: Tenant, *, actor: Actor, now: datetime) -> Arrived:
    with refusing("what is alive"), transaction.atomic():
        locked = Tenant.objects.select_for_update(of=("self",)).filter(pk=tenant.pk, status=Tenant.Status.PROVISIONING)
        if locked.first() is None:
            raise Conflict("The tenant is not being imported any more.", code="not_importing")
        arrived = arrive(file, tenant, now=now)
        conn = door.raw()
        conn.execute(sql.SQL("COMMENT ON SCHEMA {} IS NULL").format(sql.Identifier(tenant.schema_name)))
        told = file.manifest
        record(
            actor=actor, action="tenant.import", object_type="tenant", object_id=tenant.pk, now=now,
            tenant_id=tenant.pk, after={
                "slug": tenant.slug, "file": told.digest, "trusted": told.trusted, "from": str(told.about.get("slug")),
            },
        )  # fmt: skip
    return arrived


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """What the database does not take is a fault of the file, and is told in one line. Damaged, Conflict."""
    try:
        yield
    except (*REFUSED, DatabaseError, ValueError, KeyError, TypeError) as error:
        cause = door.cause_of(error)
        if isinstance(error, DatabaseError) and not isinstance(cause, REFUSED):
            raise
        reason = str(cause).partition("\n")[0]
        raise Damaged(f"{what} can't be loaded: {reason}") from error


def _notes(manifest: Manifest) -> list[str]:
    """What of the file was not taken over."""
    about = manifest.about
    left_out = about.get("left_out")
    told = left_out.items() if isinstance(left_out, dict) else ()
    notes = [f"not in the file: {name} ({why})" for name, why in told]
    if about.get("network"):
        notes.append(f"it might call these networks there; allow them here if they are meant: {about['network']}")
    if about.get("worker_group"):
        notes.append(f"its worker group there: {about['worker_group']} (tenant_change --worker-group)")
    for name in (tables.SECRETS, tables.PEOPLE, tables.KEYS):
        if name in manifest.tables and not manifest.trusted:
            notes.append(f"{name} were left out: they need the passphrase")
    return notes
