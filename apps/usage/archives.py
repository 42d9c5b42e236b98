"""How the tenants' archives stand, as the last run over each left it: for metrics, without a look into any schema."""

from typing import Any, NamedTuple

import psycopg

Conn = psycopg.Connection[Any]
FAULT_CHARS = 300

_NOTE = """
INSERT INTO usage_archivestanding (tenant_id, at, executions, bytes, overdue_s, fault)
VALUES (%(tenant)s, clock_timestamp(), %(executions)s, %(bytes)s, %(overdue_s)s, '')
ON CONFLICT (tenant_id) DO UPDATE SET at = excluded.at, executions = excluded.executions, bytes = excluded.bytes,
       overdue_s = excluded.overdue_s, fault = excluded.fault
"""
_FAULT = """
INSERT INTO usage_archivestanding (tenant_id, at, executions, bytes, overdue_s, fault)
VALUES (%(tenant)s, clock_timestamp(), 0, 0, 0, %(fault)s)
ON CONFLICT (tenant_id) DO UPDATE SET at = excluded.at, fault = excluded.fault
"""
_TOTALS = """
SELECT count(*), coalesce(sum(executions), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
       count(*) FILTER (WHERE fault <> ''), coalesce(max(overdue_s), 0)::float8,
       coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8
FROM usage_archivestanding
"""


class Totals(NamedTuple):
    """Of all tenants whose history is archived."""

    tenants: int
    executions: int
    bytes: int
    failing: int  # tenants whose last run failed
    overdue_s: float  # of the tenant whose oldest history should have been archived the longest ago
    age_s: float  # since the run over a tenant that is the longest ago


NONE = Totals(0, 0, 0, 0, 0.0, 0.0)


def note(conn: Conn, tenant_id: int, *, executions: int, bytes: int, overdue_s: float) -> None:
    """What a tenant's archive holds after a run that went well."""
    values = {"tenant": tenant_id, "executions": executions, "bytes": bytes, "overdue_s": overdue_s}
    conn.execute(_NOTE, values)


def note_fault(conn: Conn, tenant_id: int, fault: str) -> None:
    """Why the run over a tenant failed; what its archive holds is known from the run before."""
    conn.execute(_FAULT, {"tenant": tenant_id, "fault": fault[:FAULT_CHARS]})


def forget(conn: Conn, *, but: list[int]) -> None:
    """Drops the notes of tenants whose history is not archived any more."""
    conn.execute("DELETE FROM usage_archivestanding WHERE tenant_id <> ALL(%s)", [but])


def totals(conn: Conn) -> Totals:
    """All together."""
    row = conn.execute(_TOTALS).fetchone()
    assert row is not None
    return Totals._make(row)
