"""Is what is due being served? A few indexed looks at the shared tables, for the health check and the admin."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from django.conf import settings

from apps.due import entries
from kernel.pools import RELEASED

Conn = psycopg.Connection[Any]
CAP = 10_000  # no count goes further: more is "10,000+"


class Watch(NamedTuple):
    """`unheld` are the slices (kind, shard) that no live dispatcher serves; `late` is how long the oldest is due."""

    now: datetime
    dispatchers: int
    unheld: list[tuple[str, int]]
    late: timedelta
    parked: int


_UNHELD = """
SELECT l.kind, l.shard FROM due_shardlease l LEFT JOIN due_dispatcher d ON d.id = l.owner
WHERE (l.kind IN ('fire', 'reconcile', 'seal') OR (l.kind = 'release' AND l.shard = ANY(%s)))
  AND (l.expires_at <= clock_timestamp() OR d.id IS NULL OR d.expires_at <= clock_timestamp())
ORDER BY 1, 2
"""


def look(conn: Conn) -> Watch:
    """The state of firing now."""
    now, earliest = entries.peek(conn, range(settings.SHARDS))
    oldest = min(earliest.values(), default=now)
    row = conn.execute(
        "SELECT (SELECT count(*) FROM due_dispatcher WHERE expires_at > clock_timestamp()),"
        " (SELECT count(*) FROM (SELECT 1 FROM due_dueentry WHERE parked <> '' LIMIT %s) p)",
        [CAP + 1],
    ).fetchone()
    assert row is not None
    unheld = conn.execute(_UNHELD, [list(RELEASED)]).fetchall()
    return Watch(now, row[0], unheld, max(now - oldest, timedelta()), row[1])
