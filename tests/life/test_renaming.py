"""Another slug, name or host: nothing that waits or runs is lost, keys and answers stay, and the old slug is free."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from apps.audit.services import Actor
from apps.dispatch.release import ReleaseService
from apps.tickets.subscriptions import Scope, subscription_tell
from kernel.errors import Conflict, InvalidInput
from tenants.keys import apikey_create
from tenants.models import Domain, Plan, Tenant
from tenants.registry import Registry
from tenants.renaming import tenant_rename
from tests.fixtures_api import Api
from tests.fixtures_flow import (
    NOW,
    assert_exactly_one_outcome,
    live_worker,
    make_ticket,
    owning,
    queue_of,
    release,
    remove_tenant,
    settle_as,
    start,
    ticket_of,
)
from tests.tenants.test_commands import run

Conn = psycopg.Connection[Any]
Make = Callable[..., Tenant]
OPERATOR = Actor(name="test:operator", role="admin")
JOB = {"name": "hello", "kind": "http", "target": {"url": "https://example.com/"}}


def test_what_is_queued_and_what_runs_goes_on(
    releaser: Callable[..., ReleaseService], conn: Conn, registry: Registry, new_tenant: Make
) -> None:
    """Workers and dispatcher may know the old name for seconds, or the new one, in any order."""
    tenant = new_tenant("old-name")
    old, service = queue_of(registry, tenant), releaser()
    worker = live_worker(conn, queues=[old])
    first = make_ticket(tenant)
    [message] = release(service)
    runs = start(conn, [message], worker)
    queued = make_ticket(tenant)
    [bell] = release(service)
    assert [message.queue, bell.queue] == [old, old] == ["python.own.old-name"] * 2
    done = tenant_rename(tenant=tenant, actor=OPERATOR, now=NOW, slug="new-name")
    assert ("python.own.old-name", "python.own.new-name") in done.queues
    for known in (registry, service._registry):
        known.refresh(force=True)
    new = queue_of(registry, tenant)
    later = make_ticket(tenant)
    assert release(service) == [], "nobody listens to the new queue yet, and what is queued on the old one may start"
    assert ticket_of(conn, queued)["state"] == "queued"
    live_worker(conn, worker=worker, queues=[new])
    messages = release(service) + release(service)
    assert {one.queue for one in messages} == {new}
    assert start(conn, [bell], worker) == [], "the old doorbell means nothing any more"
    started = start(conn, messages, worker)
    assert {one.execution_id for one in started} == {queued, later}
    settle_as(conn, registry, [*runs, *started])
    for one in (*runs, *started):
        assert_exactly_one_outcome(conn, tenant, one.run_key, state="succeeded")
    assert runs[0].execution_id == first


@pytest.fixture
def successor() -> Iterator[list[Tenant]]:
    made: list[Tenant] = []
    yield made
    with owning():
        for tenant in made:
            remove_tenant(tenant)


def test_keys_answers_and_old_hosts_stay_and_the_slug_is_free(new_tenant: Make, successor: list[Tenant]) -> None:
    tenant = new_tenant("first-name")
    Domain.objects.filter(tenant=tenant).update(domain="first-name.localhost")
    _, key = apikey_create(tenant=tenant, name="k")
    made = Api(key).post("jobs", JOB, **{"Idempotency-Key": "once"})
    wanted = ("tenant_rename", "first-name", "--slug", "second-name", "--name", "Second")
    code, out, err = run(*wanted, "--format", "json", "--dry-run")
    assert (code, err, Tenant.objects.get(pk=tenant.pk).slug) == (0, "", "first-name")
    assert json.loads(out)["after"]["hosts"] == ["second-name.localhost", "first-name.localhost"]
    subscription_tell(scope=Scope(), pattern="http.own.first-name", listens=False, actor=OPERATOR, now=NOW)
    code, out, _ = run(*wanted)
    assert "slug: first-name -> second-name" in out and "queue: http.own.first-name -> http.own.second-name" in out
    assert "Workers were told of http.own.first-name" in out
    again = Api(key).post("jobs", JOB, **{"Idempotency-Key": "once"})
    assert (again.status, again.body["id"]) == (201, made.body["id"])
    for host in ("first-name.localhost", "second-name.localhost"):
        assert Api(key, host=host).get("jobs").status == 200
    with owning():
        code, _, err = run("tenant_create", "first-name")
        assert code == 2 and "already" in err, "its host still leads to the other one"
        assert run("tenant_rename", "second-name", "--drop-hosts")[0] == 0
        assert run("tenant_create", "first-name")[0] == 0
    successor.append(Tenant.objects.select_related("plan").get(slug="first-name"))
    assert (successor[0].schema_name, tenant.schema_name) == ("t_first_name_2", "t_first_name")
    assert Api(key, host="first-name.localhost").get("jobs").code == "key_of_another_tenant"
    assert run("tenant_rename", "second-name", "--slug", "second-name")[1] == "Nothing is to be changed.\n"


def test_what_can_not_be_a_name_is_refused(acme: Tenant, globex: Tenant, conn: Conn) -> None:
    def rename(**changes: Any) -> None:
        tenant_rename(tenant=acme, actor=OPERATOR, now=NOW, **changes)

    for bad in (
        {"slug": "A"},
        {"slug": "api"},
        {"name": ""},
        {"name": "x" * 201},
        {"host": "a:80"},
        {"host": "localhost"},
    ):
        with pytest.raises(InvalidInput):
            rename(**bad)
    for taken in ({"slug": "globex"}, {"host": "globex.localhost"}):
        with pytest.raises(Conflict):
            rename(**taken)
    assert conn.execute("SELECT action FROM audit_auditevent WHERE tenant_id = %s", [acme.pk]).fetchall() == []
    conn.execute("UPDATE tenants_tenant SET status = 'deleting', delete_after = now() WHERE id = %s", [acme.pk])
    with pytest.raises(Conflict):
        rename(name="x")


def test_tenants_are_listed_changed_and_made_once(acme: Tenant, successor: list[Tenant]) -> None:
    Plan.objects.get_or_create(name="other plan")
    try:
        assert run("tenant_change", "acme", "--plan", "no such plan")[0] == 2
        assert run("tenant_change", "acme", "--worker-group", "No Group")[0] == 2
        assert run("tenant_change", "acme", "--plan", "other plan", "--dry-run")[1] == "plan: standard -> other plan\n"
        assert Tenant.objects.get(pk=acme.pk).plan.name == "standard"
        assert run("tenant_change", "acme", "--plan", "other plan", "--worker-group", "vip")[0] == 0
        run("tenant_suspend", "acme", "--reason", "not paid")
        found = json.loads(run("tenant_list", "--status", "suspended", "--format", "json")[1])["tenants"]
        assert [(one["slug"], one["plan__name"], one["reason"], one["host"]) for one in found] == [
            ("acme", "other plan", "not paid", "acme.localhost")
        ]
        assert "globex" in run("tenant_list")[1]
    finally:
        run("tenant_change", "acme", "--plan", "standard", "--worker-group", "")
        Plan.objects.filter(name="other plan").delete()
    for text in ("api_key: sb_", "It is there already."):
        code, out, _ = run("tenant_create", "made-once", "--if-missing")
        assert code == 0 and text in out
    successor.append(Tenant.objects.select_related("plan").get(slug="made-once"))
    assert run("tenant_create", "made-once", "--if-missing", "--host", "other.test")[0] == 2
