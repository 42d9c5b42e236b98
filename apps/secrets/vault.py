"""The worker's way to values: read when attempts are handed over, decrypted, remembered for a short while.

Which version is current is asked each time, so a new value counts from the next start on; what is remembered is only
the work of decrypting it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.secrets import sealing
from apps.secrets.keyring import keyring
from apps.secrets.sealing import Place, Sealed
from kernel.clock import monotonic_s
from kernel.errors import ShardbeatError
from kernel.shelf import Shelf
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
LIFE_S = 60.0  # of a decrypted value in this process
VALUES_MOST = 2_000
KEYS_MOST = 1_000
USED_STEP = timedelta(minutes=1)

_READ = """
SELECT s.id, s.name, s.purpose, s.version, s.nonce, s.ciphertext, k.id, k.wrapped, k.kek_id, s.expires_at,
       s.last_used_at
FROM {schema}.secrets_secret s JOIN {schema}.secrets_datakey k ON k.id = s.data_key_id
"""
# Nobody waits for the note of a use, and it waits for nobody.
_USED = """
UPDATE {schema}.secrets_secret SET last_used_at = %(now)s
WHERE id IN (SELECT id FROM {schema}.secrets_secret WHERE id = ANY(%(ids)s) AND (last_used_at IS NULL
             OR last_used_at < %(before)s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Found:
    """Values by name, and why others could not be read. A name in neither does not exist."""

    values: dict[str, str] = field(default_factory=dict, repr=False)
    unreadable: dict[str, ShardbeatError] = field(default_factory=dict)


class Vault:
    """Thread-safe; one per process."""

    def __init__(self, *, life_s: float = LIFE_S, clock: Callable[[], float] = monotonic_s) -> None:
        self._values: Shelf[tuple[int, UUID, int, UUID], str] = Shelf(VALUES_MOST, life_s, clock)
        self._keys: Shelf[tuple[int, UUID, str], bytes] = Shelf(KEYS_MOST, life_s, clock)
        self._signing: Shelf[tuple[int, int], list[tuple[str, datetime | None]]] = Shelf(KEYS_MOST, life_s, clock)

    def values(self, conn: Conn, tenancy: Tenancy, names: Collection[str], *, now: datetime) -> Found:
        """The values of a tenant's secrets as they are now. Notes that they were used, to the minute."""
        if not names:
            return Found()
        query = sql.SQL(_READ + "WHERE s.name = ANY(%s) AND s.purpose <> 'signing'")
        rows = conn.execute(_in(query, tenancy), [sorted(names)]).fetchall()
        found = Found()
        for row in rows:
            try:
                found.values[row[1]] = self._value(tenancy.id, row)
            except ShardbeatError as error:
                found.unreadable[row[1]] = error
        stale = [row[0] for row in rows if row[10] is None or row[10] < now - USED_STEP]
        if stale:
            parameters = {"now": now, "ids": stale, "before": now - USED_STEP}
            conn.execute(_in(sql.SQL(_USED), tenancy), parameters)
        return found

    def signing(self, conn: Conn, tenancy: Tenancy, *, now: datetime) -> tuple[str, ...]:
        """What signs a tenant's calls now, newest first; empty when it has none. KeyUnknown, SecretUnreadable."""
        if not tenancy.signing_version:
            return ()
        key = (tenancy.id, tenancy.signing_version)  # each rotation has a new number
        known = self._signing.get(key)
        if known is None:
            query = sql.SQL(_READ + "WHERE s.purpose = 'signing' ORDER BY s.id DESC")
            rows = conn.execute(_in(query, tenancy)).fetchall()
            known = [(self._value(tenancy.id, row), row[9]) for row in rows]
            self._signing.put(key, known)
        return tuple(value for value, expires_at in known if expires_at is None or expires_at > now)

    def prune(self) -> None:
        """Forgets what is old."""
        for shelf in (self._values, self._keys, self._signing):
            shelf.prune()

    def _value(self, tenant_id: int, row: tuple[Any, ...]) -> str:
        secret_id, name, purpose, version, nonce, ciphertext, key_id, wrapped, kek_id = row[:9]
        known = self._values.get((tenant_id, secret_id, version, key_id))
        if known is not None:
            return known
        data_key = self._keys.get((tenant_id, key_id, kek_id))
        if data_key is None:
            data_key = sealing.unwrap(keyring().key(kek_id), wrapped, tenant_id=tenant_id, key_id=key_id)
            self._keys.put((tenant_id, key_id, kek_id), data_key)
        value = sealing.unseal(data_key, Sealed(nonce, ciphertext), Place(tenant_id, purpose, name, version))
        self._values.put((tenant_id, secret_id, version, key_id), value)
        return value


def _in(query: sql.SQL, tenancy: Tenancy) -> sql.Composed:
    return query.format(schema=sql.Identifier(tenancy.schema))
