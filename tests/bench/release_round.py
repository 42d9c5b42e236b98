"""A round of release while 1,000 tenants have 100,000 ready tickets: what it takes of the database and of the process.

Nothing is fired or started here: rows are made in SQL, and between two rounds a part of what is queued ends and as much
becomes ready. Has a database of its own, since its tenants have no schemas, which release does not look into.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kernel.ids import uuid7

BUDGET_MS = 50
TENANTS = 1_000
READY = 100_000
SLOTS = 500
ENDED = 300  # between two rounds
ROUNDS = 40
HEAD_ROUNDS = 12
WARM = 3  # rounds that are not counted

# Of each tenant: two jobs without a limit, one with a limit, one with a concurrency key of ten values; each fourth
# tenant has catch-up and backfill runs, too.
_TICKETS = """
INSERT INTO tickets_ticket
    (execution_id, tenant_id, job_id, job_version, run_key, trigger, actual_at, pool, queue, priority, timeout_s, flow,
     flow_limit, key, job_limit, lane, guarded, payload_from, state, available_at, rank, releases, attempt, failures,
     cancel_requested)
SELECT gen_random_uuid(), tenant, job, 1, 'round ' || n, 'api', at, 'python', queue, priority, 60,
       CASE WHEN kind = 3 THEN md5(job::text || key)::uuid ELSE job END, CASE WHEN kind = 3 THEN 1 END,
       CASE WHEN kind = 3 THEN 'customer=' || key END, CASE WHEN kind = 2 THEN 2 END,
       CASE WHEN tenant %% 4 = 0 AND n %% 10 < 2 THEN 1 + n %% 2 ELSE 0 END, false, 'job', 'ready', at,
       at - priority * interval '60 seconds', 0, 0, 0, false
FROM (SELECT n, m.id AS tenant, m.queue, md5(m.id || ' ' || (n / %(tenants)s) %% 4)::uuid AS job,
             (n / %(tenants)s) %% 4 AS kind, (n / %(tenants)s / 4) %% 10 AS key, n %% 10 AS priority,
             clock_timestamp() - (%(most)s - n) * interval '1 millisecond' AS at
      FROM generate_series(%(first)s::int, %(last)s::int) n
      JOIN unnest(%(ids)s::int[], %(queues)s::text[]) WITH ORDINALITY AS m(id, queue, number)
        ON m.number = 1 + n %% %(tenants)s) made
"""
# Many at the head of one flow of one tenant that may not go: its job is paused, their time is over, or their schedule
# runs one at a time and one of its runs, the first of these, is running.
_HEAD = """
INSERT INTO tickets_ticket
    (execution_id, tenant_id, job_id, job_version, schedule_id, run_key, trigger, actual_at, pool, queue, priority,
     timeout_s, flow, job_limit, lane, guarded, payload_from, state, available_at, start_by, rank, releases, attempt,
     failures, cancel_requested, fence, worker_id, started_at, deadline)
SELECT gen_random_uuid(), %(tenant)s, job, 1, job, 'head ' || n, 'api', at, 'python', %(queue)s, 5,
       60, job, CASE WHEN %(head)s = 'paused' THEN 0 END, 0, %(head)s = 'serial', 'job',
       CASE WHEN runs THEN 'running' ELSE 'ready' END, at, CASE WHEN %(head)s = 'expired' THEN at END, at, 0, 0,
       0, false, CASE WHEN runs THEN 1 END, CASE WHEN runs THEN job END, CASE WHEN runs THEN at END,
       CASE WHEN runs THEN at + interval '1 day' END
FROM (SELECT n, md5(%(tenant)s || ' 0')::uuid AS job, %(head)s = 'serial' AND n = 1 AS runs,
             clock_timestamp() - interval '1 hour' + n * interval '1 millisecond' AS at
      FROM generate_series(1, %(many)s) n) made
"""
HEADS = ("paused", "expired", "serial")
_END = """
DELETE FROM tickets_ticket WHERE execution_id IN (
    SELECT execution_id FROM tickets_ticket WHERE state = 'queued' ORDER BY execution_id LIMIT %s)
"""


class Round(NamedTuple):
    """One pass of release: CPU of the backend, time that the process waited for the database, CPU of the process."""

    database_ms: float
    waited_ms: float
    python_ms: float
    released: int


class _Keeper:
    """Has the lease of the pool."""

    id = uuid7()

    def held(self, kind: str) -> dict[int, int]:
        from kernel.pools import POOL_NUMBER

        return {POOL_NUMBER["python"]: 1}


class _Line:
    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def get(self) -> Any:
        return self.conn

    def close(self) -> None:
        pass


class _Nowhere:
    """Publishes nothing: the broker has no part in what is measured."""

    def publish(self, messages: Sequence[Any]) -> None:
        pass

    def close(self) -> None:
        pass


def run(*, tenants: int = TENANTS, ready: int = READY, rounds: int = ROUNDS, head: str = "") -> list[Round]:
    """Makes tenants and tickets and releases `rounds` times; with a `head`, one of HEADS, as many stand in the way."""
    from apps.dispatch.release import ReleaseService
    from tenants import door

    queues = _tenants(tenants)
    owner = door.connect("bench round fill", owner=True, guarded=False)
    owner.execute("TRUNCATE tickets_ticket, tickets_worker, tickets_hold, tickets_bucket")
    fill(owner, queues, 0, ready - 1)
    if head:
        tenant, queue = next(iter(queues.items()))
        owner.execute(_HEAD, {"tenant": tenant, "queue": queue, "head": head, "many": ready})
    owner.execute("VACUUM ANALYZE tickets_ticket")
    _worker(owner, sorted(set(queues.values())))
    conn = door.connect("bench round")
    waited = _Waited(conn)
    keeper = _Keeper()
    _lease(owner, keeper.id)
    service = ReleaseService("python", _Line(conn), keeper, _Nowhere())  # type: ignore[arg-type]  # stand-ins
    found: list[Round] = []
    made = ready
    for number in range(rounds + WARM):
        with _measured(conn, waited) as one:
            released = service.run_once().counts.get("released", 0)
        if number >= WARM:
            found.append(Round(one[0], one[1], one[2], released))
        ended = owner.execute(_END, [ENDED]).rowcount
        if ended:
            fill(owner, queues, made, made + ended - 1)
            made += ended
    conn.close()
    owner.close()
    return found


def told(found: list[Round]) -> str:
    """The figures of a run, beside the budget."""
    cells = [
        f"{name} {statistics.median(values):.0f} ms, p95 {statistics.quantiles(values, n=20)[18]:.0f}"
        for name, values in (
            ("database", [one.database_ms for one in found]),
            ("waited for it", [one.waited_ms for one in found]),
            ("python", [one.python_ms for one in found]),
        )
    ]
    over = "" if statistics.median(one.database_ms for one in found) <= BUDGET_MS else "  over budget"
    return f"{', '.join(cells)}; {statistics.median(one.released for one in found):.0f} released a round{over}"


class _Waited:
    """Adds up the time in which a connection waits for its server."""

    def __init__(self, conn: Any) -> None:
        self.s = 0.0
        self._wait = conn.wait
        conn.wait = self

    def __call__(self, *given: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return self._wait(*given, **named)
        finally:
            self.s += time.perf_counter() - begun


@contextmanager
def _measured(conn: Any, waited: _Waited) -> Iterator[list[float]]:
    """Gives [backend CPU ms, waited ms, process CPU ms] of the block."""
    schedstat = Path(f"/proc/{conn.info.backend_pid}/schedstat")
    before = (int(schedstat.read_text().split()[0]), waited.s, time.process_time())
    found: list[float] = []
    yield found
    found += [
        (int(schedstat.read_text().split()[0]) - before[0]) / 1e6,
        (waited.s - before[1]) * 1_000,
        (time.process_time() - before[2]) * 1_000,
    ]


def _tenants(count: int) -> dict[int, str]:
    """Tenants of plans with and without limits; id -> queue."""
    from tenants import door
    from tenants.models import Plan, PlanPool, Tenant
    from tenants.registry import Registry

    door.become_owner()
    plans = []
    for name, values in (
        ("round", {}),
        ("round heavy", {"weight": 4}),
        ("round limited", {"max_running": 20}),
        ("round rated", {"max_runs_per_min": 6_000}),
    ):
        plan, _ = Plan.objects.get_or_create(name=name, defaults={**values, "own_queue": False})
        plans.append(plan)
    PlanPool.objects.get_or_create(plan=plans[1], pool="python", defaults={"reserved_slots": 1, "max_slots": 50})
    have = set(Tenant.objects.values_list("slug", flat=True))
    Tenant.objects.bulk_create(
        Tenant(slug=f"r{n:04d}", name="", schema_name=f"t_r{n:04d}", plan=plans[n % len(plans)], status="active")
        for n in range(count)
        if f"r{n:04d}" not in have
    )
    line = door.Line("bench round")
    registry = Registry(line)
    registry.refresh(force=True)
    line.close()
    return {one.id: one.queue("python") for one in registry.by_id.values() if one.slug.startswith("r")}


def fill(conn: Any, queues: dict[int, str], first: int, last: int) -> None:
    values = {
        "ids": list(queues), "queues": list(queues.values()), "tenants": len(queues), "first": first, "last": last,
        "most": last + 1,
    }  # fmt: skip
    conn.execute(_TICKETS, values)


def _worker(conn: Any, queues: Sequence[str]) -> None:
    from apps.tickets import workers

    for _ in range(10):
        workers.renew(
            conn, worker=uuid7(), host="bench", pid=0, version="", slots={"python": SLOTS // 10}, queues=queues,
            ttl_s=3_600, draining=False, skew_ms=0, stats={},
        )  # fmt: skip


def _lease(conn: Any, owner: UUID) -> None:
    from kernel.pools import POOL_NUMBER

    conn.execute(
        "INSERT INTO due_shardlease (kind, shard, owner, term, expires_at, taken_at)"
        " VALUES ('release', %(shard)s, %(owner)s, 1, clock_timestamp() + interval '1 day', clock_timestamp())"
        " ON CONFLICT (kind, shard) DO UPDATE SET owner = excluded.owner, term = 1, expires_at = excluded.expires_at",
        {"shard": POOL_NUMBER["python"], "owner": owner},
    )
