"""The page of what is alive over all tenants."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.console.conftest import HOSTILE
from tests.console.test_alive import tickets_of
from tests.fixtures_flow import live_worker

Conn = psycopg.Connection[Any]


def test_what_is_alive_is_listed_narrowed_and_offered(page: Any, conn: Conn, acme: Any, globex: Any) -> None:
    worker = live_worker(conn, queues=["python.shared.0"])
    tickets_of(conn, [acme.pk, globex.pk, 999], worker, count=60)
    conn.execute("UPDATE tickets_ticket SET wait_reason = %s, queue = left(%s, 80)", [HOSTILE, HOSTILE])
    conn.execute("UPDATE tickets_worker SET host = %s", [HOSTILE])

    def looked(query: str = "") -> tuple[str, list[Any]]:
        found = page.get(f"/admin/live/{query}")
        text: str = found.content.decode()
        assert found.status_code == 200 and "<script>alert" not in text and "<img src=x" not in text
        return text, found.context["listed"].rows

    text, rows = looked()
    assert len(rows) == 60 and "#999" in text and 'running <span class="count">12</span>' in text
    assert f'href="/t/acme/admin/executions/{rows[0].row.execution_id}/"' in text
    assert [one.row for one in looked("?order=newest")[1]] == [one.row for one in rows[::-1]]
    assert {one.slug for one in looked("?tenant=globex")[1]} == {"globex"}
    assert {one.row.shown for one in looked("?state=waiting&pool=http&tenant=acme")[1]} == {"waiting"}
    assert all(one.row.cancel_requested for one in looked("?state=cancelling&older=10m")[1])
    assert {one.row.worker_id for one in looked(f"?worker={worker}")[1]} == {worker}
    assert [one.row for one in looked(f"?q={rows[5].row.execution_id}")[1]] == [rows[5].row]
    for nobody in ("?tenant=nobody", "?tenant=%00'"):
        assert not looked(nobody)[1] and "There is no such tenant." in looked(nobody)[0]
    assert "no id of a worker" in looked(f"?worker={HOSTILE}")[0] and len(looked("?state=x&older=x&before=x")[1]) == 60
    conn.execute("UPDATE tickets_worker SET expires_at = clock_timestamp() - interval '1 minute'")
    assert "lease over for 1 min" in looked("?state=running")[0]
