"""The one row with the newest snapshot, and who makes the next one: whoever asks first, also when no dispatcher lives.

The others are given the row meanwhile, and within FRESH_S what this process has read of it.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson
import psycopg
from django.db import DatabaseError, OperationalError, connection, transaction

from apps.console.snapshot import drawing, gathering
from apps.console.verdict.keeping import database_slow, unread
from apps.console.verdict.rules import verdicts
from apps.console.verdict.values import Evidence, Facts, Remedy, Verdict
from kernel.clock import monotonic_s, utc_now
from tenants import door

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
FRESH_S = 1.0
OLD_S = 10.0  # whoever is shown an older one is told; live.js has the same
STATEMENT_MS = 2_000
AGAIN_S = 5.0  # after one that could not be made
LOCK = 0x53_6E_61_70  # of the transaction that makes it
FAULT_CHARS = 200

_READ = """
SELECT number, made_at, took_ms, body, extract(epoch FROM clock_timestamp() - made_at)::float8
FROM public.console_snapshot
"""
_WRITE = """
INSERT INTO public.console_snapshot (id, number, made_at, took_ms, body)
VALUES (1, 1, %(made_at)s, %(took_ms)s, %(body)s)
ON CONFLICT (id) DO UPDATE SET number = console_snapshot.number + 1, made_at = excluded.made_at,
    took_ms = excluded.took_ms, body = excluded.body
RETURNING number
"""


class Snapshot(NamedTuple):
    """What was made: the parts of pages by name, what the rules said, and what the next one has to remember."""

    number: int
    made_at: datetime
    took_ms: int
    parts: dict[str, str]
    verdicts: list[Verdict]
    memory: dict[str, Any]

    def version(self, *names: str) -> str:
        """Changes when one of these parts does."""
        told = "\x1f".join(self.parts.get(name, "") for name in names)
        return blake2b(told.encode(), digest_size=12).hexdigest()


class _Kept:
    """What this process has read last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.snapshot: Snapshot | None = None
        self.until = float("-inf")

    def take(self) -> Snapshot | None:
        with self.lock:
            return self.snapshot if monotonic_s() < self.until else None

    def keep(self, snapshot: Snapshot, *, for_s: float) -> Snapshot:
        with self.lock:
            self.snapshot, self.until = snapshot, monotonic_s() + for_s
        return snapshot

    def forget(self) -> None:
        """The next one is read again."""
        with self.lock:
            self.snapshot, self.until = None, float("-inf")


kept = _Kept()


def latest() -> Snapshot:
    """At most FRESH_S old, or as old as one takes to be made. For outside of transactions: inside of one nothing is
    made, since nobody would see it before its end."""
    found = kept.take()
    if found is not None:
        return found
    before = kept.snapshot
    try:
        row = _read(door.raw())
        if row is not None:
            before = row[0]
            if _is_fresh(row[1]) or connection.in_atomic_block:
                return kept.keep(row[0], for_s=min(FRESH_S, max(0.0, FRESH_S - row[1])))
        return _make(before if row is not None else None)
    except (OperationalError, psycopg.OperationalError):
        return kept.keep(_slow(before), for_s=AGAIN_S)
    except (DatabaseError, psycopg.Error) as error:  # a schema that is half migrated, say: pages go on and tell it
        log.exception("the snapshot could not be read or made")
        return kept.keep(_unread(before, str(door.cause_of(error))), for_s=AGAIN_S)


def _make(before: Snapshot | None) -> Snapshot:
    """A new one, unless somebody else is at it or was quicker."""
    with transaction.atomic():
        conn = door.raw()
        conn.execute("SELECT set_config('statement_timeout', %s, true)", [str(STATEMENT_MS)])
        if before is None:
            conn.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        elif not _first(conn):
            return kept.keep(before, for_s=FRESH_S / 4)
        row = _read(conn)
        if row is not None and _is_fresh(row[1]):
            return kept.keep(row[0], for_s=FRESH_S - row[1])
        began = monotonic_s()
        facts, memory = gathering.gather(conn, row[0].memory if row is not None else {})
        facts, memory = gathering.timed(facts, memory, took_ms=(monotonic_s() - began) * 1_000)
        made = _made(facts, memory, took_ms=round((monotonic_s() - began) * 1_000))
        body = orjson.dumps(
            {"parts": made.parts, "verdicts": made.verdicts, "memory": memory}, default=_plain
        ).decode()  # fmt: skip
        number = conn.execute(_WRITE, {"made_at": made.made_at, "took_ms": made.took_ms, "body": body}).fetchone()
        assert number is not None
    return kept.keep(made._replace(number=number[0]), for_s=FRESH_S)


def _made(facts: Facts, memory: dict[str, Any], *, took_ms: int) -> Snapshot:
    found = verdicts(facts)
    return Snapshot(0, facts.now, took_ms, drawing.parts(facts, found, memory), found, memory)


def _slow(before: Snapshot | None) -> Snapshot:
    """What is said while the database does not answer in time: that, and what was known."""
    facts = Facts(now=utc_now(), took_ms=STATEMENT_MS)
    return _old(before, database_slow(facts), facts.now)


def _unread(before: Snapshot | None, fault: str) -> Snapshot:
    """The same when it answers that it can't."""
    first, *_ = fault.splitlines() or [""]
    facts = Facts(now=utc_now(), fault=first[:FAULT_CHARS] or "nothing")
    return _old(before, unread(facts), facts.now)


def _old(before: Snapshot | None, said: Verdict | None, now: datetime) -> Snapshot:
    assert said is not None
    known = before or Snapshot(0, now, STATEMENT_MS, {}, [], {})
    found = [said, *(one for one in known.verdicts if one.code not in (said.code, "on_time"))]
    return known._replace(parts=known.parts | {"sentence": drawing.sentence(found)}, verdicts=found)


def _first(conn: Conn) -> bool:
    row = conn.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK]).fetchone()
    return bool(row and row[0])


def _is_fresh(age_s: float) -> bool:
    """One from the future is not: the database's clock was set back, or another server took over with a slower one."""
    return 0 <= age_s < FRESH_S


def _read(conn: Conn) -> tuple[Snapshot, float] | None:
    """The row and its age in seconds. One of another version of this code is none."""
    row = conn.execute(_READ).fetchone()
    if row is None:
        return None
    body = orjson.loads(row[3])
    try:
        found = [_verdict(one) for one in body["verdicts"]]
    except (TypeError, ValueError):
        found = []
    return Snapshot(row[0], row[1], row[2], body["parts"], found, body["memory"]), row[4]


def _verdict(told: list[Any]) -> Verdict:
    code, tone, icon, sentence, evidence, remedies = told
    return Verdict(
        code, tone, icon, sentence,
        tuple(
            Evidence(what, value, scope, url, datetime.fromisoformat(at) if at else None)
            for what, value, scope, url, at in evidence
        ),
        tuple(Remedy(*one) for one in remedies),
    )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):  # a NamedTuple
        return list(value)
    raise TypeError(f"{type(value).__name__} is no part of a snapshot")
