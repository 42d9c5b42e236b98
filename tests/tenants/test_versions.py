"""Two versions at once: processes of this one in schemas that are a step ahead, and in one that is behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from apps.dispatch.fire import FireService
from kernel.clock import utc_now
from tenants import door, template
from tenants.keys import apikey_create
from tenants.models import Tenant
from tenants.registry import Registry
from tests.api.makers import Makers, kill
from tests.fixtures_api import Api
from tests.fixtures_flow import OneLine, count, executions_of, fire, make_schedule, owning, rows_of, run_to_the_end

if TYPE_CHECKING:
    from apps.dispatch.keeper import Keeper

Conn = psycopg.Connection[Any]
LISTS = (
    "jobs", "schedules", "workflows", "workflow-runs", "executions", "dead-letters", "calendars", "webhooks", "events",
    "secrets", "audit-events", "usage", "operations", "legal-holds",
)  # fmt: skip
HOT = "due|tickets|usage|tenants"
TABLES = """
SELECT schemaname || '.' || quote_ident(tablename) FROM pg_tables
WHERE schemaname = %s OR (schemaname = 'public' AND tablename ~ ('^(' || %s || ')_'))
"""


@pytest.fixture
def ahead(database: None, new_tenant: Callable[..., Tenant]) -> Iterator[Tenant]:
    """A tenant whose schema, and the shared tables of live work, have had the additive steps of a next version."""
    tenant = new_tenant()
    with owning(), door.connect("test owner", owner=True, guarded=False) as owner:
        tables = [table for (table,) in owner.execute(TABLES, [tenant.schema_name, HOT])]
        assert len(tables) > 40
        for table in tables:
            owner.execute(
                f"ALTER TABLE {table} ADD COLUMN next_text text, ADD COLUMN next_number int NOT NULL DEFAULT 7"
            )
    yield tenant
    with owning(), door.connect("test owner", owner=True, guarded=False) as owner:
        for table in tables:
            if table.startswith("public."):
                owner.execute(f"ALTER TABLE {table} DROP COLUMN next_text, DROP COLUMN next_number")


def test_this_version_works_in_schemas_that_are_a_step_ahead(
    ahead: Tenant, conn: Conn, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a definition over firing and running to a dead letter and its replay, and all lists."""
    Tenant.objects.filter(pk=ahead.pk).update(network=["127.0.0.0/8"])
    registry.refresh(force=True)
    _, key = apikey_create(tenant=ahead, name="next")
    api = Api(key)
    make = Makers(api)
    schedule = make.schedule()
    make.workflow()
    fire(conn, registry, now=utc_now() + timedelta(minutes=2))
    run_to_the_end(conn, registry, [ahead])
    assert "succeeded" in {one["state"] for one in executions_of(conn, ahead)}
    dead = make.execution()
    kill(conn, registry, dead["id"])
    [letter] = api.get("dead-letters").body["items"]
    assert api.post(f"dead-letters/{letter['id']}/replay", {}).status == 202
    assert api.patch(f"schedules/{schedule['id']}", {"name": "another"}, If_Match="*").status == 200
    assert {path: api.get(path).status for path in LISTS} == dict.fromkeys(LISTS, 200)
    rows = f"SELECT count(*) FROM {ahead.schema_name}.executions_execution WHERE next_number = 7 AND next_text IS NULL"
    assert count(conn, rows) == len(executions_of(conn, ahead))


def test_a_tenant_that_waits_for_its_migration_costs_nobody_else(
    conn: Conn, leader: Keeper, api: Api, acme: Tenant, new_tenant: Callable[..., Tenant]
) -> None:
    """Its requests are asked to come again, its schedules keep what they owe, and nothing of it is lost."""
    behind = new_tenant()
    _, key = apikey_create(tenant=behind, name="behind")
    theirs = Api(key)
    due_since = utc_now() - timedelta(minutes=2)
    schedules = {tenant.pk: make_schedule(tenant, now=due_since) for tenant in (acme, behind)}
    with owning(), door.connect("test owner", owner=True, guarded=False) as owner:
        owner.execute(f"ALTER TABLE {behind.schema_name}.executions_execution RENAME COLUMN run_key TO later")
        Tenant.objects.filter(pk=behind.pk).update(schema_version="older")
        answer = theirs.get("executions")
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, "unavailable", "10")
        assert api.get("executions").status == 200
        FireService(cast("Any", OneLine(conn)), leader).run_once()
        assert executions_of(conn, acme, schedules[acme.pk]) and not rows_of(conn, behind, "executions_execution")
        owner.execute(f"ALTER TABLE {behind.schema_name}.executions_execution RENAME COLUMN later TO run_key")
    Tenant.objects.filter(pk=behind.pk).update(schema_version=template.version())
    FireService(cast("Any", OneLine(conn)), leader).run_once()
    assert executions_of(conn, behind, schedules[behind.pk])
    assert theirs.get("executions").status == 200
