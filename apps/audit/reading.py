"""Reading a tenant's trail: a page of it by filters, and all of it in the order of its chain.

The ids of rows are one sequence for all tenants and would tell how busy the others are, so none leaves the platform:
rows are named by their `uid`, and cursors are encrypted.
"""

import hmac
import struct
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from django.conf import settings

from apps.audit.models import AuditEvent, Seal
from apps.audit.shown import Shown, shown

CHUNK = 1_000  # rows of one statement of the export
SCAN_MOST = 20_000  # rows that one page looks at for filters without an index
SLACK = timedelta(minutes=10)  # a row gets its id so long after its time at most


def events_page(*, tenant_id: int, filters: Mapping[str, Any], before: int | None, size: int) -> list[Shown]:
    """At most `size` rows below id `before`, newest first. `filters` are lookups of `AuditEvent`."""
    found = AuditEvent.objects.filter(tenant_id=tenant_id, **filters)
    if before is not None:
        found = found.filter(pk__lt=before)
    return shown(found.order_by("-pk")[:size])


def events_scan(
    *, tenant_id: int, filters: Mapping[str, Any], before: int | None, size: int
) -> tuple[list[Shown], int | None]:  # fmt: skip
    """As `events_page`, but looks at no more than SCAN_MOST rows where no index knows the filters.

    Also the id below which the next page goes on, None on the last one: that of the last row, or of the last that was
    looked at, so that a page may have fewer rows than fit.
    """
    ids, lowest = _ids_of_time(tenant_id, filters), None
    if (filters or ids) and "object_id" not in filters:
        looked_at = AuditEvent.objects.filter(tenant_id=tenant_id, **ids)
        if before is not None:
            looked_at = looked_at.filter(pk__lt=before)
        numbers = looked_at.order_by("-pk").values_list("pk", flat=True)
        lowest = next(iter(numbers[SCAN_MOST - 1 : SCAN_MOST]), None)
        if lowest is not None:
            ids["pk__gte"] = lowest
    if "pk__lt" in ids:
        highest = ids.pop("pk__lt")
        before = highest if before is None else min(before, highest)
    rows = events_page(tenant_id=tenant_id, filters={**filters, **ids}, before=before, size=size + 1)
    if len(rows) > size:
        return rows[:size], rows[size - 1].event.pk
    return rows, lowest


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


def _ids_of_time(tenant_id: int, filters: Mapping[str, Any]) -> dict[str, int]:
    """Between which ids the rows of a range of time are: ids grow with time, give or take SLACK."""
    found: dict[str, int] = {}
    rows = AuditEvent.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)
    if "at__gt" in filters:
        earlier = rows.filter(at__lt=filters["at__gt"] - SLACK).order_by("-at").first()
        found |= {} if earlier is None else {"pk__gt": earlier}
    if "at__lt" in filters:
        later = rows.filter(at__gt=filters["at__lt"] + SLACK).order_by("at").first()
        found |= {} if later is None else {"pk__lt": later}
    return found


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
