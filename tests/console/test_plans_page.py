"""Plans in the admin: reserved slots and maximum by pool, rates and groups, each change in the trail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.console.conftest import hidden_of, save
from tests.fixtures_flow import live_worker

Conn = psycopg.Connection[Any]
ADD = "/admin/tenants/plan/add/"
PLAN = {
    "name": "dedicated", "weight": "2", "own_queue": "on", "min_interval_s": "1", "max_payload_bytes": "262144",
    "retention_days": "30", "archive_days": "0", "max_runs_per_min": "60", "runs_burst": "5", "worker_group": "gold",
    "pools-TOTAL_FORMS": "1", "pools-INITIAL_FORMS": "0", "pools-0-pool": "http", "pools-0-reserved_slots": "3",
    "pools-0-max_slots": "10",
}  # fmt: skip


@pytest.fixture(autouse=True)
def plans(database: None) -> Iterator[None]:
    from tenants.models import Plan

    yield
    Plan.objects.filter(name="dedicated").delete()


def told(page: Any, where: str) -> str:
    """What the next page says."""
    return " ".join(page.get(where).content.decode().split())


def trail(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT action, before, after FROM audit_auditevent WHERE action LIKE 'plan.%' ORDER BY id"
    ).fetchall()


def test_slots_by_pool_are_kept_with_their_trail(page: Any, conn: Conn) -> None:
    from tenants.models import Plan, PlanPool

    assert page.post(ADD, PLAN).status_code == 302
    plan = Plan.objects.get(name="dedicated")
    assert (plan.max_runs_per_min, plan.runs_burst, plan.worker_group) == (60, 5, "gold")
    assert list(PlanPool.objects.values_list("pool", "reserved_slots", "max_slots")) == [("http", 3, 10)]
    slots = PlanPool.objects.get()
    change = {
        **PLAN, "weight": "4", "retention_days": "31", "pools-INITIAL_FORMS": "1", "pools-0-id": str(slots.pk),
        "pools-0-plan": str(plan.pk), "pools-0-reserved_slots": "0",
    }  # fmt: skip
    path = f"/admin/tenants/plan/{plan.pk}/change/"
    before = page.get(path)
    assert "/admin/do/plan.quota/dedicated/" in before.content.decode(), "which alone changes its weight"
    assert save(page, path, change).status_code == 302
    late = page.post(path, {**hidden_of(before), **change, "retention_days": "9"})
    assert late.status_code == 409 and "slots" in late.content.decode(), "of the rows below it, too"
    assert save(page, path, {**change, "pools-0-DELETE": "on"}).status_code == 302
    made, changed, removed = trail(conn)
    assert made[0] == "plan.create" and made[2]["slots"] == {"http": {"reserved_slots": 3, "max_slots": 10}}
    assert changed[1] == {"retention_days": 30, "slots": {"http": {"reserved_slots": 3, "max_slots": 10}}}
    assert changed[2] == {"retention_days": 31, "slots": {"http": {"reserved_slots": 0, "max_slots": 10}}}
    assert (removed[1], removed[2]) == ({"slots": changed[2]["slots"]}, {"slots": {}})
    assert page.post(f"/admin/tenants/plan/{plan.pk}/delete/", {"post": "yes"}).status_code == 302


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"pools-0-max_slots": "2"}, "At least as many as are reserved: 3."),
        ({"pools-0-max_slots": "0", "pools-0-reserved_slots": "0"}, "greater than or equal to 1"),
        ({"pools-0-pool": "pull"}, "Select a valid choice"),
        ({"max_runs_per_min": ""}, "Of which rate?"),
        ({"runs_burst": "0"}, "greater than or equal to 1"),
        ({"worker_group": "No Name"}, "valid value"),
    ],
)
def test_what_can_not_be_is_refused_where_it_stands(page: Any, wrong: dict[str, str], text: str) -> None:
    from tenants.models import Plan

    response = page.post(ADD, {**PLAN, **wrong})
    assert response.status_code == 200
    assert text in " ".join(response.content.decode().split())
    assert not Plan.objects.filter(name="dedicated").exists()


def test_more_reserves_than_slots_are_told(page: Any, conn: Conn, acme: Any) -> None:
    from apps.dispatch.reserves import overbooked
    from tenants.models import PlanPool, Tenant

    live_worker(conn, slots=4, queues=["http.own.acme"], pool="http")
    PlanPool.objects.create(plan=acme.plan, pool="http", reserved_slots=4)
    tenants = Tenant.objects.filter(plan=acme.plan, status="active").count()
    try:
        assert [tuple(one) for one in overbooked(conn)] == ([("http", "", 4 * tenants, 4)] if tenants > 1 else [])
        assert page.post(ADD, PLAN).status_code == 302
        expected = f"Pool http has 4 live slots, and {4 * tenants} are reserved"
        assert (expected in told(page, "/admin/tenants/plan/")) == (tenants > 1)
        Tenant.objects.filter(pk=acme.pk).update(worker_group="gold")
        assert ("http", "gold", 4, 0) in [tuple(one) for one in overbooked(conn)]
    finally:
        Tenant.objects.filter(pk=acme.pk).update(worker_group="")
        PlanPool.objects.all().delete()
