"""Slots of celery beat's PeriodicTasks in SQL: made once, sent from their row, started at most once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

Conn = psycopg.Connection[Any]


class Slot(NamedTuple):
    """A slot to send. `sends` counts this sending."""

    id: int
    task_id: int
    name: str
    slot_at: datetime
    sends: int


_MAKE = """
INSERT INTO due_beatslot (task_id, slot_at, name, sends)
SELECT m.task_id, m.slot_at, m.name, 0 FROM unnest(%s::int[], %s::timestamptz[], %s::text[]) AS m(task_id, slot_at, name)
ON CONFLICT DO NOTHING
"""

# A slot is sent again when nobody has started it after `again_s`, later each time; after SENDS_MAX it is given up.
_CLAIM = """
UPDATE due_beatslot SET sent_at = clock_timestamp(), sends = sends + 1
WHERE id IN (
    SELECT id FROM due_beatslot
    WHERE started_at IS NULL AND sends < %(sends_max)s
      AND (sent_at IS NULL OR sent_at < clock_timestamp() - %(again_s)s * (2 ^ sends) * interval '1 second')
    ORDER BY slot_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id, task_id, name, slot_at, sends
"""


def make(conn: Conn, rows: Sequence[tuple[int, datetime, str]]) -> int:
    """Makes the slots (task, instant, name) that do not exist; any number of beats may try. How many are new."""
    if not rows:
        return 0
    return conn.execute(_MAKE, [list(column) for column in zip(*rows, strict=True)]).rowcount


def claim_to_send(conn: Conn, *, again_s: float, sends_max: int, limit: int) -> list[Slot]:
    """Slots to send now: new ones, and those that nobody has started."""
    rows = conn.execute(_CLAIM, {"again_s": again_s, "sends_max": sends_max, "limit": limit})
    return [Slot._make(row) for row in rows]


def start(conn: Conn, slot_id: int) -> bool:
    """not started -> started; False for everybody but the first."""
    query = "UPDATE due_beatslot SET started_at = clock_timestamp() WHERE id = %s AND started_at IS NULL RETURNING id"
    return conn.execute(query, [slot_id]).fetchone() is not None


def finish(conn: Conn, slot_id: int) -> None:
    """Notes the end of a started slot."""
    conn.execute("UPDATE due_beatslot SET finished_at = clock_timestamp() WHERE id = %s", [slot_id])


def prune(conn: Conn, *, older_than_s: float) -> int:
    """Forgets slots older than that."""
    query = "DELETE FROM due_beatslot WHERE slot_at < clock_timestamp() - %s * interval '1 second'"
    return conn.execute(query, [older_than_s]).rowcount
