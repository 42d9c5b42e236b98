"""What operations of all tenants are and how far they are: one row each in the shared schema, for operators' pages.

The operation itself is in its tenant's schema, which no page over all tenants reads. Its outline is written in the
transaction that changes it, kept while it goes on, and for a day after it has ended.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

Conn = psycopg.Connection[Any]
KEPT_S = 86_400.0  # after the end
PRUNE_BATCH = 1_000
PACE_EVERY_S = 10.0  # the measured pace is of at least so long


class Outline(NamedTuple):
    """An operation as its outline has it. `schedule_id` is that of a backfill; the counts are of its items."""

    operation_id: UUID
    tenant_id: int
    action: str
    target: str
    state: str
    waits_for: str
    planned: int
    pending: int
    running: int
    succeeded: int
    skipped: int
    failed: int
    undone: int
    rate_per_s: float | None
    max_in_flight: int | None
    schedule_id: UUID | None
    created_by: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def done(self) -> int:
        """Items of which nothing more is to come."""
        return self.succeeded + self.skipped + self.failed + self.undone


class Seen(NamedTuple):
    """An outline as pages read it. `per_s` is how many items ended in a second lately; None: not measured yet."""

    outline: Outline
    per_s: float | None
    seen_at: datetime
    failures: int

    @property
    def left_s(self) -> float | None:
        """How long the rest takes at the pace of lately; None when nobody can say."""
        one = self.outline
        rest = one.planned - one.done
        return rest / self.per_s if rest and self.per_s and one.state == "running" else None


_NAMES = Outline._fields

# What ended since the mark, over the time since: the mark moves on once it is old enough. A pause leaves it behind, so
# a mark that is much older says nothing, and neither does one with more done than now (an undo).
_PUT = f"""
INSERT INTO due_operationoutline AS o ({", ".join(_NAMES)}, seen_at, mark_at, mark_done)
VALUES ({", ".join(f"%({name})s" for name in _NAMES)}, %(now)s, %(now)s, %(done)s)
ON CONFLICT (operation_id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _NAMES if name != "operation_id")}, seen_at = excluded.seen_at,
    per_s = CASE WHEN excluded.seen_at < o.mark_at + %(every_s)s * interval '1 second' THEN o.per_s
                 WHEN excluded.seen_at > o.mark_at + %(every_s)s * interval '6 seconds'
                      OR excluded.mark_done < o.mark_done THEN NULL
                 ELSE (excluded.mark_done - o.mark_done) / extract(epoch FROM excluded.seen_at - o.mark_at)::float8 END,
    mark_at = CASE WHEN excluded.seen_at < o.mark_at + %(every_s)s * interval '1 second' THEN o.mark_at
                   ELSE excluded.seen_at END,
    mark_done = CASE WHEN excluded.seen_at < o.mark_at + %(every_s)s * interval '1 second' THEN o.mark_done
                     ELSE excluded.mark_done END
"""

_READ = f"""
SELECT {", ".join(f"o.{name}" for name in _NAMES)}, o.per_s, o.seen_at, coalesce(d.failures, 0)
FROM due_operationoutline o LEFT JOIN due_dueoperation d ON d.operation_id = o.operation_id
"""
_PRUNE = """
DELETE FROM due_operationoutline WHERE operation_id = ANY(ARRAY(
    SELECT operation_id FROM due_operationoutline
    WHERE finished_at < clock_timestamp() - %s * interval '1 second' LIMIT %s))
"""


def put(conn: Conn, one: Outline, *, now: datetime) -> None:
    """The operation is like this now. Called under the operation's lock, so the latest word is the last."""
    conn.execute(_PUT, {**one._asdict(), "now": now, "done": one.done, "every_s": PACE_EVERY_S})


def read(
    conn: Conn, *, live: bool | None = None, tenant_id: int | None = None, action: str | None = None,
    not_action: str | None = None, before: UUID | None = None, limit: int,
) -> list[Seen]:  # fmt: skip
    """Operations of all tenants, the newest first: those that go on or stand still (`live`), or have ended."""
    asked: dict[str, Any] = {
        "o.tenant_id = %s": tenant_id, "o.action = %s": action, "o.action <> %s": not_action,
        "o.operation_id < %s": before,
    }  # fmt: skip
    texts = [text for text, value in asked.items() if value is not None]
    if live is not None:
        texts.append(f"o.finished_at IS {'' if live else 'NOT '}NULL")
    where = f"WHERE {' AND '.join(texts)}" if texts else ""
    values = [value for value in asked.values() if value is not None]
    return _seen(conn.execute(f"{_READ} {where} ORDER BY o.operation_id DESC LIMIT %s", [*values, limit]).fetchall())


def find(conn: Conn, operation_id: UUID) -> Seen | None:
    """One of them; None when it is not known, or no more."""
    found = _seen(conn.execute(f"{_READ} WHERE o.operation_id = %s", [operation_id]).fetchall())
    return found[0] if found else None


def prune(conn: Conn, *, older_than_s: float = KEPT_S, limit: int = PRUNE_BATCH) -> int:
    """Forgets up to `limit` of those that ended longer ago than that; returns how many."""
    return conn.execute(_PRUNE, [older_than_s, limit]).rowcount


def _seen(rows: Sequence[tuple[Any, ...]]) -> list[Seen]:
    width = len(_NAMES)
    return [Seen(Outline(*row[:width]), *row[width:]) for row in rows]
