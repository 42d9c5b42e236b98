"""The figures of pools for those who scale them: the command, the metrics and the answer for autoscalers."""

from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.conf import settings

from apps.dispatch.pressure import counted
from apps.dispatch.pressure.gauging import PoolFigures, pools_of
from apps.due import entries
from apps.usage import archives, pressure
from tenants import behind

Conn = psycopg.Connection[Any]

# Asked of the tables themselves, so that dispatchers that are gone are seen.
_ALIVE = """
SELECT (SELECT count(*) FROM due_dispatcher WHERE expires_at > clock_timestamp()),
       (SELECT count(*) FROM tickets_worker WHERE expires_at > clock_timestamp())
"""


class Seen(NamedTuple):
    """What is known now. Without figures, or when they are stale, nobody knows how many slots are wanted."""

    now: datetime
    oldest_due_s: float
    dispatchers: int
    workers: int
    measured: pressure.Pressure | None
    archive: archives.Totals = archives.NONE
    schemas_of_other_version: int = 0
    counters: counted.Counted = counted.Counted()

    @property
    def stale(self) -> bool:
        return self.measured is None or self.measured.stale

    def pools(self) -> list[PoolFigures]:
        """Of each pool and group that has, had or wants workers; none while the figures are stale."""
        return [] if self.measured is None or self.stale else pools_of(self.measured.figures)

    def pool(self, pool: str, group: str) -> PoolFigures:
        """Of one; all zeros where nothing is known of it."""
        return next((one for one in self.pools() if (one.pool, one.group) == (pool, group)), PoolFigures(pool, group))


def read(conn: Conn) -> Seen:
    """Seven short statements."""
    measured = pressure.read(conn)
    now, earliest = entries.peek(conn, range(settings.SHARDS))
    row = conn.execute(_ALIVE).fetchone()
    assert row is not None
    oldest = min((at for at in earliest.values() if at <= now), default=now)
    return Seen(
        now, (now - oldest).total_seconds(), row[0], row[1], measured, archives.totals(conn),
        behind.other_version(conn), counted.read(conn),
    )  # fmt: skip
