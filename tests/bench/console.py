"""Every page of the operators' console on a platform of some size: what it takes, and in how many statements.

The platform is that of `console_stage`. The pages are those that the tests know (tests/console/pages_list.py) and the
stock list of every table, read one after the other in this process by a superuser. On a machine with other work, too,
only the CPU tells how fast one is.
Then ten browsers have the Overview open on two web processes: how often a second are the figures made?
"""

import re
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tests.bench import stage
from tests.bench.console_stage import TICKETS, filled
from tests.bench.lists import cpu_ms
from tests.console.pages_list import PAGES, TABLES

BUDGET_MS = 200
STATEMENTS_MAX = 12
REPEATS = 20
OPEN, OPEN_S, WEBS = 10, 20, 2  # Overviews, for how long, web processes
WORK = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
SETTING = re.compile(r"\s*SELECT\s+(pg_catalog\.)?set_config", re.IGNORECASE)


class Measured(NamedTuple):
    """A page; `cpu_ms` and `statements` are medians, the latter without what begins and ends transactions."""

    path: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    statements: float


def report(made: stage.Tenants, *, executions: int) -> None:
    """Measures all, and prints it."""
    pages = run(made, executions=executions)
    for path, p50_ms, p95_ms, worked_ms, statements in pages:
        over = "  over budget" if p95_ms > BUDGET_MS or statements > STATEMENTS_MAX else ""
        print(f"{p50_ms:6.1f} ms p50 {p95_ms:6.1f} p95 {worked_ms:6.1f} CPU {statements:4.0f} statements  {path}{over}")
    within = sum(one.p95_ms <= BUDGET_MS and one.statements <= STATEMENTS_MAX for one in pages)
    print(
        f"console, {executions:,} executions, {len(made):,} tenants, {TICKETS:,} live tickets: {within} of {len(pages)}"
        f" pages have a p95 of at most {BUDGET_MS} ms with at most {STATEMENTS_MAX} statements"
    )
    per_s, p95_ms = open_overviews()
    print(f"{OPEN} open Overviews: figures are made {per_s:.2f} times a second; p95 of an answer {p95_ms:.1f} ms")


def run(made: stage.Tenants, *, executions: int) -> list[Measured]:
    """Fills what is missing, then reads each page REPEATS times."""
    from django.conf import settings

    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    world = filled(made, executions=executions)
    read, paths = _browser(), [*world.paths((*PAGES, *TABLES)), *stock_lists(world.slug)]
    return [_measured(read, path) for path in dict.fromkeys(paths)]


def stock_lists(slug: str) -> list[str]:
    """Django's own list of each table, over all tenants and of one."""
    from django.contrib.admin import site

    from apps.console.tenant_site import tenant_site

    return [
        f"{base}{model._meta.app_label}/{model._meta.model_name}/"
        for base, of in (("/admin/", site), (f"/t/{slug}/admin/", tenant_site))
        for model in of._registry
    ]


def open_overviews() -> tuple[float, float]:
    """How often a second the figures are made while OPEN browsers look, and the p95 of their answers in ms."""
    from embedded.folder import choose_port
    from tenants import door

    session = str(_browser().cookies["sessionid"].value)
    ports = [choose_port(remembered=None) for _ in range(WEBS)]
    webs = [
        stage.Process(
            sys.executable, "-m", "gunicorn", "config.wsgi:application", "--bind", f"127.0.0.1:{port}",
            "--worker-class", "gthread", "--threads", "16", "--no-control-socket", "--log-level", "error",
        )
        for port in ports
    ]  # fmt: skip
    conn = door.connect("bench overviews")
    taken: list[float] = []
    try:
        for port in ports:
            stage.until(partial(_is_up, port, session), timeout_s=60, step_s=0.2)
        before, began = stage.one(conn, "SELECT number FROM console_snapshot"), time.monotonic()
        threads = [
            threading.Thread(target=_look, args=(ports[number % WEBS], session, taken)) for number in range(OPEN)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = stage.one(conn, "SELECT number FROM console_snapshot") - before
        return made / (time.monotonic() - began), statistics.quantiles(taken, n=20)[18]
    finally:
        for web in webs:
            web.stop()
        conn.close()


def _browser() -> Any:
    from django.contrib.auth.models import User
    from django.test import Client

    user = User.objects.filter(username="bench").first() or User.objects.create_superuser("bench", password=None)
    client = Client(raise_request_exception=False)  # a page that fails is told beside the others
    client.force_login(user)
    return client


def _measured(client: Any, path: str) -> Measured:
    """The first read is not counted."""
    taken: list[float] = []
    worked: list[float] = []
    counts: list[int] = []
    for _ in range(REPEATS + 1):
        with _statements() as seen:
            began, before = time.perf_counter(), cpu_ms()
            answer = client.get(path)
            taken.append((time.perf_counter() - began) * 1_000)
            worked.append(cpu_ms() - before)
        counts.append(len(seen))
        if answer.status_code != 200:
            return Measured(f"{path} (status {answer.status_code})", 0, float("inf"), 0, 0)
    return Measured(path, statistics.median(taken[1:]), statistics.quantiles(taken[1:], n=20)[18],
                    statistics.median(worked[1:]), statistics.median(counts[1:]))  # fmt: skip


@contextmanager
def _statements() -> Iterator[list[str]]:
    """What this process sends to the database, the ORM and the stores."""
    import psycopg

    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else repr(query)
        if WORK.match(text) and not SETTING.match(text):
            seen.append(text)
        return execute(self, query, *args, **kwargs)

    psycopg.Cursor.execute = noted  # type: ignore[method-assign]  # for the length of the block
    try:
        yield seen
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # what it was


def _is_up(port: int, session: str) -> bool:
    return _asked(port, session) is not None


def _asked(port: int, session: str, tag: str = "") -> str | None:
    """The ETag of the newest figures; None while the web does not answer."""
    headers = {"Cookie": f"sessionid={session}", "Host": f"localhost:{port}", **({"If-None-Match": tag} if tag else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/admin/live.json", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
            return str(answer.headers["ETag"])
    except urllib.error.HTTPError as error:
        return tag if error.code == 304 else None
    except OSError:
        return None


def _look(port: int, session: str, taken: list[float]) -> None:
    """As live.js does: once a second."""
    tag, end = "", time.monotonic() + OPEN_S
    while time.monotonic() < end:
        began = time.perf_counter()
        tag = _asked(port, session, tag) or ""
        taken.append((time.perf_counter() - began) * 1_000)
        time.sleep(max(0.0, 1 - (time.perf_counter() - began)))
