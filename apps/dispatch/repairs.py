"""Repairs: what could have come apart between the shared tables and the tenants' schemas, found and put right.

Nothing here is needed while every write is in its transaction; it is for restored backups, hands in the database and
bugs. Each check looks at a bounded chunk and takes the rows' locks before it changes them. `dry_run` only reports.

- a schedule without due entry: made again from its last disposition, not from now, so that nothing is lost; a schedule
  that has no further instant is marked completed
- a due entry without its schedule (gone, paused, another version): removed
- an execution that is alive without ticket or due entry: gets a ticket again
- a ticket without execution: removed
- a gap: an instant between the last disposition and the due entry that nothing accounts for: the entry is put back
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.due import entries
from apps.due.entries import Entry
from apps.schedules import timing
from apps.schedules.retry import MAX_ATTEMPTS
from apps.tickets import store as tickets
from kernel.ids import attempt_id
from kernel.pools import pool_of
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
CHUNK = 500
TRIES_LOOKED_AT = 2 * MAX_ATTEMPTS  # those that were handed back count too
NOTHING = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that had come apart."""

    check: str
    tenant: str
    object_id: UUID
    detail: str


Found = tuple[list[Finding], UUID | None]  # what came apart, and where to go on; None at the end
Check = Callable[[Conn, Tenancy, UUID, bool], Found]


@dataclass(slots=True)
class Rotation:
    """Walks all checks, a chunk a step, forever."""

    _left: list[tuple[Callable[[Conn, Registry, UUID, bool], Found], UUID]] = field(default_factory=list)

    def step(self, conn: Conn, registry: Registry) -> dict[str, int]:
        """One chunk of one check; counts by check."""
        if not self._left:
            self._left = [(walk, NOTHING) for walk in walks(list(registry.by_id.values()))]
        walk, after = self._left.pop()
        findings, last = walk(conn, registry, after, False)
        if last is not None:
            self._left.append((walk, last))
        counts = Counter(finding.check for finding in findings)
        for name, count in counts.items():
            some = [f"{one.tenant} {one.object_id}: {one.detail}" for one in findings if one.check == name][:5]
            log.warning("repaired %d x %s: %s", count, name, "; ".join(some))
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


def walks(tenancies: Sequence[Tenancy]) -> list[Callable[[Conn, Registry, UUID, bool], Found]]:
    """The walks over the tenants' tables and over what the shared ones hold of these tenants."""
    of_tenants = [partial(_of_tenant, tenancy, check) for tenancy in tenancies for check in TENANT_CHECKS]
    ids = [tenancy.id for tenancy in tenancies]
    return [*of_tenants, partial(_entries, ids), partial(_tickets, ids)]


def _of_tenant(tenancy: Tenancy, check: Check, conn: Conn, _: Registry, after: UUID, dry_run: bool) -> Found:
    """One chunk in one transaction; a tenant whose schema does not answer is reported and passed over."""
    try:
        with conn.transaction():
            return check(conn, tenancy, after, dry_run)
    except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable) as error:
        log.warning("tenant %s could not be checked: %s", tenancy.slug, error)
        return [], None


_SCHEDULE_IDS = """
SELECT id FROM {schema}.schedules_schedule
WHERE (status = 'active' OR (status = 'paused' AND resume_at IS NOT NULL)) AND deleted_at IS NULL AND id > %s
ORDER BY id LIMIT %s
"""

_SCHEDULES = """
SELECT s.id, s.version, v.spec, v.own_payload, j.id, j.kind, jv.queue, jv.version, jv.priority, jv.timeout_s,
       jv.max_concurrency, v.created_at, e.at, e.schedule_version
FROM {schema}.schedules_schedule s
JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
JOIN {schema}.schedules_job j ON j.id = s.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = j.id AND jv.version = j.version
LEFT JOIN LATERAL (
    SELECT coalesce(until_at, nominal_at) AS at, schedule_version FROM {schema}.executions_execution
    WHERE schedule_id = s.id AND trigger IN ('schedule', 'catch_up') ORDER BY nominal_at DESC LIMIT 1) e ON true
WHERE s.id = ANY(%s) AND (s.status = 'active' OR (s.status = 'paused' AND s.resume_at IS NOT NULL))
  AND s.deleted_at IS NULL AND j.paused_at IS NULL
"""

_LOCK_SCHEDULES = "SELECT 1 FROM {schema}.schedules_schedule WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

_COMPLETE = """
UPDATE {schema}.schedules_schedule
SET status = 'completed', revision = revision + 1, updated_at = clock_timestamp()
WHERE id = %s AND (status = 'active' OR (status = 'paused' AND resume_at IS NOT NULL))
"""


def _schedules(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Active schedules without due entry, or whose due entry left instants out."""
    ids = [row[0] for row in conn.execute(_in(_SCHEDULE_IDS, tenancy), [after, CHUNK])]
    suspects = [suspect.key for suspect in _suspects(conn, tenancy, ids)]
    findings = []
    if suspects and not dry_run:
        # Fire holds the entry's lock until it is complete, edits and resumes the row's: what is seen now is whole.
        entries.lock(conn, suspects)
        conn.execute(_in(_LOCK_SCHEDULES, tenancy), [suspects])
    for suspect in _suspects(conn, tenancy, suspects):
        if suspect.expected is None:
            if not dry_run:
                conn.execute(_in(_COMPLETE, tenancy), [suspect.key])
            continue  # nothing was wrong: its last instant is over
        at = f"{suspect.expected:%Y-%m-%dT%H:%M:%SZ}"
        check, detail = "schedule_without_due_entry", f"due entry made again at {at}"
        if suspect.found is not None:
            check, detail = "gap", f"put back from {suspect.found:%Y-%m-%dT%H:%M:%SZ} to {at}"
        findings.append(Finding(check, tenancy.slug, suspect.key, detail))
        if not dry_run:
            entries.put(conn, _entry_of(suspect, tenancy), now=suspect.expected)
    return findings, ids[-1] if len(ids) == CHUNK else None


class _Suspect(NamedTuple):
    """A schedule whose due entry is not where its last disposition says; `expected` is None when it is completed."""

    key: UUID
    expected: datetime | None
    found: datetime | None
    row: tuple[Any, ...]


def _suspects(conn: Conn, tenancy: Tenancy, ids: Sequence[UUID]) -> list[_Suspect]:
    if not ids:
        return []
    rows = conn.execute(_in(_SCHEDULES, tenancy), [list(ids)]).fetchall()
    nominal = {key: at for key, (at, _) in entries.next_of(conn, ids).items()}
    suspects = []
    for row in rows:
        key, version, spec_text = row[:3]
        defined_at, last, last_version = row[-3:]
        try:
            spec = timing.spec_from_json(spec_text)
        except timing.TimingInvalid:
            continue
        known = last if last is not None and last_version == version else None
        expected = timing.next_after(spec, known if known is not None else defined_at)
        found = nominal.get(key)
        if found is None or (expected is not None and known is not None and found > expected):
            suspects.append(_Suspect(key, expected, found, row))
    return suspects


def _entry_of(suspect: _Suspect, tenancy: Tenancy) -> Entry:
    key, version, spec_text, own_payload, job_id, kind, queue, job_version, priority, timeout_s, limit = suspect.row[
        :11
    ]
    assert suspect.expected is not None
    due_at = timing.actual_at(timing.spec_from_json(spec_text), str(key), suspect.expected)
    pool = pool_of(kind, queue)
    return Entry(
        key, entries.shard_for(key), "schedule", tenancy.id, due_at, suspect.expected, version, spec_text, job_id,
        job_version, pool, queue or tenancy.queue(pool), priority, timeout_s, limit, own_payload,
    )  # fmt: skip


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
        [after, list(tenants), CHUNK],
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
        [after, list(tenants), CHUNK],
    ).fetchall()
    return _loose(
        conn, registry, rows, _WRONG_TICKETS, "ticket_without_execution", tickets.lock, tickets.remove, dry_run
    )


def _loose(
    conn: Conn, registry: Registry, rows: Sequence[tuple[UUID, int]], query: str, check: str,
    lock: Callable[[Conn, Sequence[UUID]], object], remove: Callable[[Conn, Sequence[UUID]], object], dry_run: bool,
) -> Found:  # fmt: skip
    """Rows of a shared table whose tenant does not know them: looked at again under their locks, then removed."""
    findings: list[Finding] = []
    by_tenant: dict[int, list[UUID]] = defaultdict(list)
    for key, tenant_id in rows:
        by_tenant[tenant_id].append(key)
    for tenant_id, keys in by_tenant.items():
        tenancy = registry.get(tenant_id)
        if tenancy is None:
            continue  # firing or starting it will put it aside with its reason
        try:
            with conn.transaction():
                wrong = [row[0] for row in conn.execute(_in(query, tenancy), [keys])]
                if wrong and not dry_run:
                    lock(conn, wrong)  # whoever changes both sides holds this lock until it is complete
                    wrong = [row[0] for row in conn.execute(_in(query, tenancy), [wrong])]
                    remove(conn, wrong)
        except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable) as error:
            log.warning("tenant %s could not be checked: %s", tenancy.slug, error)
            continue
        findings += [Finding(check, tenancy.slug, key, "removed") for key in wrong]
    return findings, rows[-1][0] if len(rows) == CHUNK else None


_LOCK_EXECUTIONS = "SELECT 1 FROM {schema}.executions_execution WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

_TRIES = """
SELECT coalesce(max(number), 0), count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'lost'))
FROM {schema}.executions_attempt WHERE id = ANY(%s)
"""

_ALIVE = """
SELECT e.id, e.run_key, e.job_id, e.job_version, e.schedule_id, e.schedule_version, e.trigger, e.priority, e.nominal_at,
       e.actual_at, e.payload IS NOT NULL, j.kind, jv.queue, jv.timeout_s,
       CASE WHEN j.paused_at IS NULL THEN jv.max_concurrency ELSE 0 END,
       (SELECT v.own_payload FROM {schema}.schedules_scheduleversion v
        WHERE v.schedule_id = e.schedule_id AND v.version = e.schedule_version)
FROM {schema}.executions_execution e
JOIN {schema}.schedules_job j ON j.id = e.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = e.job_id AND jv.version = e.job_version
WHERE e.finished_at IS NULL AND e.id > %s AND (%s::uuid[] IS NULL OR e.id = ANY(%s))
  AND NOT EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.execution_id = e.id)
  AND NOT EXISTS (SELECT 1 FROM due_dueentry d WHERE d.key = e.id)
ORDER BY e.id LIMIT %s
"""


def _executions(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Executions that are alive and that nothing will ever start."""
    rows = conn.execute(_in(_ALIVE, tenancy), [after, None, None, CHUNK]).fetchall()
    last = rows[-1][0] if len(rows) == CHUNK else None
    if rows and not dry_run:
        ids = [row[0] for row in rows]
        conn.execute(_in(_LOCK_EXECUTIONS, tenancy), [ids])  # whoever made a ticket meanwhile is seen in the next look
        rows = conn.execute(_in(_ALIVE, tenancy), [NOTHING, ids, ids, CHUNK]).fetchall()
        for row in rows:
            tickets.insert(conn, _ticket_of(row, tenancy, _tries(conn, tenancy, row[0])))
    return [Finding("execution_without_ticket", tenancy.slug, row[0], "ticket made again") for row in rows], last


def _tries(conn: Conn, tenancy: Tenancy, execution_id: UUID) -> tuple[int, int]:
    """The number of its last attempt that has ended, and how many count against the retry policy."""
    ids = [attempt_id(execution_id, number) for number in range(1, TRIES_LOOKED_AT + 1)]
    row = conn.execute(_in(_TRIES, tenancy), [ids]).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def _ticket_of(row: tuple[Any, ...], tenancy: Tenancy, tries: tuple[int, int]) -> tickets.Ticket:
    (execution_id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, priority, nominal_at,
     actual_at, own_payload, kind, queue, timeout_s, limit, schedule_payload) = row  # fmt: skip
    pool = pool_of(kind, queue)
    available: datetime = actual_at
    return tickets.Ticket(
        execution_id=execution_id, tenant_id=tenancy.id, job_id=job_id, job_version=job_version,
        schedule_id=schedule_id, schedule_version=schedule_version, run_key=run_key, trigger=trigger,
        nominal_at=nominal_at, actual_at=actual_at, pool=pool, queue=queue or tenancy.queue(pool), priority=priority,
        timeout_s=timeout_s, gate=tickets.gate_of(job_id, limit), gate_limit=limit, guarded=schedule_id is not None,
        payload_from="execution" if own_payload else "schedule" if schedule_payload else "job", state="ready",
        available_at=available, rank=None, attempt=tries[0], failures=tries[1],
    )  # fmt: skip


TENANT_CHECKS: tuple[Check, ...] = (_schedules, _executions)


def _in(query: str, tenancy: Tenancy) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(tenancy.schema))
