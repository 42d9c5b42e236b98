"""Executions that wait for others, outside any workflow: decided in the transaction in which a parent ends.

Two last parents that end at once take turns on the ticket of the execution that waits for both. Whoever submits such an
execution locks the tickets of its parents, so none of them ends unseen.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import psycopg

from apps.due import delayed
from apps.executions import store as executions
from apps.tickets import blocking
from apps.usage import deltas
from apps.usage.figures import SKIPPED, Tally
from apps.workflows.dependencies.dependents import REASON, Decided, Edge, Unmet, decide, fits
from apps.workflows.dependencies.depending_input import CONDITIONS
from kernel.eventtypes import DELIVERY
from tenants.registry import Tenancy
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]
WANTED = {"succeeded": "succeed", "failed": "fail", "finished": "end", "skipped": "be skipped"}

_STATES = "SELECT id, state FROM {schema}.executions_execution WHERE id = ANY(%s)"
_KNOWN = f"{_STATES} AND trigger <> %s"

_ADD = """
INSERT INTO {schema}.workflows_dependency (parent_id, child_id, "on")
SELECT m.parent, m.child, m.on FROM json_to_recordset(%s::json) AS m(parent uuid, child uuid, "on" text)
"""

# Who waits for what has ended; and where a condition can't be met any more, who waits for what is skipped then. The
# second column says that something is skipped. Laterals look each one up by the index: a join would read the whole
# table at each level while its statistics say that it is small (measured: a row of 2,000 took ten times as long).
_TOUCHED = """
WITH RECURSIVE doomed(id) AS (
    SELECT d.child_id FROM unnest(%(parents)s::uuid[], %(conditions)s::text[]) AS m(parent, condition)
    JOIN {schema}.workflows_dependency d ON d.parent_id = m.parent AND d."on" = m.condition
    WHERE d.met IS NULL
    UNION
    SELECT d.child_id FROM doomed x CROSS JOIN LATERAL (
        SELECT child_id FROM {schema}.workflows_dependency
        WHERE parent_id = x.id AND met IS NULL AND "on" = ANY(%(not_by_skipped)s) OFFSET 0) d)
SELECT child_id, EXISTS (SELECT 1 FROM doomed)
FROM {schema}.workflows_dependency WHERE parent_id = ANY(%(ended)s) AND met IS NULL
UNION
SELECT d.child_id, true FROM doomed x CROSS JOIN LATERAL (
    SELECT child_id FROM {schema}.workflows_dependency WHERE parent_id = x.id AND met IS NULL OFFSET 0) d
"""

_EDGES = """
SELECT parent_id, child_id, "on", met FROM {schema}.workflows_dependency WHERE child_id = ANY(%s) ORDER BY id
"""

_NOTE = """
UPDATE {schema}.workflows_dependency d SET met = m.met
FROM json_to_recordset(%s::json) AS m(parent uuid, child uuid, met bool)
WHERE d.parent_id = ANY(%s) AND d.parent_id = m.parent AND d.child_id = m.child AND d.met IS NULL
"""

_DUE = """
UPDATE {schema}.executions_execution e SET actual_at = m.actual_at
FROM unnest(%s::uuid[], %s::timestamptz[]) AS m(id, actual_at) WHERE e.id = m.id AND e.finished_at IS NULL
"""


def parents_known(conn: Conn, schema: str, ids: Collection[UUID]) -> set[UUID]:
    """Those of these executions that there are and that others may wait for; deliveries of events are not."""
    if not ids:
        return set()
    return {row[0] for row in conn.execute(in_schema(_KNOWN, schema), [list(ids), DELIVERY])}


def parents_follow(conn: Conn, tenancy: Tenancy, ids: Collection[UUID]) -> dict[UUID, str]:
    """Locks what is alive of these executions and marks that somebody waits for its end; their stored states.

    Due entries are locked before tickets: a delayed execution goes from the one to the other.
    """
    delayed.follow(conn, ids, tenant_id=tenancy.id)
    blocking.follow(conn, ids, tenant_id=tenancy.id)
    return dict(conn.execute(in_schema(_STATES, tenancy.schema), [list(ids)]).fetchall())


def dependencies_add(conn: Conn, tenancy: Tenancy, edges: Sequence[Edge]) -> None:
    """Notes what new executions, whose tickets are blocked, wait for; `parents_follow` has locked their parents."""
    rows = [{"parent": edge.parent, "child": edge.child, "on": edge.on} for edge in edges]
    conn.execute(in_schema(_ADD, tenancy.schema), [orjson.dumps(rows).decode()])


def dependents_decide(
    conn: Conn, tenancy: Tenancy, ended: Mapping[UUID, str], now: datetime, *, also: Collection[UUID] = ()
) -> Decided:
    """Starts or skips what waits for executions that end in this transaction, given with their final states.

    Call it after the tickets of `ended` are locked or gone and outside a pipeline. `also` are executions that are
    looked at whether one of their parents ends or not.
    """
    touched = _lock(conn, tenancy, ended, also)
    if not touched.keys():
        return Decided([], [], {})
    edges = [Edge._make(row) for row in conn.execute(in_schema(_EDGES, tenancy.schema), [list(touched)])]
    found = decide(ended, edges, [child for child, blocked in touched.items() if blocked])
    if found.edges:
        rows = [{"parent": edge.parent, "child": edge.child, "met": edge.met} for edge in found.edges]
        parents = list({edge.parent for edge in found.edges})
        conn.execute(in_schema(_NOTE, tenancy.schema), [orjson.dumps(rows).decode(), parents])
    if found.free:
        freed = blocking.unblock(conn, found.free, now=now)
        conn.execute(
            in_schema(_DUE, tenancy.schema), [[one.execution_id for one in freed], [one.actual_at for one in freed]]
        )
    if found.skipped:
        _skip(conn, tenancy, found.skipped, now)
    return found


def _lock(conn: Conn, tenancy: Tenancy, ended: Mapping[UUID, str], also: Collection[UUID]) -> dict[UUID, bool]:
    """Who may be decided on, its ticket locked; the value says whether it is blocked.

    All are locked in one order. While that waits somebody may be made who waits for one that is skipped: looked again.
    """
    unmet = [(parent, on) for parent, state in ended.items() for on in CONDITIONS if not fits(on, state)]
    wanted = {
        "ended": list(ended), "parents": [one for one, _ in unmet], "conditions": [on for _, on in unmet],
        "not_by_skipped": [on for on in CONDITIONS if not fits(on, "skipped")],
    }  # fmt: skip
    touched: dict[UUID, bool] = {}
    while True:
        rows = conn.execute(in_schema(_TOUCHED, tenancy.schema), wanted).fetchall()
        new = sorted({row[0] for row in rows}.union(also) - touched.keys())
        if new:
            locked = set(blocking.lock(conn, new))
            touched |= {child: child in locked for child in new}
        if not new or not any(row[1] for row in rows):
            return touched


def _skip(conn: Conn, tenancy: Tenancy, skipped: Mapping[UUID, Unmet], now: datetime) -> None:
    blocking.end(conn, list(skipped))
    ended = [
        executions.Ended(child, "skipped", None, None, now, 0, None, _why(unmet), REASON)
        for child, unmet in skipped.items()
    ]
    executions.settle(conn, tenancy.schema, ended, [])
    tally = Tally()
    tally.add(tenancy.id, SKIPPED, len(ended))
    deltas.add(conn, tally, now=now)


def _why(unmet: Unmet) -> str:
    edge, state = unmet
    ended = f"that is {state}" if state else "that did not come"
    message = f"It waited for execution {edge.parent} to {WANTED[edge.on]}; {ended}."
    error = {"class": REASON, "message": message, "execution": str(edge.parent), "on": edge.on, "state": state or None}
    return orjson.dumps(error).decode()
