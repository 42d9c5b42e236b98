"""The chain of one tenant's trail: what a link is, and the key that makes one.

A link is HMAC-SHA256, under a key that is wrapped by SECRETS_KEYS, of the link before, its number, when it was made and
the digest of the event. So whoever owns the database but not those keys can't make a chain that fits changed rows.
The digest is computed in the database, of what is stored to the last digit (numbers in JSON would suffer in Python).
"""

import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson
import psycopg
from django.conf import settings

from kernel.errors import ShardbeatError
from kernel.keyring import parse
from kernel.sealing import Unreadable, decrypt, encrypt, new_key

Conn = psycopg.Connection[Any]
FORMAT = 1
FIRST = bytes(32)  # what the first link follows
NO_TENANT = 0  # the chain of rows without a tenant
_KEY_PLACE = orjson.dumps(["shardbeat audit chain", FORMAT])
_MICROSECOND = 1_000_000

# Of the event `e`. A new column goes to the end, under a new format. A year before Christ is told from the same after.
DIGEST = f"""sha256(convert_to(jsonb_build_array({FORMAT}, e.id, e.txid, e.uid,
    to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')
        || CASE WHEN e.at < '0001-01-01 00:00:00+00' THEN ' BC' ELSE '' END,
    e.tenant_id, e.actor, e.role, e.subject, e.action, e.object_type, e.object_id, e.allowed, e.before::text,
    e.after::text, e.reason, e.request_id,
    encode(e.personal, 'hex'), e.about, encode(e.about_personal, 'hex'))::text, 'UTF8'))"""

# One look at the last link of each chain: the index is walked from tenant to tenant.
_LAST = """
WITH RECURSIVE chains AS (
    SELECT (SELECT min(tenant_id) FROM public.audit_seal) AS tenant_id
    UNION ALL
    SELECT (SELECT min(s.tenant_id) FROM public.audit_seal s WHERE s.tenant_id > c.tenant_id) FROM chains c
    WHERE c.tenant_id IS NOT NULL)
SELECT c.tenant_id, l.number, l.head, l.sealed_at FROM chains c
CROSS JOIN LATERAL (SELECT number, head, sealed_at FROM public.audit_seal s WHERE s.tenant_id = c.tenant_id
                    ORDER BY number DESC LIMIT 1) l
"""

_ONE = f"""
SELECT s.tenant_id, s.number, s.sealed_at, s.head, p.head, {DIGEST} FROM public.audit_seal s
JOIN public.audit_auditevent e ON e.id = s.event_id
LEFT JOIN public.audit_seal p ON p.tenant_id = s.tenant_id AND p.number = s.number - 1 WHERE s.event_id = %s
"""
_WAITING = """
SELECT count(*) FROM (
    SELECT 1 FROM public.audit_sealstate t CROSS JOIN LATERAL (
        SELECT id FROM public.audit_auditevent WHERE (txid, id) > (t.at_txid, t.at_id)
        UNION ALL SELECT id FROM public.audit_auditevent WHERE txid = ANY(t.late)) e
    LEFT JOIN public.audit_seal s ON s.event_id = e.id WHERE s.event_id IS NULL LIMIT %s) a
"""
_ALARMS = "SELECT count(*) FROM (SELECT 1 FROM public.audit_auditevent WHERE action = 'audit.alarm' LIMIT %s) a"


class Head(NamedTuple):
    """The last link of a chain."""

    number: int
    head: bytes
    sealed_at: datetime | None  # None: it was noted down without


@dataclass(frozen=True, slots=True)
class State:
    """The sealer's row (see models.SealState)."""

    step: int
    at_txid: int
    at_id: int
    late: tuple[int, ...]
    rescan_id: int | None
    total: int
    mac: bytes = b""

    def signed(self, key: bytes) -> bytes:
        """What `mac` must be: nobody without the key can say that less was sealed."""
        parts = [self.step, self.at_txid, self.at_id, sorted(self.late), self.rescan_id, self.total]
        return hmac.digest(key, b"state" + orjson.dumps(parts), "sha256")


STATE_COLUMNS = "step, at_txid, at_id, late, rescan_id, total, mac"


def state_of(row: tuple[Any, ...]) -> State:
    """From STATE_COLUMNS."""
    return State(row[0], row[1], row[2], tuple(row[3]), row[4], row[5], bytes(row[6]))


def link(key: bytes, before: bytes, *, tenant_id: int, number: int, sealed_at: datetime, digest: bytes) -> bytes:
    """The link after `before`."""
    at = int(sealed_at.timestamp()) * _MICROSECOND + sealed_at.microsecond
    return hmac.digest(key, before + struct.pack(">iqq", tenant_id, number, at) + digest, "sha256")


def make_key() -> tuple[bytes, bytes, str]:
    """A new key of the chains: itself, wrapped, and under which key. KeyringInvalid."""
    ring, key = parse(settings.SECRETS_KEYS), new_key()
    return key, encrypt(ring.key(ring.current), key, _KEY_PLACE), ring.current


def key_of(wrapped: bytes, kek_id: str) -> bytes:
    """The key of the chains. KeyringInvalid, KeyUnknown; Unreadable when it was changed."""
    return decrypt(parse(settings.SECRETS_KEYS).key(kek_id), wrapped, _KEY_PLACE)


def chain_key(conn: Conn) -> bytes | None:
    """The key as it is stored; None before anything was sealed. KeyringInvalid, KeyUnknown, Unreadable."""
    row = conn.execute("SELECT wrapped, kek_id FROM public.audit_sealstate").fetchone()
    return None if row is None or row[0] is None else key_of(bytes(row[0]), row[1])


def rewrap(conn: Conn, *, dry_run: bool) -> tuple[int, list[str]]:
    """Wraps the key of the chains with the current key-encryption key, as `personal.rewrap` does."""
    ring = parse(settings.SECRETS_KEYS)
    with conn.transaction():
        row = conn.execute("SELECT wrapped, kek_id FROM public.audit_sealstate FOR UPDATE").fetchone()
        if row is None or row[0] is None or row[1] == ring.current:
            return 0, []
        try:
            key = key_of(bytes(row[0]), row[1])
        except (ShardbeatError, Unreadable):
            return 0, [f"key of the audit chains under {row[1]}"]
        if not dry_run:
            wrapped = encrypt(ring.key(ring.current), key, _KEY_PLACE)
            conn.execute("UPDATE public.audit_sealstate SET wrapped = %s, kek_id = %s", [wrapped, ring.current])
    return 1, []


def fits(conn: Conn, event_id: int) -> bool | None:
    """Whether the link of one event is what it must be after the link before; None when it has none yet.

    KeyringInvalid, KeyUnknown, Unreadable.
    """
    row = conn.execute(_ONE, [event_id]).fetchone()
    key = chain_key(conn)
    if row is None or key is None:
        return None
    tenant_id, number, sealed_at, head, before, digest = row
    former = FIRST if number == 1 else bytes(before or b"")
    return bytes(head) == link(
        key, former, tenant_id=tenant_id, number=number, sealed_at=sealed_at, digest=bytes(digest)
    )  # fmt: skip


def waiting(conn: Conn, *, most: int) -> int:
    """How many rows are not sealed yet, counted no further than `most`."""
    row = conn.execute(_WAITING, [most]).fetchone()
    return int(row[0]) if row else 0


def alarms(conn: Conn, *, most: int) -> int:
    """How often the sealer found that its own row was not as it had left it, counted no further than `most`."""
    row = conn.execute(_ALARMS, [most]).fetchone()
    return int(row[0]) if row else 0


def head_of(conn: Conn, tenant_id: int) -> Head | None:
    """The last link of one chain."""
    query = "SELECT number, head, sealed_at FROM public.audit_seal WHERE tenant_id = %s ORDER BY number DESC LIMIT 1"
    row = conn.execute(query, [tenant_id]).fetchone()
    return None if row is None else Head(row[0], bytes(row[1]), row[2])


def heads(conn: Conn) -> dict[int, Head]:
    """The last link of every chain, by tenant."""
    return {row[0]: Head(row[1], bytes(row[2]), row[3]) for row in _rows(conn) if row[1] is not None}


def _rows(conn: Conn) -> Iterator[tuple[Any, ...]]:
    yield from conn.execute(_LAST)
