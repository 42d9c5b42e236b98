"""Legal holds: while one is open, nothing of what it names is deleted.

Whoever deletes says `share` first in its transaction: it takes the table of holds in share mode, so that a hold which
is being placed waits for it, and one that is placed is seen. Then its statement leaves out what is held (`not_held`),
or it asks for the holds (`open_holds`) and looks at its rows itself (`covered`), as for rows in files.

A hold on any part of a workflow's run holds all of that run: its steps, the runs below it, and the run itself.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tenants.statements import in_schema

Conn = psycopg.Connection[Any]


class Hold(NamedTuple):
    """An open hold."""

    id: UUID
    scope: str
    object_id: UUID | None
    from_at: datetime | None
    until_at: datetime | None
    reason: str

    def covers(self, *, execution_id: UUID, job_id: UUID, schedule_id: UUID | None, created_at: datetime) -> bool:
        """Whether it names this execution itself; what else is held with it is the caller's to know."""
        if self.from_at is not None and created_at < self.from_at:
            return False
        if self.until_at is not None and created_at >= self.until_at:
            return False
        named = {"job": job_id, "workflow": job_id, "schedule": schedule_id, "execution": execution_id}
        return self.scope == "tenant" or named[self.scope] == self.object_id


_SHARE = "LOCK TABLE {schema}.archive_legalhold IN SHARE MODE"
_OPEN = """
SELECT id, scope, object_id, from_at, until_at, reason FROM {schema}.archive_legalhold
WHERE released_at IS NULL ORDER BY id
"""

# A run of a workflow is an execution of a job with the workflow's id.
_NAMES = """
(h.from_at IS NULL OR {at} >= h.from_at) AND (h.until_at IS NULL OR {at} < h.until_at) AND CASE h.scope
    WHEN 'tenant' THEN true WHEN 'execution' THEN {key} = h.object_id WHEN 'schedule' THEN {a}.schedule_id = h.object_id
    ELSE {a}.job_id = h.object_id END
"""
_NOT_HELD = """
NOT EXISTS (SELECT 1 FROM {{schema}}.archive_legalhold h WHERE h.released_at IS NULL AND ({own} OR EXISTS (
    SELECT 1 FROM {{schema}}.executions_execution i
    JOIN {{schema}}.workflows_run r ON r.execution_id = i.workflow_run_id
    JOIN {{schema}}.workflows_run x ON x.execution_id = r.root_id OR x.root_id = r.root_id AND x.depth > 0
    JOIN {{schema}}.executions_execution s ON s.workflow_run_id = x.execution_id
    WHERE i.id = {key} AND i.workflow_run_id IS NOT NULL AND {step})))
"""


def not_held(alias: str, *, key: str = "id", at: str = "created_at") -> str:
    """A condition in SQL, with `{schema}` in it: no open hold covers this row.

    The row has job_id, schedule_id, an instant `at`, and its execution's id in `key`.
    """
    where = f"{alias}.{key}"
    own = _NAMES.format(a=alias, key=where, at=f"{alias}.{at}")
    step = _NAMES.format(a="s", key="s.id", at="s.created_at")
    return _NOT_HELD.format(own=own, key=where, step=step)


EXECUTION_NOT_HELD = not_held("e")
LETTER_NOT_HELD = not_held("d", key="execution_id")
EVENT_NOT_HELD = not_held("v", key="execution_id", at="at")
TENANT_NOT_HELD = """
NOT EXISTS (SELECT 1 FROM {schema}.archive_legalhold h WHERE h.released_at IS NULL AND h.scope = 'tenant')
"""
_HELD = f"""
SELECT e.id FROM {{schema}}.executions_execution e WHERE e.id = ANY(%s) AND NOT ({EXECUTION_NOT_HELD}) ORDER BY e.id
"""


def share(conn: Conn, schema: str) -> None:
    """Until this transaction ends no hold is placed and none released. LockNotAvailable when that takes too long."""
    conn.execute(in_schema(_SHARE, schema))


def open_holds(conn: Conn, schema: str) -> list[Hold]:
    """All that are open, the oldest first."""
    return [Hold._make(row) for row in conn.execute(in_schema(_OPEN, schema))]


def held(conn: Conn, schema: str, execution_ids: Collection[UUID]) -> list[UUID]:
    """Which of these executions an open hold covers, of those that are in the tables."""
    return [row[0] for row in conn.execute(in_schema(_HELD, schema), [sorted(execution_ids)])]


def covered(found: Collection[Hold], rows: Iterable[Mapping[str, Any]]) -> Iterator[UUID]:
    """The executions among these rows of files that one of these holds covers."""
    for row in rows:
        key, made_at = row["id"], row["created_at"]
        if any(
            one.covers(execution_id=key, job_id=row["job_id"], schedule_id=row["schedule_id"], created_at=made_at)
            for one in found
        ):
            yield key
