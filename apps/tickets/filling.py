"""Buckets of jobs' rates as their definitions say them: one row while a job has a rate, written with the job.

What they hold is taken by whoever admits work (`buckets`). A row is locked after tickets, as there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets.buckets import LATER_AT
from kernel.rows import json_rows

Conn = psycopg.Connection[Any]


class Rate(NamedTuple):
    """What fills a job's bucket: so many tokens a second, at most `burst`."""

    owner: UUID
    per_s: float
    burst: int


# A new one is full; one that changes keeps what it has, as far as that fits.
_PUT = f"""
INSERT INTO tickets_bucket AS b (tenant_id, owner, per_s, burst, tokens, at)
SELECT %s, m.owner, m.per_s, m.burst, m.burst, clock_timestamp()
FROM json_to_recordset(%s::json) AS m(owner uuid, per_s float8, burst int) ORDER BY m.owner
ON CONFLICT (tenant_id, owner) DO UPDATE SET per_s = excluded.per_s, burst = excluded.burst,
    at = {LATER_AT},
    tokens = least(excluded.burst, b.burst,
                   b.tokens + b.per_s * greatest(0, extract(epoch FROM excluded.at - b.at)::float8))
"""

_KNOWN = "SELECT owner, per_s, burst FROM tickets_bucket WHERE tenant_id = %s AND owner = ANY(%s)"


def rate_of(job_id: UUID, limit: Mapping[str, int]) -> Rate:
    """The rate that a job's `rate_limit` is."""
    return Rate(job_id, limit["runs"] / limit["per_s"], limit["burst"])


def put(conn: Conn, tenant_id: int, rates: Sequence[Rate]) -> None:
    """Makes or changes the buckets of these jobs."""
    if rates:
        conn.execute(_PUT, [tenant_id, json_rows(rates)])


def drop(conn: Conn, tenant_id: int, owners: Sequence[UUID]) -> None:
    """These jobs have no rate any more."""
    conn.execute("DELETE FROM tickets_bucket WHERE tenant_id = %s AND owner = ANY(%s)", [tenant_id, list(owners)])


def known(conn: Conn, tenant_id: int, owners: Sequence[UUID]) -> dict[UUID, Rate]:
    """The rates that these jobs' buckets have."""
    return {row[0]: Rate(*row) for row in conn.execute(_KNOWN, [tenant_id, list(owners)])}
