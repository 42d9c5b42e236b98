"""What sealing the audit trail costs: a backlog drained, and a steady stream of writes of many tenants."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

Conn = psycopg.Connection[Any]
TENANTS = 1_000
WRITERS = 4
ROWS_A_TENANT = 100  # of the backlog, in one statement
TICKS = os.sysconf("SC_CLK_TCK")


def run(*, backlog: int, per_s: int, seconds: float) -> dict[str, float]:
    """Rows a second from a backlog; share of a core and age of rows when they are sealed, at `per_s` writes."""
    from apps.dispatch.auditing import EVERY_S
    from tenants import door

    with door.connect("bench sealer") as conn:
        _drain(conn)
        _fill(conn, backlog)
        began = time.monotonic()
        _drain(conn)
        drained = backlog / (time.monotonic() - began)
        first = _count(conn)
        stop = threading.Event()
        writers = [threading.Thread(target=_write, args=(per_s / WRITERS, number, stop)) for number in range(WRITERS)]
        for one in writers:
            one.start()
        began, cpu = time.monotonic(), (time.thread_time(), _backend_s(conn))
        while time.monotonic() - began < seconds:
            _drain(conn)
            time.sleep(EVERY_S)  # lint: allow no-sleep: the measurement is of the same rhythm as the dispatcher's
        took = time.monotonic() - began
        spent = (time.thread_time() - cpu[0], _backend_s(conn) - cpu[1])
        stop.set()
        for one in writers:
            one.join()
        sealed = _count(conn) - first
        row = conn.execute(
            "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM s.sealed_at - e.at))"
            " FROM audit_seal s JOIN audit_auditevent e ON e.id = s.event_id WHERE e.reason = 'bench steady'"
        ).fetchone()
    return {
        "drained_per_s": drained, "written_per_s": sealed / took, "python": spent[0] / took,
        "database": spent[1] / took, "p99_s": float(row[0]) if row else 0.0,
    }  # fmt: skip


def _fill(conn: Conn, count: int) -> None:
    from apps.audit.services import Entry, record_many
    from kernel.clock import utc_now

    for start in range(0, count, ROWS_A_TENANT):
        tenant_id = 1_000_000 + start // ROWS_A_TENANT % TENANTS
        entries = [_entry(Entry, start + number, "bench backlog") for number in range(ROWS_A_TENANT)]
        record_many(entries, actor=_actor(tenant_id), now=utc_now(), tenant_id=tenant_id, conn=conn)


def _write(per_s: float, number: int, stop: threading.Event) -> None:
    from apps.audit.services import Entry, record_many
    from kernel.clock import utc_now
    from tenants import door

    with door.connect("bench writer") as conn:
        conn.execute("SET synchronous_commit = off")  # the writers are not what is measured
        began, done = time.monotonic(), 0
        while not stop.is_set():
            tenant_id = 1_000_000 + (done * WRITERS + number) % TENANTS
            entry = _entry(Entry, done, "bench steady")
            record_many([entry], actor=_actor(tenant_id), now=utc_now(), tenant_id=tenant_id, conn=conn)
            done += 1
            stop.wait(max(0.0, began + done / per_s - time.monotonic()))


def _entry(kind: Any, number: int, reason: str) -> Any:
    change = {"timeout_s": number, "labels": {"team": "reports"}, "target": {"url": "https://example.com/hook"}}
    return kind("job.update", "job", f"0190a6f4-7c3e-7b21-9d55-{number % 2**48:012x}", before=change, after=change,
                reason=reason)  # fmt: skip


def _actor(tenant_id: int) -> Any:
    from apps.audit.services import Actor

    return Actor("key:bench (admin)", "admin", tenant_id, "0f8fad5bd9cb469fa16570867728950e")


def _drain(conn: Conn) -> None:
    from apps.audit.sealing import seal

    while seal(conn).full:
        continue


def _count(conn: Conn) -> int:
    row = conn.execute("SELECT total FROM audit_sealstate").fetchone()
    return int(row[0]) if row else 0


def _backend_s(conn: Conn) -> float:
    """Processor time of the connection's backend, in seconds; it is on this machine."""
    fields = Path(f"/proc/{conn.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
