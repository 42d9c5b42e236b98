"""Every page of the operators' console on a platform of some size: what it takes, and in how many statements.

A tenant with a long history (`history`) among a thousand, live tickets of all of them, figures of some days. The pages
are those that the tests know (tests/console/pages_list.py), read one after the other in this process by a superuser.
On a machine that has other work, too, only the CPU tells how fast a page is.
Then ten browsers have the Overview open on two web processes: how often a second are the figures made?
"""

import re
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from tests.bench import history, release_round, stage
from tests.bench.lists import cpu_ms
from tests.console.pages_list import PAGES, World

BUDGET_MS = 200
STATEMENTS_MAX = 12
REPEATS = 20
TENANTS, TICKETS = 1_000, 100_000
OPEN, OPEN_S, WEBS = 10, 20, 2  # Overviews, for how long, web processes
NOWHERE = UUID("00000000-0000-7000-8000-000000000000")
WORK = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
SETTING = re.compile(r"\s*SELECT\s+(pg_catalog\.)?set_config", re.IGNORECASE)

_SUMS = """
INSERT INTO usage_{table} (step_s, starts_at, {tenant} fired, submitted, skipped, released, started, succeeded, dead,
    cancelled, expired, attempts, attempts_failed, run_ms, dispatch, start, duration)
SELECT %(step)s, at, {id} 20, 1, 0, 21, 21, 19, 1, 0, 0, 22, 2, 4000, h, h, h
FROM generate_series(date_trunc(%(unit)s, now()) - %(count)s::int * %(step)s::int * interval '1 second',
                     date_trunc(%(unit)s, now()), %(step)s * interval '1 second') at
CROSS JOIN (SELECT array_fill(2, ARRAY[20]) AS h) histogram {tenants}
ON CONFLICT DO NOTHING
"""
_FAILURES = """
INSERT INTO usage_failure (step_s, starts_at, tenant_id, fingerprint, attempts, letters)
SELECT step, at, t.id, md5('cause ' || cause) || md5(''), 3, 1
FROM (VALUES (60, 'minute', 60), (3600, 'hour', 48)) s(step, unit, many)
CROSS JOIN LATERAL generate_series(date_trunc(unit, now()) - many * step * interval '1 second', date_trunc(unit, now()),
                                   step * interval '1 second') at
CROSS JOIN (SELECT id FROM tenants_tenant ORDER BY id LIMIT 200) t CROSS JOIN generate_series(1, 5) cause
ON CONFLICT DO NOTHING;
INSERT INTO usage_platformfailure (step_s, starts_at, fingerprint, attempts, letters, tenants)
SELECT step_s, starts_at, fingerprint, sum(attempts), sum(letters), (array_agg(tenant_id))[:20]
FROM usage_failure GROUP BY 1, 2, 3 ON CONFLICT DO NOTHING;
INSERT INTO usage_failurecause (tenant_id, fingerprint, error_class, status, host, message, first_at, last_at,
                                execution_id)
SELECT tenant_id, fingerprint, 'http_status', '500', 'host-' || left(fingerprint, 4) || '.test', 'no', min(starts_at),
       max(starts_at), gen_random_uuid()
FROM usage_failure GROUP BY 1, 2 ON CONFLICT DO NOTHING;
INSERT INTO usage_backlog (minute, due, oldest_due_s, ready, queued, running, slots, workers, dispatchers)
SELECT at, 50, 1.5, 90000, 500, 500, 500, 10, 2
FROM generate_series(date_trunc('minute', now()) - interval '1 day', date_trunc('minute', now()), '1 minute') at
ON CONFLICT DO NOTHING;
INSERT INTO due_operationoutline (operation_id, tenant_id, action, target, state, planned, succeeded, created_by,
                                  created_at, seen_at, mark_at)
SELECT gen_random_uuid(), 1 + n %% 1000, CASE WHEN n %% 2 = 0 THEN 'backfill' ELSE 'replay' END, 'executions',
       CASE WHEN n %% 3 = 0 THEN 'running' ELSE 'completed' END, 1000, n %% 1000, 'bench', now(), now(), now()
FROM generate_series(1, 2000) n;
INSERT INTO audit_auditevent (at, tenant_id, actor, action, object_type, object_id, allowed, reason, request_id)
SELECT now() - n * interval '10 seconds', 1 + n %% 1000, 'command:bench', 'schedule.update', 'schedule', n, true, '', ''
FROM generate_series(1, 200000) n
"""

# What the figures know of the letter that is looked at.
_CAUSE = """
INSERT INTO usage_failurecause (tenant_id, fingerprint, error_class, status, host, message, first_at, last_at,
                                execution_id)
VALUES (%(tenant)s, %(cause)s, 'http', '500', 'host.test', 'no', now(), now(), gen_random_uuid())
ON CONFLICT DO NOTHING;
INSERT INTO usage_failure (step_s, starts_at, tenant_id, fingerprint, attempts, letters)
VALUES (3600, date_trunc('hour', now()), %(tenant)s, %(cause)s, 1, 1) ON CONFLICT DO NOTHING;
INSERT INTO usage_platformfailure (step_s, starts_at, fingerprint, attempts, letters, tenants)
VALUES (3600, date_trunc('hour', now()), %(cause)s, 1, 1, '{}') ON CONFLICT DO NOTHING
"""


class Measured(NamedTuple):
    """A page; `cpu_ms` and `statements` are medians, the latter without what begins and ends transactions."""

    path: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    statements: float


def report(made: stage.Tenants, *, executions: int) -> None:
    """Measures all, and prints it."""
    pages = run(made, executions=executions)
    for path, p50_ms, p95_ms, worked_ms, statements in pages:
        over = "  over budget" if p95_ms > BUDGET_MS or statements > STATEMENTS_MAX else ""
        print(f"{p50_ms:6.1f} ms p50 {p95_ms:6.1f} p95 {worked_ms:6.1f} CPU {statements:4.0f} statements  {path}{over}")
    within = sum(one.p95_ms <= BUDGET_MS and one.statements <= STATEMENTS_MAX for one in pages)
    print(
        f"console, {executions:,} executions, {len(made):,} tenants, {TICKETS:,} live tickets: {within} of {len(pages)}"
        f" pages have a p95 of at most {BUDGET_MS} ms with at most {STATEMENTS_MAX} statements"
    )
    per_s, p95_ms = open_overviews()
    print(f"{OPEN} open Overviews: figures are made {per_s:.2f} times a second; p95 of an answer {p95_ms:.1f} ms")


def run(made: stage.Tenants, *, executions: int) -> list[Measured]:
    """Fills what is missing, then reads each page REPEATS times."""
    from django.conf import settings

    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    world = fill(made, executions=executions)
    read = _browser()
    return [_measured(read, path) for path in world.paths(PAGES)]


def fill(made: stage.Tenants, *, executions: int) -> World:
    """The platform; the things of the tenant with the long history, as pages name them."""
    from kernel.clock import utc_now
    from tenants import door
    from tenants.models import Tenant

    tenant = Tenant.objects.get(pk=min(made))
    conn = door.connect("bench console", owner=True, guarded=False)
    conn.execute(f'SET search_path TO "{tenant.schema_name}", public')
    if stage.one(conn, "SELECT count(*) FROM executions_execution") < executions:
        history.fill(conn, schema=tenant.schema_name, tenant_id=tenant.pk, executions=executions, now=utc_now())
    if stage.one(conn, "SELECT count(*) FROM usage_backlog") < 1_000:
        _figures(conn)
    _live(conn)
    world = _world(conn, tenant)
    conn.close()
    return world


def open_overviews() -> tuple[float, float]:
    """How often a second the figures are made while OPEN browsers look, and the p95 of their answers in ms."""
    from embedded.folder import choose_port
    from tenants import door

    session = str(_browser().cookies["sessionid"].value)
    ports = [choose_port(remembered=None) for _ in range(WEBS)]
    webs = [
        stage.Process(
            sys.executable, "-m", "gunicorn", "config.wsgi:application", "--bind", f"127.0.0.1:{port}",
            "--worker-class", "gthread", "--threads", "16", "--no-control-socket", "--log-level", "error",
        )
        for port in ports
    ]  # fmt: skip
    conn = door.connect("bench overviews")
    taken: list[float] = []
    try:
        for port in ports:
            stage.until(partial(_is_up, port, session), timeout_s=60, step_s=0.2)
        before, began = stage.one(conn, "SELECT number FROM console_snapshot"), time.monotonic()
        threads = [
            threading.Thread(target=_look, args=(ports[number % WEBS], session, taken)) for number in range(OPEN)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = stage.one(conn, "SELECT number FROM console_snapshot") - before
        return made / (time.monotonic() - began), statistics.quantiles(taken, n=20)[18]
    finally:
        for web in webs:
            web.stop()
        conn.close()


def _figures(conn: Any) -> None:
    for step, unit, count in ((60, "minute", 180), (3_600, "hour", 200), (86_400, "day", 60)):
        values = {"step": step, "unit": unit, "count": count}
        conn.execute(
            _SUMS.format(table="rollup", tenant="tenant_id,", id="t.id,", tenants="CROSS JOIN tenants_tenant t"), values
        )
        conn.execute(_SUMS.format(table="platformrollup", tenant="", id="", tenants=""), {**values, "count": 8 * count})
    for statement in _FAILURES.replace("%%", "%").split(";"):
        conn.execute(statement)
    for table in ("usage_rollup", "usage_platformrollup", "usage_failure", "usage_platformfailure", "audit_auditevent",
                  "usage_failurecause", "due_operationoutline"):  # fmt: skip
        conn.execute(f"VACUUM ANALYZE {table}")


def _live(conn: Any) -> None:
    """Tickets of all tenants, workers and dispatchers that live for an hour, and what these measure."""
    from apps.dispatch.forecast.service import ForecastService
    from apps.dispatch.keeper import Keeper
    from apps.dispatch.pressure.gauges import count, measure
    from apps.due import leases
    from kernel.clock import utc_now
    from tenants import door
    from tenants.registry import Registry

    line = door.Line("bench live")
    registry = Registry(line)
    registry.refresh(force=True)
    missing = TICKETS - int(stage.one(conn, "SELECT count(*) FROM tickets_ticket"))
    queues = {one.id: one.queue("python") for one in registry.by_id.values()}
    if missing > 0:
        release_round.fill(conn, queues, 0, missing - 1)
        conn.execute("VACUUM ANALYZE tickets_ticket")
    for _ in range(10):
        stage.fake_worker(50)
    owner = uuid4()
    leases.heartbeat(
        conn, dispatcher=owner, host="bench", pid=1, version="bench", ttl_s=3_600, backends=[], draining=False,
        skew_ms=1, stats="{}",
    )  # fmt: skip
    conn.execute(
        "UPDATE due_shardlease SET owner = %s, taken_at = now(), expires_at = now() + interval '1 hour'", [owner]
    )
    measure(conn, registry, count(conn))
    service = ForecastService(line, Keeper(wants=lambda _: True, progressed=lambda _: True, stats=dict))
    service._registry = registry
    while any(service.step(conn, utc_now()).values()):
        pass


def _world(conn: Any, tenant: Any) -> World:
    def found(query: str, otherwise: Any = NOWHERE) -> Any:
        row = conn.execute(query).fetchone()
        return otherwise if row is None else row[0]

    state = "SELECT id FROM executions_execution WHERE state = '{}' ORDER BY id DESC LIMIT 1"
    letter = "SELECT {} FROM deadletters_deadletter WHERE resolved_at IS NULL ORDER BY id DESC LIMIT 1"
    run, operation, backfill = _made(tenant)
    fingerprint = found(letter.format("fingerprint"))
    for statement in _CAUSE.split(";"):
        conn.execute(statement, {"tenant": tenant.pk, "cause": fingerprint})
    return World(
        slug=tenant.slug, tenant=tenant.pk, job=found("SELECT id FROM schedules_job WHERE name = 'job 5'"),
        schedule=found("SELECT id FROM schedules_schedule WHERE name = 'schedule 1'"),
        waiting=found(
            f"SELECT execution_id FROM tickets_ticket t WHERE tenant_id = {tenant.pk} AND EXISTS"
            " (SELECT 1 FROM executions_execution e WHERE e.id = t.execution_id) LIMIT 1"
        ),
        done=found(state.format("succeeded")), dead=found(state.format("dead")), letter=found(letter.format("id")),
        fingerprint=fingerprint, run=run, operation=operation, backfill=backfill, shard=1,
        worker=str(found("SELECT id FROM tickets_worker LIMIT 1")),
        dispatcher=str(found("SELECT id FROM due_dispatcher ORDER BY expires_at DESC LIMIT 1")),
        queue=found("SELECT queues[1] FROM tickets_worker LIMIT 1", ""),
    )  # fmt: skip


def _made(tenant: Any) -> tuple[UUID, UUID, UUID]:
    """A workflow's run, an operation and a backfill, made once more in each run of the bench."""
    from datetime import timedelta

    from apps.audit.services import Actor
    from apps.operations.backfill.services import backfill_ask
    from apps.operations.models import Operation
    from apps.schedules.models import Schedule
    from kernel.clock import utc_now
    from tenants import door
    from tests.operations.fixtures import ask
    from tests.workflows.rows import run_with_rows

    now, actor = utc_now(), Actor(name="bench", role="admin", tenant_id=tenant.pk)
    with door.inside(tenant):
        schedule = Schedule.objects.filter(name="schedule 1").values_list("pk", flat=True)[0]
    data = {"from": (now - timedelta(days=3)).isoformat(), "to": now.isoformat()}
    backfill = backfill_ask(tenant=tenant, actor=actor, schedule_id=schedule, data=data, now=now)
    assert isinstance(backfill, Operation)
    return run_with_rows(tenant), ask(tenant, "resume", "jobs", {"all": True}).pk, backfill.pk


def _browser() -> Any:
    from django.contrib.auth.models import User
    from django.test import Client

    user = User.objects.filter(username="bench").first() or User.objects.create_superuser("bench", password=None)
    client = Client()
    client.force_login(user)
    return client


def _measured(client: Any, path: str) -> Measured:
    """The first read is not counted."""
    taken: list[float] = []
    worked: list[float] = []
    counts: list[int] = []
    for _ in range(REPEATS + 1):
        with _statements() as seen:
            began, before = time.perf_counter(), cpu_ms()
            answer = client.get(path)
            taken.append((time.perf_counter() - began) * 1_000)
            worked.append(cpu_ms() - before)
        counts.append(len(seen))
        if answer.status_code != 200:
            return Measured(f"{path} (status {answer.status_code})", 0, float("inf"), 0, 0)
    return Measured(path, statistics.median(taken[1:]), statistics.quantiles(taken[1:], n=20)[18],
                    statistics.median(worked[1:]), statistics.median(counts[1:]))  # fmt: skip


@contextmanager
def _statements() -> Iterator[list[str]]:
    """What this process sends to the database, the ORM and the stores."""
    import psycopg

    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else repr(query)
        if WORK.match(text) and not SETTING.match(text):
            seen.append(text)
        return execute(self, query, *args, **kwargs)

    psycopg.Cursor.execute = noted  # type: ignore[method-assign]  # for the length of the block
    try:
        yield seen
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # what it was


def _is_up(port: int, session: str) -> bool:
    return _asked(port, session) is not None


def _asked(port: int, session: str, tag: str = "") -> str | None:
    """The ETag of the newest figures; None while the web does not answer."""
    headers = {"Cookie": f"sessionid={session}", "Host": f"localhost:{port}", **({"If-None-Match": tag} if tag else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/admin/live.json", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
            return str(answer.headers["ETag"])
    except urllib.error.HTTPError as error:
        return tag if error.code == 304 else None
    except OSError:
        return None


def _look(port: int, session: str, taken: list[float]) -> None:
    """As live.js does: once a second."""
    tag, end = "", time.monotonic() + OPEN_S
    while time.monotonic() < end:
        began = time.perf_counter()
        tag = _asked(port, session, tag) or ""
        taken.append((time.perf_counter() - began) * 1_000)
        time.sleep(max(0.0, 1 - (time.perf_counter() - began)))
