"""What fails, by cause: over all tenants, and of one. From the sums that `rolling_failures` writes.

A cause is one fingerprint: class, status, host and message without its varying parts. Counts are of attempts that
failed and of dead letters that were made, whatever became of these since. Texts come from tenants: escape them.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.usage.reading import STEP_S

Conn = psycopg.Connection[Any]
ROWS_MOST = 10_000  # that one answer is made of, the newest first


class Cause(NamedTuple):
    """What failures of a fingerprint have in common, when some were seen first and last, and one of them."""

    error_class: str
    status: str
    host: str
    message: str
    first_at: datetime
    last_at: datetime
    tenant_id: int
    execution_id: UUID


class Group(NamedTuple):
    """The failures of one cause. `series` has (start, attempts, letters) of the periods in which there were some.

    The group with the empty fingerprint holds all causes beyond the bound and has no `cause`.
    """

    fingerprint: str
    attempts: int
    letters: int
    tenants: list[int]  # ids, at most 50
    cause: Cause | None
    series: list[tuple[datetime, int, int]]


class Found(NamedTuple):
    """Groups, the most frequent first. `since` is later than was asked for where ROWS_MOST were not enough."""

    since: datetime
    groups: list[Group]


class OfHost(NamedTuple):
    """Attempts to call a host that failed."""

    host: str
    attempts: int
    letters: int
    tenants: list[int]
    fingerprints: list[str]


class OfTenant(NamedTuple):
    """How often one cause happened to a tenant."""

    tenant_id: int
    attempts: int
    letters: int
    last_at: datetime


# The rows of a time, newest first and bounded; a cause is described by whoever met it last.
_GROUPS = """
WITH found AS MATERIALIZED (
    SELECT starts_at, fingerprint, attempts, letters, {tenants} AS tenants FROM {table}
    WHERE step_s = %(step_s)s AND starts_at >= %(since)s {only} ORDER BY starts_at DESC LIMIT %(rows)s),
grouped AS MATERIALIZED (
    SELECT fingerprint, sum(attempts)::bigint AS attempts, sum(letters)::bigint AS letters,
           array_agg(starts_at ORDER BY starts_at) AS at, array_agg(attempts ORDER BY starts_at) AS of_attempts,
           array_agg(letters ORDER BY starts_at) AS of_letters
    FROM found GROUP BY 1 {having} ORDER BY {order}, fingerprint LIMIT %(most)s),
named AS (
    SELECT f.fingerprint, array_agg(DISTINCT u ORDER BY u) AS tenants
    FROM grouped g JOIN found f USING (fingerprint) CROSS JOIN LATERAL unnest(f.tenants) u GROUP BY 1)
SELECT g.fingerprint, g.attempts, g.letters, n.tenants[1:50],
       c.error_class, c.status, c.host, c.message, o.first_at, c.last_at, c.tenant_id, c.execution_id,
       g.at, g.of_attempts, g.of_letters, (SELECT min(starts_at) FROM found), (SELECT count(*) FROM found)
FROM grouped g LEFT JOIN named n USING (fingerprint)
LEFT JOIN LATERAL (
    SELECT * FROM usage_failurecause c WHERE c.fingerprint = g.fingerprint {of_cause} ORDER BY c.last_at DESC LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT first_at FROM usage_failurecause c WHERE c.fingerprint = g.fingerprint {of_cause} ORDER BY first_at LIMIT 1
) o ON true
ORDER BY {order_of_g}, g.fingerprint
"""
_BY = {"attempts": "{0}attempts DESC, {0}letters DESC", "letters": "{0}letters DESC, {0}attempts DESC"}

_CAUSE = """
SELECT error_class, status, host, message,
       (SELECT first_at FROM usage_failurecause o WHERE o.fingerprint = c.fingerprint ORDER BY first_at LIMIT 1),
       last_at, tenant_id, execution_id
FROM usage_failurecause c WHERE fingerprint = %s ORDER BY last_at DESC LIMIT 1
"""

_TENANTS = """
SELECT tenant_id, sum(attempts)::bigint, sum(letters)::bigint, max(starts_at) FROM (
    SELECT tenant_id, attempts, letters, starts_at FROM usage_failure
    WHERE fingerprint = %s AND step_s = %s AND starts_at >= %s ORDER BY starts_at DESC LIMIT %s) f
GROUP BY 1 ORDER BY 3 DESC, 2 DESC, 1
"""


_FORGET = "UPDATE usage_failurecause SET message = '' WHERE tenant_id = %s AND execution_id = ANY(%s)"


def groups(
    conn: Conn, *, step: str, since: datetime, most: int = 50, by: str = "attempts", tenant_id: int | None = None,
    fingerprint: str | None = None,
) -> Found:  # fmt: skip
    """Causes since a minute or hour, over all tenants or of one. By "letters", those that made none are left out."""
    values = {
        "step_s": STEP_S[step], "since": since, "most": most, "rows": ROWS_MOST, "tenant": tenant_id,
        "fingerprint": fingerprint,
    }  # fmt: skip
    rows = conn.execute(_statement(by, tenant_id, fingerprint), values).fetchall()
    found = [
        Group(
            row[0], row[1], row[2], row[3] or [],
            Cause._make(row[4:12]) if row[9] is not None else None,
            [(at, int(attempts), int(letters)) for at, attempts, letters in zip(*row[12:15], strict=True)],
        )
        for row in rows
    ]  # fmt: skip
    return Found(rows[0][15] if rows and rows[0][16] >= ROWS_MOST else since, found)


def cause_of(conn: Conn, fingerprint: str) -> Cause | None:
    """What it is, as whoever met it last describes it; None when nobody has in a month."""
    row = conn.execute(_CAUSE, [fingerprint]).fetchone()
    return None if row is None else Cause._make(row)


def hosts(found: Sequence[Group]) -> list[OfHost]:
    """The same failures by the host that was called, the most frequent first; what called none is left out. Pure."""
    sums: dict[str, OfHost] = {}
    for group in found:
        if group.cause is None or not group.cause.host:
            continue
        host = group.cause.host
        known = sums.get(host, OfHost(host, 0, 0, [], []))
        sums[host] = OfHost(
            host, known.attempts + group.attempts, known.letters + group.letters,
            sorted({*known.tenants, *group.tenants}), [*known.fingerprints, group.fingerprint],
        )  # fmt: skip
    return sorted(sums.values(), key=lambda one: (-one.attempts, one.host))


def tenants_of(conn: Conn, fingerprint: str, *, step: str, since: datetime) -> list[OfTenant]:
    """To whom one cause happened, most dead letters first."""
    rows = conn.execute(_TENANTS, [fingerprint, STEP_S[step], since, ROWS_MOST])
    return [OfTenant._make(row) for row in rows]


def forget(conn: Conn, tenant_id: int, execution_ids: Collection[UUID]) -> None:
    """What these executions said of their causes is not kept: they were erased. Counts stay."""
    conn.execute(_FORGET, [tenant_id, list(execution_ids)])


def _statement(by: str, tenant_id: int | None, fingerprint: str | None) -> str:
    only = "" if tenant_id is None else "AND tenant_id = %(tenant)s"
    return _GROUPS.format(
        table="usage_platformfailure" if tenant_id is None else "usage_failure",
        tenants="tenants" if tenant_id is None else "ARRAY[tenant_id]",
        only=only + ("" if fingerprint is None else " AND fingerprint = %(fingerprint)s"),
        having="HAVING sum(letters) > 0" if by == "letters" else "",
        order=_BY[by].format(""), order_of_g=_BY[by].format("g."),
        of_cause=only.replace("tenant_id", "c.tenant_id"),
    )  # fmt: skip
