"""The statements of a snapshot: each reads one small or partial index, and stops after so many rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import psycopg
from django.conf import settings

from apps.console.machines.process import REFUSED_OF_DISPATCHER, REFUSED_OF_WORKER
from apps.console.verdict.values import CAP, SHUT_MOST, Late, Pause, Process, Share, Shut, Slice
from apps.console.verdict.work import LATE_S
from apps.usage.figures import bucket_of
from apps.usage.loads import Loads
from kernel.pools import RELEASED

Conn = psycopg.Connection[Any]
PROCESSES = 300
SHARES = 12
SHUT_ROWS = 5_000
CHANGES = 20
COUNTED = 2_500  # of each state while nobody measures
# Codes of apps.dispatch.admission: limits that a tenant's plan, jobs and keys have.
OWN_LIMITS = (
    "overlap", "job_concurrency", "tenant_concurrency", "pool_maximum", "concurrency_key", "tenant_rate", "job_rate",
    "daily_quota",
)  # fmt: skip

_DISPATCHERS = f"""
SELECT id::text, host || ':' || pid, extract(epoch FROM clock_timestamp() - expires_at)::float8, skew_ms, draining,
       {REFUSED_OF_DISPATCHER}
FROM due_dispatcher ORDER BY expires_at DESC LIMIT %s
"""
_WORKERS = f"""
SELECT id::text, host || ':' || pid, extract(epoch FROM clock_timestamp() - expires_at)::float8, skew_ms, draining,
       {REFUSED_OF_WORKER}
FROM tickets_worker ORDER BY expires_at DESC LIMIT %s
"""
# Of slices that are served when all is well; without a live dispatcher nobody has one, whatever its lease says.
_SLICES = """
SELECT l.kind, l.shard, coalesce(d.host || ':' || d.pid, left(l.owner::text, 8), ''), l.term,
       extract(epoch FROM clock_timestamp() - least(l.expires_at, coalesce(d.expires_at, l.expires_at)))::float8,
       extract(epoch FROM clock_timestamp() - l.taken_at)::float8, coalesce(l.taken_from::text, ''),
       l.taken_why = 'ran_out'
FROM due_shardlease l LEFT JOIN due_dispatcher d ON d.id = l.owner
WHERE l.kind IN ('fire', 'reconcile', 'seal') OR (l.kind = 'release' AND l.shard = ANY(%s))
ORDER BY l.kind, l.shard
"""
_DUE = """
SELECT count(*) FROM (SELECT 1 FROM due_dueentry
    WHERE parked = '' AND shard = ANY(%s::smallint[]) AND due_at <= %s LIMIT %s) d
"""
_UNHEARD = """
SELECT q FROM unnest(%s::varchar[]) AS q WHERE NOT EXISTS (
    SELECT 1 FROM tickets_worker w WHERE w.expires_at > clock_timestamp() AND NOT w.draining AND q = ANY(w.queues))
  AND NOT EXISTS (
    SELECT 1 FROM tenants_tenant t WHERE t.slug = split_part(split_part(q, '.own.', 2), '@', 1)
    AND (t.dispatch_paused OR t.status <> 'active'))
"""
# While calls wait one of them tries again at least every HTTP_BREAKER_OPEN_MAX_S: a breaker that has not changed for
# longer is of a destination that nobody calls any more.
_SHUT = """
SELECT b.destination, count(DISTINCT b.tenant_id), min(b.opened_at), max(b.reason), min(b.id::text)
FROM (SELECT * FROM tickets_breaker
      WHERE state <> 'closed' AND changed_at > clock_timestamp() - %s * interval '1 second' LIMIT %s) b
GROUP BY 1 ORDER BY 2 DESC, 3 LIMIT %s
"""
_COUNTED = """
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'ready' AND rank IS NOT NULL LIMIT %(most)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL LIMIT %(most)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'queued' LIMIT %(most)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'running' LIMIT %(most)s) a)
"""
_PUT_ASIDE = """
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM due_dueentry WHERE parked <> '' LIMIT %(most)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM due_beatslot WHERE started_at IS NULL AND sends > %(sends)s LIMIT %(most)s) a),
    (SELECT key FROM due_dueentry WHERE parked <> '' LIMIT 1)
"""
# What operators and commands did; what tenants' people and keys do is on their own pages. The first condition is that
# of the index audit_by_operators, so that these rows are found below any number of others. Signing in changes nothing.
_CHANGES = """
SELECT a.at, a.action, a.object_type, a.object_id, coalesce(u.username, a.actor), a.id, coalesce(t.slug, ''), a.allowed
FROM (SELECT * FROM audit_auditevent WHERE (subject LIKE 'user:%%' OR actor LIKE 'command:%%') AND at >= %s
        AND action NOT LIKE 'session.%%'
      ORDER BY at DESC, id DESC LIMIT %s) a
LEFT JOIN auth_user u ON a.subject = 'user:' || u.id LEFT JOIN tenants_tenant t ON t.id = a.tenant_id
ORDER BY a.at DESC, a.id DESC
"""
_PAUSES = """
SELECT p.pool, coalesce(u.username, p.paused_by), p.paused_at, p.reason FROM tenants_dispatchpause p
LEFT JOIN auth_user u ON p.paused_by = 'user:' || u.id
WHERE p.tenant_id IS NULL ORDER BY p.pool LIMIT 20
"""
# Of first releases those from the bucket on in which the target lies. What held one of them is with its execution, in
# its tenant's schema; here is only known whether a limit of the tenant's own held something back in that time.
_LATE = """
WITH late AS MATERIALIZED (
    SELECT r.tenant_id, sum(u.n)::bigint AS runs
    FROM usage_rollup r CROSS JOIN LATERAL unnest(r.dispatch[%(first)s:]) u(n)
    WHERE r.step_s = 60 AND r.starts_at >= %(since)s AND cardinality(r.dispatch) >= %(first)s GROUP BY 1)
SELECT coalesce(sum(runs), 0)::bigint, coalesce(sum(runs) FILTER (WHERE tenant_id IN (
    SELECT h.tenant_id FROM tickets_hold h WHERE h.seen_at >= %(since)s AND h.code = ANY(%(own)s))), 0)::bigint
FROM late
"""
_REPLICA = "SELECT max(extract(epoch FROM replay_lag))::float8 FROM pg_stat_replication"


def dispatchers(conn: Conn) -> tuple[Process, ...]:
    """Those that live and those that were not cleaned away yet, the freshest first."""
    return tuple(Process(*row) for row in conn.execute(_DISPATCHERS, [PROCESSES]))


def workers(conn: Conn) -> tuple[tuple[Process, ...], int]:
    """The same of workers, and how many live."""
    found = tuple(Process(*row) for row in conn.execute(_WORKERS, [PROCESSES]))
    live = sum(one.silent_s < 0 for one in found)
    if live < PROCESSES:
        return found, live
    row = conn.execute("SELECT count(*) FROM tickets_worker WHERE expires_at > clock_timestamp()").fetchone()
    return found, row[0] if row else live


def slices(conn: Conn) -> tuple[Slice, ...]:
    """Who serves what."""
    return tuple(Slice(*row) for row in conn.execute(_SLICES, [list(RELEASED)]))


def due(conn: Conn, now: datetime) -> int:
    """Due entries whose time has come; more than CAP is CAP + 1."""
    row = conn.execute(_DUE, [list(range(settings.SHARDS)), now, CAP + 1]).fetchone()
    return int(row[0]) if row else 0


def unheard(conn: Conn, queues: Collection[str]) -> list[str]:
    """Those of these queues that no live worker listens to. Not a tenant's own that an operator holds back."""
    return [row[0] for row in conn.execute(_UNHEARD, [list(queues)])] if queues else []


def shares(conn: Conn, load: Loads) -> tuple[Share, ...]:
    """The tenants with most that waits for nothing but the platform, and all the others as one."""
    ranked = sorted(load.tenants, key=lambda one: (-max(0, one.waiting - one.held), -one.running))
    top, rest = ranked[:SHARES], [*ranked[SHARES:], load.others]
    names = slugs(conn, {one.tenant_id for one in top})
    found = [
        Share(names.get(one.tenant_id, f"#{one.tenant_id}"), max(0, one.waiting - one.held), one.running) for one in top
    ]
    others = Share("", sum(max(0, one.waiting - one.held) for one in rest), sum(one.running for one in rest))
    return tuple([*found, others] if others.due or others.running else found)


def slugs(conn: Conn, tenants: Collection[int]) -> Mapping[int, str]:
    """What people call them."""
    if not tenants:
        return {}
    return dict(conn.execute("SELECT id, slug FROM tenants_tenant WHERE id = ANY(%s)", [list(tenants)]).fetchall())


def shut(conn: Conn) -> tuple[Shut, ...]:
    """Destinations whose breakers are not closed, those of most tenants first."""
    given = [2 * settings.HTTP_BREAKER_OPEN_MAX_S, SHUT_ROWS, SHUT_MOST]
    return tuple(Shut(*row) for row in conn.execute(_SHUT, given))


def counted(conn: Conn) -> Mapping[str, int]:
    """Tickets by state; more than COUNTED of one is COUNTED + 1."""
    row = conn.execute(_COUNTED, {"most": COUNTED + 1}).fetchone()
    return dict(zip(("ready", "later", "queued", "running"), row, strict=True)) if row else {}


def put_aside(conn: Conn, *, sends: int) -> dict[str, Any]:
    """Due entries that can't be served, with the key of one, and slots of celery beat that were given up."""
    row = conn.execute(_PUT_ASIDE, {"most": CAP + 1, "sends": sends}).fetchone()
    assert row is not None
    return {"parked": row[0], "slots_given_up": row[1], "parked_one": str(row[2] or "")}


def changes(conn: Conn, *, since: datetime) -> list[list[Any]]:
    """What operators changed, newest first: time, action, what, who, row, tenant, whether it was allowed."""
    rows = conn.execute(_CHANGES, [since, CHANGES])
    return [[row[0].isoformat(), *row[1:]] for row in rows]


def pauses(conn: Conn) -> tuple[Pause, ...]:
    """What is held back of all tenants."""
    return tuple(Pause(*row) for row in conn.execute(_PAUSES))


def late(conn: Conn, *, since: datetime) -> Late:
    """How many first releases were late since a minute began, and how many of tenants at limits of their own."""
    row = conn.execute(_LATE, {"first": bucket_of(LATE_S) + 1, "since": since, "own": list(OWN_LIMITS)}).fetchone()
    return Late(*row) if row else Late()


def replica_lag_s(conn: Conn) -> float | None:
    """Of the slowest replica; None where there is none, or the role may not know."""
    row = conn.execute(_REPLICA).fetchone()
    return row[0] if row else None
