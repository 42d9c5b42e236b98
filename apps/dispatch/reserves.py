"""Reserved slots against the slots that there are: more promises than slots are kept only in part."""

from typing import Any, NamedTuple

import psycopg

Conn = psycopg.Connection[Any]

_PROMISED = """
SELECT r.pool, r.worker_group, r.reserved, coalesce(s.slots, 0)
FROM (SELECT pp.pool, coalesce(nullif(t.worker_group, ''), p.worker_group) AS worker_group,
             sum(pp.reserved_slots)::bigint AS reserved
      FROM tenants_planpool pp
      JOIN tenants_plan p ON p.id = pp.plan_id
      JOIN tenants_tenant t ON t.plan_id = p.id AND t.status = 'active'
      WHERE pp.reserved_slots > 0 GROUP BY 1, 2) r
LEFT JOIN (SELECT one.key AS pool, w."group" AS worker_group, sum(one.value::int)::bigint AS slots
           FROM tickets_worker w, jsonb_each_text(w.slots) AS one
           WHERE w.expires_at > clock_timestamp() AND NOT w.draining GROUP BY 1, 2) s
       ON s.pool = r.pool AND s.worker_group = r.worker_group
WHERE r.reserved > coalesce(s.slots, 0) ORDER BY 1, 2
"""


class Overbooked(NamedTuple):
    """A pool of a group of workers (empty: the shared ones) whose reserves are more than its live slots."""

    pool: str
    group: str
    reserved: int
    slots: int

    def __str__(self) -> str:
        of_group = f" of group {self.group}" if self.group else ""
        return (
            f"Pool {self.pool}{of_group} has {self.slots:,} live slots, and {self.reserved:,} are reserved: "
            "while all want theirs, each gets its part."
        )


def overbooked(conn: Conn) -> list[Overbooked]:
    """Where reserves can't be kept whole, by what is alive now."""
    return [Overbooked._make(row) for row in conn.execute(_PROMISED)]
