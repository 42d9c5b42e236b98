"""Shard leases as tests take them, let them run out and count them."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import psycopg

from apps.due import leases
from apps.due.leases import Slice
from tests.fixtures_flow import count

Conn = psycopg.Connection[Any]
FIRE_0: Slice = ("fire", 0)
SOME: list[Slice] = [("fire", shard) for shard in range(8)]
TTL_S = 60.0


def take(conn: Conn, owner: uuid.UUID, slices: list[Slice] | None = None, ttl_s: float = TTL_S) -> dict[Slice, int]:
    wanted = slices or [FIRE_0]
    seen = {(lease.kind, lease.shard): lease.term for lease in leases.read(conn)}
    return leases.take(conn, owner=owner, seen={one: seen[one] for one in wanted}, ttl_s=ttl_s)


def run_out(conn: Conn, owner: uuid.UUID | None = None) -> None:
    """As if time had passed: these leases have run out some seconds ago."""
    conn.execute(
        "UPDATE due_shardlease SET expires_at = clock_timestamp() - interval '5 s' WHERE %(owner)s::uuid IS NULL"
        " OR owner = %(owner)s",
        {"owner": owner},
    )


def heartbeat(conn: Conn, dispatcher: uuid.UUID, **more: Any) -> None:
    given: dict[str, Any] = {"ttl_s": TTL_S, "backends": [], "draining": False, "skew_ms": 0} | more
    leases.heartbeat(conn, dispatcher=dispatcher, host="test", pid=1, version="test", stats="{}", **given)


def owners(conn: Conn, kind: str = "fire") -> Counter[Any]:
    query = "SELECT owner FROM due_shardlease WHERE kind = %s AND expires_at > clock_timestamp()"
    return Counter(row[0] for row in conn.execute(query, [kind]))


def is_there(conn: Conn, pid: int) -> bool:
    return bool(count(conn, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid))
