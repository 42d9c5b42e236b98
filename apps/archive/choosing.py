"""Which executions the next batch takes: of one day, oldest first, each workflow's run with all that it started."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.archive import rules
from kernel.ids import first_id_at, made_at
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]
BATCH_ROWS = 100_000  # executions; a run with its steps is never cut
LOOK = 5_000  # executions that one statement looks for
NOTHING = UUID(int=0)

_UNITS = f"""
SELECT e.id, r.execution_id IS NOT NULL
FROM {{schema}}.executions_execution e
LEFT JOIN {{schema}}.workflows_run r ON r.execution_id = e.workflow_run_id
WHERE e.id > %(after)s AND e.id < %(bound)s AND {rules.MAY_GO}
  AND (r.execution_id IS NULL OR (r.execution_id = e.id AND r.depth = 0 AND r.finished_at < %(before)s)
       OR NOT EXISTS (SELECT 1 FROM {{schema}}.workflows_run o WHERE o.execution_id = r.root_id))
ORDER BY e.id LIMIT %(limit)s
"""

_MEMBERS = f"""
SELECT r.root_id, e.id, {rules.MAY_GO}
FROM (SELECT execution_id, root_id FROM {{schema}}.workflows_run WHERE execution_id = ANY(%(roots)s) AND depth = 0
      UNION ALL
      SELECT execution_id, root_id FROM {{schema}}.workflows_run WHERE root_id = ANY(%(roots)s) AND depth > 0) r
JOIN {{schema}}.executions_execution e ON e.workflow_run_id = r.execution_id
ORDER BY r.root_id, e.id
"""


class Choice(NamedTuple):
    """A day, and with which root each execution goes, in the order of the files."""

    day: date
    units: dict[bytes, bytes]


def day_start(at: datetime) -> datetime:
    """The beginning of its day, in UTC. Whole days are archived: a day is not a batch every few minutes."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def choose(
    conn: Conn, schema: str, *, before: datetime, after: UUID = NOTHING, most: int = BATCH_ROWS
) -> Choice | None:
    """Executions that were made and ended before the day of that instant, of the oldest day that has any.

    At least `most` where there are so many; those of one look more, or of one run.
    """
    before = day_start(before)
    values = {
        **rules.parameters(conn, schema, before=before, closed=before), "after": after, "bound": first_id_at(before),
        "limit": min(LOOK, most),
    }  # fmt: skip
    last = values["bound"]
    units: dict[bytes, bytes] = {}
    day: date | None = None
    while len(units) < most:
        found = conn.execute(in_schema(_UNITS, schema), values).fetchall()
        if not found:
            if units or values["bound"] == last:
                break
            day, values["bound"] = None, last  # of the runs of that day none may go as a whole
            continue
        if day is None:
            start = day_start(made_at(found[0][0]))
            day, values["bound"] = start.date(), first_id_at(start + timedelta(days=1))
            found = [one for one in found if one[0] < values["bound"]]
        members = _members(conn, schema, [key for key, is_root in found if is_root], values)
        for key, is_root in found:
            if not is_root:
                units[key.bytes] = key.bytes
            for member in members.get(key, ()):
                units[member.bytes] = key.bytes
        values["after"] = found[-1][0]
    return Choice(day, units) if day is not None and units else None


def _members(conn: Conn, schema: str, roots: list[UUID], values: dict[str, Any]) -> dict[UUID, list[UUID]]:
    """All executions of each run, of runs of which everything may go."""
    if not roots:
        return {}
    found: dict[UUID, list[UUID]] = {}
    held: set[UUID] = set()
    for root, key, may_go in conn.execute(in_schema(_MEMBERS, schema), {**values, "roots": roots}):
        found.setdefault(root, []).append(key)
        if not may_go:
            held.add(root)
    return {root: members for root, members in found.items() if root not in held}
