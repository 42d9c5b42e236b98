"""Fire + release: many schedules due at one instant, until all of them are queued at the broker."""

import time
from datetime import UTC, datetime

from tests.bench import stage


def run(made: stage.Tenants, *, due: int, index: int, own_queues: int, dispatchers: int = 1) -> dict[str, float]:
    """`due` schedules due at once, `index` in all; returns rates and lateness."""
    from tenants import door

    stage.clear()
    conn = door.connect("bench", guarded=False)
    far = datetime(2030, 1, 1, tzinfo=UTC)
    stage.fill_index(made, count=index - due, due_at=far, own_queues=own_queues)
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
        stage.until(
            lambda: stage.one(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'") >= due,
            timeout_s=300, step_s=0.1,
        )  # fmt: skip
        took = time.monotonic() - begun
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
