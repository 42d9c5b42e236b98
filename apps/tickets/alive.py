"""What is alive now over all tenants, in pages: tickets with who holds them, from shared tables only.

Pages go by id, which follows the time of creation; each looks at a bounded number of rows (`kernel.keyset`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets.values import LANES
from kernel.keyset import WHOLE, Condition, Listing, Order, Page, Part, Path, Position, page_read
from kernel.pools import POOLS

Conn = psycopg.Connection[Any]
# A ticket's state; ready ones that wait for their time (between tries, say) are `waiting`.
Shown = Literal["running", "queued", "ready", "waiting", "blocked"]
SHOWN: tuple[Shown, ...] = ("running", "queued", "ready", "waiting", "blocked")
COUNTED_MAX = 10_000  # of each state


@dataclass(frozen=True, slots=True)
class AliveFilter:
    """What is asked for; None and empty ask for nothing. `due_before`: it was due earlier than that."""

    state: Shown | None = None
    pool: str = ""
    tenant_id: int | None = None
    worker_id: UUID | None = None
    execution_id: UUID | None = None
    due_before: datetime | None = None
    cancelling: bool = False


class AliveRow(NamedTuple):
    """One ticket with the worker that holds it. `shown` is one of SHOWN."""

    execution_id: UUID
    tenant_id: int
    job_id: UUID
    state: str
    shown: str
    pool: str
    queue: str
    actual_at: datetime
    available_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    deadline: datetime | None
    attempt: int
    wait_reason: str | None
    key: str | None
    cancel_requested: bool
    remote: bool
    holder: str
    worker_id: UUID | None
    host: str | None
    pid: int | None
    expires_at: datetime | None  # until when its worker's lease goes
    draining: bool


_SHOWN = "CASE WHEN e.state = 'ready' AND e.rank IS NULL THEN 'waiting' ELSE e.state END"
_COLUMNS = f"""
    e.id, e.tenant_id, e.job_id, e.state, {_SHOWN}, e.pool, e.queue, e.actual_at, e.available_at, e.queued_at,
    e.started_at, e.deadline, e.attempt, e.wait_reason, e.key, e.cancel_requested, e.remote, e.holder, e.worker_id,
    w.host, w.pid, w.expires_at, coalesce(w.draining, false)
"""
_CONDITIONS: dict[Shown, str] = {  # as the partial indexes have them
    "running": "e.state = 'running'",
    "queued": "e.state = 'queued'",
    "ready": "e.state = 'ready' AND e.rank IS NOT NULL",
    "waiting": "e.state = 'ready' AND e.rank IS NULL",
    "blocked": "e.state = 'blocked'",
}
_COUNTS = "SELECT " + ", ".join(
    f"(SELECT count(*) FROM (SELECT 1 FROM tickets_ticket e WHERE {_CONDITIONS[one]} LIMIT {COUNTED_MAX + 1}) c)"
    for one in SHOWN
)


def alive_read(
    conn: Conn, wanted: AliveFilter, *, oldest_first: bool = True, after: Position | None = None, size: int
) -> Page[AliveRow]:
    """A page of tickets by id."""
    listing = Listing(
        table="(SELECT execution_id AS id, t.* FROM tickets_ticket t)", columns=_COLUMNS,
        joins="LEFT JOIN tickets_worker w ON w.id = e.worker_id", paths=_paths(wanted), rest=_rest(wanted),
        order=Order(descending=not oldest_first),
    )  # fmt: skip
    found = page_read(conn, "public", listing, size=size, after=after)
    return Page([AliveRow(*row) for row in found.rows], found.after)


def alive_counts(conn: Conn) -> dict[Shown, int]:
    """How many there are of each; COUNTED_MAX + 1 stands for more. Each count reads a partial index."""
    row = conn.execute(_COUNTS).fetchone()
    assert row is not None
    return dict(zip(SHOWN, row, strict=True))


def _paths(wanted: AliveFilter) -> tuple[Path, ...]:
    """All tickets by id, and what a narrow index has."""
    if wanted.execution_id is not None:
        return (Path((Part((Condition("e.id = %s", (wanted.execution_id,)),)),), short=True),)
    if wanted.worker_id is not None:
        part = Part((Condition("e.worker_id = %s AND e.state = 'running'", (wanted.worker_id,)),))
        return (Path((part,), ordered=False), WHOLE)
    if wanted.tenant_id is not None:
        states = SHOWN if wanted.state is None else (wanted.state,)
        return (Path(tuple(_of_tenant(one, wanted.tenant_id) for one in states), ordered=False), WHOLE)
    if wanted.state is not None and wanted.state != "blocked":  # those have an index by tenant only
        return (Path((Part((Condition(_CONDITIONS[wanted.state]),)),), ordered=False), WHOLE)
    return (WHOLE,)


def _of_tenant(state: Shown, tenant_id: int) -> Part:
    """What is ready is found by pool, lane and tenant; all pools and lanes are named, so that the index is used."""
    conditions = [Condition(_CONDITIONS[state]), Condition("e.tenant_id = %s", (tenant_id,))]
    if state == "ready":
        conditions.append(Condition("e.pool = ANY(%s) AND e.lane = ANY(%s)", (list(POOLS), list(LANES))))
    return Part(tuple(conditions))


def _rest(wanted: AliveFilter) -> tuple[Condition, ...]:
    found: list[Condition] = []
    asked: Sequence[tuple[bool, str, tuple[Any, ...]]] = (
        (bool(wanted.pool), "e.pool = %s", (wanted.pool,)),
        (wanted.tenant_id is not None, "e.tenant_id = %s", (wanted.tenant_id,)),
        (wanted.worker_id is not None, "e.worker_id = %s AND e.state = 'running'", (wanted.worker_id,)),
        (wanted.due_before is not None, "e.actual_at < %s", (wanted.due_before,)),
        (wanted.cancelling, "e.cancel_requested", ()),
    )
    if wanted.state is not None:
        found.append(Condition(_CONDITIONS[wanted.state]))
    found += [Condition(text, values) for given, text, values in asked if given]
    return tuple(found)
