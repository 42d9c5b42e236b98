"""Fire + release: many schedules due at one instant, until all of them are queued at the broker."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.bench import stage


def run(made: stage.Tenants, *, due: int, index: int, own_queues: int, dispatchers: int = 1) -> dict[str, float]:
    """`due` schedules due at once, `index` in all; returns rates and lateness."""
    from tenants import door

    stage.clear()
    conn = door.connect("bench", guarded=False)
    far = (datetime.now(UTC) + timedelta(days=60)).replace(second=0, microsecond=0)
    stage.fill_index(made, count=index - due, due_at=far, own_queues=own_queues, yearly=True)
    at = stage.aligned(datetime.now(UTC), 25 + due / 40_000)
    stage.fill_index(made, count=due, due_at=at, own_queues=own_queues)
    stage.fake_worker(due * 2)
    # Nobody starts what is released here: it must not be released again while the rest is measured.
    processes = [stage.dispatcher(QUEUED_BOUND_S="3600") for _ in range(dispatchers)]
    try:
        left = (at - datetime.now(UTC)).total_seconds()
        if left < 8:
            raise RuntimeError("the stage was not ready in time")
        time.sleep(max(0.0, left - 0.01))
        begun = time.monotonic()
        # Asked by index: a count of the tickets, ten times a second, would be a good part of what is measured.
        stage.until(lambda: not _left(conn, at), timeout_s=300, step_s=0.05)
        took = time.monotonic() - begun
        queued = stage.one(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'")
        if queued != due:
            raise RuntimeError(f"{queued} of {due} are queued")
        lateness = stage.one(
            conn,
            "SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP"
            " (ORDER BY extract(epoch FROM queued_at - actual_at)) FROM tickets_ticket",
        )
        return {"per_s": due / took, "p50_s": lateness[0], "p99_s": lateness[1]}
    finally:
        for process in processes:
            process.stop()
        conn.close()


def _left(conn: Any, at: datetime) -> bool:
    """Whether something is due or ready, in this order: what is no longer due has its ticket already."""
    from django.conf import settings

    from apps.due import entries
    from apps.tickets import waiting

    _, earliest = entries.peek(conn, range(settings.SHARDS))
    return any(due_at <= at for due_at in earliest.values()) or waiting.any_ready(conn, "python")
