"""The sealer: links what has been written to the tenants' chains, never in the writer's transaction.

Which rows are final? Ids are given out before transactions commit, so a row may appear below ids that were seen long
ago. Each row carries its transaction's number, and a snapshot of the database says which transactions were open: all
others below its upper end are over, and their rows, if any, are there. The state keeps how far rows were sealed in
order of (transaction, id), and which transactions were open then; their rows follow when they are over. So one that
stays open for an hour holds up nothing but its own rows.

A pass is one short transaction under the row lock of the state, which names the step that was read: it happened wholly
or not at all, and of two sealers one finds nothing to do. Rows that have a seal already are passed over, which is why
a database that was restored elsewhere, where transactions are numbered anew, can simply be looked through again.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg

from apps.audit.chain import DIGEST, FIRST, NO_TENANT, STATE_COLUMNS, State, heads, key_of, link, make_key, state_of
from apps.audit.services import Entry, record_by_system
from kernel.sealing import Unreadable

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
Row = tuple[int, int, int, bytes, bool]  # id, transaction, tenant, digest, whether it has a seal
BATCH = 2_000
ALARM = "audit.alarm"

_LOOK = f"""
SELECT {STATE_COLUMNS}, pg_snapshot_xmax(now.seen)::text::bigint,
       ARRAY(SELECT open::text::bigint FROM pg_snapshot_xip(now.seen) AS open)
FROM public.audit_sealstate, LATERAL (SELECT pg_current_snapshot() AS seen) now
"""
_ROWS = f"""
SELECT e.id, e.txid, coalesce(e.tenant_id, {NO_TENANT}), {DIGEST}, s.event_id IS NOT NULL
FROM public.audit_auditevent e LEFT JOIN public.audit_seal s ON s.event_id = e.id
"""
_NEXT = f"""{_ROWS}
WHERE (e.txid, e.id) > (%(txid)s, %(id)s) AND e.txid < %(end)s AND e.txid <> ALL(%(open)s::bigint[])
ORDER BY e.txid, e.id LIMIT %(limit)s
"""
_LATE = f"{_ROWS} WHERE e.txid = ANY(%(over)s::bigint[]) AND s.event_id IS NULL ORDER BY e.txid, e.id LIMIT %(limit)s"
_AGAIN = f"{_ROWS} WHERE e.id > %(after)s ORDER BY e.id LIMIT %(limit)s"
_LOCK = f"""
SELECT wrapped, kek_id, clock_timestamp(), {STATE_COLUMNS} FROM public.audit_sealstate WHERE step = %s FOR UPDATE
"""
_LAST = """
SELECT t.id, l.number, l.head FROM unnest(%s::int[]) AS t(id) CROSS JOIN LATERAL (
    SELECT number, head FROM public.audit_seal s WHERE s.tenant_id = t.id ORDER BY number DESC LIMIT 1) l
"""
_COPY = "COPY public.audit_seal (event_id, tenant_id, number, sealed_at, head) FROM STDIN"
_MOVE = """
UPDATE public.audit_sealstate SET step = %(step)s, at_txid = %(at_txid)s, at_id = %(at_id)s, late = %(late)s,
       rescan_id = %(rescan_id)s, total = %(total)s, mac = %(mac)s, wrapped = %(wrapped)s, kek_id = %(kek_id)s
WHERE step = %(seen)s
"""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a pass did; `full` when there may be more at once."""

    count: int = 0
    full: bool = False
    alarm: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows to seal, and the state after that."""

    rows: Sequence[Row]
    after: State
    full: bool


def seal(conn: Conn, *, batch: int = BATCH) -> Sealed:
    """One pass. KeyringInvalid and KeyUnknown when this process lacks the key of the chains."""
    row = conn.execute(_LOOK).fetchone()
    if row is None:
        return Sealed()
    state, end, open_ = state_of(row[:7]), row[7], list(row[8])
    found = _find(conn, state, end, open_, batch)
    todo = [one for one in found.rows if not one[4]]
    if not todo and not found.full and found.after.rescan_id == state.rescan_id:
        return Sealed()  # a quiet system writes nothing
    with conn.transaction():
        locked = conn.execute(_LOCK, [state.step]).fetchone()
        if locked is None:  # another sealer was here meanwhile
            return Sealed(full=True)
        wrapped, kek_id, now = locked[:3]
        key, wrapped, kek_id, alarm = _key(conn, wrapped, kek_id)
        alarm = alarm or _distrust(conn, key, state_of(locked[3:]))
        added = _append(conn, key, todo, now)
        total = (_count(conn) if alarm else state.total + added) if added or alarm else state.total
        after = replace(found.after, step=state.step + 1, total=total)
        if alarm:
            log.error("audit trail: %s", alarm)
            record_by_system(conn, Entry(ALARM, "audit", "", reason=alarm, allowed=False), tenant_id=None)
        conn.execute(
            _MOVE,
            {
                "seen": state.step, "step": after.step, "at_txid": after.at_txid, "at_id": after.at_id,
                "late": list(after.late), "rescan_id": after.rescan_id, "total": after.total,
                "mac": after.signed(key), "wrapped": wrapped, "kek_id": kek_id,
            },
        )  # fmt: skip
    return Sealed(added, found.full, alarm)


def _find(conn: Conn, state: State, end: int, open_: list[int], batch: int) -> Found:
    """At most about `batch` rows that are final, in the order of the chain."""
    if end < state.at_txid and state.rescan_id is None:  # restored into a database that counts from less
        log.warning("audit trail: transactions are numbered from %d again; all rows are looked at once more", end)
        return Found((), replace(state, at_txid=end, at_id=0, late=tuple(open_), rescan_id=0), True)
    if state.rescan_id is not None:
        rows = conn.execute(_AGAIN, {"after": state.rescan_id, "limit": batch}).fetchall()
        more = len(rows) == batch
        return Found(rows, replace(state, rescan_id=rows[-1][0] if more else None), more)
    still = [one for one in state.late if one in open_]
    over = [one for one in state.late if one not in open_]
    late: list[Row] = []
    if over:
        late = conn.execute(_LATE, {"over": over, "limit": batch}).fetchall()
        if len(late) == batch:  # the state stays: what has a seal by then is passed over
            return Found(late, state, True)
    values = {"txid": state.at_txid, "id": state.at_id, "end": end, "open": open_, "limit": batch}
    rows = conn.execute(_NEXT, values).fetchall()
    more = len(rows) == batch
    at_txid, at_id = (rows[-1][1], rows[-1][0]) if more else (end, 0)
    open_below = [one for one in open_ if one <= at_txid]
    after = replace(state, at_txid=at_txid, at_id=at_id, late=tuple(sorted({*still, *open_below})))
    return Found([*late, *rows], after, more)


def _append(conn: Conn, key: bytes, rows: Sequence[Row], now: datetime) -> int:
    if not rows:
        return 0
    last: dict[int, tuple[int, bytes]] = defaultdict(lambda: (0, FIRST))
    last |= {row[0]: (row[1], bytes(row[2])) for row in conn.execute(_LAST, [sorted({row[2] for row in rows})])}
    with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
        for event_id, _, tenant_id, digest, _ in rows:
            number, before = last[tenant_id]
            head = link(key, before, tenant_id=tenant_id, number=number + 1, sealed_at=now, digest=digest)
            last[tenant_id] = number + 1, head
            copy.write_row((event_id, tenant_id, number + 1, now, head))
    return len(rows)


def _key(conn: Conn, wrapped: Any, kek_id: str) -> tuple[bytes, bytes, str, str]:
    """The key of the chains, as it is stored, and what is wrong. Made when there is none yet."""
    alarm = ""
    if wrapped is not None:
        try:
            return key_of(bytes(wrapped), kek_id), bytes(wrapped), kek_id, ""
        except Unreadable:
            alarm = "The key of the chains was changed; a new one begins."
    elif conn.execute("SELECT 1 FROM public.audit_seal LIMIT 1").fetchone():
        alarm = "The key of the chains is gone; a new one begins."
    return *make_key(), alarm


def _distrust(conn: Conn, key: bytes, state: State) -> str:
    """What is wrong with the state itself."""
    if not state.mac and state.step == 0:
        seals = conn.execute("SELECT 1 FROM public.audit_seal LIMIT 1").fetchone()
        return "The sealer's state was set back." if seals else ""
    return "" if state.signed(key) == state.mac else "The sealer's state was changed."


def _count(conn: Conn) -> int:
    return sum(one.number for one in heads(conn).values())
