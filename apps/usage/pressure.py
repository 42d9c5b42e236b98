"""How busy the platform is, as one dispatcher measured it last: one row, written every few seconds, read by everybody.

Nobody who asks for a run counts what there is: with a million rows that would cost more than the run. What is read here
is at most GLANCE_S old in this process and as old in the row as `every_s` says.
"""

from datetime import datetime
from typing import Any, NamedTuple

import orjson
import psycopg
from django.conf import settings

from apps.usage.draining import wait_s
from kernel.errors import Overloaded
from kernel.glance import Glance

Conn = psycopg.Connection[Any]
GLANCE_S = 1.0
STALE_ROUNDS = 3  # so many measurements missed, and STALE_S: no dispatcher measures any more
STALE_S = 10.0

# JSON as text: Django's connections, which services use, do not read it.
_READ = """
SELECT measured_at, extract(epoch FROM clock_timestamp() - measured_at)::float8, every_s, live, ended_per_s,
       figures::text
FROM usage_pressure
"""

_PRESSED = """
SELECT (figures->'pressed')::text FROM usage_pressure
WHERE measured_at > clock_timestamp() - (%s + %s * every_s) * interval '1 second'
"""

_WRITE = """
INSERT INTO usage_pressure (id, measured_at, every_s, live, ended_per_s, figures)
VALUES (1, clock_timestamp(), %(every_s)s, %(live)s, %(ended_per_s)s, %(figures)s::jsonb)
ON CONFLICT (id) DO UPDATE SET measured_at = excluded.measured_at, every_s = excluded.every_s, live = excluded.live,
       ended_per_s = excluded.ended_per_s, figures = excluded.figures
"""

# What PostgreSQL itself keeps of inserted and deleted rows: no scan, and good to some thousands.
_ROUGHLY = "SELECT greatest(0, pg_stat_get_live_tuples('tickets_ticket'::regclass))::bigint"


class Pressure(NamedTuple):
    """One measurement. `figures` is what `apps.dispatch.pressure.gauging` makes of it."""

    measured_at: datetime
    age_s: float
    every_s: float
    live: int
    ended_per_s: float
    figures: dict[str, Any]

    @property
    def stale(self) -> bool:
        """Whether nobody measures any more."""
        return self.age_s > STALE_S + STALE_ROUNDS * self.every_s


def read(conn: Conn) -> Pressure | None:
    """The last measurement; None when there never was one."""
    row = conn.execute(_READ).fetchone()
    return None if row is None else Pressure._make((*row[:5], orjson.loads(row[5])))


def pressed(conn: Conn) -> frozenset[tuple[str, str]]:
    """Pools, each with a group of workers, whose live work waits too long; none when nobody measures any more."""
    row = conn.execute(_PRESSED, [STALE_S, STALE_ROUNDS]).fetchone()
    found = orjson.loads(row[0]) if row is not None and row[0] else ()
    return frozenset((pool, group) for pool, group in found or ())


def write(conn: Conn, *, every_s: float, live: int, ended_per_s: float, figures: dict[str, Any]) -> None:
    """Keeps a measurement, made now; the next one comes about `every_s` later."""
    values = {"every_s": every_s, "live": live, "ended_per_s": ended_per_s, "figures": orjson.dumps(figures).decode()}
    conn.execute(_WRITE, values)


def admit(conn: Conn) -> None:
    """Overloaded when all tenants together have MAX_LIVE_TOTAL unfinished executions. Not exact, and cheap."""
    most = settings.MAX_LIVE_TOTAL
    if not most:
        return
    live, ended_per_s = glance.take(conn)
    if live >= most:
        raise Overloaded(
            "The platform has as much unfinished work as it takes; come again later.",
            retry_after_s=wait_s(over=live + 1 - most, ended_per_s=ended_per_s),
        )


def live_read(conn: Conn) -> tuple[int, float]:
    """(live, ended a second). Where no dispatcher measures, `live` is a rough one and nothing ends."""
    found = read(conn)
    if found is not None and not found.stale:
        return found.live, found.ended_per_s
    row = conn.execute(_ROUGHLY).fetchone()
    return (int(row[0]) if row else 0, 0.0)


glance = Glance(live_read, first=(0, 0.0), for_s=GLANCE_S)
