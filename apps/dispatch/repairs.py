"""Repairs: what could have come apart between the shared tables and the tenants' schemas, found and put right.

Nothing here is needed while every write is in its transaction; it is for restored backups, hands in the database and
bugs. Each check looks at a bounded chunk and takes the rows' locks before it changes them. `dry_run` only reports.

- a schedule without due entry: made again from its last disposition, not from now, so that nothing is lost; a schedule
  that has no further instant is marked completed
- a due entry without its schedule (gone, paused, another version): removed
- an execution that is alive without ticket or due entry: gets a ticket again
- an execution that is blocked though what it waits for has ended: decided on
- an operation that has not ended and has no row in the due index: gets one again
- a ticket without execution: removed
- a job's rate whose bucket is missing or another one, and a bucket of a job without a rate
- a cursor that is ahead: the due entry waits for a later instant than its schedule says, because the clock was ahead
  when it was written (see `clockwatch`): the entry is put back to the next instant from now
- a gap: an instant between the last disposition and the due entry that nothing accounts for: the entry is put back
- an instant before the last disposition that nothing accounts for (`incomplete`): it is only told, see `repairs_gaps`
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.findings import NOTHING, Check, CheckName, Finding, Found, in_schema
from apps.dispatch.repairs_blocked import blocked
from apps.dispatch.repairs_buckets import buckets
from apps.dispatch.repairs_executions import executions
from apps.dispatch.repairs_gaps import gaps
from apps.dispatch.repairs_operations import operations
from apps.dispatch.repairs_schedules import schedules
from apps.due import entries
from apps.tickets import store as tickets
from kernel.clock import monotonic_s
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
Walk = Callable[[Conn, Registry, UUID, bool], Found]
LOOSE_CHUNK = 10_000  # rows of a shared table: those of one tenant are looked at together, and there are many tenants
TENANT_CHECKS: tuple[Check, ...] = (schedules, executions, blocked, buckets, operations, gaps)


EVERY_S = 1.0
SHARE = 100  # it takes at most one part in so many of the time


@dataclass(slots=True)
class Rotation:
    """Walks all checks, a chunk a step, forever, for little of the time, however much there is."""

    _left: list[tuple[Walk, UUID]] = field(default_factory=list)  # the next one last
    _not_before: float = float("-inf")

    @property
    def rests(self) -> bool:
        """Whether it is too early for the next step."""
        return monotonic_s() < self._not_before

    def step(self, conn: Conn, registry: Registry) -> dict[str, int]:
        """One chunk of one check; counts by check."""
        began = monotonic_s()
        if not self._left:
            self._left = [(walk, NOTHING) for walk in reversed(walks(list(registry.by_id.values())))]
        walk, after = self._left.pop()
        findings, last = walk(conn, registry, after, False)
        if last is not None:
            self._left.append((walk, last))
        ended = monotonic_s()
        self._not_before = ended + max(EVERY_S, (ended - began) * (SHARE - 1))
        counts: Counter[str] = Counter(finding.check for finding in findings)
        for name, count in counts.items():
            some = [f"{one.tenant} {one.object_id}: {one.detail}" for one in findings if one.check == name][:5]
            done = "found" if name == "incomplete" else "repaired"
            log.warning("%s %d x %s: %s", done, count, name, "; ".join(some))
        return dict(counts)


def run_all(conn: Conn, registry: Registry, tenancies: Sequence[Tenancy], *, dry_run: bool) -> Iterator[Finding]:
    """All checks over all of these tenants, chunk by chunk."""
    for walk in walks(tenancies):
        after: UUID | None = NOTHING
        while after is not None:
            findings, after = walk(conn, registry, after, dry_run)
            yield from findings


def parked(conn: Conn, registry: Registry) -> Iterator[Finding]:
    """Due entries that were put aside: only a person can mend them, by writing the schedule again."""
    for key, tenant_id, reason in conn.execute("SELECT key, tenant_id, parked FROM due_dueentry WHERE parked <> ''"):
        tenancy = registry.get(tenant_id)
        yield Finding("parked", tenancy.slug if tenancy else f"tenant {tenant_id}", key, f"put aside: {reason}")


def walks(tenancies: Sequence[Tenancy]) -> list[Walk]:
    """The walks over the tenants' tables and over what the shared ones hold of these tenants; the longest one last."""
    of_tenants = [partial(_of_tenant, tenancy, check) for tenancy in tenancies for check in TENANT_CHECKS]
    ids = [tenancy.id for tenancy in tenancies]
    return [partial(_tickets, ids), *of_tenants, partial(_entries, ids)]


def _of_tenant(tenancy: Tenancy, check: Check, conn: Conn, _: Registry, after: UUID, dry_run: bool) -> Found:
    """One chunk in one transaction; a tenant whose schema does not answer is reported and passed over."""
    try:
        with conn.transaction():
            return check(conn, tenancy, after, dry_run)
    except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable) as error:
        log.warning("tenant %s could not be checked: %s", tenancy.slug, error)
        return [], None


_WRONG_ENTRIES = """
SELECT d.key FROM due_dueentry d LEFT JOIN {schema}.schedules_schedule s ON s.id = d.key
WHERE d.key = ANY(%s)
  AND (s.id IS NULL OR s.version <> d.version OR s.deleted_at IS NOT NULL
       OR NOT (s.status = 'active' OR (s.status = 'paused' AND s.resume_at IS NOT NULL)))
"""


def _entries(tenants: Sequence[int], conn: Conn, registry: Registry, after: UUID, dry_run: bool) -> Found:
    """Due entries without their schedule, in key order over these tenants."""
    rows = conn.execute(
        "SELECT key, tenant_id FROM due_dueentry WHERE key > %s AND kind = 'schedule' AND tenant_id = ANY(%s)"
        " ORDER BY key LIMIT %s",
        [after, list(tenants), LOOSE_CHUNK],
    ).fetchall()
    return _loose(
        conn, registry, rows, _WRONG_ENTRIES, "due_entry_without_schedule", entries.lock, entries.remove, dry_run
    )


_WRONG_TICKETS = """
SELECT t.execution_id FROM tickets_ticket t LEFT JOIN {schema}.executions_execution e ON e.id = t.execution_id
WHERE t.execution_id = ANY(%s) AND (e.id IS NULL OR e.finished_at IS NOT NULL)
"""


def _tickets(tenants: Sequence[int], conn: Conn, registry: Registry, after: UUID, dry_run: bool) -> Found:
    """Tickets without a live execution, in id order over these tenants."""
    rows = conn.execute(
        "SELECT execution_id, tenant_id FROM tickets_ticket WHERE execution_id > %s AND tenant_id = ANY(%s)"
        " ORDER BY execution_id LIMIT %s",
        [after, list(tenants), LOOSE_CHUNK],
    ).fetchall()
    return _loose(
        conn, registry, rows, _WRONG_TICKETS, "ticket_without_execution", tickets.lock, tickets.remove, dry_run
    )


def _loose(
    conn: Conn, registry: Registry, rows: Sequence[tuple[UUID, int]], query: str, check: CheckName,
    lock: Callable[[Conn, Sequence[UUID]], object], remove: Callable[[Conn, Sequence[UUID]], object], dry_run: bool,
) -> Found:  # fmt: skip
    """Rows of a shared table whose tenant does not know them: looked at again under their locks, then removed.

    The first look needs no transaction, and nearly always there is nothing after it: one round trip a tenant.
    """
    findings: list[Finding] = []
    by_tenant: dict[int, list[UUID]] = defaultdict(list)
    for key, tenant_id in rows:
        by_tenant[tenant_id].append(key)
    for tenant_id, keys in by_tenant.items():
        tenancy = registry.get(tenant_id)
        if tenancy is None:
            continue  # firing or starting it will put it aside with its reason
        try:
            wrong = [row[0] for row in conn.execute(in_schema(query, tenancy), [keys])]
            if wrong and not dry_run:
                with conn.transaction():
                    lock(conn, wrong)  # whoever changes both sides holds this lock until it is complete
                    wrong = [row[0] for row in conn.execute(in_schema(query, tenancy), [wrong])]
                    remove(conn, wrong)
        except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable) as error:
            log.warning("tenant %s could not be checked: %s", tenancy.slug, error)
            continue
        findings += [Finding(check, tenancy.slug, key, "removed") for key in wrong]
    return findings, rows[-1][0] if len(rows) == LOOSE_CHUNK else None
