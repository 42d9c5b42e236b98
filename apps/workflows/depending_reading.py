"""What an execution waits for, read with how that stands now."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.workflows.definition import On

Conn = psycopg.Connection[Any]


class Parent(NamedTuple):
    """An execution that another one depends on. `met` is None while that is open; `state` is None when it is gone."""

    execution_id: UUID
    on: On
    met: bool | None
    state: str | None
    since: datetime | None


_PARENTS = """
SELECT d.parent_id, d."on", d.met, coalesce(t.state, p.state),
       coalesce(p.finished_at, t.started_at, t.queued_at, t.available_at, p.actual_at)
FROM {schema}.workflows_dependency d
LEFT JOIN {schema}.executions_execution p ON p.id = d.parent_id
LEFT JOIN tickets_ticket t ON t.execution_id = d.parent_id
WHERE d.child_id = %s ORDER BY d.id
"""


def parents_of(conn: Conn, schema: str, child: UUID) -> list[Parent]:
    """All that an execution depends on, in the order in which they were given."""
    query = sql.SQL(_PARENTS).format(schema=sql.Identifier(schema))
    return [Parent._make(row) for row in conn.execute(query, [child])]
