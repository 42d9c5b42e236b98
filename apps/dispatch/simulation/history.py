"""A window of real history as a load: the executions of tenants, read in short transactions, tenant after tenant.

Run times and waits between tries are those of the attempts. What the tables do not keep is told in the load's notes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.dispatch.simulation.settings import Arrival, Load
from apps.schedules.keyed import flows_of_executions
from apps.tickets.values import lane_of
from kernel.errors import FieldError, InvalidInput
from kernel.ids import ID_SLACK, attempt_id, first_id_at
from kernel.pools import CELERY_POOLS, PULL, WORKFLOW
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
BATCH = 5_000
TRIES_MAX = 20  # of one run that are read
UNKNOWN_MANY = 0.05
OF_SCHEDULES = ("schedule", "catch_up")
NOT_RUN = ("skipped", "scheduled", "blocked")

_BY_ID = """
SELECT id, job_id, schedule_id, trigger, state, priority, actual_at, created_at, queued_at, started_at, finished_at,
       attempt_count
FROM {}.executions_execution WHERE id > %(after)s AND id < %(before)s ORDER BY id LIMIT %(limit)s
"""
# Made before the window, such as delayed ones, and alive in it.
_OLDER = """
SELECT id, job_id, schedule_id, trigger, state, priority, actual_at, created_at, queued_at, started_at, finished_at,
       attempt_count
FROM {}.executions_execution
WHERE finished_at >= %(since)s AND (finished_at, id) > (%(at)s, %(after)s) AND finished_at < %(until)s
  AND id <= %(before)s
ORDER BY finished_at, id LIMIT %(limit)s
"""
_ATTEMPTS = """
SELECT execution_id, number, started_at, finished_at, retry_at, worker_id FROM {}.executions_attempt WHERE id = ANY(%s)
"""

_KEYED = """
SELECT j.id FROM {0}.schedules_job j JOIN {0}.schedules_jobversion v ON v.job_id = j.id AND v.version = j.version
WHERE v.concurrency_key IS NOT NULL
"""


class Row(NamedTuple):
    """An execution of history."""

    id: UUID
    job_id: UUID
    schedule_id: UUID | None
    trigger: str
    state: str
    priority: int
    actual_at: datetime
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt_count: int


@dataclass(slots=True)
class History:
    """What was read: runs by tenant with their tries, and what it says of the platform of that time."""

    rows: dict[int, list[tuple[Row, tuple[float, ...] | None, str | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    spans: list[tuple[int, UUID, datetime, datetime]] = field(default_factory=list)  # of attempts, by tenant and job
    workers: set[UUID] = field(default_factory=set)
    handover_s: list[float] = field(default_factory=list)
    release_s: list[float] = field(default_factory=list)

    def at_once(self, keys: Mapping[tuple[int, UUID], tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The most attempts that ran at one time, by pool and group."""
        changes: dict[tuple[str, str], list[tuple[datetime, int]]] = defaultdict(list)
        for tenant, job, start, end in self.spans:
            key = keys.get((tenant, job))
            if key is not None and key[0] in CELERY_POOLS:
                changes[key] += ((start, 1), (end, -1))
        found: dict[tuple[str, str], int] = {}
        for key, several in changes.items():
            running = 0
            for _, change in sorted(several):
                running += change
                found[key] = max(found.get(key, 0), running)
        return found


def read_history(conn: Conn, tenancies: Iterable[Tenancy], *, since: datetime, until: datetime, most: int) -> History:
    """All runs that were made or ended in the window. InvalidInput when there are more than `most`."""
    history, count = History(), 0
    for tenancy in tenancies:
        for rows in _batches(conn, tenancy.schema, since, until):
            count += len(rows)
            if count > most:
                detail = f"The window has more than {most:,} runs: choose a shorter one, or fewer tenants."
                raise InvalidInput([FieldError("/from", "too_many", detail)])
            attempts = _attempts(conn, tenancy.schema, rows)
            keys = _keys(conn, tenancy.schema, rows)
            for row in rows:
                tries = attempts.get(row.id, ())
                history.rows[tenancy.id].append((row, _tries(tries), keys.get(row.id)))
                history.spans += [(tenancy.id, row.job_id, one[1], one[2]) for one in tries]
                _measure(history, row, tries)
    return history


def load_of(
    history: History, job_numbers: Mapping[tuple[int, UUID], int], pools: Mapping[int, str], *, since: datetime,
    until: datetime, counted_from: datetime, without: Set[UUID] = frozenset(),
) -> Load:  # fmt: skip
    """The load of what was read; runs of pools whose workers are not ours are left out, and those of some schedules."""
    usual = _usual(history)
    arrivals, unknown, outside = [], 0, Counter[str]()
    for tenant, rows in history.rows.items():
        for row, tries, key in rows:
            if row.schedule_id in without and row.trigger in OF_SCHEDULES:
                continue
            number = job_numbers[tenant, row.job_id]
            made = max(row.created_at, row.actual_at)
            if pools[number] not in CELERY_POOLS or not since <= made < until:
                outside[pools[number]] += since <= made < until
                continue
            if tries is None:
                unknown += 1
                tries = (usual.get((tenant, row.job_id), usual[None]),)
            started = until if row.started_at is None else min(row.started_at, until)
            arrivals.append(
                Arrival(
                    at=(made - since).total_seconds(), job=number, tries=tries, priority=row.priority,
                    lane=lane_of(row.trigger), key=key, lag=(made - row.actual_at).total_seconds(),
                    was_s=None if _never(row) else max(0.0, (started - row.actual_at).total_seconds()),
                    delayed=row.created_at < row.actual_at,
                )
            )  # fmt: skip
    arrivals.sort(key=lambda one: one.at)
    notes = []
    if unknown > UNKNOWN_MANY * max(1, len(arrivals)):
        notes.append(
            f"the run times of {unknown:,} of {len(arrivals):,} runs are not known, and taken to be the usual ones"
        )
    if outside[PULL]:
        notes.append(f"{outside[PULL]:,} runs of pull queues are left out: their workers are the tenants' own")
    if outside[WORKFLOW]:
        notes.append(f"{outside[WORKFLOW]:,} runs of workflows are left out; their steps count as they came")
    seconds = (until - since).total_seconds()
    return Load(arrivals, seconds, (counted_from - since).total_seconds(), since, tuple(notes))


def _batches(conn: Conn, schema: str, since: datetime, until: datetime) -> Iterator[list[Row]]:
    """Pages of rows, each read in a transaction of its own."""
    first, last = first_id_at(since - ID_SLACK), first_id_at(until + ID_SLACK)
    after = first
    while True:
        parameters = {"after": after, "before": last, "limit": BATCH}
        rows = [Row._make(row) for row in conn.execute(_in(_BY_ID, schema), parameters)]
        yield [row for row in rows if row.state not in NOT_RUN]
        if len(rows) < BATCH:
            break
        after = rows[-1].id
    at, after = since - timedelta(microseconds=1), UUID(int=0)
    while True:
        parameters = {
            "since": since, "at": at, "after": after, "until": until + (until - since), "before": first, "limit": BATCH,
        }  # fmt: skip
        rows = [Row._make(row) for row in conn.execute(_in(_OLDER, schema), parameters)]
        yield [row for row in rows if row.state not in NOT_RUN]
        if len(rows) < BATCH or rows[-1].finished_at is None:
            return
        at, after = rows[-1].finished_at, rows[-1].id


def _attempts(conn: Conn, schema: str, rows: Sequence[Row]) -> dict[UUID, list[tuple[Any, ...]]]:
    """Attempts of these runs, in their order; found by primary key."""
    wanted = [attempt_id(row.id, n) for row in rows for n in range(1, min(row.attempt_count, TRIES_MAX) + 1)]
    found: dict[UUID, list[tuple[Any, ...]]] = defaultdict(list)
    for start in range(0, len(wanted), BATCH):
        for execution, *rest in conn.execute(_in(_ATTEMPTS, schema), [wanted[start : start + BATCH]]):
            found[execution].append(tuple(rest))
    return {execution: sorted(several) for execution, several in found.items()}


def _keys(conn: Conn, schema: str, rows: Sequence[Row]) -> dict[UUID, str]:
    """Values of concurrency keys, of the runs whose job has one now."""
    keyed = {row[0] for row in conn.execute(_in(_KEYED, schema))}
    wanted = [row.id for row in rows if row.job_id in keyed]
    found = flows_of_executions(conn, schema, wanted) if wanted else {}
    return {execution: flow.key for execution, flow in found.items() if flow.key is not None}


def _tries(attempts: Sequence[tuple[Any, ...]]) -> tuple[float, ...] | None:
    """(run, wait, run, ...) seconds; None when nothing is known of it."""
    tries: list[float] = []
    for number, started, finished, retry_at, _worker in attempts:
        tries.append(max(0.0, (finished - started).total_seconds()))
        if number < len(attempts):
            tries.append(0.0 if retry_at is None else max(0.0, (retry_at - finished).total_seconds()))
    return tuple(tries) or None


def _measure(history: History, row: Row, attempts: Sequence[tuple[Any, ...]]) -> None:
    history.workers.update(one[4] for one in attempts if one[4] is not None)
    if row.queued_at is not None and row.started_at is not None:
        history.handover_s.append((row.started_at - row.queued_at).total_seconds())
        history.release_s.append((row.queued_at - max(row.created_at, row.actual_at)).total_seconds())


def _never(row: Row) -> bool:
    """It ended without a start: how long it would have waited nobody knows."""
    return row.started_at is None and row.finished_at is not None


def _usual(history: History) -> dict[tuple[int, UUID] | None, float]:
    """The median run time of each job, and of all."""
    by_job: dict[tuple[int, UUID] | None, list[float]] = defaultdict(list)
    for tenant, rows in history.rows.items():
        for row, tries, _ in rows:
            if tries is not None:
                by_job[tenant, row.job_id].append(tries[0])
                by_job[None].append(tries[0])
    return {None: 1.0, **{job: median(times) for job, times in by_job.items()}}


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(sql.Identifier(schema))
