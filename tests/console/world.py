"""A tenant that has one of everything, all of it under hostile names, and processes that look alive."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.console.conftest import HOSTILE
from tests.console.pages_list import World
from tests.fixtures_flow import live_worker, queue_of
from tests.portal.stock import stock

if TYPE_CHECKING:
    import psycopg

    from tenants.models import Tenant
    from tenants.registry import Registry

LONG = "reconcile-the-ledgers-of-all-european-subsidiaries-" * 3
NAME = f"{HOSTILE} {LONG}"[:180]


def world(tenant: Tenant, conn: psycopg.Connection[Any], registry: Registry) -> World:
    """Fills the tenant; the names of all pages of the list."""
    from apps.audit.services import Actor
    from apps.dispatch.pressure.gauges import count, measure
    from apps.due import leases
    from apps.operations.backfill.services import backfill_ask
    from apps.operations.models import Operation
    from apps.usage.rolling import roll_up
    from kernel.clock import utc_now

    kept = stock(tenant, conn, registry, name=NAME, payload={HOSTILE: [LONG, "</pre><script>"]})
    now = utc_now()
    data = {"from": (now - timedelta(days=3)).isoformat(), "to": now.isoformat(), "reason": NAME}
    backfill = backfill_ask(
        tenant=tenant, actor=Actor(name="test:world", role="admin", tenant_id=tenant.pk), schedule_id=kept.schedule,
        data=data, now=now,
    )  # fmt: skip
    assert isinstance(backfill, Operation)
    dispatcher, worker = uuid4(), live_worker(conn, slots=4, queues=[queue_of(registry, tenant)], ttl_s=3_600)
    leases.heartbeat(
        conn, dispatcher=dispatcher, host=LONG[:100], pid=4711, version="1.2", ttl_s=3_600, backends=[], draining=False,
        skew_ms=12, stats='{"fire": {"fired": 7, "lag_ms": 6000}}',
    )  # fmt: skip
    conn.execute(
        "UPDATE due_shardlease SET owner = %s, taken_at = now(), expires_at = now() + interval '1 hour'"
        " WHERE shard %% 2 = 0", [dispatcher],
    )  # fmt: skip
    measure(conn, registry, count(conn))
    roll_up(conn)
    conn.execute("UPDATE tenants_tenant SET name = left(%s, 200) WHERE id = %s", [NAME, tenant.pk])
    row = conn.execute(
        f"SELECT fingerprint FROM {tenant.schema_name}.deadletters_deadletter WHERE id = %s", [kept.letter]
    ).fetchone()
    assert row is not None
    return World(
        slug=tenant.slug, tenant=tenant.pk, job=kept.job, schedule=kept.schedule, waiting=kept.waiting, done=kept.done,
        dead=kept.dead, letter=kept.letter, fingerprint=row[0], run=kept.run, operation=kept.operation,
        backfill=backfill.pk, shard=1, worker=str(worker), dispatcher=str(dispatcher),
        queue=queue_of(registry, tenant),
    )  # fmt: skip
