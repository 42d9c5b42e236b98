"""Lists of the API on a long history, each with each filter, also those that nothing fits; and pages of the console.

All in one process. Beside the time that a request takes stands the CPU that it takes, of this process and of the
database's backend: on a machine that has other work, too, only that tells how fast a list is.
"""

import json
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.bench import history

REPEATS = 20
BUDGET_MS = 200
NOWHERE = "00000000-0000-7000-8000-000000000000"


class Measured(NamedTuple):
    """A list with its filter, or a page; `cpu_ms` is the median. `items` are those of a list's first page."""

    path: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    items: int


Read = Callable[[str], dict[str, Any]]


def run(*, slug: str, executions: int) -> list[Measured]:
    """Fills the history when there is none."""
    from django.conf import settings

    from kernel.clock import utc_now
    from tenants import door
    from tenants.keys import apikey_create
    from tenants.models import Tenant

    tenant = Tenant.objects.get(slug=slug)
    conn = door.connect("bench lists", owner=True, guarded=False)
    conn.execute(f'SET search_path TO "{tenant.schema_name}", public')
    (filled,) = conn.execute("SELECT count(*) FROM executions_execution").fetchone() or (0,)
    if filled < executions:
        history.fill(conn, schema=tenant.schema_name, tenant_id=tenant.pk, executions=executions, now=utc_now())
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    paths = _paths(conn)
    pages = _pages(*(_busiest(conn, what) for what in ("job_id", "schedule_id")))
    conn.close()
    _, key = apikey_create(tenant=tenant, name=f"bench {time.time_ns()}", role="admin", expires_at=None)
    read_page = _browser(tenant)
    return [
        *(_measure(path, lambda one: _get(one, key)) for path in paths), *(_measure(path, read_page) for path in pages)
    ]  # fmt: skip


def _measure(path: str, read: Read) -> Measured:
    """Each repeat reads the first page; every other one goes on to the second."""
    taken: list[float] = []
    worked: list[float] = []

    def timed(one: str) -> dict[str, Any]:
        begun, before = time.perf_counter(), cpu_ms()
        found = read(one)
        taken.append((time.perf_counter() - begun) * 1000)
        worked.append(cpu_ms() - before)
        return found

    first = read(path)
    for number in range(REPEATS):
        page = timed(path)
        if number % 2 and page.get("next_cursor"):
            timed(f"{path}{'&' if '?' in path else '?'}cursor={page['next_cursor']}")
    p95_ms = statistics.quantiles(taken, n=20)[18]
    return Measured(path, statistics.median(taken), p95_ms, statistics.median(worked), len(first.get("items", ())))


def cpu_ms() -> float:
    """CPU so far of this process and of the backend, which is on this machine."""
    from django.db import connection

    backend = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat").read_text().split()
    return time.process_time() * 1000 + int(backend[0]) / 1e6


def _get(path: str, key: str) -> dict[str, Any]:
    from django.test import Client

    answer = Client().get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, (path, answer.content[:300])
    found: dict[str, Any] = json.loads(answer.content)
    return found


def _browser(tenant: Any) -> Read:
    """Reads pages of the console as an admin of the tenant."""
    from tests.fixtures_people import member_of, signed_in

    client = signed_in(member_of(tenant, "admin", email=f"bench-{time.time_ns()}@example.com"))

    def read(path: str) -> dict[str, Any]:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        return {}

    return read


def _pages(job: str, schedule: str) -> list[str]:
    """Pages of the console whose cost could follow the history's length."""
    found = [
        "", "jobs", "jobs?name=nowhere", "schedules", "schedules?name=nowhere", "schedules?status=completed",
        f"schedules?job={job}&status=paused", "executions?window=all", "executions?window=all&trigger=api",
        "executions?window=all&state=expired&trigger=manual", f"executions?window=all&job={job}&state=dead",
        f"executions?window=all&schedule={schedule}&state=expired", "dead-letters", "dead-letters?status=replayed",
        f"dead-letters?status=replayed&job={job}", f"jobs/{job}", f"schedules/{schedule}", "usage", "usage?step=day",
        "audit",
    ]  # fmt: skip
    return [f"/console/{one}" for one in found]


def _busiest(conn: Any, what: str) -> str:
    since = _one(conn, "SELECT id FROM executions_execution ORDER BY id DESC OFFSET 200000 LIMIT 1")
    where = f"schedule_id IS NOT NULL AND id > '{since}'"
    return str(
        _one(conn, f"SELECT {what} FROM executions_execution WHERE {where} GROUP BY 1 ORDER BY count(*) DESC, 1")
    )


def _paths(conn: Any) -> list[str]:
    """The lists and their filters; ids are of a busy and of a quiet schedule and job."""
    newest = _one(conn, "SELECT max(created_at) FROM executions_execution")
    busy = (
        "SELECT {what} FROM executions_execution WHERE schedule_id IS NOT NULL AND id > '{since}' GROUP BY 1 ORDER BY"
    )
    since = _one(conn, "SELECT id FROM executions_execution ORDER BY id DESC OFFSET 200000 LIMIT 1")
    jobs = [
        str(_one(conn, busy.format(what="job_id", since=since) + f" count(*) {way}, 1 LIMIT 1")) for way in ("DESC", "")
    ]
    schedules = [
        str(_one(conn, busy.format(what="schedule_id", since=since) + f" count(*) {way}, 1 LIMIT 1"))
        for way in ("DESC", "")
    ]
    execution = _one(conn, "SELECT id FROM executions_execution WHERE trigger = 'replay' ORDER BY id DESC LIMIT 1")
    return [
        *_of_executions(jobs, schedules, newest),
        f"executions/{execution}/attempts",
        f"executions/{execution}/reruns",
        f"executions/{execution}/dead-letters",
        *(f"attempts?{one}" for one in _of_attempts(newest, execution, jobs[0], schedules[1])),
        *(f"dead-letters?{one}" for one in _of_letters(jobs[0], schedules[0])),
        f"jobs/{jobs[0]}/dead-letters?status=open",
        f"schedules/{schedules[1]}/dead-letters",
        *(f"jobs?{one}" for one in _of_definitions()),
        "jobs?kind=http",
        *(f"schedules?{one}" for one in _of_definitions()),
        "schedules?status=completed",
        "schedules?status=paused&label=region:r3",
        f"jobs/{jobs[0]}/schedules",
        f"jobs/{jobs[0]}/versions",
        f"schedules/{schedules[0]}/versions",
    ]


def _of_executions(jobs: list[str], schedules: list[str], newest: datetime) -> list[str]:
    day, month = newest - timedelta(days=1), newest - timedelta(days=29)
    asked: list[dict[str, Any]] = [
        {}, {"page_size": 500}, {"order": "created_at"}, {"order": "-finished_at"}, {"count": "true"},
        {"state": "succeeded"}, {"state": "dead"}, {"state": "expired,skipped"}, {"state": "running"},
        {"state": "ready"}, {"state": "running,dead,succeeded"}, {"state": "scheduled"},
        {"trigger": "manual"}, {"trigger": "backfill"}, {"trigger": "api"},
        {"trigger": "api", "state": "dead", "error_class": "nowhere"},
        {"label": "customer:c25"}, {"label": "customer:nobody"}, {"label": "customer:c25", "count": "true"},
        {"error_class": "http"}, {"error_class": "nowhere"}, {"error_class": "nowhere", "count": "true"},
        {"run_key": "nowhere"}, {"replay_of": NOWHERE}, {"name": "job 77"}, {"name": "job 1"}, {"name": "nowhere"},
        {"created_after": day}, {"created_before": month}, {"started_after": day, "state": "expired"},
        {"finished_after": day}, {"finished_after": newest + timedelta(days=1)}, {"finished_before": month},
        {"nominal_after": day, "trigger": "backfill"}, {"nominal_before": newest - timedelta(days=99)},
        {"started_before": newest - timedelta(days=99)}, {"job": NOWHERE}, {"schedule": NOWHERE},
        {"job": jobs[0], "state": "dead"}, {"job": jobs[1], "state": "cancelled", "trigger": "api"},
        {"schedule": schedules[1], "count": "true"},
    ]  # fmt: skip
    nested = [
        *(f"jobs/{job}/executions?{query}" for job in jobs for query in ("", "state=dead", "error_class=nowhere")),
        *(
            f"schedules/{one}/executions?{query}"
            for one in schedules
            for query in ("", "state=dead", "trigger=manual", "order=-nominal_at", "error_class=nowhere")
        ),
    ]
    return [f"executions?{urlencode({k: _text(v) for k, v in one.items()})}" for one in asked] + nested


def _of_attempts(newest: datetime, execution: str, job: str, schedule: str) -> list[str]:
    return [
        "", "state=failed", "state=lost", "state=running", "state=succeeded", "error_class=nowhere",
        f"worker={NOWHERE}", urlencode({"started_after": _text(newest + timedelta(days=1))}),
        urlencode({"finished_before": _text(newest - timedelta(days=29))}), "state=failed&count=true",
        f"execution={execution}", f"execution={execution}&state=failed", f"execution={NOWHERE}",
        f"job={job}", f"job={job}&state=failed", f"job={NOWHERE}", f"job={NOWHERE}&count=true", f"schedule={schedule}",
        f"schedule={NOWHERE}&state=succeeded",
    ]  # fmt: skip


def _of_letters(job: str, schedule: str) -> list[str]:
    return [
        "", "status=open", "status=replayed", "status=open&count=true", f"job={job}", f"schedule={schedule}",
        f"execution={NOWHERE}", "fingerprint=nowhere", "error_class=nowhere", "status=resolved&error_class=nowhere",
    ]  # fmt: skip


def _of_definitions() -> list[str]:
    return [
        "", "order=name", "name=99", "name=nowhere", "label=team:nobody", "external_id=nowhere", "status=paused",
        "status=active", "name=nowhere&count=true",
    ]  # fmt: skip


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _one(conn: Any, query: str) -> Any:
    row = conn.execute(query).fetchone()
    return None if row is None else row[0]
