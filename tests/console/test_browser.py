"""Limits, pools and explanations in a real browser, for operators and for a tenant, where all names are hostile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

from tests.explain.situations import as_many_as_the_job_allows_run
from tests.explain.situations_schedules import its_last_occurrence_was_skipped
from tests.explain.stage import Stage
from tests.fixtures_browser import LOOKS, RULES, Tab, Web, made_member
from tests.fixtures_people import PASSWORD
from tests.fixtures_portal import HOSTILE

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

LONG = "reconcile-the-ledgers-of-all-european-subsidiaries-" * 4
NAME_CHARS = 164  # with the id of its row 200, as many as a name may have
WIDE, NARROW = (1280, "light"), (390, "dark")
# What a page hides because it is wider than its place; lists and tables that scroll are meant to.
CUT = """
[...document.querySelectorAll(".form-row, .card")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.outerHTML)
"""


@pytest.fixture
def stage(acme: Tenant, conn: psycopg.Connection[Any], registry: Registry, plan: Callable[..., None]) -> Stage:
    plan(max_running=40)
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    made = Stage(conn, acme, registry, plan, row[0])
    made.serve()
    conn.execute(
        "INSERT INTO tenants_planpool (plan_id, pool, reserved_slots, max_slots) VALUES (%s, 'python', 2, 5)",
        [acme.plan_id],
    )
    return made


def test_pages_of_limits_and_causes_are_clean(stage: Stage, web: Web) -> None:
    run = as_many_as_the_job_allows_run(stage)[1]
    schedule = its_last_occurrence_was_skipped(stage)[1]
    [(job,)] = stage.conn.execute("SELECT job_id FROM tickets_ticket WHERE execution_id = %s", [run]).fetchall()
    for table in ("schedules_job", "schedules_schedule"):
        stage.conn.execute(
            f"UPDATE {stage.tenant.schema_name}.{table} SET name = left(%s, {NAME_CHARS}) || id::text",
            [HOSTILE + LONG],
        )
    stage.conn.execute(
        "UPDATE tenants_tenant SET name = left(%s, 200) WHERE id = %s", [HOSTILE + LONG, stage.tenant.pk]
    )
    of_tenant, plan = "/t/acme/admin", f"/admin/tenants/plan/{stage.tenant.plan_id}/change/"
    instant = quote(HOSTILE[:9])
    with web.tab("localhost") as tab:
        tab.open("/admin/login/")
        found = tab.findings()
        log_in(tab)
        found += looked_at(tab, [
            "/admin/tickets/ticket/", plan, "/admin/tickets/subscription/add/",
            "/admin/simulate/?source=15&changes=tenant.acme.weight%3D3",
            f"{of_tenant}/executions/execution/{run}/explain/",
            f"{of_tenant}/schedules/schedule/{schedule}/explain/?at={instant}",
            f"/admin/tenants/tenant/{stage.tenant.pk}/delete/", f"{of_tenant}/archive/legalhold/add/",
            f"{of_tenant}/executions/execution/{run}/erase/",
        ])  # fmt: skip
    with web.tab("acme.localhost") as tab:
        tab.sign_in(made_member(stage.tenant, "admin"), PASSWORD)
        found += looked_at(tab, [
            f"/console/executions/{run}/explain", f"/console/schedules/{schedule}/explain?at={instant}",
            f"/console/jobs/{job}/edit", "/console/usage",
        ])  # fmt: skip
    assert not found, "\n".join(found)


def looked_at(tab: Tab, paths: Sequence[str]) -> list[str]:
    """What is wrong with them, wide and light as well as narrow and dark."""
    found = []
    for path in paths:
        for width, scheme in (WIDE, NARROW):
            tab.page.set_viewport_size({"width": width, "height": 900})
            tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            if scheme == "light":
                tab.open(path)
            seen = [
                *tab.findings(RULES if scheme == "light" else LOOKS),
                *(f"cut off: {one[:200]}" for one in tab.page.evaluate(CUT)),
            ]
            found += [f"{path} {width} {scheme}: {one}" for one in seen]
    return found


def log_in(tab: Tab, login: str = "ada", *, to: str = "/admin/") -> None:
    """From the page of the login on; `to` is what it leads to. Who is not there is made, and may do all."""
    from django.contrib.auth.hashers import PBKDF2PasswordHasher
    from django.contrib.auth.models import User

    User.objects.get_or_create(username=login, defaults={"is_staff": True, "is_superuser": True})
    kept = PBKDF2PasswordHasher().encode(PASSWORD, "salt", iterations=1_000)
    User.objects.filter(username=login).update(password=kept)
    tab.page.get_by_label("Username").fill(login)
    tab.page.get_by_label("Password").fill(PASSWORD)
    tab.page.get_by_role("button", name="Log in").click()
    tab.page.wait_for_url(f"{tab.base}{to}")
