"""No-op executions end to end, durable, drained from a backlog; and plain Celery on the same broker and cores."""

import subprocess
import sys
import time
from datetime import UTC, datetime

from tests.bench import stage


def shardbeat(made: stage.Tenants, *, count: int, own_queues: int, workers: int) -> float:
    """Settled executions a second: fired beforehand, then released, run and settled by real processes."""
    from apps.dispatch.firing import fire_batch
    from tenants import door
    from tenants.registry import Registry

    stage.clear()
    past = datetime.now(UTC).replace(microsecond=0)
    stage.fill_index(made, count=count, due_at=past, own_queues=own_queues)
    line = door.Line("bench")
    registry = Registry(line)
    registry.refresh(force=True)
    while fire_batch(
        line.get(), registry, list(range(64)), now=datetime.now(UTC), limit=1_000, fired_by=lambda entry: "bench"
    )["entries"]:
        pass
    conn = door.connect("bench", guarded=False)
    running = [stage.worker() for _ in range(workers)]
    try:
        stage.until(lambda: stage.one(conn, "SELECT count(*) FROM tickets_worker") >= workers, timeout_s=60)
        running.append(stage.dispatcher(PREFETCH_FACTOR="4"))  # short tasks: docs/configuration.md
        stage.until(
            lambda: stage.one(conn, "SELECT count(*) FROM tickets_ticket") <= count * 0.95, timeout_s=60, step_s=0.2
        )
        left = int(stage.one(conn, "SELECT count(*) FROM tickets_ticket"))
        begun = time.monotonic()
        stage.until(lambda: stage.one(conn, "SELECT count(*) FROM tickets_ticket") == 0, timeout_s=300, step_s=0.2)
        return left / (time.monotonic() - begun)
    finally:
        for process in reversed(running):
            process.stop()
        conn.close()
        line.close()


def celery(*, count: int, workers: int) -> float:
    """No-op tasks a second of plain Celery (prefork, one process each, acks early, no results), from a backlog."""
    import redis
    from django.conf import settings

    broker = redis.Redis.from_url(settings.BROKER_URL)
    subprocess.run([sys.executable, "-m", "tests.bench.plain_celery", str(count)], cwd=stage.ROOT, check=True)
    running = [
        stage.Process(
            sys.executable, "-m", "celery", "-A", "tests.bench.plain_celery", "worker", "--pool", "prefork",
            "--concurrency", "1", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel",
            "ERROR", "-n", f"plain{number}@%h",
        )
        for number in range(workers)
    ]  # fmt: skip
    try:
        stage.until(lambda: broker.llen("plain") <= count * 0.95, timeout_s=60)
        left = int(broker.llen("plain"))
        begun = time.monotonic()
        stage.until(lambda: broker.llen("plain") == 0, timeout_s=120)
        return left / (time.monotonic() - begun)
    finally:
        for process in running:
            process.stop()
