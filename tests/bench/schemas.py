"""Thousands of tenants: made, migrated with nothing to do, with a new column, killed half way, gone on; and what
connections that work for all of them hold.

Commands run as processes of their own, as an operator starts them: their start is part of the figure.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench import stage
from tests.bench.writes import postmaster, tree_cpu_s

BUDGET_NOTHING_S, BUDGET_COLUMN_S, BUDGET_MB = 5.0, 10.0, 500  # the first two at 1,000 tenants; the last is case D15's
ONE_BY_ONE = 100
KILL_AT = 0.4  # of all schemas
COLUMNS = "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE a.attname = %s"
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user"
FIRES = "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^shardbeat [0-9a-f]{8} fire$'"
TOUCHED = ("executions_execution", "executions_attempt", "schedules_schedule", "schedules_job")


class Run(NamedTuple):
    """One command."""

    seconds: float
    cpu_s: float  # of the process
    database_s: float  # CPU of the server meanwhile
    code: int
    out: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.cpu_s:.1f} CPU of the command, {self.database_s:.1f} of the database)"


def run(*, tenants: int, say: Callable[[str], None]) -> None:
    """Measures and says each figure as soon as it is known. AssertionError when a migration was not done whole."""
    took_ms = make(min(tenants, ONE_BY_ONE))
    say(f"{len(took_ms):,} tenants made one by one, {median(took_ms):.0f} ms each")
    if rest := rows(len(took_ms), tenants):
        made = _timed([sys.executable, "manage.py", "tenant_migrate"])
        assert made.code == 0 and made.out.startswith(f"{rest:,} migrated, 0 behind"), made
        say(f"the schemas of {rest:,} more made by tenant_migrate: {made}")
    nothing = _timed([sys.executable, "manage.py", "tenant_migrate"])
    assert nothing.out == "All schemas are up to date.\n", nothing
    say(f"tenant_migrate with nothing to do: {nothing}; budget at 1,000: {BUDGET_NOTHING_S:.0f} s")
    column = _child("one")
    assert column.code == 0 and _with_column("one") == tenants, column
    say(f"a new column everywhere: {column}; budget at 1,000: {BUDGET_COLUMN_S:.0f} s")
    killed_at = _killed(tenants)
    status = _child("one,two", "--status")
    assert status.code == 1 and f" {tenants - killed_at:,} behind" in status.out, status
    resumed = _child("one,two")
    assert resumed.code == 0 and _with_column("two") == tenants, resumed
    say(f"killed with {killed_at:,} done, as the status says; going on with the rest took {resumed}")
    say(f"largest command: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1_024} MB; budget {BUDGET_MB}")
    say(f"reading {len(TOUCHED)} tables of each tenant by one connection: {_visits():.0f} MB of the server")
    connections, fire_mb = _dispatcher(tenants)
    say(f"a dispatcher that has fired for all: {connections} connections; the one of fire holds {fire_mb:.0f} MB")


def make(tenants: int) -> list[float]:
    """Makes the tenants b0000.. that `stage.prepare` would; how long each took, in ms."""
    from tenants.models import Plan
    from tenants.provisioning import tenant_create

    stage.prepare(tenants=0, own_queues=0)
    plan, took = Plan.objects.filter(name="bench shared")[0], list[float]()
    for number in range(tenants):
        begun = time.perf_counter()
        tenant_create(slug=f"b{number:04d}", plan=plan, host=f"b{number:04d}.localhost")
        took.append(1_000 * (time.perf_counter() - begun))
    return took


def rows(first: int, end: int) -> int:
    """Tenants whose schemas are gone, as after a restore that was cut off; how many."""
    from tenants.models import Domain, Plan, Tenant

    plan = Plan.objects.filter(name="bench shared")[0]
    made = Tenant.objects.bulk_create(
        Tenant(slug=f"b{number:04d}", name="", schema_name=f"t_b{number:04d}", plan=plan, status="active")
        for number in range(first, end)
    )
    Domain.objects.bulk_create(Domain(tenant=one, domain=f"{one.slug}.localhost", is_primary=True) for one in made)
    return len(made)


def _child(names: str, *args: str) -> Run:
    return _timed([*_next(names), *args])


def _next(names: str) -> list[str]:
    """tenant_migrate of a version that knows these migrations too, each a new column of the largest table."""
    add = "ALTER TABLE executions_execution ADD COLUMN bench_{} integer NOT NULL DEFAULT 0"
    steps = [part for name in names.split(",") for part in (f"9999_{name}", add.format(name))]
    return [sys.executable, "-m", "tests.next_version", *steps, "--"]


def _timed(command: list[str]) -> Run:
    begun, before = time.perf_counter(), (resource.getrusage(resource.RUSAGE_CHILDREN), _server_s())
    done = subprocess.run(command, cwd=stage.ROOT, env=_environment(), capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before[0].ru_utime - before[0].ru_stime
    out = done.stdout + (done.stderr if done.returncode > 1 else "")
    return Run(seconds, cpu_s, _server_s() - before[1], done.returncode, out)


def _server_s() -> float:
    """CPU seconds of the database's processes, those that have ended included."""
    server = postmaster()
    ended = Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    return tree_cpu_s(server) + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{stage.ROOT}:{stage.ROOT / 'platform'}"}


def _killed(tenants: int) -> int:
    """kill -9 of a migration when KILL_AT is done; how many schemas have it, once the server's processes have ended."""
    from django.db import connection

    connection.close()
    child = subprocess.Popen(_next("one,two"), cwd=stage.ROOT, env=_environment(), stdout=subprocess.DEVNULL)
    stage.until(lambda: _with_column("two") >= KILL_AT * tenants or child.poll() is not None, timeout_s=600)
    assert child.poll() is None, "it was over before it could be killed"
    child.kill()
    child.wait()
    theirs = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()"
    stage.until(lambda: not _one(theirs), timeout_s=30)
    return _with_column("two")


def _with_column(name: str) -> int:
    return _one(COLUMNS, f"bench_{name}")


def _one(query: str, *values: Any) -> int:
    from tenants import door

    with door.connect("bench look", owner=True, guarded=False) as conn:
        row = conn.execute(query, values).fetchone()
    return int(row[0]) if row else 0


def _dispatcher(tenants: int) -> tuple[int, float]:
    """Connections of a dispatcher that has fired for each tenant, and what the server holds for the one that fires."""
    from kernel.clock import utc_now
    from tenants import door

    made = stage.prepare(tenants=tenants, own_queues=0)
    stage.fill_index(made, count=tenants, due_at=utc_now() - timedelta(seconds=1), own_queues=0)
    with door.connect("bench look", guarded=False) as conn:
        before = stage.one(conn, SESSIONS)
        dispatcher = stage.dispatcher()
        try:
            stage.until(lambda: stage.one(conn, "SELECT count(*) FROM tickets_ticket") >= tenants, timeout_s=120)
            return stage.one(conn, SESSIONS) - before, _own_mb(stage.one(conn, FIRES))
        finally:
            dispatcher.stop()


def _visits() -> float:
    from psycopg import sql

    from tenants import door
    from tenants.models import Tenant

    with door.connect("bench visits", guarded=False) as conn:
        before = _own_mb(conn.info.backend_pid)
        for schema in Tenant.objects.values_list("schema_name", flat=True):
            for table in TOUCHED:
                conn.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(schema, table)))
        return _own_mb(conn.info.backend_pid) - before


def _own_mb(pid: int) -> float:
    """Memory that a server process holds alone: without what it shares with the others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1_024
