"""Writing rows of the trail, sealing them, and changing them as only the owner of the database can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from tests.fixtures_db import unguarded_trail
from tests.fixtures_flow import NOW, count

if TYPE_CHECKING:
    from apps.audit.services import Actor
    from apps.audit.verifying import Report
    from tenants.models import Tenant

Conn = psycopg.Connection[Any]


def a_person(tenant: Tenant | None, number: int = 7, *, name: str = "member:ada@acme.test (admin)") -> Actor:
    from apps.audit.services import Actor

    return Actor(
        name=name, role="admin", tenant_id=tenant.pk if tenant else None, request_id="r1", subject=f"user:{number}",
        address="192.0.2.7", agent="Firefox/130",
    )  # fmt: skip


def write(conn: Conn, tenant: Tenant | None, how_many: int = 1, *, by: Actor | None = None, **more: Any) -> list[int]:
    """Rows in one transaction of this connection (its own when none is open); their numbers."""
    from apps.audit.services import Actor, Entry, record_many

    tenant_id = tenant.pk if tenant else None
    actor = by or Actor(name="key:deploy (admin)", role="admin", tenant_id=tenant_id)
    change: dict[str, Any] = {"before": {"n": 1}, "after": {"n": 1.5}, **more}
    entries = [Entry("job.update", "job", number, **change) for number in range(how_many)]
    with conn.transaction():
        record_many(entries, actor=actor, now=NOW, tenant_id=tenant_id, conn=conn)
        rows = conn.execute(
            "SELECT id FROM audit_auditevent WHERE txid = pg_current_xact_id()::text::bigint ORDER BY id"
        ).fetchall()
    return [row[0] for row in rows][-how_many:]


def seal_all(conn: Conn, *, batch: int = 2_000) -> int:
    from apps.audit.sealing import seal

    done = 0
    while True:
        one = seal(conn, batch=batch)
        done += one.count
        if not one.full:
            return done


def verified(conn: Conn, tenant: Tenant | None) -> Report:
    from apps.audit.chain import chain_key
    from apps.audit.verifying import verify

    return verify(conn, tenant.pk if tenant else None, key=chain_key(conn))


def kinds(conn: Conn, tenant: Tenant | None) -> list[tuple[str, int | None]]:
    """Findings of one chain: kind and number of the row."""
    return [(one.kind, one.event) for one in verified(conn, tenant).findings]


def whole(conn: Conn) -> list[str]:
    from apps.audit.chain import chain_key
    from apps.audit.verifying import verify_whole

    return [one.kind for one in verify_whole(conn, key=chain_key(conn))]


def seals(conn: Conn) -> int:
    return count(conn, "SELECT count(*) FROM audit_seal")


@contextmanager
def as_owner() -> Iterator[Conn]:
    """The owner's role, with the guards switched off."""
    from tenants import door

    with door.connect("tests owner", owner=True, guarded=False) as conn, unguarded_trail(conn):
        yield conn
