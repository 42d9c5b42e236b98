"""How often the work of an execution was replayed: what fails again and again is to be looked at, not run again.

It is counted in the dead letters that were closed as replayed: those of the execution, and of what it runs in the place
of (`replay_of`), so that a new run key does not begin at 0.
"""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import psycopg

from tenants.statements import run_in

Conn = psycopg.Connection[Any]
CHAIN_MOST = 20  # executions in a row that ran in the place of one another; more can't be replayed often in good faith

_REPLAYS = f"""
WITH RECURSIVE chain AS (
    SELECT m.id AS execution_id, m.id AS counted_at, 1 AS links FROM unnest($1::uuid[]) AS m(id)
    UNION ALL
    SELECT c.execution_id, e.replay_of, c.links + 1
    FROM chain c JOIN {{schema}}.executions_execution e ON e.id = c.counted_at
    WHERE e.replay_of IS NOT NULL AND c.links < {CHAIN_MOST})
SELECT c.execution_id, count(*)
FROM chain c JOIN {{schema}}.deadletters_deadletter d ON d.execution_id = c.counted_at
WHERE d.resolution = 'replayed' GROUP BY 1
"""


def replays_of(conn: Conn, schema: str, execution_ids: Collection[UUID]) -> dict[UUID, int]:
    """How often each of these executions, and what it runs in the place of, was replayed; 0 is left out."""
    return dict(run_in(conn, _REPLAYS, schema, [list(execution_ids)]).fetchall()) if execution_ids else {}
