"""What a tenant's own worker does over the API, and the end of a lease by itself."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.fixtures_api import Answer, Api

RETRY = {"max_attempts": 3, "base_s": 0, "jitter": "none"}


def lease(api: Api, queue: str = "invoices", **members: Any) -> list[dict[str, Any]]:
    answer = api.post(f"queues/{queue}/lease", members)
    assert answer.status == 200, answer.body
    items: list[dict[str, Any]] = answer.body["items"]
    return items


def lease_one(api: Api, queue: str = "invoices", **members: Any) -> dict[str, Any]:
    [item] = lease(api, queue, **members)
    return item


def end(api: Api, item: dict[str, Any], how: str, body: Any = None) -> Answer:
    return api.post(f"queues/leases/{item['token']}/{how}", {} if body is None else body)


def expire(conn: psycopg.Connection[Any], execution: str, *, timed_out: bool = False) -> None:
    """Its lease has run out a second ago."""
    if timed_out:
        conn.execute(
            "UPDATE tickets_ticket SET started_at = clock_timestamp() - (timeout_s + 1) * interval '1 second'"
            " WHERE execution_id = %s", [execution],
        )  # fmt: skip
        conn.execute(
            "UPDATE tickets_ticket SET deadline = started_at + timeout_s * interval '1 second'"
            " WHERE execution_id = %s", [execution],
        )  # fmt: skip
    else:
        conn.execute(
            "UPDATE tickets_ticket SET deadline = clock_timestamp() - interval '1 second' WHERE execution_id = %s",
            [execution],
        )
