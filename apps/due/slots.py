"""Slots of celery beat's PeriodicTasks in SQL: made once, sent from their row, started at most once.

A slot waits until it is started or given up. It is sent again, later each time, while nobody has started it; after
SENDS_MAX sendings and one more wait it is given up: `sends` is then above SENDS_MAX.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

Conn = psycopg.Connection[Any]
AGAIN_S = 2.5  # not started: sent again after 5 s, 10 s, 20 s, ...
SENDS_MAX = 10  # the last wait is 43 minutes, all of them 85
PRUNE_BATCH = 1_000


class Slot(NamedTuple):
    """A slot to send. `sends` counts this sending."""

    id: int
    task_id: int
    name: str
    slot_at: datetime
    sends: int
    sent_at: datetime


_MAKE = """
INSERT INTO due_beatslot (task_id, slot_at, name, sends)
SELECT m.task_id, m.slot_at, m.name, 0
FROM unnest(%s::int[], %s::timestamptz[], %s::text[]) AS m(task_id, slot_at, name)
ORDER BY m.task_id ON CONFLICT DO NOTHING RETURNING task_id, slot_at
"""

_WAITED = "clock_timestamp() - %(again_s)s * (2 ^ sends) * interval '1 second'"

# Materialized, here and below: as a plain subquery the planner may run it again for each row, past the limit.
_CLAIM = f"""
WITH found AS MATERIALIZED (
    SELECT id FROM due_beatslot
    WHERE started_at IS NULL AND sends < %(sends_max)s AND (sent_at IS NULL OR sent_at < {_WAITED})
    ORDER BY slot_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE due_beatslot d SET sent_at = clock_timestamp(), sends = sends + 1 FROM found WHERE d.id = found.id
RETURNING d.id, task_id, name, slot_at, sends, sent_at
"""

# Every sender may look for slots to give up; the count that is raised makes sure that one of them reports it.
_GIVE_UP_LATE = f"""
WITH found AS MATERIALIZED (
    SELECT id FROM due_beatslot WHERE started_at IS NULL AND sends = %(sends_max)s AND sent_at < {_WAITED}
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE due_beatslot d SET sends = sends + 1 FROM found WHERE d.id = found.id
RETURNING d.id, task_id, name, slot_at, sends, sent_at
"""

_GIVE_UP = """
UPDATE due_beatslot SET sends = %s WHERE id = %s AND started_at IS NULL AND sends < %s RETURNING id
"""

# The broker did not take it: as if it had never been claimed.
_NOT_SENT = """
UPDATE due_beatslot d SET sends = d.sends - 1, sent_at = NULL
FROM unnest(%s::bigint[], %s::int[]) AS m(id, sends) WHERE d.id = m.id AND d.sends = m.sends AND d.started_at IS NULL
"""

# The newest slot of a task stays: it says what has been made already.
_PRUNE = """
WITH old AS MATERIALIZED (
    SELECT s.id FROM due_beatslot s
    WHERE s.slot_at < clock_timestamp() - %(older_than_s)s * interval '1 second'
      AND EXISTS (SELECT 1 FROM due_beatslot n WHERE n.task_id = s.task_id AND n.slot_at > s.slot_at)
    LIMIT %(limit)s FOR UPDATE OF s SKIP LOCKED)
DELETE FROM due_beatslot d USING old WHERE d.id = old.id
"""


def make(conn: Conn, rows: Sequence[tuple[int, datetime, str]]) -> list[tuple[int, datetime]]:
    """Makes the slots (task, instant, name) that do not exist; any number of beats may try. The new (task, instant)."""
    if not rows:
        return []
    return conn.execute(_MAKE, [list(column) for column in zip(*rows, strict=True)]).fetchall()


def claim_to_send(conn: Conn, *, again_s: float = AGAIN_S, sends_max: int = SENDS_MAX, limit: int) -> list[Slot]:
    """Slots to send now: new ones, and those that nobody has started."""
    rows = conn.execute(_CLAIM, {"again_s": again_s, "sends_max": sends_max, "limit": limit})
    return [Slot._make(row) for row in rows]


def not_sent(conn: Conn, claimed: Sequence[Slot]) -> None:
    """Gives claims back that the broker did not take: they are sent at once when it does."""
    conn.execute(_NOT_SENT, [[slot.id for slot in claimed], [slot.sends for slot in claimed]])


def give_up(conn: Conn, slot_id: int) -> bool:
    """A slot that can't be sent ever; False when it was started or given up before."""
    return conn.execute(_GIVE_UP, [SENDS_MAX + 1, slot_id, SENDS_MAX + 1]).fetchone() is not None


def give_up_late(conn: Conn, *, again_s: float = AGAIN_S, sends_max: int = SENDS_MAX, limit: int) -> list[Slot]:
    """Gives up slots that were sent often enough in vain; each is returned to one caller only."""
    rows = conn.execute(_GIVE_UP_LATE, {"again_s": again_s, "sends_max": sends_max, "limit": limit})
    return [Slot._make(row) for row in rows]


def start(conn: Conn, slot_id: int) -> bool:
    """not started -> started; False for everybody but the first."""
    query = "UPDATE due_beatslot SET started_at = clock_timestamp() WHERE id = %s AND started_at IS NULL RETURNING id"
    return conn.execute(query, [slot_id]).fetchone() is not None


def finish(conn: Conn, slot_id: int) -> None:
    """Notes the end of a started slot."""
    conn.execute("UPDATE due_beatslot SET finished_at = clock_timestamp() WHERE id = %s", [slot_id])


def prune(conn: Conn, *, older_than_s: float, limit: int = PRUNE_BATCH) -> int:
    """Forgets up to `limit` slots older than that, never the newest of a task; returns how many."""
    return conn.execute(_PRUNE, {"older_than_s": older_than_s, "limit": limit}).rowcount
