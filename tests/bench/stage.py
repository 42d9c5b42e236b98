"""The stage of a measurement: embedded durable services, a database of its own, tenants, jobs, due entries."""

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

Tenants = dict[int, tuple[str, UUID]]  # tenant id -> (slug, job id)
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def services(folder: Path) -> Iterator[None]:
    """PostgreSQL (durable, as in production) and Valkey, their addresses in the environment."""
    from embedded.services import Services

    running = Services(folder, durable=True)
    running.start()
    os.environ.update(running.variables())
    os.environ.setdefault("SECRET_KEY", "bench")
    # Always the same: a folder that is used again holds what was encrypted with it.
    os.environ.setdefault("SECRETS_KEYS", "bench:" + base64.b64encode(b"a bench has no secrets to keep..").decode())
    os.environ.setdefault("LOG_LEVEL", "WARNING")
    try:
        yield
    finally:
        running.stop()


def prepare(*, tenants: int, own_queues: int) -> dict[int, tuple[str, UUID]]:
    """Makes tenants t0000.. each with one python job "shardbeat.noop"; the first `own_queues` have their own queue.

    Returns tenant id -> (slug, job id).
    """
    from django.core.management import call_command

    from kernel.clock import utc_now
    from kernel.ids import uuid7
    from tenants import door
    from tenants.models import Plan, Tenant
    from tenants.provisioning import tenant_create

    call_command("tenant_migrate", stdout=open(os.devnull, "w"))  # noqa: SIM115
    door.become_owner()
    own, _ = Plan.objects.get_or_create(name="bench own", defaults={"own_queue": True})
    shared, _ = Plan.objects.get_or_create(name="bench shared", defaults={"own_queue": False})
    made: dict[int, tuple[str, UUID]] = {}
    for number in range(tenants):
        slug = f"b{number:04d}"
        tenant = Tenant.objects.filter(slug=slug).first()
        if tenant is None:
            plan = own if number < own_queues else shared
            tenant = tenant_create(slug=slug, plan=plan, host=f"{slug}.localhost")
        with door.inside(tenant):
            from apps.schedules.models import Job, JobVersion

            job = Job.objects.filter(name="noop").first()
            if job is None:
                job = Job.objects.create(
                    id=uuid7(), name="noop", kind="python", created_at=utc_now(), updated_at=utc_now()
                )
                JobVersion.objects.create(
                    job=job, version=1, target={"task": "shardbeat.noop"}, timeout_s=60, retry={}, priority=5,
                    created_at=utc_now(),
                )  # fmt: skip
            made[tenant.pk] = (slug, job.id)
    return made


def fill_index(
    made: dict[int, tuple[str, UUID]], *, count: int, due_at: datetime, own_queues: int, yearly: bool = False
) -> None:
    """Adds `count` hourly or yearly schedules, spread over the tenants, all due at one instant.

    It must be their next one: reconcile puts right what is not.
    """
    from apps.due.entries import COLUMNS, Entry
    from apps.schedules import timing
    from kernel.clock import utc_now
    from kernel.ids import shard_of, uuid7s
    from tenants import door
    from tenants.registry import Registry

    when = f"{due_at.hour} {due_at.day} {due_at.month} *" if yearly else "* * * *"
    spec = timing.spec_to_json(
        timing.spec_from_api({"trigger": {"cron": f"{due_at.minute} {when}"}, "timezone": "UTC"}, now=due_at)
    )
    line = door.Line("bench")
    registry = Registry(line)
    registry.refresh(force=True)
    conn = door.connect("bench fill", guarded=False)
    keys = uuid7s(count)
    ids = list(made)
    parts = {tenant_id: keys[number :: len(ids)] for number, tenant_id in enumerate(ids)}
    now = utc_now()
    with conn.cursor() as cursor, cursor.copy(f"COPY due_dueentry ({COLUMNS}, parked) FROM STDIN") as copy:
        for tenant_id, part in parts.items():
            queue = registry.by_id[tenant_id].queue("python")
            for key in part:
                entry = Entry(
                    key=key, shard=shard_of(key, 64), kind="schedule", tenant_id=tenant_id, due_at=due_at,
                    nominal_at=due_at, version=1, spec=spec, job_id=made[tenant_id][1], job_version=1, pool="python",
                    queue=queue, priority=5, timeout_s=60, max_concurrency=None, own_payload=False,
                    max_queue_age_s=None, own_max_queue_age_s=None, total_timeout_s=None,
                )  # fmt: skip
                copy.write_row((*entry, ""))
    for tenant_id, part in parts.items():
        table = f'"{registry.by_id[tenant_id].schema}".schedules_schedule'
        columns = (
            "id, name, job_id, version, revision, status, failures_from, paused_reason, labels, created_at, updated_at"
        )
        with conn.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for key in part:
                row = (key, key.hex, made[tenant_id][1], 1, 1, "active", 1, "", "{}", now, now)
                copy.write_row(row)
        conn.execute(
            f"""INSERT INTO {table}version (schedule_id, version, definition, spec, own_payload, created_at)
            SELECT id, 1, '{{}}', %s, false, %s FROM {table} s WHERE created_at = %s""",
            [spec, now, now],
        )
    conn.execute("VACUUM ANALYZE due_dueentry")
    conn.close()
    line.close()


def fake_worker(slots: int) -> None:
    """A worker row that lives for an hour and takes everything, so that only firing and releasing is measured."""
    from apps.tickets import workers
    from kernel.ids import uuid7
    from tenants import door
    from workers.subscription import wanted_queues

    conn = door.connect("bench worker")
    workers.renew(
        conn, worker=uuid7(), host="bench", pid=0, version="", slots={"python": slots}, queues=wanted_queues(),
        ttl_s=3_600, draining=False, skew_ms=0, stats={},
    )  # fmt: skip
    conn.close()


def clear() -> None:
    """Nothing due, nothing alive, no history, an empty broker."""
    import redis
    from django.conf import settings

    from tenants import door
    from tenants.models import Tenant

    conn = door.connect("bench clear", owner=True, guarded=False)
    conn.execute("TRUNCATE due_dueentry, tickets_ticket, tickets_worker, due_dispatcher")
    for schema in Tenant.objects.values_list("schema_name", flat=True):
        conn.execute(
            f'TRUNCATE "{schema}".executions_execution, "{schema}".executions_attempt,'
            f' "{schema}".schedules_schedule, "{schema}".schedules_scheduleversion'
        )
    conn.close()
    redis.Redis.from_url(settings.BROKER_URL).flushdb()


class Process:
    """A child of the measurement; ended with it."""

    def __init__(self, *command: str, **environment: str) -> None:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", **environment}
        self.child = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=sys.stderr)

    def cpu_s(self) -> float:
        """CPU seconds of the process and its children so far."""
        parts = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(int(parts[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(40)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def dispatcher(**environment: str) -> Process:
    return Process(sys.executable, "manage.py", "dispatcher", **environment)


def worker(**environment: str) -> Process:
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
    return Process(sys.executable, "-m", "celery", "-A", "workers.app", "worker", *quiet, **environment)


def until(condition: Callable[[], bool], *, timeout_s: float, step_s: float = 0.02) -> None:
    """Waits for a condition; TimeoutError when it does not come."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout_s} s")
        time.sleep(step_s)


def one(conn: Any, query: str) -> Any:
    return conn.execute(query).fetchone()[0]


def aligned(now: datetime, seconds: float) -> datetime:
    """The next whole second at least `seconds` away."""
    return (now + timedelta(seconds=seconds + 1)).replace(microsecond=0)
