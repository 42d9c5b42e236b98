"""Whose work is due, waits and runs: one measurement of all tenants in one row, and how much there was by minute.

Written by the dispatcher that measures (`apps.dispatch.pressure`), every few seconds; read by operators' pages, which
count nothing themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

import orjson
import psycopg

Conn = psycopg.Connection[Any]
TENANTS_KEPT = 2_000  # those with the most that is due or waits; the others are added up
STALE_S = 30.0

_WRITE = """
INSERT INTO usage_load (id, measured_at, every_s, body) VALUES (1, clock_timestamp(), %(every_s)s, %(body)s)
ON CONFLICT (id) DO UPDATE SET measured_at = excluded.measured_at, every_s = excluded.every_s, body = excluded.body
"""

_READ = """
SELECT measured_at, extract(epoch FROM clock_timestamp() - measured_at)::float8, every_s, body FROM usage_load
"""

_SAMPLE = """
INSERT INTO usage_backlog AS b (minute, due, oldest_due_s, ready, queued, running, slots, workers, dispatchers)
VALUES (date_trunc('minute', clock_timestamp()), %(due)s, %(oldest_due_s)s, %(ready)s, %(queued)s, %(running)s,
        %(slots)s, %(workers)s, (SELECT count(*) FROM due_dispatcher WHERE expires_at > clock_timestamp()))
ON CONFLICT (minute) DO UPDATE SET
    due = greatest(b.due, excluded.due), oldest_due_s = greatest(b.oldest_due_s, excluded.oldest_due_s),
    ready = greatest(b.ready, excluded.ready), queued = greatest(b.queued, excluded.queued),
    running = greatest(b.running, excluded.running), slots = least(b.slots, excluded.slots),
    workers = least(b.workers, excluded.workers), dispatchers = least(b.dispatchers, excluded.dispatchers)
"""

_SAMPLES = """
SELECT minute, due, oldest_due_s, ready, queued, running, slots, workers, dispatchers FROM usage_backlog
WHERE minute >= %s AND minute < %s ORDER BY minute LIMIT 1500
"""


@dataclass(slots=True)
class TenantLoad:
    """One tenant: what there is now, and what ended in the last five minutes (`lately.WINDOW_S`)."""

    tenant_id: int
    due: int = 0  # due entries whose time has come
    oldest_due_s: float = 0.0
    ready: int = 0  # tickets that may go now
    held: int = 0  # of these wait for something else than a slot
    later: int = 0  # wait for their time
    queued: int = 0
    running: int = 0
    ended: int = 0
    dead: int = 0
    attempts: int = 0
    attempts_failed: int = 0
    released: int = 0  # first releases, of which the lateness is
    dispatch_p99_s: float | None = None

    @property
    def waiting(self) -> int:
        """All that is to be done now and is not in a worker's hands."""
        return self.due + self.ready


def added_up(rows: Iterable[TenantLoad]) -> TenantLoad:
    """All of them as one; the oldest is the oldest of all. Lateness can't be added."""
    known = list(rows)
    oldest_s = max((one.oldest_due_s for one in known), default=0.0)
    return TenantLoad(0, oldest_due_s=oldest_s, **{name: sum(map(of, known)) for name, of in _COUNTED.items()})


class Loads(NamedTuple):
    """A measurement. `tenants` are those that have something, most waiting first; `others` are the rest, added up."""

    measured_at: datetime
    age_s: float
    every_s: float
    due_is_exact: bool
    tenants: list[TenantLoad]
    others: TenantLoad

    @property
    def stale(self) -> bool:
        """Whether nobody measures any more."""
        return self.age_s > STALE_S + 3 * self.every_s

    def total(self) -> TenantLoad:
        """All of them together."""
        return added_up((*self.tenants, self.others))


class Sample(NamedTuple):
    """The worst of what was measured in a minute: the most that waited, the fewest that worked."""

    minute: datetime
    due: int
    oldest_due_s: float
    ready: int
    queued: int
    running: int
    slots: int
    workers: int
    dispatchers: int


def write(conn: Conn, loads: Mapping[int, TenantLoad], *, due_is_exact: bool, every_s: float) -> None:
    """Keeps a measurement, made now; the next one comes about `every_s` later."""
    ranked = sorted(loads.values(), key=lambda one: (-one.waiting, -one.running, -one.ended, one.tenant_id))
    others = added_up(ranked[TENANTS_KEPT:])
    body = {"exact": due_is_exact, "others": _row(others), "tenants": [_row(one) for one in ranked[:TENANTS_KEPT]]}
    conn.execute(_WRITE, {"every_s": every_s, "body": orjson.dumps({"names": _NAMES, **body}).decode()})


def read(conn: Conn) -> Loads | None:
    """The last measurement; None when there never was one."""
    row = conn.execute(_READ).fetchone()
    if row is None:
        return None
    measured_at, age_s, every_s, text = row
    body = orjson.loads(text)
    tenants = [_load(body["names"], one) for one in body["tenants"]]
    return Loads(measured_at, age_s, every_s, body["exact"], tenants, _load(body["names"], body["others"]))


def sample(conn: Conn, total: TenantLoad, *, slots: int, workers: int) -> None:
    """Adds a measurement to the minute of now."""
    values = {name: getattr(total, name) for name in ("due", "oldest_due_s", "ready", "queued", "running")}
    conn.execute(_SAMPLE, {**values, "slots": slots, "workers": workers})


def samples(conn: Conn, *, start: datetime, end: datetime) -> list[Sample]:
    """The minutes from `start` on and before `end` in which something was measured; at most 1,500."""
    return [Sample._make(row) for row in conn.execute(_SAMPLES, [start, end])]


_NAMES = [one.name for one in fields(TenantLoad)]
_COUNTED = {
    name: attrgetter(name) for name in _NAMES if name not in ("tenant_id", "oldest_due_s", "dispatch_p99_s")
}  # fmt: skip


def _row(one: TenantLoad) -> list[Any]:
    return [getattr(one, name) for name in _NAMES]


def _load(names: Sequence[str], values: Sequence[Any]) -> TenantLoad:
    """Another version may have written it: what it does not know is 0, what only it knows is left out."""
    return TenantLoad(**{name: value for name, value in zip(names, values, strict=True) if name in _NAMES})
