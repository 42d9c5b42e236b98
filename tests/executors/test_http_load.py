"""One real worker process with a thousand slow calls in flight, beside another tenant's short ones.

`python -m pytest -m long -s tests/executors/test_http_load.py` prints the figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from kernel.clock import monotonic_s, utc_now
from tests.conftest import wait_until
from tests.fixtures_flow import make_job, make_ticket
from tests.processes import Processes

Conn = psycopg.Connection[Any]
IN_FLIGHT = 1_000
SLOTS = 1_112  # a tenth is for others than the queue that floods
SLOW, SLOW_S = 3_000, 5.0
SHORT, SHORT_EVERY_S = 100, 0.1
MEMORY_MAX_MB = 300
CORES_MAX = 1.0
LATENESS_MAX_S = 2.0

RECEIVER = """
import asyncio, uvloop
from aiohttp import web
now = most = 0
async def answer(request):
    global now, most
    await request.read()
    if request.path == "/most":
        return web.Response(text=str(most))
    now += 1
    most = max(now, most)
    if request.path == "/slow":
        await asyncio.sleep(5)
    now -= 1
    return web.Response(text="ok")
async def main():
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
uvloop.run(main())
"""


@pytest.fixture
def receiver_port() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield int(process.stdout.readline())
    process.terminate()
    process.wait()


@dataclass
class Watch:
    """What a process uses."""

    pid: int
    memory_mb: float = 0
    cpu_s: list[tuple[float, float]] = field(default_factory=list)

    def look(self) -> None:
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        self.memory_mb = int(line.split()[1]) / 1_024
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        self.cpu_s.append((monotonic_s(), (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")))

    @property
    def cores(self) -> float:
        (first_at, first), (last_at, last) = self.cpu_s[0], self.cpu_s[-1]
        return (last - first) / (last_at - first_at)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_thousand_slow_calls_leave_room_for_short_ones(
    processes: Processes, conn: Conn, acme: Any, globex: Any, receiver_port: int
) -> None:
    conn.execute("UPDATE tenants_tenant SET dispatch_paused = true WHERE id = %s", [acme.pk])
    slow = make_job(acme, now=utc_now(), kind="http", target={"url": f"http://127.0.0.1:{receiver_port}/slow"})
    short = make_job(globex, now=utc_now(), kind="http", target={"url": f"http://127.0.0.1:{receiver_port}/short"})
    for _ in range(SLOW):
        make_ticket(acme, slow, now=utc_now())
    processes.dispatcher()
    worker = processes.worker(WORKER_POOLS="http", HTTP_SLOTS=str(SLOTS))
    live = "SELECT count(*) FROM tickets_worker WHERE expires_at > clock_timestamp()"
    wait_until(lambda: count(conn, live), "a worker")
    conn.execute("UPDATE tenants_tenant SET dispatch_paused = false WHERE id = %s", [acme.pk])
    in_flight = "SELECT count(*) FROM tickets_ticket WHERE state = 'running'"
    wait_until(lambda: count(conn, in_flight) >= IN_FLIGHT, "a flood")
    watch, made = Watch(worker.pid), 0
    next_at = monotonic_s()
    while made < SHORT:
        wait_until(partial(is_past, next_at))
        make_ticket(globex, short, now=utc_now())
        made, next_at = made + 1, next_at + SHORT_EVERY_S
        watch.look()
    table = sql.Identifier(globex.schema_name, "executions_execution")
    over = sql.SQL("SELECT count(*) FROM {} WHERE state = 'succeeded'").format(table)
    wait_until(lambda: count(conn, over) == SHORT, "the short runs")
    late = sql.SQL(
        "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - created_at)) FROM {}"
    ).format(table)
    lateness_s = float((conn.execute(late).fetchone() or (0,))[0])
    with urllib.request.urlopen(f"http://127.0.0.1:{receiver_port}/most") as answer:
        most = int(answer.read())  # at the target: what has ended here may not be settled yet
    print(
        f"\n{most} runs in flight of {SLOTS} slots: {watch.memory_mb:.0f} MB, {watch.cores:.2f} cores;"
        f" start lateness of the other tenant's short runs p99 {lateness_s:.2f} s"
    )
    assert IN_FLIGHT <= most <= SLOTS, "slots bound what is taken"
    assert watch.memory_mb < MEMORY_MAX_MB
    assert watch.cores < CORES_MAX
    assert lateness_s < LATENESS_MAX_S
    wait_until(lambda: count(conn, "SELECT count(*) FROM tickets_ticket") == 0, "the end", timeout_s=60)


def is_past(at_s: float) -> bool:
    return monotonic_s() >= at_s


def count(conn: Conn, query: Any) -> int:
    row = conn.execute(query).fetchone()
    return int(row[0]) if row else 0
