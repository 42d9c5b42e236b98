"""A dry run of jitter: what a full minute would look like if one tenant's schedules in it were spread."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from apps.due import forecast
from apps.due.forecast import DAY_MINUTES, MINUTE, Total
from apps.schedules.load_hints import Minutes, nominals_in, quietest, shifted, spread
from apps.schedules.timing import TimingInvalid, spec_from_json
from apps.schedules.timing_runs import counted
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
SCHEDULES_MAX = 2_000
_KEYS = "SELECT id FROM {schema}.schedules_schedule WHERE status <> 'completed' AND deleted_at IS NULL LIMIT %s"


class Trial(NamedTuple):
    """`runs` of `looked_at` schedules fall into the minute; `capped`: the tenant has more than were looked at.

    `before` and `after` are the platform's minutes that would change, from the minute on. `quietest` are minutes near
    it to which a schedule could be moved instead, with their runs.
    """

    runs: int
    looked_at: int
    capped: bool
    before: list[tuple[datetime, int]]
    after: list[tuple[datetime, int]]
    quietest: list[tuple[datetime, int]]

    @property
    def fullest_before(self) -> int:
        return max((runs for _, runs in self.before), default=0)

    @property
    def fullest_after(self) -> int:
        return max((runs for _, runs in self.after), default=0)


def try_jitter(
    conn: Conn, tenant: Tenant, total: Total, *, minute: datetime, jitter_s: int, now: datetime
) -> Trial:  # fmt: skip
    """Computes each run that the tenant has in the minute anew with so much jitter; writes nothing."""
    query = sql.SQL(_KEYS).format(schema=sql.Identifier(tenant.schema_name))
    keys = [row[0] for row in conn.execute(query, [SCHEDULES_MAX + 1])]
    found = []
    for entry in forecast.planned_of(conn, keys[:SCHEDULES_MAX]):
        if entry.kind != "schedule" or entry.due_at >= minute + MINUTE:
            continue
        try:
            spec = spec_from_json(entry.spec)
        except TimingInvalid:
            continue
        spec, _ = counted(spec, nominal_at=entry.nominal_at, done=entry.runs_done)
        found += [
            (spec, str(entry.key), at) for at in nominals_in(spec, str(entry.key), minute, first=entry.nominal_at)
        ]
    minutes = Minutes(total.of_minutes(now, DAY_MINUTES))
    moved = spread(found, jitter_s)
    last = max([minute + timedelta(seconds=jitter_s), *moved])
    steps = [minute + step * MINUTE for step in range((last - minute) // MINUTE + 1)]
    changes = Counter(dict.fromkeys(steps, 0))
    changes[minute] -= len(found)
    changes.update(moved)
    return Trial(
        len(found), min(len(keys), SCHEDULES_MAX), len(keys) > SCHEDULES_MAX,
        [(at, minutes.at(at)) for at in steps], shifted(changes, minutes=minutes),
        [(at, minutes.at(at)) for at in quietest(minutes, minute)],
    )  # fmt: skip
