"""The runs of a day, counted against max_runs_per_day. A day is one of UTC.

Whoever makes runs of a tenant with such a limit counts them here, in the transaction that makes them: the count's row
is locked, compared and changed, and stays locked until the runs are there or are not. It comes after due entries,
schedules and jobs in the order of locks, and before tickets; several of them by tenant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import psycopg

from apps.usage import notices

Conn = psycopg.Connection[Any]
QUOTA = "max_runs_per_day"

_LOCK = """
SELECT d.tenant_id, d.runs, p.max_runs_per_day
FROM usage_daycount d JOIN tenants_tenant t ON t.id = d.tenant_id JOIN tenants_plan p ON p.id = t.plan_id
WHERE d.tenant_id = ANY(%s) AND d.day = %s ORDER BY d.tenant_id FOR UPDATE OF d
"""

_ENSURE = """
INSERT INTO usage_daycount (tenant_id, day, runs)
SELECT id, %s, 0 FROM tenants_tenant WHERE id = ANY(%s) ORDER BY id ON CONFLICT DO NOTHING
"""

_TAKE = """
UPDATE usage_daycount d SET runs = d.runs + m.runs FROM unnest(%s::int[], %s::int[]) AS m(tenant_id, runs)
WHERE d.tenant_id = m.tenant_id AND d.day = %s
"""


@dataclass(frozen=True, slots=True)
class Count:
    """Where a tenant stands on a day, its row locked. `most` is None without a limit."""

    runs: int
    most: int | None

    def room(self, wanted: int) -> int:
        """How many of these may be made."""
        return wanted if self.most is None else min(wanted, max(0, self.most - self.runs))


def lock(conn: Conn, tenant_ids: list[int], *, now: datetime) -> dict[int, Count]:
    """Locks the counts of the day, making those that are missing; the plans' limits are those of this moment.

    Tenants that do not exist are left out.
    """
    ids, day = sorted(tenant_ids), day_of(now)
    rows = conn.execute(_LOCK, [ids, day]).fetchall()
    if len(rows) < len(ids):
        conn.execute(_ENSURE, [day, ids])
        rows = conn.execute(_LOCK, [ids, day]).fetchall()
    return {row[0]: Count(row[1], row[2]) for row in rows}


def used(conn: Conn, tenant_id: int, *, now: datetime) -> int:
    """How many runs of the day are counted by now, without a lock; 0 as well where the plan has no limit."""
    query = "SELECT runs FROM usage_daycount WHERE tenant_id = %s AND day = %s"
    found = conn.execute(query, [tenant_id, day_of(now)]).fetchone()
    return int(found[0]) if found else 0


def take(conn: Conn, runs: Mapping[int, int], counts: Mapping[int, Count], *, now: datetime) -> None:
    """Counts runs of tenants whose counts are locked; fewer than 0 give some back that were not made after all."""
    changed = {tenant_id: count for tenant_id, count in runs.items() if count}
    if not changed:
        return
    conn.execute(_TAKE, [list(changed), list(changed.values()), day_of(now)])
    for tenant_id, added in changed.items():
        known = counts.get(tenant_id)
        if known is not None:
            notices.crossed(
                conn, tenant_id, quota=QUOTA, limit=known.most, before=known.runs, after=known.runs + added, now=now
            )


def reserve(conn: Conn, wanted: Mapping[int, int], *, now: datetime) -> dict[int, int]:
    """Counts as many of the wanted runs of each tenant as its day has room for; says how many."""
    counts = lock(conn, list(wanted), now=now)
    granted = {tenant_id: count.room(wanted[tenant_id]) for tenant_id, count in counts.items()}
    take(conn, granted, counts, now=now)
    return granted


def day_of(now: datetime) -> date:
    """The day of UTC that an instant lies in."""
    return now.astimezone(UTC).date()


def day_ends_at(now: datetime) -> datetime:
    """When the next day begins, and with it a new count."""
    return datetime.combine(day_of(now) + timedelta(days=1), time(), UTC)
