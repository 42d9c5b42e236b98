"""What the trail says of persons: encrypted under a key of their own, so that erasing the key erases it.

A row holds the id of the key, then nonce and ciphertext. The chain of hashes covers these bytes and so stays whole when
a key goes. Keys are remembered for a short while by those who write, and asked for by those who read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
import psycopg
from django.conf import settings

from apps.audit.actors import Actor
from kernel.errors import ShardbeatError
from kernel.ids import uuid7
from kernel.keyring import parse
from kernel.sealing import Unreadable, decrypt, encrypt, new_key
from kernel.shelf import Shelf

Conn = psycopg.Connection[Any]
FORMAT = 1
ID_BYTES = 16
LIFE_S = 60.0  # of a key in the memory of who writes; what is written after an erasure is unreadable, too
KEYS_MOST = 5_000
SETTLED_S = 300  # older than any transaction of ours: such a key is committed, and may be remembered
NOBODY = "anonymous"  # whoever has neither key nor session
_keys: Shelf[tuple[str, int, str], tuple[UUID, bytes]] = Shelf(KEYS_MOST, LIFE_S)

_FIND = f"""
SELECT id, wrapped, kek_id, created_at < clock_timestamp() - interval '{SETTLED_S} s'
FROM public.audit_subjectkey WHERE subject = %s AND tenant_id = %s ORDER BY created_at, id LIMIT 1
"""
_MAKE = """
INSERT INTO public.audit_subjectkey (id, tenant_id, subject, wrapped, kek_id, created_at)
VALUES (%s, %s, %s, %s, %s, clock_timestamp())
"""
_READ = "SELECT id, tenant_id, subject, wrapped, kek_id FROM public.audit_subjectkey WHERE id = ANY(%s)"
_OLD = """
SELECT id, tenant_id, subject, wrapped, kek_id FROM public.audit_subjectkey
WHERE kek_id <> %s AND id > %s ORDER BY id LIMIT %s FOR UPDATE
"""
_REWRAP = "UPDATE public.audit_subjectkey SET wrapped = %s, kek_id = %s WHERE id = %s"


@dataclass(frozen=True, slots=True)
class Opened:
    """What a row says of persons; empty texts where it says nothing or nothing can be read any more."""

    name: str = ""
    address: str = ""
    agent: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    erased: bool = False  # something was there, and its key is gone


def of_actor(conn: Conn, actor: Actor, *, tenant_id: int | None) -> bytes | None:
    """The personal fields of who acts, encrypted; None when there are none. KeyUnknown, KeyringInvalid."""
    value = {"name": actor.name if actor.is_person else "", "address": actor.address, "agent": actor.agent}
    return of_subject(conn, actor.subject or NOBODY, value, tenant_id=tenant_id)


def of_subject(conn: Conn, subject: str, value: Mapping[str, str], *, tenant_id: int | None) -> bytes | None:
    """Texts of one subject, encrypted; None when all are empty. KeyUnknown, KeyringInvalid."""
    value = {name: text.encode(errors="replace").decode() for name, text in value.items() if text}
    if not value:
        return None
    scope = tenant_id or 0
    key_id, key = _key_of(conn, subject, scope)
    return key_id.bytes + encrypt(key, orjson.dumps(value), _value_place(scope, subject))


def opened(conn: Conn, rows: Sequence[Any]) -> list[Opened]:
    """What these events say of persons, in their order; one query. The rows are `AuditEvent`s or look like it."""
    wanted = {_key_id(sealed) for row in rows for sealed in (row.personal, row.about_personal) if sealed}
    keys: dict[UUID, tuple[int, str, bytes]] = {}
    if wanted:
        for key_id, tenant_id, subject, wrapped, kek_id in conn.execute(_READ, [list(wanted)]):
            try:
                kek = parse(settings.SECRETS_KEYS).key(kek_id)
                keys[key_id] = (tenant_id, subject, decrypt(kek, wrapped, _key_place(tenant_id, subject, key_id)))
            except (ShardbeatError, Unreadable):
                continue
    found = []
    for row in rows:
        of_actor, about = _read(row.personal, keys), _read(row.about_personal, keys)
        gone = (row.personal and not of_actor) or (row.about_personal and not about)
        shown = {name: str(of_actor.get(name, "")) for name in ("name", "address", "agent")}
        found.append(Opened(**shown, about=about, erased=bool(gone)))
    return found


def erase(conn: Conn, *, subject: str, tenant_id: int | None = None) -> list[int]:
    """Destroys the keys of a subject, of one tenant's trail or of all; returns the tenants whose trail lost some."""
    query = "DELETE FROM public.audit_subjectkey WHERE subject = %s"
    values: list[Any] = [subject]
    if tenant_id is not None:
        query += " AND tenant_id = %s"
        values.append(tenant_id)
    rows = conn.execute(query + " RETURNING tenant_id", values).fetchall()
    forget()
    return sorted({row[0] for row in rows})


def erase_tenant(conn: Conn, tenant_id: int) -> int:
    """Destroys the keys of everybody in a tenant's trail, when the tenant itself is deleted; returns how many."""
    forget()
    return conn.execute("DELETE FROM public.audit_subjectkey WHERE tenant_id = %s", [tenant_id]).rowcount


def forget() -> None:
    """This process remembers no key any more."""
    _keys.clear()


def rewrap(conn: Conn, *, dry_run: bool, batch: int = 500) -> tuple[int, list[str]]:
    """Wraps all keys with the current key-encryption key: how many, and which could not be read. KeyringInvalid."""
    ring = parse(settings.SECRETS_KEYS)
    done, unreadable, after = 0, [], UUID(int=0)
    while True:
        with conn.transaction():
            rows = conn.execute(_OLD, [ring.current, after, batch]).fetchall()
            for key_id, tenant_id, subject, wrapped, kek_id in rows:
                place = _key_place(tenant_id, subject, key_id)
                try:
                    key = decrypt(ring.key(kek_id), wrapped, place)
                except (ShardbeatError, Unreadable):
                    unreadable.append(f"audit key {key_id} under {kek_id}")
                    continue
                done += 1
                if not dry_run:
                    conn.execute(_REWRAP, [encrypt(ring.key(ring.current), key, place), ring.current, key_id])
        if len(rows) < batch:
            return done, unreadable
        after = rows[-1][0]


def _key_of(conn: Conn, subject: str, scope: int) -> tuple[UUID, bytes]:
    name = str(conn.info.dbname)
    known = _keys.get((name, scope, subject))
    if known is not None:
        return known
    ring = parse(settings.SECRETS_KEYS)
    row = conn.execute(_FIND, [subject, scope]).fetchone()
    if row is None:
        key_id, key = uuid7(), new_key()
        wrapped = encrypt(ring.key(ring.current), key, _key_place(scope, subject, key_id))
        conn.execute(_MAKE, [key_id, scope, subject, wrapped, ring.current])
        return key_id, key
    key_id, wrapped, kek_id, settled = row
    found = key_id, decrypt(ring.key(kek_id), wrapped, _key_place(scope, subject, key_id))
    if settled:
        _keys.put((name, scope, subject), found)
    return found


def _read(sealed: Any, keys: Mapping[UUID, tuple[int, str, bytes]]) -> dict[str, str]:
    known = keys.get(_key_id(sealed)) if sealed else None
    if known is None:
        return {}
    scope, subject, key = known
    try:
        value: dict[str, str] = orjson.loads(decrypt(key, bytes(sealed)[ID_BYTES:], _value_place(scope, subject)))
    except (Unreadable, orjson.JSONDecodeError):
        return {}
    return value


def _key_id(sealed: Any) -> UUID:
    return UUID(bytes=bytes(sealed)[:ID_BYTES].ljust(ID_BYTES, b"\0"))


def _value_place(scope: int, subject: str) -> bytes:
    return orjson.dumps(["shardbeat audit", FORMAT, scope, subject])


def _key_place(scope: int, subject: str, key_id: UUID) -> bytes:
    return orjson.dumps(["shardbeat subject key", FORMAT, scope, subject, str(key_id)])
