"""The figures that a plan uses when nothing is measured: CPU time of each step, and where the number comes from."""

from apps.dispatch.simulation.sizing import Figure

_BENCH = "make bench ARGS='--only figures' on 2 shared cores: CPU time of 20,000 no-op runs of 8 tenants"

FIGURES: dict[str, Figure] = {
    "dispatcher_fire_ms": Figure(0.083, _BENCH),
    "dispatcher_release_ms": Figure(0.022, _BENCH),
    "database_fire_ms": Figure(0.041, _BENCH),
    "database_release_ms": Figure(0.060, _BENCH),
    "database_run_ms": Figure(0.132, _BENCH + ", start and settle with history"),
    "worker_python_ms": Figure(0.27, _BENCH),
    "worker_http_ms": Figure(0.4, "0.19 ms of python -m tests.executors.measure http, and start and settle (estimate)"),
    "worker_container_ms": Figure(25.0, "22 ms of runc with a busybox image, and start and settle (estimate)"),
    "history_bytes": Figure(1_056.0, _BENCH + ", an execution and its attempt with their indexes"),
    "schedule_bytes": Figure(502.0, _BENCH + ", a due entry with its indexes"),
    "wal_bytes": Figure(3_930.0, _BENCH + ", page images after a checkpoint included"),
}
