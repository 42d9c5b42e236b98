"""What the deletion of a tenant asks (`tenants.keepers`): nothing of it goes while anything of it is held, and its
archive goes before its schema."""

import re
from typing import Any

import psycopg
from django.conf import settings

from apps.archive import holds
from apps.archive.catalogue import folder_of
from apps.archive.errors import ArchiveUnreachable
from apps.archive.files import store
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]
FOLDERS_A_STEP = 50
_OURS = re.compile(r"t_[a-z0-9_]+-\d+")
_TENANTS = "SELECT id, schema_name FROM tenants_tenant"
_HAS_TABLE = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text)) IS NOT NULL"


def kept_by(conn: Conn, schema: str) -> str:
    """Why nothing of this tenant may be deleted; empty when it may."""
    found = holds.open_holds(conn, schema) if _has_table(conn, schema, "archive_legalhold") else []
    if not found:
        return ""
    more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
    return f"It is under legal hold {found[0].id}{more}: {found[0].reason!r}."


def remove_some(conn: Conn, tenant_id: int, schema: str) -> int:
    """Removes some of the tenant's archive files; how many folders. ArchiveUnreachable; ArchiveOff when there are
    files and no address any more."""
    if not settings.ARCHIVE_URL and not _has_files(conn, schema):
        return 0
    folder = folder_of(schema, tenant_id)
    parents = dict.fromkeys(path.rpartition("/")[0] for path in store().files(folder))
    some = list(parents)[:FOLDERS_A_STEP]
    for parent in some or [folder]:  # when nothing is left, the empty folders go
        store().remove(parent)
    return len(some)


def orphans(conn: Conn) -> list[str]:
    """Folders of archives that belong to no tenant."""
    if not settings.ARCHIVE_URL:
        return []
    known = {folder_of(schema, tenant_id) for tenant_id, schema in conn.execute(_TENANTS).fetchall()}
    try:
        return [f"archive {name}" for name in store().folders() if name not in known and _OURS.fullmatch(name)]
    except ArchiveUnreachable as error:
        return [f"archives: {error.detail}"]


def _has_files(conn: Conn, schema: str) -> bool:
    if not _has_table(conn, schema, "archive_archivebatch"):
        return False
    query = in_schema("SELECT EXISTS (SELECT 1 FROM {schema}.archive_archivebatch WHERE path <> '')", schema)
    return conn.execute(query).fetchone() == (True,)


def _has_table(conn: Conn, schema: str, table: str) -> bool:
    """A schema may be behind, or gone."""
    return conn.execute(_HAS_TABLE, [schema, table]).fetchone() == (True,)
