"""A staged outage, with real processes: whoever has only the Overview finds each cause and its remedy in two clicks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kernel.clock import utc_now
from tests.console.test_browser import log_in
from tests.fixtures_browser import Tab, Web
from tests.fixtures_flow import make_job, make_ticket
from tests.processes import kill

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tests.processes import Processes

FLOOD, CALLS = 150, 15
DEAD_END = "http://127.0.0.1:9999/orders"  # nobody listens
REMEDIES = (  # what the page says, the verb beside it, and what is so when it is done
    (
        "Tenant globex has .* of what is due", "Pause dispatch",
        "SELECT dispatch_paused FROM tenants_tenant WHERE slug = 'globex'",
    ),
    (
        "Destination 127.0.0.1:9999 fails", "Reset",
        "SELECT NOT EXISTS (SELECT FROM tickets_breaker WHERE state = 'open')",
    ),
)  # fmt: skip
NAP = {"PYTHON_TASKS": "nap=tests.simulate.tasks:nap", "PYTHON_CHILDREN": "2"}


@pytest.mark.timeout(240)
def test_each_cause_and_remedy_is_two_clicks_away(
    acme: Tenant, globex: Tenant, conn: Any, web: Web, processes: Processes, settings: Any,
    wait_for: Callable[..., object],
) -> None:  # fmt: skip
    """One dispatcher is killed, a host of acme's fails, and globex floods the platform, all at once."""
    settings.PYTHON_TASKS = {**settings.PYTHON_TASKS, "nap": "tests.simulate.tasks:nap"}
    first, _ = processes.dispatcher(), processes.dispatcher()
    processes.worker(WORKER_POOLS="http,python", **NAP)
    wait_for(lambda: one(conn, "SELECT count(*) FROM due_dispatcher") == 2, "both dispatchers")
    wait_for(lambda: one(conn, "SELECT count(*) FROM tickets_worker") == 1, "the worker")
    calls = make_job(acme, kind="http", target={"url": DEAD_END, "method": "POST"}, retry={"max_attempts": 1})
    naps = make_job(globex, target={"task": "nap"}, payload={"s": 60})
    for job, tenant, count in ((calls, acme, CALLS), (naps, globex, FLOOD)):
        for _ in range(count):
            make_ticket(tenant, job, now=utc_now())
    wait_for(lambda: one(conn, "SELECT count(*) FROM tickets_breaker WHERE state = 'open'"), "a breaker to open")
    kill(first)
    with web.tab("localhost") as tab:
        tab.open("/admin/login/")
        log_in(tab)
        died = f"A dispatcher died .*:{first.pid}"
        wait_for(lambda: is_told(tab, died), "the killed dispatcher to be told")
        assert "python manage.py dispatcher" in part_of(tab, died).inner_text(), "what to do"
        for cause, verb, done in REMEDIES:
            wait_for(lambda cause=cause: is_told(tab, cause), cause)
            remedy(tab, cause, verb)
            wait_for(lambda done=done: one(conn, done), f"{verb} to be done")


def is_told(tab: Tab, cause: str) -> bool:
    """Whether the page of causes has it already."""
    tab.open("/admin/cause/")
    return re.search(cause, tab.page.inner_text("main")) is not None


def part_of(tab: Tab, cause: str) -> Any:
    """From Overview, one click: the part of the page that names the cause, with its evidence."""
    tab.open("/admin/")
    tab.page.click("[data-live=sentence] .sentence")
    tab.page.wait_for_url("**/admin/cause/**")
    part = tab.page.locator(".cause").filter(has_text=re.compile(cause))
    assert part.locator("tbody tr").count(), "evidence"
    return part


def remedy(tab: Tab, cause: str, verb: str) -> None:
    """The second click: the verb beside the cause, which is then done."""
    page, part = tab.page, part_of(tab, cause)
    part.get_by_role("link", name=re.compile(verb)).first.click()
    page.wait_for_url("**/admin/do/**")
    page.locator("[name=reason]").fill("staged outage")
    page.locator(".verb-form [type=submit]").first.click()
    page.wait_for_selector("h1 >> text=done")  # the receipt


def one(conn: Any, query: str) -> Any:
    row = conn.execute(query).fetchone()
    return row[0] if row else None
