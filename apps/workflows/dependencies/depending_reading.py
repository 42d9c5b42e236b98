"""What an execution waits for, read with how that stands now."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.workflows.definitions.definition import On

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


class Linked(NamedTuple):
    """What an execution depends on; the first that depend on it, with their states; the newest that ran it again."""

    parents: list[Parent]
    dependents: list[tuple[UUID, str]]
    reruns: list[UUID]


_LINKED = f"""
SELECT parent.*, NULL::uuid, NULL::text FROM ({_PARENTS}) AS parent
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, d.child_id, coalesce(t.state, e.state)
FROM (SELECT child_id FROM {{schema}}.workflows_dependency WHERE parent_id = %s ORDER BY child_id LIMIT %s) d
JOIN {{schema}}.executions_execution e ON e.id = d.child_id
LEFT JOIN tickets_ticket t ON t.execution_id = d.child_id
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, r.id, NULL
FROM (SELECT id FROM {{schema}}.executions_execution WHERE replay_of = %s ORDER BY id DESC LIMIT %s) r
"""


def linked_of(conn: Conn, schema: str, execution_id: UUID, *, most: int) -> Linked:
    """The executions that one is linked with: all that it depends on, and up to `most` of the others; one statement."""
    query = sql.SQL(_LINKED).format(schema=sql.Identifier(schema))
    rows = conn.execute(query, [execution_id, execution_id, most, execution_id, most]).fetchall()
    parents = [Parent._make(row[:5]) for row in rows if row[0] is not None]
    others = [(row[5], row[6]) for row in rows if row[0] is None]
    dependents = [(one, state) for one, state in others if state is not None]
    return Linked(parents, dependents, [one for one, state in others if state is None])


def parents_of(conn: Conn, schema: str, child: UUID) -> list[Parent]:
    """All that an execution depends on, in the order in which they were given."""
    query = sql.SQL(_PARENTS).format(schema=sql.Identifier(schema))
    return [Parent._make(row) for row in conn.execute(query, [child])]
