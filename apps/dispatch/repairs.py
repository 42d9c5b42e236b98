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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.due import entries
from apps.due.entries import Entry
from apps.schedules import timing
from apps.schedules.models import POOL_OF_KIND
from apps.tickets import store as tickets
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
CHUNK = 500
NOTHING = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that had come apart."""

    check: str
    tenant: str
    object_id: UUID
    detail: str


Check = Callable[[Conn, Tenancy, UUID, bool], tuple[list[Finding], UUID | None]]


@dataclass(slots=True)
class Rotation:
    """Walks all tenants and checks, a chunk a step, forever."""

    _position: Iterator[tuple[Tenancy, Check, UUID]] | None = None
    _queue: list[tuple[Tenancy, Check, UUID]] = field(default_factory=list)

    def step(self, conn: Conn, registry: Registry) -> dict[str, int]:
        """One chunk of one check of one tenant; counts by check."""
        if not self._queue:
            self._queue = [(tenancy, check, NOTHING) for tenancy in registry.by_id.values() for check in CHECKS]
            if not self._queue:
                return {}
        tenancy, check, after = self._queue.pop()
        if tenancy.id not in registry.by_id:
            return {}
        findings, last = run_check(conn, tenancy, check, after, dry_run=False)
        if last is not None:
            self._queue.append((tenancy, check, last))
        counts: dict[str, int] = {}
        for finding in findings:
            counts[finding.check] = counts.get(finding.check, 0) + 1
            log.warning("repaired %s of %s %s: %s", finding.check, finding.tenant, finding.object_id, finding.detail)
        return counts


def run_all(conn: Conn, tenancy: Tenancy, *, dry_run: bool) -> Iterator[Finding]:
    """All checks over all of a tenant, chunk by chunk."""
    for check in CHECKS:
        after: UUID | None = NOTHING
        while after is not None:
            findings, after = run_check(conn, tenancy, check, after, dry_run=dry_run)
            yield from findings


def run_check(
    conn: Conn, tenancy: Tenancy, check: Check, after: UUID, *, dry_run: bool
) -> tuple[list[Finding], UUID | None]:
    """One chunk in one transaction; a tenant whose schema does not answer is reported and passed over."""
    try:
        with conn.transaction():
            return check(conn, tenancy, after, dry_run)
    except (psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable) as error:
        log.warning("tenant %s could not be checked: %s", tenancy.slug, error)
        return [], None


_SCHEDULES = """
SELECT s.id, s.version, v.spec, v.own_payload, j.id, j.kind, jv.version, jv.priority, jv.timeout_s, jv.max_concurrency,
       s.created_at, v.created_at, j.paused_at IS NOT NULL,
       (SELECT coalesce(e.until_at, e.nominal_at) FROM {schema}.executions_execution e
        WHERE e.schedule_id = s.id AND e.trigger IN ('schedule', 'catch_up') ORDER BY e.nominal_at DESC LIMIT 1),
       (SELECT e.schedule_version FROM {schema}.executions_execution e
        WHERE e.schedule_id = s.id AND e.trigger IN ('schedule', 'catch_up') ORDER BY e.nominal_at DESC LIMIT 1)
FROM {schema}.schedules_schedule s
JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
JOIN {schema}.schedules_job j ON j.id = s.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = j.id AND jv.version = j.version
WHERE s.status = 'active' AND s.deleted_at IS NULL AND s.id > %s ORDER BY s.id LIMIT %s
"""


def _schedules(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> tuple[list[Finding], UUID | None]:
    rows = conn.execute(_in(_SCHEDULES, tenancy), [after, CHUNK]).fetchall()
    have = {entry.key: entry for entry in entries.lock(conn, [row[0] for row in rows])}
    findings = []
    for row in rows:
        (key, version, spec_text, own_payload, job_id, kind, job_version, priority, timeout_s, limit,
         _, defined_at, job_paused, last, last_version) = row  # fmt: skip
        if job_paused:
            continue
        try:
            spec = timing.spec_from_json(spec_text)
        except timing.TimingInvalid:
            continue
        known = last if last is not None and last_version == version else None
        expected = timing.next_after(spec, known if known is not None else defined_at)
        entry = have.get(key)
        if entry is None and expected is None:
            if not dry_run:
                conn.execute(
                    _in("UPDATE {schema}.schedules_schedule SET status = 'completed' WHERE id = %s", tenancy), [key]
                )
            continue  # nothing was wrong: its last instant is over
        if expected is None or (entry is not None and (known is None or entry.nominal_at <= expected)):
            continue
        check, detail = "schedule_without_due_entry", f"due entry made again at {expected:%Y-%m-%dT%H:%M:%SZ}"
        if entry is not None:
            check, detail = "gap", f"put back from {entry.nominal_at} to {expected}"
        findings.append(Finding(check, tenancy.slug, key, detail))
        if not dry_run:
            pool = POOL_OF_KIND[kind]
            made = Entry(
                key, entries.shard_for(key), "schedule", tenancy.id, timing.actual_at(spec, str(key), expected),
                expected, version, spec_text, job_id, job_version, pool, tenancy.queue(pool), priority, timeout_s,
                limit, own_payload,
            )  # fmt: skip
            entries.put(conn, made, now=expected)
    return findings, rows[-1][0] if len(rows) == CHUNK else None


_ORPHANS = """
SELECT d.key, d.version, s.version, s.status, s.deleted_at IS NOT NULL
FROM due_dueentry d LEFT JOIN {schema}.schedules_schedule s ON s.id = d.key
WHERE d.tenant_id = %(tenant)s AND d.kind = 'schedule' AND d.key > %(after)s ORDER BY d.key LIMIT %(chunk)s
"""


def _entries(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> tuple[list[Finding], UUID | None]:
    rows = conn.execute(
        _in(_ORPHANS, tenancy), {"tenant": tenancy.id, "after": after, "chunk": CHUNK}
    ).fetchall()
    suspects = {
        row[0]: row for row in rows if row[2] is None or row[2] != row[1] or row[3] != "active" or row[4]
    }
    if not suspects:
        return [], rows[-1][0] if len(rows) == CHUNK else None
    if not dry_run:
        entries.lock(conn, list(suspects))  # whoever edits a schedule holds this lock until the edit is complete
    recheck = _in(
        "SELECT d.key FROM due_dueentry d LEFT JOIN {schema}.schedules_schedule s ON s.id = d.key"
        " WHERE d.key = ANY(%s) AND (s.id IS NULL OR s.version <> d.version OR s.status <> 'active'"
        " OR s.deleted_at IS NOT NULL)",
        tenancy,
    )
    wrong = [row[0] for row in conn.execute(recheck, [list(suspects)])]
    if wrong and not dry_run:
        entries.remove(conn, wrong)
    findings = [Finding("due_entry_without_schedule", tenancy.slug, key, "removed") for key in wrong]
    return findings, rows[-1][0] if len(rows) == CHUNK else None


_ALIVE = """
SELECT e.id, e.run_key, e.job_id, e.job_version, e.schedule_id, e.schedule_version, e.trigger, e.priority, e.nominal_at,
       e.actual_at, e.attempt_count, e.payload IS NOT NULL, j.kind, jv.timeout_s, jv.max_concurrency, e.state,
       (SELECT v.own_payload FROM {schema}.schedules_scheduleversion v
        WHERE v.schedule_id = e.schedule_id AND v.version = e.schedule_version)
FROM {schema}.executions_execution e
JOIN {schema}.schedules_job j ON j.id = e.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = e.job_id AND jv.version = e.job_version
WHERE e.finished_at IS NULL AND e.id > %s
  AND NOT EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.execution_id = e.id)
  AND NOT EXISTS (SELECT 1 FROM due_dueentry d WHERE d.key = e.id)
ORDER BY e.id LIMIT %s
"""


def _executions(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> tuple[list[Finding], UUID | None]:
    rows = conn.execute(_in(_ALIVE, tenancy), [after, CHUNK]).fetchall()
    findings = []
    lock = _in(
        "SELECT 1 FROM {schema}.executions_execution e WHERE id = %s AND finished_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.execution_id = e.id) FOR UPDATE",
        tenancy,
    )
    for row in rows:
        if not dry_run and conn.execute(lock, [row[0]]).fetchone() is None:
            continue
        findings.append(Finding("execution_without_ticket", tenancy.slug, row[0], "ticket made again"))
        if not dry_run:
            tickets.insert(conn, _ticket_of(row, tenancy))
    return findings, rows[-1][0] if len(rows) == CHUNK else None


def _ticket_of(row: tuple[Any, ...], tenancy: Tenancy) -> tickets.Ticket:
    (execution_id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, priority, nominal_at,
     actual_at, attempts, own_payload, kind, timeout_s, limit, _, schedule_payload) = row  # fmt: skip
    pool = POOL_OF_KIND[kind]
    available: datetime = actual_at
    return tickets.Ticket(
        execution_id=execution_id, tenant_id=tenancy.id, job_id=job_id, job_version=job_version,
        schedule_id=schedule_id, schedule_version=schedule_version, run_key=run_key, trigger=trigger,
        nominal_at=nominal_at, actual_at=actual_at, pool=pool, queue=tenancy.queue(pool), priority=priority,
        timeout_s=timeout_s, gate=tickets.gate_of(job_id, limit), gate_limit=limit, guarded=schedule_id is not None,
        payload_from="execution" if own_payload else "schedule" if schedule_payload else "job", state="ready",
        available_at=available, rank=None, attempt=attempts, failures=0,
    )  # fmt: skip


_LOOSE = """
SELECT t.execution_id FROM tickets_ticket t LEFT JOIN {schema}.executions_execution e ON e.id = t.execution_id
WHERE t.tenant_id = %(tenant)s AND t.execution_id > %(after)s AND (e.id IS NULL OR e.finished_at IS NOT NULL)
ORDER BY t.execution_id LIMIT %(chunk)s
"""


def _tickets(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> tuple[list[Finding], UUID | None]:
    parameters = {"tenant": tenancy.id, "after": after, "chunk": CHUNK}
    ids = [row[0] for row in conn.execute(_in(_LOOSE, tenancy), parameters)]
    if ids and not dry_run:
        # Locked first and looked at again: a settlement in flight ends ticket and execution together.
        conn.execute(
            "SELECT 1 FROM tickets_ticket WHERE execution_id = ANY(%s) ORDER BY execution_id FOR UPDATE", [ids]
        )
        again = conn.execute(_in(_LOOSE, tenancy), parameters)
        ids = [row[0] for row in again if row[0] in set(ids)]
        conn.execute("DELETE FROM tickets_ticket WHERE execution_id = ANY(%s)", [ids])
    findings = [Finding("ticket_without_execution", tenancy.slug, one, "removed") for one in ids]
    return findings, ids[-1] if len(ids) == CHUNK else None


CHECKS: tuple[Check, ...] = (_schedules, _entries, _executions, _tickets)


def _in(query: str, tenancy: Tenancy) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(tenancy.schema))
