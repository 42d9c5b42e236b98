"""Looking through the trail of all tenants: a page by filters, and a walk for an export. Both are bounded.

Rows of an object and of a tenant have an index. Whatever else is asked for is looked for among SCAN_MOST rows at a
time, newest first, and the answer says where to go on. Ids grow with time, give or take SLACK, so a range of time is a
range of ids, whose ends are found by halving.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import QuerySet

from apps.audit.models import AuditEvent
from apps.audit.reading import CHUNK, SLACK
from apps.audit.shown import Shown, shown

SCAN_MOST = 10_000
OPERATORS_OWN = 0  # in place of a tenant's number: rows that are of none

# The least id of which its row, and so about all after it, was written at or after that time.
_FIRST_SINCE = """
WITH RECURSIVE half AS (
    SELECT (SELECT min(id) FROM audit_auditevent) AS low, (SELECT max(id) + 1 FROM audit_auditevent) AS high
    UNION ALL
    SELECT CASE WHEN m.at < %(at)s THEN m.id + 1 ELSE h.low END,
           CASE WHEN m.at < %(at)s THEN h.high ELSE (h.low + h.high) / 2 END
    FROM half h CROSS JOIN LATERAL (
        SELECT id, at FROM audit_auditevent WHERE id >= (h.low + h.high) / 2 ORDER BY id LIMIT 1) m
    WHERE h.low < h.high)
SELECT min(high) FROM half
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for; None and empty ask for nothing. `filters` are further lookups of `AuditEvent`."""

    tenant_id: int | None = None
    object_id: str = ""
    since: datetime | None = None
    until: datetime | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)


class Found(NamedTuple):
    """A page. `before` is where the next one goes on, None on the last; `looked_to` is how far was looked in vain."""

    rows: list[Shown]
    before: int | None
    looked_to: datetime | None = None


def trail_page(wanted: Wanted, *, before: int | None, size: int) -> Found:
    """Rows below id `before`, newest first."""
    base = _rows(wanted)
    if before is not None:
        base = base.filter(pk__lt=before)
    rest, lowest = _rest(wanted), None
    if rest and not wanted.object_id:
        lowest = base.order_by("-pk").values_list("pk", "at")[SCAN_MOST - 1 : SCAN_MOST].first()
        if lowest is not None:
            base = base.filter(pk__gte=lowest[0])
    rows = list(base.filter(**rest).order_by("-pk")[: size + 1])
    if len(rows) > size:
        return Found(shown(rows[:size], seals=False), rows[size - 1].pk)
    return Found(shown(rows, seals=False), lowest and lowest[0], lowest and lowest[1])


def trail_count(wanted: Wanted) -> tuple[int, bool]:
    """How many rows there are among the newest SCAN_MOST that an index finds, and whether those are all."""
    base = _rows(wanted).order_by("-pk")
    looked = base.values("pk")[:SCAN_MOST]
    count = AuditEvent.objects.filter(pk__in=looked, **_rest(wanted)).count()
    return count, not base.values("pk")[SCAN_MOST : SCAN_MOST + 1].exists()


def newest_about(tenant_id: int, object_ids: Iterable[str], *, most: int) -> list[Shown]:
    """The newest rows about objects of a tenant, newest first, without what they changed. Down the index of objects."""
    rows = AuditEvent.objects.filter(tenant_id=tenant_id, object_id__in=list(object_ids)).defer("before", "after")
    return shown(rows.order_by("-pk")[:most], seals=False)


def trail_walk(wanted: Wanted, *, most: int) -> Iterator[Shown]:
    """At most so many rows with their seals, newest first; each chunk is a statement of its own."""
    before: int | None = None
    rest = _rest(wanted)
    base = _rows(wanted)
    while most > 0:
        part = base if before is None else base.filter(pk__lt=before)
        looked = list(part.order_by("-pk").values_list("pk", flat=True)[:CHUNK])
        if not looked:
            return
        before = looked[-1]
        rows = list(AuditEvent.objects.filter(pk__in=looked, **rest).order_by("-pk")[:most])
        yield from shown(rows)
        most -= len(rows)


def _rows(wanted: Wanted) -> "QuerySet[AuditEvent]":
    """As far as an index goes."""
    rows = AuditEvent.objects.all()
    if wanted.tenant_id is not None:
        own = wanted.tenant_id == OPERATORS_OWN
        rows = rows.filter(tenant_id__isnull=True) if own else rows.filter(tenant_id=wanted.tenant_id)
    if wanted.object_id:
        rows = rows.filter(object_id=wanted.object_id)
    if wanted.since is not None and (first := _first_since(wanted.since - SLACK)) is not None:
        rows = rows.filter(pk__gte=first)
    if wanted.until is not None and (last := _first_since(wanted.until + SLACK)) is not None:
        rows = rows.filter(pk__lt=last)
    return rows


def _rest(wanted: Wanted) -> dict[str, Any]:
    rest = dict(wanted.filters)
    if wanted.since is not None:
        rest["at__gte"] = wanted.since
    if wanted.until is not None:
        rest["at__lt"] = wanted.until
    return rest


def _first_since(at: datetime) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_SINCE, {"at": at})
        row = cursor.fetchone()
    return None if row is None else row[0]
