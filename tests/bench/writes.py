"""Writes over the API, through real web processes: one schedule a request, and 1,000 schedules or runs a request.

On a machine that others use as well, the CPU time that it takes says more than how long it takes: "a core" is what one
core would do with web process and database on it.
"""

import http.client
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import orjson

from tests.bench import stage

PORT = 8766
ITEMS = 1_000  # of one bulk request
CLIENTS = 4
WEBS = 2
SINGLES = 1_500
BATCHES = 24
TRIGGERS = ({"cron": "*/5 * * * *"}, {"cron": "17 3 * * *"}, {"every_s": 300}, {"cron": "H H * * *"})


class Measured(NamedTuple):
    """What came of one kind of write."""

    per_s: float
    web_ms: float  # CPU of the web processes, for one thing made
    database_ms: float  # CPU of the database
    median_ms: float  # one request, as its client waits for it

    @property
    def per_core(self) -> float:
        """Things made in a second of one core's time."""
        return 1000 / (self.web_ms + self.database_ms)


def run(made: stage.Tenants) -> dict[str, Measured]:
    """Measures with the first tenant."""
    from tenants.keys import apikey_create
    from tenants.models import Tenant

    tenant_id, (_, job) = next(iter(made.items()))
    key = apikey_create(tenant=Tenant.objects.get(pk=tenant_id), name="bench", role="editor")[1]
    with web() as process:
        client = Client(key)
        client.until_served()
        found = {}
        for name, path, body, status, count, things in (
            ("schedule", "schedules", lambda: schedule(job), 201, SINGLES, 1),
            ("schedules in bulk", "schedules/bulk", lambda: many(lambda: schedule(job)), 200, BATCHES, ITEMS),
            ("runs in bulk", "executions/bulk", lambda: many(lambda: {"job": str(job)}), 200, BATCHES, ITEMS),
        ):
            measure(
                key, path, [orjson.dumps(body()) for _ in range(CLIENTS)], status=status, process=process, things=things
            )  # warm
            bodies = [orjson.dumps(body()) for _ in range(count)]
            found[name] = measure(key, path, bodies, status=status, process=process, things=things)
    return found


class Client:
    """One kept connection."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._line = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        self._line.request("POST", f"/api/v1/{path}", body, headers)
        answer = self._line.getresponse()
        return answer.status, orjson.loads(answer.read())

    def until_served(self) -> None:
        def served() -> bool:
            try:
                return self.post("schedules", b"{}")[0] == 400
            except OSError:
                self._line.close()
                return False

        stage.until(served, timeout_s=30, step_s=0.1)


@contextmanager
def web() -> Iterator[stage.Process]:
    """Web processes as in production."""
    command = (
        "-m", "gunicorn", "config.wsgi:application", "--bind", f"127.0.0.1:{PORT}", "--workers", str(WEBS),
        "--worker-class", "gthread", "--threads", "4", "--keep-alive", "60", "--no-control-socket",
        "--worker-tmp-dir", tempfile.gettempdir(), "--log-level", "warning",
    )  # fmt: skip
    process = stage.Process(sys.executable, *command, ALLOWED_HOSTS="127.0.0.1")
    try:
        yield process
    finally:
        process.stop()


def measure(key: str, path: str, bodies: list[bytes], *, status: int, process: stage.Process, things: int) -> Measured:
    """Sends the bodies from CLIENTS sides at once."""
    waiting = iter(bodies)
    lock = threading.Lock()
    waits: list[float] = []

    def send() -> None:
        client = Client(key)
        while True:
            with lock:
                body = next(waiting, None)
            if body is None:
                return
            began = time.perf_counter()
            got, answer = client.post(path, body)
            assert got == status and not answer.get("refused"), answer
            waits.append(time.perf_counter() - began)

    threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
    web_s, database_s, began = tree_cpu_s(process.child.pid), tree_cpu_s(postmaster()), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s, count = time.perf_counter() - began, len(bodies) * things
    return Measured(
        count / took_s, (tree_cpu_s(process.child.pid) - web_s) / count * 1000,
        (tree_cpu_s(postmaster()) - database_s) / count * 1000, sorted(waits)[len(waits) // 2] * 1000,
    )  # fmt: skip


def schedule(job: UUID) -> dict[str, Any]:
    name = uuid4().hex
    trigger = TRIGGERS[int(name[:2], 16) % len(TRIGGERS)]
    return {
        "name": f"schedule {name}", "job": str(job), "trigger": trigger, "timezone": "Europe/Berlin",
        "labels": {"team": "billing"}, "payload": {"customer": name[:8]},
    }  # fmt: skip


def many(item: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return {"items": [item() for _ in range(ITEMS)]}


def postmaster() -> int:
    """The database server's first process."""
    from tenants import door

    with door.connect("bench") as conn:
        return int(_stat(conn.info.backend_pid)[1])


def tree_cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and of those that it has started and that are alive."""
    found = {int(path.name): _stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()}
    mine, grown = {pid}, True
    while grown:
        more = {one for one, fields in found.items() if fields and int(fields[1]) in mine} - mine
        mine, grown = mine | more, bool(more)
    ticks = sum(int(found[one][index]) for one in mine if found.get(one) for index in (11, 12))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; none when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
