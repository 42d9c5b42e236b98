"""How live work is, as far as a backfill has to make way for it; and how long runs of a job take."""

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.operations.backfill.yielding import Live
from apps.usage import pressure
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant
from tenants.registry import tenancy_of
from tenants.statements import run_in

Conn = psycopg.Connection[Any]
LOOKED_BACK = 200  # of the job's newest runs

_TYPICAL = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - started_at)::float8)
FROM (SELECT state, started_at, finished_at FROM {schema}.executions_execution
      WHERE job_id = $1 ORDER BY id DESC LIMIT $2) newest
WHERE state = 'succeeded' AND started_at IS NOT NULL
"""


def typical_s(conn: Conn, schema: str, job_id: UUID) -> float | None:
    """How long a run of the job takes, in seconds: the median of its newest ones. None when none has succeeded."""
    row = run_in(conn, _TYPICAL, schema, [job_id, LOOKED_BACK]).fetchone()
    return None if row is None else row[0]


def live_of(tenant: Tenant, *, job_id: UUID, pool: str, serial: bool, next_due: datetime | None) -> Live:
    """The pools' pressure is at most some seconds old. A run's length is asked only where it matters."""
    conn, group = door.raw(), tenancy_of(tenant).group
    pressed = pressure.pressed(conn)
    # Of a workflow nobody knows here which pools its steps will want.
    waits = any(one == group for _, one in pressed) if pool == WORKFLOW else (pool, group) in pressed
    run_s = typical_s(conn, tenant.schema_name, job_id) if serial else None
    return Live(waits, next_due, run_s)
