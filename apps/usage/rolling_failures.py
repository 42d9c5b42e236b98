"""Summing up what failed: rows by cause for minutes and hours, of each tenant and of all together.

It is a part of the transaction of `rolling`. However many causes there are, only so many get rows (`bounding`); the
others are counted together.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import orjson
import psycopg

from apps.usage.bounding import MOST, PLATFORM_MOST, TENANTS_MOST, Failed, admitted, folded
from apps.usage.figures import OTHERS, start_of
from apps.usage.models import FAILURE_STEPS

Conn = psycopg.Connection[Any]
Place = tuple[int, datetime, int]  # step in seconds, start, tenant
KEPT = {60: timedelta(days=1), 3_600: timedelta(days=31)}
PRUNE_BATCH = 20_000

_KNOWN = """
SELECT f.step_s, f.starts_at, f.tenant_id, f.fingerprint FROM usage_failure f
JOIN unnest(%s::int[], %s::timestamptz[], %s::int[]) AS m(step_s, starts_at, tenant_id)
     USING (step_s, starts_at, tenant_id)
"""
_KNOWN_PLATFORM = """
SELECT f.step_s, f.starts_at, f.fingerprint FROM usage_platformfailure f
JOIN unnest(%s::int[], %s::timestamptz[]) AS m(step_s, starts_at) USING (step_s, starts_at)
"""

_ADD = """
INSERT INTO usage_failure AS f (step_s, starts_at, tenant_id, fingerprint, attempts, letters)
SELECT m.* FROM unnest(%s::int[], %s::timestamptz[], %s::int[], %s::text[], %s::bigint[], %s::bigint[])
     AS m(step_s, starts_at, tenant_id, fingerprint, attempts, letters)
JOIN tenants_tenant t ON t.id = m.tenant_id ORDER BY 1, 2, 3, 4
ON CONFLICT (step_s, starts_at, tenant_id, fingerprint)
DO UPDATE SET attempts = f.attempts + excluded.attempts, letters = f.letters + excluded.letters
"""

_ADD_PLATFORM = f"""
INSERT INTO usage_platformfailure AS f (step_s, starts_at, fingerprint, attempts, letters, tenants)
SELECT step_s, starts_at, fingerprint, attempts, letters, tenants::int[]
FROM unnest(%s::int[], %s::timestamptz[], %s::text[], %s::bigint[], %s::bigint[], %s::text[])
     AS m(step_s, starts_at, fingerprint, attempts, letters, tenants) ORDER BY 1, 2, 3
ON CONFLICT (step_s, starts_at, fingerprint)
DO UPDATE SET attempts = f.attempts + excluded.attempts, letters = f.letters + excluded.letters,
    tenants = ARRAY(SELECT DISTINCT u FROM unnest(f.tenants || excluded.tenants) u ORDER BY u LIMIT {TENANTS_MOST})
"""

_DESCRIBE = """
INSERT INTO usage_failurecause AS c
    (tenant_id, fingerprint, error_class, status, host, message, first_at, last_at, execution_id)
SELECT m.tenant_id, m.fingerprint, m.error_class, m.status, m.host, m.message, m.first_at, m.last_at, m.execution_id
FROM unnest(%s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
            %s::uuid[])
     AS m(tenant_id, fingerprint, error_class, status, host, message, first_at, last_at, execution_id)
JOIN tenants_tenant t ON t.id = m.tenant_id ORDER BY m.tenant_id, m.fingerprint
ON CONFLICT (tenant_id, fingerprint)
DO UPDATE SET first_at = least(c.first_at, excluded.first_at), last_at = greatest(c.last_at, excluded.last_at),
    execution_id = CASE WHEN excluded.last_at >= c.last_at THEN excluded.execution_id ELSE c.execution_id END
"""

_OLD = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table} WHERE step_s = %s AND starts_at < %s ORDER BY step_s, starts_at LIMIT %s))
"""
_OLD_CAUSES = """
DELETE FROM usage_failurecause WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM usage_failurecause WHERE last_at < %s ORDER BY last_at LIMIT %s))
"""


class Described(NamedTuple):
    """A cause of a tenant, from when to when it was seen, and an execution of the last minute."""

    texts: tuple[str, str, str, str]
    first_at: datetime
    last_at: datetime
    execution_id: str


class Noted(NamedTuple):
    """What notes say, added up."""

    counts: dict[Place, dict[str, Failed]]
    causes: dict[tuple[int, str], Described]


def add(conn: Conn, notes: Sequence[tuple[datetime, str]]) -> None:
    """Adds these notes, each of a minute, to the rows of the transaction's caller."""
    noted = _read(notes)
    if not noted.counts:
        return
    kept = _kept(noted.counts, _by_place(conn.execute(_KNOWN, _columns(noted.counts))))
    rows = [(*place, *one) for place, counts in kept.items() for one in _flat(counts)]
    conn.execute(_ADD, _columns(rows))
    conn.execute(_ADD_PLATFORM, _columns(_of_platform(conn, kept)))
    named = {(tenant_id, one) for (_, _, tenant_id), counts in kept.items() for one in counts}
    described = [
        (*at, *one.texts, one.first_at, one.last_at, one.execution_id)
        for at, one in noted.causes.items()
        if at in named and at[1] != OTHERS
    ]
    if described:
        conn.execute(_DESCRIBE, _columns(described))


def prune(conn: Conn, *, now: datetime, limit: int = PRUNE_BATCH) -> int:
    """Removes up to `limit` old rows of each kind; says how many."""
    gone = 0
    for table in ("usage_failure", "usage_platformfailure"):
        for step_s, kept in KEPT.items():
            gone += conn.execute(_OLD.format(table=table), [step_s, now - kept, limit]).rowcount
    return gone + conn.execute(_OLD_CAUSES, [now - KEPT[3_600], limit]).rowcount


def _read(notes: Sequence[tuple[datetime, str]]) -> Noted:
    counts: dict[Place, dict[str, Failed]] = defaultdict(dict)
    causes: dict[tuple[int, str], Described] = {}
    for minute, text in sorted(notes, key=lambda note: note[0]):
        for tenant_id, attempts, letters, execution_id, fingerprint, *texts in orjson.loads(text):
            for step_s in FAILURE_STEPS:
                of_place = counts[step_s, start_of(minute, step_s), tenant_id]
                of_place[fingerprint] = of_place.get(fingerprint, Failed()).plus(Failed(attempts, letters))
            known = causes.get((tenant_id, fingerprint))
            first_at = known.first_at if known else minute
            causes[tenant_id, fingerprint] = Described(tuple(texts[:4]), first_at, minute, execution_id)
    return Noted(counts, causes)


def _kept(
    counts: Mapping[Place, Mapping[str, Failed]], known: Mapping[Place, Collection[str]]
) -> dict[Place, dict[str, Failed]]:
    """What gets rows: a cause that has none in the hour gets none in its minutes either."""
    found: dict[Place, dict[str, Failed]] = {}
    of_hour: dict[tuple[datetime, int], set[str]] = {}
    for place in sorted(counts, key=lambda place: -place[0]):  # hours first
        step_s, starts_at, tenant_id = place
        wanted = counts[place]
        hour = (start_of(starts_at, 3_600), tenant_id)
        if step_s != 3_600:
            wanted = folded(wanted, of_hour[hour])
        names = admitted(wanted, known=known.get(place, ()), most=MOST[step_s])
        if step_s == 3_600:
            of_hour[hour] = names
        found[place] = folded(wanted, names)
    return found


def _of_platform(conn: Conn, kept: Mapping[Place, Mapping[str, Failed]]) -> list[tuple[Any, ...]]:
    """Rows of all tenants together."""
    sums: dict[tuple[int, datetime], dict[str, Failed]] = defaultdict(dict)
    tenants: dict[tuple[int, datetime, str], set[int]] = defaultdict(set)
    for (step_s, starts_at, tenant_id), counts in kept.items():
        of_step = sums[step_s, starts_at]
        for fingerprint, failed in counts.items():
            of_step[fingerprint] = of_step.get(fingerprint, Failed()).plus(failed)
            tenants[step_s, starts_at, fingerprint].add(tenant_id)
    known: dict[tuple[int, datetime], set[str]] = defaultdict(set)
    for step_s, starts_at, fingerprint in conn.execute(_KNOWN_PLATFORM, _columns(sums)):
        known[step_s, starts_at].add(fingerprint)
    rows = []
    for at, wanted in sums.items():
        names = admitted(wanted, known=known[at], most=PLATFORM_MOST[at[0]])
        for fingerprint, failed in folded(wanted, names).items():
            ids = sorted(tenants[(*at, fingerprint)])[:TENANTS_MOST]
            rows.append((*at, fingerprint, *failed, "{" + ",".join(map(str, ids)) + "}"))
    return rows


def _by_place(rows: Iterable[tuple[Any, ...]]) -> dict[Place, set[str]]:
    found: dict[Place, set[str]] = defaultdict(set)
    for step_s, starts_at, tenant_id, fingerprint in rows:
        found[step_s, starts_at, tenant_id].add(fingerprint)
    return found


def _flat(counts: Mapping[str, Failed]) -> list[tuple[str, int, int]]:
    return [(fingerprint, *failed) for fingerprint, failed in counts.items()]


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
