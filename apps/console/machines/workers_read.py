"""Which queues have work, who listens to them, and how the workers are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from django.conf import settings

from apps.console.machines.process import COLUMNS, REFUSED_OF_WORKER, ProcessRow, process_of
from apps.dispatch.pressure.gauging import PoolFigures, pools_of
from apps.dispatch.pressure.queueing import QueueFigures, queues_of
from apps.usage import pressure
from kernel.pools import pool_of_queue

Conn = psycopg.Connection[Any]
WORKERS_MOST = 200

_WORKERS = f"""
SELECT {COLUMNS}, "group", slots::text, cardinality(queues), (stats->>'held')::int,
       {REFUSED_OF_WORKER}, (stats->'queue_per_s')::text
FROM tickets_worker {{where}} ORDER BY expires_at > clock_timestamp() DESC, "group", host, pid LIMIT %s
"""

_CONSUMERS = """
SELECT queue, count(*), sum((slots->>split_part(queue, '.', 1))::int)::bigint
FROM (SELECT unnest(queues) AS queue, slots FROM tickets_worker
      WHERE expires_at > clock_timestamp() AND NOT draining) listened
WHERE queue = ANY(%s) GROUP BY 1
"""
_ALIVE = """
SELECT count(*), count(*) FILTER (WHERE draining), clock_timestamp() FROM tickets_worker
WHERE expires_at > clock_timestamp()
"""


class QueueRow(NamedTuple):
    """One queue with who listens to it."""

    figures: QueueFigures
    consumers: int
    slots: int

    @property
    def abandoned(self) -> bool:
        """Whether something waits for it, and nobody will come."""
        return self.consumers == 0 and self.figures.depth > 0

    @property
    def drain_s(self) -> float | None:
        return None if self.abandoned else self.figures.drain_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow(ProcessRow):
    """One worker. `held` is what it held at its last heartbeat, `per_s` how many attempts end there in a second, and
    `stale` how many settlements of it were refused since its start."""

    group: str
    slots: dict[str, int]
    queues: int
    held: int
    stale: int
    per_s: float

    @property
    def all_slots(self) -> int:
        return sum(self.slots.values())


class Workers(NamedTuple):
    """All of it at one moment. The figures are of `measured_at`, None when no dispatcher ever measured."""

    now: datetime
    alive: int
    draining: int
    workers: list[WorkerRow]
    queues: list[QueueRow]
    pools: list[PoolFigures]
    measured_at: datetime | None
    stale: bool

    @property
    def abandoned(self) -> list[QueueRow]:
        return [one for one in self.queues if one.abandoned]


class Queue(NamedTuple):
    """One queue, and the live workers that listen to it."""

    row: QueueRow
    workers: list[WorkerRow]
    measured_at: datetime | None


def workers_read(conn: Conn) -> Workers:
    """Four statements over shared tables."""
    measured = pressure.read(conn)
    figures: Mapping[str, Any] = measured.figures if measured is not None else {}
    queues = queues_of(figures)
    workers = [_worker(row) for row in conn.execute(_WORKERS.format(where=""), [WORKERS_MOST])]
    alive = conn.execute(_ALIVE).fetchone()
    assert alive is not None
    return Workers(
        now=alive[2], alive=alive[0], draining=alive[1], workers=workers,
        queues=_with_consumers(conn, queues),
        pools=[one for one in pools_of(figures) if one.workers or one.usable or sum(one.ready.values()) or one.later],
        measured_at=None if measured is None else measured.measured_at, stale=measured is None or measured.stale,
    )  # fmt: skip


def worker_read(conn: Conn, worker_id: UUID) -> tuple[WorkerRow, list[str], dict[str, float]] | None:
    """One worker, the queues it listens to, and how many attempts of each end there in a second; None for no such."""
    row = conn.execute(_WORKERS.format(where="WHERE id = %s"), [worker_id, 1]).fetchone()
    queues = conn.execute("SELECT queues FROM tickets_worker WHERE id = %s", [worker_id]).fetchone()
    if row is None or queues is None:
        return None
    return _worker(row), sorted(queues[0]), orjson.loads(row[-1]) if row[-1] else {}


def queue_read(conn: Conn, name: str) -> Queue | None:
    """One queue by its name; None when nobody listens to it and nothing waits for it."""
    measured = pressure.read(conn)
    figures = queues_of(measured.figures if measured is not None else None)
    one = next((one for one in figures if one.queue == name), None)
    listen = "WHERE expires_at > clock_timestamp() AND queues @> ARRAY[%s]::varchar[]"
    workers = [_worker(row) for row in conn.execute(_WORKERS.format(where=listen), [name, WORKERS_MOST])]
    if one is None and not workers:
        return None
    row = _with_consumers(conn, [one or QueueFigures(name, pool_of_queue(name))])[0]
    return Queue(row, workers, None if measured is None else measured.measured_at)


def _with_consumers(conn: Conn, queues: Sequence[QueueFigures]) -> list[QueueRow]:
    rows = conn.execute(_CONSUMERS, [[one.queue for one in queues]]).fetchall()
    consumers = {row[0]: (int(row[1]), int(row[2] or 0)) for row in rows}
    return [QueueRow(one, *consumers.get(one.queue, (0, 0))) for one in queues]


def _worker(row: tuple[Any, ...]) -> WorkerRow:
    *process, group, slots, queues, held, stale, per_s = row
    return WorkerRow(
        **process_of(process, ttl_s=settings.WORKER_TTL_S), group=group, slots=orjson.loads(slots), queues=queues,
        held=held or 0, stale=stale, per_s=sum(orjson.loads(per_s).values()) if per_s else 0.0,
    )  # fmt: skip
