"""How soon there is room again, for whoever is told to come back: from what a tenant's runs have ended with lately.

Figures are some seconds old (`apps.usage.rolling`), and others may take the room first: an estimate, never a promise.
"""

from datetime import datetime, timedelta
from math import ceil
from typing import Any

import psycopg

Conn = psycopg.Connection[Any]
WINDOW = timedelta(minutes=5)  # looked back, or since the tenant did anything in it
LEAST_S, MOST_S = 1, 3_600
UNKNOWN_S = 60  # nothing has ended lately: nobody can say

_LATELY = """
SELECT coalesce(sum(succeeded + dead + cancelled + expired), 0)::bigint, min(starts_at) FROM usage_rollup
WHERE tenant_id = %s AND step_s = 60 AND starts_at >= date_trunc('minute', %s::timestamptz)
"""


def retry_after_s(conn: Conn, tenant_id: int, *, over: int, now: datetime) -> int:
    """Seconds until about `over` more of a tenant's executions are finished; 1 to 3,600. One short query."""
    row = conn.execute(_LATELY, [tenant_id, now - WINDOW]).fetchone()
    assert row is not None
    ended, since = row
    window_s = (now - since).total_seconds() if since is not None else 0.0
    return wait_s(over=over, ended_per_s=ended / window_s if window_s > 0 else 0.0)


def wait_s(*, over: int, ended_per_s: float) -> int:
    """Whole seconds, LEAST_S to MOST_S, in which so many end at this rate; UNKNOWN_S when none does. Pure."""
    if ended_per_s <= 0:
        return UNKNOWN_S
    return max(LEAST_S, ceil(min(MOST_S, over / ended_per_s)))
