"""The platform's own periodic work, run as PeriodicTasks of celery beat (visible in the admin).

All of it works in small transactions that wait for nobody: what somebody holds is passed over and comes up again at
the next run. A run that is not through within BUDGET_S leaves the rest to the next one.
"""

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DatabaseError

from apps.archive.erasing import erase_some
from apps.archive.standing import unkept_plans
from apps.due import slots, watch
from apps.executions import erasures
from apps.tickets import breakers, workers
from apps.usage import archives
from kernel.clock import within
from kernel.errors import ShardbeatError
from tenants.door import Line
from tenants.models import Tenant
from tenants.work import database_now
from workers.app import app
from workers.retention import forget

log = logging.getLogger(__name__)
BUDGET_S = 120.0
LATE_WARN = timedelta(seconds=10)
FORGET_PROCESSES_S = 3_600
FORGET_SLOTS_S = 7 * 86_400
FORGET_BREAKERS_S = 86_400
KEEP_ANSWERS_S = 72 * 3_600
KEEP_INVITATIONS_S = 30 * 86_400  # after they were accepted, revoked or over
BATCH = 1_000

_TENANTS = """
SELECT t.slug, t.schema_name, clock_timestamp() - p.retention_days * interval '1 day', p.archive_days > 0
FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id WHERE t.status IN ('active', 'suspended')
"""

# A lease that still names a dead dispatcher needs its row: whoever takes over ends its database sessions.
_DISPATCHERS = """
DELETE FROM due_dispatcher d WHERE d.expires_at < clock_timestamp() - %s * interval '1 second'
  AND NOT EXISTS (SELECT 1 FROM due_shardlease l WHERE l.owner = d.id)
"""

_ANSWERS = """
WITH old AS MATERIALIZED (
    SELECT id FROM api_idempotentanswer WHERE created_at < clock_timestamp() - %s * interval '1 second'
    ORDER BY created_at LIMIT %s FOR UPDATE SKIP LOCKED)
DELETE FROM api_idempotentanswer a USING old WHERE a.id = old.id
"""

_SESSIONS = """
WITH old AS MATERIALIZED (
    SELECT session_key FROM django_session WHERE expire_date < clock_timestamp() LIMIT %s FOR UPDATE SKIP LOCKED)
DELETE FROM django_session s USING old WHERE s.session_key = old.session_key
"""

# Their e-mails are of people, many of whom never came.
_INVITATIONS = """
WITH old AS MATERIALIZED (
    SELECT id FROM tenants_invitation
    WHERE least(accepted_at, revoked_at, expires_at) < clock_timestamp() - %s * interval '1 second'
    LIMIT %s FOR UPDATE SKIP LOCKED)
DELETE FROM tenants_invitation i USING old WHERE i.id = old.id
"""

_SKEWED = """
SELECT 'dispatcher', host, pid, skew_ms FROM due_dispatcher
WHERE expires_at > clock_timestamp() AND abs(skew_ms) > %(ms)s
UNION ALL
SELECT 'worker', host, pid, skew_ms FROM tickets_worker
WHERE expires_at > clock_timestamp() AND abs(skew_ms) > %(ms)s
"""


@app.task(name="shardbeat.retention", ignore_result=True)
def retention() -> dict[str, int]:
    """Deletes finished executions, attempts and resolved dead letters older than the plan's retention_days.

    Those of plans with archive_days are left to the archive. Goes on with what is to be erased.
    """
    more = within(BUDGET_S)
    total: dict[str, int] = {}
    line = Line("housekeeping")
    try:
        tenants = line.get().execute(_TENANTS).fetchall()
        random.shuffle(tenants)  # when the time does not reach for all, it is not always the same ones who wait
        for slug, schema, before, archived in tenants:
            if not more():
                break
            try:
                gone = forget(line.fresh(visits=1), schema, before=before, more=more, archived=archived)
                for name, count in gone.items():
                    total[name] = total.get(name, 0) + count
                total["erased"] = total.get("erased", 0) + _erase(line, slug, schema, more)
            except (psycopg.Error, DatabaseError, ShardbeatError):  # one tenant's trouble is not the others'
                log.warning("retention of tenant %s failed; it is tried again at the next run", slug, exc_info=True)
    finally:
        line.close()
    log.info("retention: %s", total)
    return total


@app.task(name="shardbeat.prune", ignore_result=True)
def prune() -> dict[str, int]:
    """Forgets old beat slots, processes that ended without a word, sessions and invitations that are over,
    old breakers, and answers of idempotency keys."""
    more = within(BUDGET_S)
    line = Line("housekeeping")
    try:
        conn = line.get()
        counts = {
            "slots": _drain(lambda: slots.prune(conn, older_than_s=FORGET_SLOTS_S, limit=BATCH), more),
            "dispatchers": conn.execute(_DISPATCHERS, [FORGET_PROCESSES_S]).rowcount,
            "workers": workers.prune(conn, older_than_s=FORGET_PROCESSES_S),
            "breakers": breakers.prune(conn, older_than_s=FORGET_BREAKERS_S),
            "sessions": _drain(lambda: conn.execute(_SESSIONS, [BATCH]).rowcount, more),
            "invitations": _drain(lambda: conn.execute(_INVITATIONS, [KEEP_INVITATIONS_S, BATCH]).rowcount, more),
            "answers": _drain(lambda: conn.execute(_ANSWERS, [KEEP_ANSWERS_S, BATCH]).rowcount, more),
        }
    finally:
        line.close()
    log.info("prune: %s", counts)
    return counts


@app.task(name="shardbeat.health", ignore_result=True)
def health() -> dict[str, Any]:
    """Says in the log whether what is due is being served, whose clock is off, and what is not archived."""
    line = Line("housekeeping")
    try:
        conn = line.get()
        seen = watch.look(conn)
        skewed = conn.execute(_SKEWED, {"ms": settings.CLOCK_WARN_S * 1_000}).fetchall()
        unkept = [] if settings.ARCHIVE_URL else unkept_plans(conn)
        archived = archives.totals(conn)
    finally:
        line.close()
    if not seen.dispatchers:
        log.error("no dispatcher is alive")
    if seen.unheld:
        some = ", ".join(f"{kind}/{shard}" for kind, shard in seen.unheld[:5])
        log.error("%d leases have no live holder: %s", len(seen.unheld), some)
    if seen.late > LATE_WARN:
        log.error("the oldest due entry waits for %.0f s", seen.late.total_seconds())
    if seen.parked:
        log.warning("%d due entries are put aside", seen.parked)
    for kind, host, pid, skew_ms in skewed:
        log.warning("the clock of %s %s:%d is %+d ms off the database's", kind, host, pid, skew_ms)
    if unkept:
        log.error("no ARCHIVE_URL: old history of the plans %s is neither archived nor deleted", ", ".join(unkept))
    if archived.failing:
        log.error("the archive of %d tenants failed at its last run", archived.failing)
    found = {
        "dispatchers": seen.dispatchers, "unheld": len(seen.unheld), "late_s": seen.late.total_seconds(),
        "parked": seen.parked, "skewed": len(skewed), "archives_failing": archived.failing,
    }  # fmt: skip
    log.info("health: %s", found)
    return found


def _erase(line: Line, slug: str, schema: str, more: Callable[[], bool]) -> int:
    """Goes on with erasures where a process was stopped, a delivery was on its way or a store did not answer."""
    if not erasures.undone(line.get(), schema, after=UUID(int=0), limit=1):
        return 0
    tenant = Tenant.objects.select_related("plan").get(slug=slug)
    return erase_some(tenant, now=database_now(), more=more)


def _drain(step: Callable[[], int], more: Callable[[], bool]) -> int:
    """Repeats a bounded step until it finds less than a batch."""
    total = 0
    while more():
        count = step()
        total += count
        if count < BATCH:
            break
    return total
