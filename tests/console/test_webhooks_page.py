"""A tenant's events and webhooks in the operators' admin: to read, and without secrets."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.webhooks.hands import emit, make_webhook


def test_events_and_webhooks_can_be_read(page: Any, acme: Any, conn: psycopg.Connection[Any]) -> None:
    made = make_webhook(acme, url="https://hooks.example.com/in/s3cr3t?token=hush", description="<script>alert(1)")
    event = emit(conn, acme, "schedule.paused")
    for path, seen in (
        ("webhooks/webhook/", "hooks.example.com"),
        (f"webhooks/webhook/{made.webhook.pk}/change/", "hooks.example.com"),
        ("events/event/", "schedule.paused"),
        (f"events/event/{event}/change/", "schedule.paused"),
        ("events/event/?type=schedule.paused&made=hour", str(event)),
    ):
        response = page.get(f"/t/acme/admin/{path}")
        assert response.status_code == 200, path
        text = response.content.decode()
        assert seen in text, path
        assert "s3cr3t" not in text and "hush" not in text and "<script>alert" not in text and made.text not in text
