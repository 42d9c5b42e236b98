"""After a dump was restored into another cluster: its transaction numbers are lower than those of the events in it.

Events that have a number which this cluster has not given yet would stay hidden, and new ones would come before them.
They get 0, so they come before all new ones in the order of their ids; positions behind them follow.
"""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

Conn = psycopg.Connection[Any]

_AHEAD = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_COUNT = """
SELECT (SELECT count(*) FROM {schema}.events_event WHERE tx >= %(ahead)s),
       (SELECT count(*) FROM {schema}.webhooks_webhook WHERE cursor_tx >= %(ahead)s OR replay_tx >= %(ahead)s)
"""
_EVENTS = "UPDATE {schema}.events_event SET tx = 0 WHERE tx >= %(ahead)s"
_WEBHOOKS = """
UPDATE {schema}.webhooks_webhook
SET cursor_tx = CASE WHEN cursor_tx >= %(ahead)s THEN 0 ELSE cursor_tx END,
    replay_tx = CASE WHEN replay_tx >= %(ahead)s THEN 0 ELSE replay_tx END
WHERE cursor_tx >= %(ahead)s OR replay_tx >= %(ahead)s
"""
_BELLS = "UPDATE due_eventbell SET tx = 0 WHERE tenant_id = %(tenant)s AND tx >= %(ahead)s"


@dataclass(frozen=True, slots=True)
class Renumbered:
    """How many rows of a tenant had numbers of another cluster."""

    events: int
    webhooks: int


def renumber(conn: Conn, schema: str, tenant_id: int, *, dry_run: bool) -> Renumbered:
    """Gives a tenant's events a place before all new ones, in one transaction. Nothing to do changes nothing."""
    with conn.transaction():
        row = conn.execute(_AHEAD).fetchone()
        assert row is not None
        values = {"ahead": row[0], "tenant": tenant_id}
        found = conn.execute(_in(_COUNT, schema), values).fetchone()
        assert found is not None
        if not dry_run:
            conn.execute(_in(_EVENTS, schema), values)
            conn.execute(_in(_WEBHOOKS, schema), values)
            conn.execute(_BELLS, values)
    return Renumbered(*found)


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(schema))
