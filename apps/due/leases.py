"""Shard leases and dispatcher heartbeats in SQL. The database's clock alone decides what has run out.

A lease keeps dispatchers out of each other's way; it is not what makes a fire safe (the rows' compare-and-set is).
Leases of before the clock went back would hold for long; nobody has to wait for those.
Every change names the term that was read, so that of two takers one gets zero rows.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

Conn = psycopg.Connection[Any]
Slice = tuple[str, int]  # (kind, shard)
# Why a lease has another holder than before, for people.
WHY = {
    "": "first holder",
    "ran_out": "not renewed in time",
    "stopped": "holder stopped",
    "drained": "holder drained",
    "spread": "evened out",
    "stuck": "holder's loop stuck",
    "released": "operator released it",
    "clock": "holder's clock wrong",
}
IMPLAUSIBLE_S = 300  # no lease is that long: the clock went back, and nobody has renewed it since


class Lease(NamedTuple):
    """A lease row as seen at one moment. `expired_s` is negative while it is valid."""

    kind: str
    shard: int
    owner: UUID | None
    term: int
    expired_s: float


class Beat(NamedTuple):
    """What a heartbeat tells: the database's time, and whether operators told the process to stand back."""

    now: datetime
    drain_wanted: bool


HEARTBEAT = """
INSERT INTO due_dispatcher (id, host, pid, version, started_at, expires_at, backends, draining, skew_ms, stats)
VALUES (%(id)s, %(host)s, %(pid)s, %(version)s, clock_timestamp(), clock_timestamp() + %(ttl)s * interval '1 second',
        %(backends)s, %(draining)s, %(skew_ms)s, %(stats)s::jsonb)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, backends = excluded.backends,
       draining = excluded.draining OR due_dispatcher.drain_wanted, skew_ms = excluded.skew_ms, stats = excluded.stats
RETURNING clock_timestamp(), drain_wanted
"""

# The leases that are meant, locked in one order by everybody who changes several.
_MEANT = """
WITH meant AS MATERIALIZED (
    SELECT l.id FROM due_shardlease l
    JOIN unnest(%(kinds)s::text[], %(shards)s::smallint[], %(terms)s::bigint[]) AS m(kind, shard, term)
      ON l.kind = m.kind AND l.shard = m.shard AND l.term = m.term
    WHERE {condition} ORDER BY l.id FOR UPDATE OF l)
"""
_OURS = _MEANT.format(condition="l.owner = %(owner)s")
_RUN_OUT = _MEANT.format(
    condition=f"(l.expires_at <= clock_timestamp() OR l.expires_at > clock_timestamp() + interval '{IMPLAUSIBLE_S} s')"
)

RENEW = f"""{_OURS}
UPDATE due_shardlease l SET expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
FROM meant WHERE l.id = meant.id RETURNING l.kind, l.shard, l.term
"""

TAKE = f"""{_RUN_OUT}
UPDATE due_shardlease l SET taken_from = l.owner, owner = %(owner)s, term = l.term + 1, taken_at = clock_timestamp(),
       taken_why = CASE WHEN l.owner IS NULL THEN l.given_up_why ELSE 'ran_out' END, given_up_why = '',
       expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
FROM meant WHERE l.id = meant.id RETURNING l.kind, l.shard, l.term
"""

GIVE_UP = f"""{_OURS}
UPDATE due_shardlease l SET owner = NULL, given_up_why = %(why)s, expires_at = clock_timestamp()
FROM meant WHERE l.id = meant.id
"""

# By an operator: the holder drops it at its next look, and whoever takes it has a new term.
RELEASE = """
UPDATE due_shardlease SET owner = NULL, given_up_why = 'released', expires_at = clock_timestamp()
WHERE kind = %s AND shard = %s AND term = %s AND owner IS NOT NULL
"""

# By name, not by the process numbers of the last heartbeat: a session may be younger than that.
END_BACKENDS = """
SELECT pg_terminate_backend(a.pid) FROM unnest(%(owners)s::uuid[]) AS o(id), pg_stat_activity a
WHERE a.application_name LIKE 'shardbeat ' || left(o.id::text, 8) || ' %%' AND a.usename = current_user
  AND a.datname = current_database() AND a.pid <> pg_backend_pid()
"""


def heartbeat(
    conn: Conn, *, dispatcher: UUID, host: str, pid: int, version: str, ttl_s: float, backends: Sequence[int],
    draining: bool, skew_ms: int, stats: str,
) -> Beat:  # fmt: skip
    """Renews the process's own row.

    `draining` tells the others that it takes nothing new: it stops, its clock is wrong, or a loop of it is stuck.
    """
    row = conn.execute(
        HEARTBEAT,
        {
            "id": dispatcher, "host": host, "pid": pid, "version": version, "ttl": ttl_s, "backends": list(backends),
            "draining": draining, "skew_ms": skew_ms, "stats": stats,
        },
    ).fetchone()  # fmt: skip
    assert row is not None
    return Beat._make(row)


def live_dispatchers(conn: Conn) -> list[UUID]:
    """Ids of dispatchers whose heartbeat is valid and that are not draining."""
    rows = conn.execute(
        "SELECT id FROM due_dispatcher WHERE NOT draining AND expires_at > clock_timestamp()"
        f" AND expires_at < clock_timestamp() + interval '{IMPLAUSIBLE_S} s'"
    )
    return [row[0] for row in rows]


def read(conn: Conn) -> list[Lease]:
    """All leases."""
    rows = conn.execute(
        "SELECT kind, shard, owner, term, extract(epoch FROM clock_timestamp() - expires_at)::float8"
        " FROM due_shardlease"
    )
    return [Lease._make(row) for row in rows]


def renew(conn: Conn, *, owner: UUID, held: dict[Slice, int], ttl_s: float) -> dict[Slice, int]:
    """Extends those of `held` (slice -> term) that are still this owner's at that term; returns them."""
    return _changed(conn, RENEW, owner=owner, leases=held, ttl_s=ttl_s)


def take(conn: Conn, *, owner: UUID, seen: dict[Slice, int], ttl_s: float) -> dict[Slice, int]:
    """Takes those that have run out and still have the term that was seen; returns slice -> new term."""
    return _changed(conn, TAKE, owner=owner, leases=seen, ttl_s=ttl_s)


def give_up(conn: Conn, *, owner: UUID, held: dict[Slice, int], why: str = "stopped") -> None:
    """Frees leases at once, so that others need not wait for them to run out. `why` is one of WHY."""
    if held:
        conn.execute(GIVE_UP, {"owner": owner, "why": why, **_arrays(held)})


def release(conn: Conn, *, kind: str, shard: int, term: int) -> bool:
    """Takes a lease from whoever holds it at that term; False when somebody else has it by now, or nobody.

    What the holder has under way stays safe: rows name what they change, and release holds its lease row meanwhile.
    """
    return conn.execute(RELEASE, [kind, shard, term]).rowcount > 0


def drain(conn: Conn, dispatcher: UUID, *, wanted: bool) -> bool:
    """Tells a dispatcher to stand back, or to take its share again; False when it is gone or was told so already.

    The others see at once that it takes nothing. It hears of it with its next heartbeat, and then gives up its leases
    to whoever there is; while it is alone it goes on.
    """
    query = (
        "UPDATE due_dispatcher SET drain_wanted = %s, draining = draining OR %s"
        " WHERE id = %s AND drain_wanted <> %s AND expires_at > clock_timestamp()"
    )
    return conn.execute(query, [wanted, wanted, dispatcher, wanted]).rowcount > 0


def end_backends(conn: Conn, owners: Sequence[UUID]) -> int:
    """Ends the database sessions of former owners; returns how many.

    A frozen process keeps its row locks past every time-out, so its successor frees them before it serves.
    """
    return len(conn.execute(END_BACKENDS, {"owners": list(owners)}).fetchall())


def still_held(conn: Conn, *, kind: str, shard: int, owner: UUID, term: int) -> bool:
    """Holds the lease row for this transaction if it is still ours at that term: limits that are sums need it."""
    return ask_still_held(conn, kind=kind, shard=shard, owner=owner, term=term).fetchone() is not None


def ask_still_held(
    conn: Conn, *, kind: str, shard: int, owner: UUID, term: int
) -> psycopg.Cursor[tuple[datetime]]:  # fmt: skip
    """The same for a pipeline: a row with the database's time; without one it is not ours any more."""
    return conn.execute(
        "SELECT statement_timestamp() FROM due_shardlease"
        " WHERE kind = %s AND shard = %s AND owner = %s AND term = %s FOR SHARE",
        [kind, shard, owner, term],
    )


def remove_dispatcher(conn: Conn, dispatcher: UUID) -> None:
    """The process has ended in order."""
    conn.execute("DELETE FROM due_dispatcher WHERE id = %s", [dispatcher])


def preferred(slice_: Slice, dispatchers: Sequence[UUID]) -> UUID | None:
    """Who should have a slice: rendezvous hashing (Thaler and Ravishankar, 1998), so few slices move at a change."""
    name = f"{slice_[0]}/{slice_[1]}".encode()
    return max(dispatchers, key=lambda one: hashlib.blake2b(one.bytes + name, digest_size=8).digest(), default=None)


def _changed(conn: Conn, query: str, *, owner: UUID, leases: dict[Slice, int], ttl_s: float) -> dict[Slice, int]:
    if not leases:
        return {}
    rows = conn.execute(query, {"owner": owner, "ttl": ttl_s, **_arrays(leases)})
    return {(row[0], row[1]): row[2] for row in rows}


def _arrays(leases: dict[Slice, int]) -> dict[str, Any]:
    ordered = sorted(leases.items())
    return {
        "kinds": [kind for (kind, _), _ in ordered],
        "shards": [shard for (_, shard), _ in ordered],
        "terms": [term for _, term in ordered],
    }
