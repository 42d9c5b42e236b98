"""Pages of legal holds, and the one that erases an execution."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.console.conftest import WHO
from tests.fixtures_flow import make_ticket, rows_of, run_to_the_end

Conn = psycopg.Connection[Any]
HOLDS = "/t/acme/admin/archive/legalhold/"


def test_a_hold_is_placed_and_released_and_an_execution_erased(
    page: Any, acme: Any, registry: Any, conn: Conn
) -> None:  # fmt: skip
    one = make_ticket(acme, payload={"name": "Mallory"})
    run_to_the_end(conn, registry, [acme])
    bad = page.post(f"{HOLDS}add/", {"scope": "job", "reason": "case <4711>"}, follow=True).content.decode()
    assert "the id of the job" in bad and rows_of(conn, acme, "archive_legalhold") == []
    page.post(f"{HOLDS}add/", {"scope": "execution", "object_id": str(one), "reason": "case <4711>"})
    [hold] = rows_of(conn, acme, "archive_legalhold")
    assert (hold["scope"], hold["object_id"], hold["by_operator"]) == ("execution", one, True)
    listed = page.get(HOLDS).content.decode()
    assert "case &lt;4711&gt;" in listed and "case <4711>" not in listed

    erasing = f"/t/acme/admin/executions/execution/{one}/erase/"
    assert erasing in page.get(erasing.replace("erase", "change")).content.decode()
    assert "This is not the id" in page.post(erasing, {"id": "x", "reason": "asked for"}).content.decode()
    given = {"id": str(one), "reason": "asked for"}
    assert "under a legal hold" in page.post(erasing, given, follow=True).content.decode()
    releasing = f"{HOLDS}{hold['id']}/release/"
    assert releasing in page.get(f"{HOLDS}{hold['id']}/change/").content.decode()
    page.post(releasing, {"reason": "settled"})
    assert "released already" in page.post(releasing, {"reason": "settled"}, follow=True).content.decode()
    assert "Erased, with 0" in page.post(erasing, given, follow=True).content.decode()
    assert "asked for" in page.get(erasing.replace("erase", "change")).content.decode()
    [row] = rows_of(conn, acme, "executions_execution")
    assert row["payload"] is None
    trail = conn.execute(f"SELECT {WHO}, action FROM audit_auditevent WHERE action ~ 'hold|erase' ORDER BY id")
    assert trail.fetchall() == [("admin:ada", one) for one in ("hold.create", "hold.release", "execution.erase")]


def test_who_may_only_look_can_neither(page: Any, acme: Any, conn: Conn, registry: Any) -> None:
    from django.contrib.auth.models import User

    one = make_ticket(acme)
    run_to_the_end(conn, registry, [acme])
    User.objects.filter(username="ada").update(is_superuser=False)
    for path in (f"{HOLDS}add/", f"/t/acme/admin/executions/execution/{one}/erase/"):
        assert page.post(path, {"id": str(one), "scope": "tenant", "reason": "x"}).status_code in (403, 404)
    assert rows_of(conn, acme, "archive_legalhold") == []
