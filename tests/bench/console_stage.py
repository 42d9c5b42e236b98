"""A platform of some size, for the bench of the operators' console: what its pages read, made in SQL.

A tenant with a long history (`history`) among a thousand, live tickets of all of them, workers and dispatchers that
live for an hour, figures of some days, failures of some causes, operations, rows of the trail.
"""

from typing import Any
from uuid import UUID, uuid4

from tests.bench import history, release_round, stage
from tests.console.pages_list import World

TICKETS = 100_000
NOWHERE = UUID("00000000-0000-7000-8000-000000000000")

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
SELECT gen_random_uuid(), 1 + n % 1000, CASE WHEN n % 2 = 0 THEN 'backfill' ELSE 'replay' END, 'executions',
       CASE WHEN n % 3 = 0 THEN 'running' ELSE 'completed' END, 1000, n % 1000, 'bench', now(), now(), now()
FROM generate_series(1, 2000) n;
INSERT INTO audit_auditevent (at, tenant_id, actor, action, object_type, object_id, allowed, reason, request_id)
SELECT now() - n * interval '10 seconds', 1 + n % 1000, 'command:bench', 'schedule.update', 'schedule', n, true, '', ''
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


def filled(made: stage.Tenants, *, executions: int) -> World:
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


def _figures(conn: Any) -> None:
    for step, unit, count in ((60, "minute", 180), (3_600, "hour", 200), (86_400, "day", 60)):
        values = {"step": step, "unit": unit, "count": count}
        conn.execute(
            _SUMS.format(table="rollup", tenant="tenant_id,", id="t.id,", tenants="CROSS JOIN tenants_tenant t"), values
        )
        conn.execute(_SUMS.format(table="platformrollup", tenant="", id="", tenants=""), {**values, "count": 8 * count})
    for statement in _FAILURES.split(";"):
        conn.execute(statement)
    for table in ("usage_rollup", "usage_platformrollup", "usage_failure", "usage_platformfailure", "audit_auditevent",
                  "usage_failurecause", "due_operationoutline"):  # fmt: skip
        conn.execute(f"VACUUM ANALYZE {table}")


def _live(conn: Any) -> None:
    """Tickets of all tenants, workers and dispatchers that live for an hour, and what these measure."""
    from apps.dispatch.pressure.gauges import count, measure
    from apps.due import leases
    from kernel.clock import utc_now
    from tenants import door
    from tenants.registry import Registry
    from tests.flow.test_forecast import new_service, settled

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
    settled(new_service(registry), conn, utc_now())


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
