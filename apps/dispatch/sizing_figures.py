"""The figures that a plan uses when nothing is measured: CPU time of each step, and where the number comes from."""

from apps.dispatch.sizing import Figure

_BENCH = "make bench ARGS='--only figures', 2 shared cores, no-op runs of 8 tenants"

FIGURES: dict[str, Figure] = {
    "dispatcher_fire_ms": Figure(0.12, _BENCH),
    "dispatcher_release_ms": Figure(0.06, _BENCH),
    "database_fire_ms": Figure(0.12, _BENCH),
    "database_release_ms": Figure(0.06, _BENCH),
    "database_run_ms": Figure(0.25, _BENCH + ": start and settle with history"),
    "worker_python_ms": Figure(0.5, _BENCH),
    "worker_http_ms": Figure(0.8, "python -m tests.executors.measure http, with start and settle of the python figure"),
    "worker_container_ms": Figure(
        25.0, "runc with a busybox image: 22 ms a start (docs/performance.md), start and settle"
    ),
    "history_bytes": Figure(900.0, _BENCH + ": an execution and its attempt, with indexes"),
    "schedule_bytes": Figure(700.0, _BENCH + ": a due entry with its indexes"),
    "wal_bytes": Figure(6_000.0, _BENCH + ", full page images included"),
}
