"""Reading a tenant's trail: a page of it by filters, and all of it in the order of its chain.

The ids of rows are one sequence for all tenants and would tell how busy the others are, so none leaves the platform:
rows are named by their `uid`, and cursors are encrypted.
"""

import hmac
import struct
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from django.conf import settings

from apps.audit.models import AuditEvent, Seal
from apps.audit.shown import Shown, shown

CHUNK = 1_000  # rows of one statement of the export


def events_page(*, tenant_id: int, filters: Mapping[str, Any], before: int | None, size: int) -> list[Shown]:
    """At most `size` rows below id `before`, newest first. `filters` are lookups of `AuditEvent`."""
    found = AuditEvent.objects.filter(tenant_id=tenant_id, **filters)
    if before is not None:
        found = found.filter(pk__lt=before)
    return shown(found.order_by("-pk")[:size])


def events_in_chain(*, tenant_id: int, after: int, most: int) -> Iterator[Shown]:
    """Sealed rows from link `after` + 1 on, in the order of the chain: none is ever put in before one that was read.

    Each chunk is a statement of its own: a slow reader holds no transaction open.
    """
    while most > 0:
        seals = list(Seal.objects.filter(tenant_id=tenant_id, number__gt=after).order_by("number")[: min(most, CHUNK)])
        if not seals:
            return
        rows = AuditEvent.objects.in_bulk([one.event_id for one in seals])
        yield from shown([rows[one.event_id] for one in seals if one.event_id in rows], known=seals)
        after, most = seals[-1].number, most - len(seals)


def cursor_key(event_id: int) -> UUID:
    """A row's id as a cursor holds it."""
    encryptor = _cipher().encryptor()
    return UUID(bytes=encryptor.update(struct.pack(">Qq", 0, event_id)) + encryptor.finalize())


def of_cursor_key(key: UUID) -> int | None:
    """The id again; None when the key is made up, or of another installation."""
    decryptor = _cipher().decryptor()
    zero, event_id = struct.unpack(">Qq", decryptor.update(key.bytes) + decryptor.finalize())
    return event_id if zero == 0 else None


def _cipher() -> "Cipher[modes.ECB]":
    """One block, which half of zeros tells from a made-up one."""
    key = hmac.digest(settings.SECRET_KEY.encode(), b"shardbeat audit cursor", "sha256")
    return Cipher(algorithms.AES(key), modes.ECB())
