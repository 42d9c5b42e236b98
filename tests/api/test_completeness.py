"""Completeness over the API and as a command: the same figures, a bound, and a repair that is done once."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command

from apps.dispatch.repairs import run_all
from tests.commands import run_command
from tests.fixtures_api import Api
from tests.fixtures_flow import executions_of, fire_all, make_schedule
from tests.flow.test_completeness import lose

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


def command(tenant: Tenant, *arguments: str) -> tuple[int, Any]:
    """Its exit code, and what it printed as JSON."""
    code, out, _ = run_command("completeness", "--tenant", tenant.slug, "--format", "json", *arguments)
    return code, json.loads(out)


def test_a_gap_is_told_repaired_and_gone(conn: Conn, registry: Registry, acme: Tenant, api: Api) -> None:
    row = conn.execute("SELECT date_trunc('minute', clock_timestamp())").fetchone()
    assert row is not None
    now = row[0]
    begins = now - timedelta(hours=2)
    schedule = make_schedule(acme, now=begins, misfire="fire_all")
    make_schedule(acme, now=begins)
    fire_all(conn, registry, now=now)
    path = f"schedules/{schedule}/completeness"
    given = f"from={begins:%Y-%m-%dT%H:%M:%SZ}&to={now + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    found = api.get(f"{path}?{given}").body
    assert (found["is_complete"], found["expected"], found["ran"], found["skipped"]) == (True, 120, 100, 20)
    assert found["skipped_by_reason"] == [{"reason": "misfire_capped", "count": 20}]
    lost = [row for row in executions_of(conn, acme, schedule) if row["trigger"] == "catch_up"][-10]
    tenancies = [registry.by_id[acme.pk]]
    assert not list(run_all(conn, registry, tenancies, dry_run=True))
    lose(conn, acme, lost["id"])
    [told] = run_all(conn, registry, tenancies, dry_run=False)
    assert (told.check, told.object_id) == ("incomplete", schedule), "reconcile tells it and leaves it"
    found = api.get(f"{path}?{given}").body
    at = f"{lost['nominal_at']:%Y-%m-%dT%H:%M:%SZ}"
    assert found["gaps"] == [{"version": 1, "first_at": at, "last_at": at, "count": 1}]
    code, printed = command(acme, "--schedule", str(schedule), "--from", f"{begins:%Y-%m-%dT%H:%M:%SZ}")
    assert (code, printed["schedules"][0]["missing"]) == (1, 1)
    code, printed = command(acme, "--all")
    assert (code, printed["looked_at"], printed["incomplete"]) == (1, 2, 1)

    would = api.post(f"{path}/repair", {"dry_run": True}).body
    assert (would["made"], would["before"]["missing"]) == (1, 1)
    done = api.post(f"{path}/repair", {"from": f"{begins:%Y-%m-%dT%H:%M:%SZ}"}).body
    assert (done["made"], done["skipped"], done["is_put_back"]) == (1, 0, False)
    assert api.get(path).body["is_complete"] and command(acme, "--all", "--repair")[0] == 0

    often = make_schedule(acme, cron="* * * * * *", now=begins - timedelta(hours=12))
    assert api.get(f"schedules/{often}/completeness?to={begins:%Y-%m-%dT%H:%M:%SZ}").body["pending"] == 43_199
    refused = api.get(f"schedules/{often}/completeness")
    assert (refused.status, refused.faults) == (400, {"?from": "range"})
    refused = api.get(f"{path}?from={now:%Y-%m-%dT%H:%M:%SZ}&to={begins:%Y-%m-%dT%H:%M:%SZ}")
    assert (refused.status, refused.faults) == (400, {"?to": "range"})
    assert api.get(f"{path}?from=2400-01-01T00:00:00Z").faults == {"?from": "range"}, "there is no `to` to blame"
    assert api.post(f"{path}/repair", {"from": "2400-01-01T00:00:00Z"}).faults == {"/from": "range"}
    refused = api.post(f"{path}/repair", {"how": "guess", "from": "yesterday"})
    assert (refused.status, refused.faults) == (400, {"/how": "choice", "/from": "format"})
    with pytest.raises(SystemExit) as ended:
        call_command("completeness", "--tenant", acme.slug, "--schedule", "x")
    assert ended.value.code == 2
    versions = api.get(f"schedules/{schedule}/versions").body["items"]
    assert versions[0]["decides_after"] == f"{begins:%Y-%m-%dT%H:%M:%SZ}" and versions[0]["decides_until"] is None
