"""A dump in another cluster: its transaction numbers lie ahead of the new ones."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import psycopg

from tests.conftest import wait_until
from tests.webhooks.hands import carry, deliveries_of, emit, events_of, make_webhook, read_all, webhook_row

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
AHEAD = 10_000_000_000


def renumber(*arguments: str) -> dict[str, Any]:
    from django.core.management import call_command

    out = io.StringIO()
    call_command("events_renumber", *arguments, format="json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_events_of_a_restored_dump_come_first_again(conn: Conn, acme: Tenant, registry: Registry) -> None:
    webhook = make_webhook(acme, registry).webhook
    sent = emit(conn, acme)
    carry(conn, registry, acme)
    waiting = emit(conn, acme)
    conn.execute("UPDATE t_acme.events_event SET tx = tx + %s", [AHEAD])  # as the other cluster had them
    conn.execute("UPDATE t_acme.webhooks_webhook SET cursor_tx = cursor_tx + %s", [AHEAD])
    conn.execute("UPDATE due_eventbell SET tx = tx + %s", [AHEAD])
    new = emit(conn, acme)
    wait_until(lambda: [one.id for one in read_all(conn, acme)] == [new], "only the new one to be readable")

    expected = [{"tenant": "acme", "events": 2, "webhooks": 1}]
    assert renumber("--tenant", "acme", "--dry-run")["tenants"] == expected
    assert webhook_row(conn, acme, webhook)["cursor_tx"] > AHEAD
    assert renumber("--tenant", "acme")["tenants"] == expected
    assert [one["id"] for one in events_of(conn, acme)] == [sent, waiting, new]
    wait_until(lambda: [one.id for one in read_all(conn, acme)] == [sent, waiting, new], "all to be readable")
    carry(conn, registry, acme)
    assert [one["payload"]["id"] for one in deliveries_of(conn, acme)] == [str(one) for one in (sent, waiting, new)]


def test_without_a_restore_there_is_nothing_to_do(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    emit(conn, acme)
    before = events_of(conn, acme)
    assert {one["events"] for one in renumber()["tenants"]} == {0}
    assert events_of(conn, acme) == before
