"""Releases of a minute, counted against max_runs_per_min. A minute is one of the clock; what does not fit waits.

Whoever releases runs of a tenant with such a limit holds the tenant's row until its transaction ends, so that these
two functions are one step (see `apps.tickets.releasing.lock_tenants`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg

from apps.usage import notices

Conn = psycopg.Connection[Any]
QUOTA = "max_runs_per_min"

# Another pool's release may be in the next minute already. A row that is further ahead was written by a wrong clock.
_USED = """
SELECT tenant_id, released FROM usage_minuterate
WHERE tenant_id = ANY(%(tenants)s)
  AND minute BETWEEN date_trunc('minute', %(now)s) AND date_trunc('minute', %(now)s) + interval '1 minute'
"""

_TAKE = """
INSERT INTO usage_minuterate AS r (tenant_id, minute, released)
SELECT m.tenant_id, date_trunc('minute', %(now)s), m.released
FROM unnest(%(tenants)s::int[], %(released)s::int[]) AS m(tenant_id, released) ORDER BY m.tenant_id
ON CONFLICT (tenant_id) DO UPDATE SET
    released = excluded.released + CASE WHEN r.minute BETWEEN excluded.minute AND excluded.minute + interval '1 minute'
                                        THEN r.released ELSE 0 END,
    minute = CASE WHEN r.minute BETWEEN excluded.minute AND excluded.minute + interval '1 minute'
                  THEN r.minute ELSE excluded.minute END
"""


def used(conn: Conn, tenant_ids: Sequence[int], *, now: datetime) -> dict[int, int]:
    """How much each of these tenants has had released in this minute."""
    rows = conn.execute(_USED, {"tenants": list(tenant_ids), "now": now})
    return {**dict.fromkeys(tenant_ids, 0), **{row[0]: row[1] for row in rows}}


def take(
    conn: Conn, released: Mapping[int, int], *, before: Mapping[int, int], limits: Mapping[int, int], now: datetime
) -> None:
    """Counts what was released of tenants with a limit; `before` is what `used` said."""
    some = {tenant_id: count for tenant_id, count in released.items() if tenant_id in limits and count}
    if not some:
        return
    conn.execute(_TAKE, {"tenants": list(some), "released": list(some.values()), "now": now})
    for tenant_id, count in some.items():
        use, limit = before[tenant_id], limits[tenant_id]
        notices.crossed(conn, tenant_id, quota=QUOTA, limit=limit, before=use, after=use + count, now=now)


def minute_ends_at(now: datetime) -> datetime:
    """When the next minute begins, and with it a new count."""
    return now.replace(second=0, microsecond=0) + timedelta(minutes=1)
