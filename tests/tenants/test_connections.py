"""Connections: as many as there are loops and threads, however many tenants there are, and none for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from apps.dispatch.dispatcher import Dispatcher
from apps.dispatch.examining import server
from kernel.clock import monotonic_s
from tenants import door, template
from tenants import registry as registry_module
from tenants.models import Tenant
from tenants.registry import REFRESH_S, Registry
from tests.commands import run_command
from tests.conftest import wait_until
from tests.fixtures_flow import executions_of, make_schedule

Conn = psycopg.Connection[Any]


def test_a_line_that_served_long_or_many_schemas_is_made_anew(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Conn] = []
    line = door.Line("test line", opened=opened.append)
    first = line.fresh()
    assert line.fresh() is first and line.get() is first
    later = monotonic_s() + door.SERVES_S
    monkeypatch.setattr(door, "monotonic_s", lambda: later)
    assert line.get() is first, "something may be under way on it"
    second = line.fresh()
    assert first.closed and second is not first and opened == [first, second]
    assert line.fresh(visits=door.VISITS_MAX) is second
    third = line.fresh(visits=1)
    assert second.closed and third is not second
    assert line.fresh(visits=1) is third
    line.close()


def test_connections_do_not_grow_with_tenants(conn: Conn, acme: Tenant, new_tenant: Callable[..., Tenant]) -> None:
    """A dispatcher has one for each loop, whoever it works for."""
    tenants = [acme, *(new_tenant() for _ in range(4))]
    before = len(sessions(conn))
    dispatcher = Dispatcher()
    dispatcher.start()
    try:
        made = [(tenant, make_schedule(tenant)) for tenant in tenants]
        wait_until(lambda: all(executions_of(conn, *one) for one in made), "schedules of all to fire")
        names = sessions(conn)
        assert len(names) <= before + len(dispatcher._loops)
        of_loops = [name for name in names if str(dispatcher.keeper.id)[:8] in name]
        assert of_loops and len(set(of_loops)) == len(of_loops)
    finally:
        dispatcher.close()


def sessions(conn: Conn) -> list[str]:
    """The names of all connections of the application to this database."""
    query = (
        "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user"
    )
    return [name for (name,) in conn.execute(query)]


def test_the_doctor_names_what_is_wrong(
    database: None, acme: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = settings.BROKER_URL

    def doctor() -> tuple[int, dict[str, bool]]:
        code, out, _ = run_command("doctor", "--format", "json")
        return code, {one["name"]: one["ok"] for one in json.loads(out)}

    code, found = doctor()
    assert code == 1 and not found["dispatchers"] and not found["workers"], "nobody is started in this test"
    fine = ("database", "shared schema", "tenant schemas", "clock", "connections", "broker", "shards")
    assert all(found[name] for name in fine)
    Tenant.objects.filter(pk=acme.pk).update(schema_version="older")
    settings.SHARDS, settings.BROKER_URL = 32, "redis://127.0.0.1:1/0"
    _, found = doctor()
    assert not any(found[name] for name in ("tenant schemas", "shards", "broker"))
    Tenant.objects.filter(pk=acme.pk).update(schema_version=template.version())
    # Nobody listens there: what needs no database is looked at all the same; other commands say it in a line.
    settings.BROKER_URL = broker
    with monkeypatch.context() as away:
        away.setitem(connection.settings_dict, "PORT", "1")
        assert doctor() == (1, {"database": False, "broker": True})
        connection.close()
        code, said, why = run_command("tenant_list")
        assert (code, said) == (2, "") and why.startswith("The database does not answer: ") and why.count("\n") == 1
    assert not door.is_away(psycopg.errors.QueryCanceled()), "a time limit is no outage"
    assert server(140_022) == ("database", False, "PostgreSQL 14.22: 15 or newer is needed") and server(150_000).ok


def test_the_loops_of_a_process_read_the_tenants_together(
    conn: Conn, acme: Tenant, globex: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight registries: one reading every three seconds, and each has all of it."""
    clock = [monotonic_s()]
    monkeypatch.setattr(registry_module, "monotonic_s", lambda: clock[0])
    reads: list[str] = []

    class Counted:
        info = conn.info

        def execute(self, query: str) -> Any:
            reads.append(query)
            return conn.execute(query)

        def get(self) -> Any:
            return self

    registries = [Registry(Counted()) for _ in range(8)]  # type: ignore[arg-type]  # it stands for a line
    for one in registries:
        one.refresh()
        clock[0] += 0.01
    assert len(reads) == 8, "the first reading is its own"
    known = registries[0].by_id[acme.pk]
    Tenant.objects.filter(pk=globex.pk).update(dispatch_paused=True)
    for _ in range(60):
        clock[0] += 0.5
        for one in registries:
            one.refresh()
            assert clock[0] - one._read_at <= REFRESH_S
    assert 9 <= len(reads) - 8 <= 11
    assert all(not one.by_id[globex.pk].active and one.by_id[acme.pk] is known for one in registries)
    newest = registry_module._readings.newest(conn)
    with conn.transaction():
        conn.execute("UPDATE tenants_tenant SET dispatch_paused = true WHERE id = %s", [acme.pk])
        registries[0].refresh(force=True)
        assert not registries[0].by_id[acme.pk].active
        raise psycopg.Rollback
    assert registry_module._readings.newest(conn) is newest, "what is not saved is not for others"
