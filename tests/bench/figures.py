"""The figures of `manage.py simulate --plan`: what each step costs in CPU time, on one small run of each.

CPU time hardly depends on what else the machine does, so a small and short run is enough. What is not measured here
keeps the figure of the repository.
"""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import stage
from tests.bench.writes import postmaster, tree_cpu_s

COUNT = 20_000
SLOTS = "32"


def run(made: stage.Tenants, *, own_queues: int, count: int = COUNT) -> dict[str, dict[str, Any]]:
    """Figures by name, each with its value and source."""
    from apps.dispatch.firing import fire_batch
    from tenants import door
    from tenants.registry import Registry

    stage.clear()
    line = door.Line("bench")
    registry = Registry(line)
    registry.refresh(force=True)
    conn = door.connect("bench", guarded=False)
    empty, nothing = _index_bytes(conn), _history_bytes(conn)
    stage.fill_index(made, count=count, due_at=datetime.now(UTC).replace(microsecond=0), own_queues=own_queues)
    schedule_bytes = (_index_bytes(conn) - empty) / count
    before = _Spent(conn, os.getpid())
    while fire_batch(
        line.get(), registry, list(range(64)), now=datetime.now(UTC), limit=1_000, fired_by=lambda entry: "bench"
    )["entries"]:
        pass
    fired = before.since(conn, count)
    worker: stage.Process | None = None
    dispatcher = stage.dispatcher(QUEUED_BOUND_S="3600")
    try:
        held = "SELECT count(*) FROM due_shardlease WHERE kind = 'release' AND expires_at > clock_timestamp()"
        stage.until(lambda: stage.one(conn, held) > 0, timeout_s=60)
        before = _Spent(conn, dispatcher.child.pid)
        stage.fake_worker(2 * count)
        stage.until(lambda: _left(conn, "state <> 'queued'") == 0, timeout_s=120)
        released = before.since(conn, count)
        dispatcher.stop()
        conn.execute("DELETE FROM tickets_worker")
        worker = stage.worker(PYTHON_CHILDREN=SLOTS)
        stage.until(lambda: stage.one(conn, "SELECT count(*) FROM tickets_worker") > 0, timeout_s=60)
        at_start = _left(conn, "true")
        before = _Spent(conn, worker.child.pid)
        # What had started before, and the tail that waits for somebody to release it again, is not measured.
        stage.until(lambda: _left(conn, "true") <= at_start * 0.1, timeout_s=120)
        ran = before.since(conn, at_start - _left(conn, "true"))
        history_bytes = (_history_bytes(conn) - nothing) / count
    finally:
        dispatcher.stop()
        if worker is not None:
            worker.stop()
        conn.close()
        line.close()
    wal = fired["wal"] + released["wal"] + ran["wal"]
    measured = {
        "dispatcher_fire_ms": fired["process_ms"], "database_fire_ms": fired["database_ms"],
        "dispatcher_release_ms": released["process_ms"], "database_release_ms": released["database_ms"],
        "worker_python_ms": ran["process_ms"], "database_run_ms": ran["database_ms"],
        "history_bytes": history_bytes, "wal_bytes": wal,
        "schedule_bytes": schedule_bytes,
    }  # fmt: skip
    where = (
        f"make bench ARGS='--only figures', {os.cpu_count()} cores, {count:,} no-op runs, {datetime.now(UTC):%Y-%m-%d}"
    )
    return {name: {"value": round(value, 4), "source": where} for name, value in measured.items()}


def write(path: Path, figures: dict[str, dict[str, Any]]) -> None:
    """The JSON that `manage.py simulate --plan --figures FILE` reads."""
    path.write_text(json.dumps(figures, indent=2) + "\n")


class _Spent:
    """CPU time and WAL up to now."""

    def __init__(self, conn: Any, pid: int) -> None:
        self.pid = pid
        self.process, self.database, self.wal = tree_cpu_s(pid), tree_cpu_s(postmaster()), _wal(conn)

    def since(self, conn: Any, count: int) -> dict[str, float]:
        """What each of so many runs took since then."""
        time.sleep(0.2)  # so that backends that are still writing are counted
        return {
            "process_ms": (tree_cpu_s(self.pid) - self.process) / count * 1_000,
            "database_ms": (tree_cpu_s(postmaster()) - self.database) / count * 1_000,
            "wal": (_wal(conn) - self.wal) / count,
        }


def _left(conn: Any, which: str) -> int:
    return int(stage.one(conn, f"SELECT count(*) FROM tickets_ticket WHERE {which}"))


def _wal(conn: Any) -> float:
    return float(stage.one(conn, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))


def _index_bytes(conn: Any) -> float:
    return float(stage.one(conn, "SELECT pg_total_relation_size('due_dueentry')"))


def _history_bytes(conn: Any) -> float:
    query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname = ANY(%s)"
    row = conn.execute(query, [["executions_execution", "executions_attempt"]]).fetchone()
    return float(row[0])
