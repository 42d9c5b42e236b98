"""Real dispatchers seal what is written, and go on when the one that did is killed."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tenants.models import Tenant
from tests.audit.hands import kinds, seals, whole, write
from tests.conftest import wait_until
from tests.fixtures_flow import count
from tests.processes import Processes, kill

Conn = psycopg.Connection[Any]
SEALED_WITHIN_S = 5.0
HOLDER = """
SELECT d.pid FROM due_shardlease l JOIN due_dispatcher d ON d.id = l.owner
WHERE l.kind = 'seal' AND l.expires_at > clock_timestamp()
"""
AGES = """
SELECT coalesce(max(extract(epoch FROM s.sealed_at - (e.after ->> 'committed')::timestamptz)), 0)::float8
FROM audit_seal s JOIN audit_auditevent e ON e.id = s.event_id WHERE s.number > %s
"""


@pytest.mark.timeout(180)
def test_rows_are_sealed_in_time_and_through_a_kill(
    processes: Processes, conn: Conn, second: Conn, acme: Tenant
) -> None:  # fmt: skip
    dispatchers = [processes.dispatcher(), processes.dispatcher()]
    wait_until(lambda: conn.execute(HOLDER).fetchone(), "somebody to hold the seal lease")
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            now = second.execute("SELECT clock_timestamp()").fetchone()
            write(second, acme, after={"committed": now[0].isoformat() if now else ""})

    writer = threading.Thread(target=work)
    writer.start()
    try:
        wait_until(lambda: seals(conn) >= 100, "the first rows to be sealed")
        assert count(conn, AGES.replace("::float8", "::int"), 0) <= SEALED_WITHIN_S
        row = conn.execute(HOLDER).fetchone()
        assert row is not None
        kill(next(one for one in dispatchers if one.pid == row[0]))
        before = count(conn, "SELECT count(*) FROM audit_auditevent")
        wait_until(lambda: seals(conn) > before + 50, "the other one to seal")
    finally:
        stop.set()
        writer.join()
    wait_until(lambda: seals(conn) == count(conn, "SELECT count(*) FROM audit_auditevent"), "the last rows")
    assert kinds(conn, acme) == [] and whole(conn) == []


@pytest.mark.timeout(120)
def test_without_its_key_a_dispatcher_serves_all_but_the_trail(
    processes: Processes, conn: Conn, acme: Tenant
) -> None:  # fmt: skip
    write(conn, acme)
    processes.dispatcher(SECRETS_KEYS="")
    served = "SELECT count(*) FROM due_shardlease WHERE kind = 'fire' AND expires_at > clock_timestamp()"
    wait_until(lambda: count(conn, served) == 64, "all shards to be served")
    failed = "SELECT coalesce(max((stats -> 'seal' ->> 'seal_failed')::int), 0) FROM due_dispatcher"
    wait_until(lambda: count(conn, failed) >= 2, "it to try to seal")
    assert seals(conn) == 0 and count(conn, served) == 64
    assert count(conn, "SELECT count(*) FROM due_dispatcher WHERE NOT draining") == 1
