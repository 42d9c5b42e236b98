"""A bulk replay that a crash interrupts, and a failed run that is mended on its graph: by an operator, in a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.console.test_browser import log_in
from tests.executors.receiver import Receiver
from tests.fixtures_browser import Tab, Web
from tests.fixtures_flow import NOW, actor, executions_of, make_job, settle_as, started_now
from tests.processes import kill
from tests.workflows.engine import make_workflow, step

if TYPE_CHECKING:
    from apps.operations.models import Operation
    from tenants.models import Tenant
    from tenants.registry import Registry
    from tests.processes import Processes

Conn = psycopg.Connection[Any]
LETTERS = 40
RATE = "15"
BASE = "/t/acme/admin"


@pytest.mark.timeout(300)  # real processes, one of them killed
def test_a_replay_goes_on_after_a_crash_and_a_failed_run_is_retried(
    acme: Tenant, conn: Conn, registry: Registry, receiver: Receiver, web: Web, processes: Processes,
    wait_for: Callable[..., object],
) -> None:  # fmt: skip
    dead = deaths(conn, registry, acme, receiver.url())
    failing = make_job(acme, kind="http", target={"url": receiver.url("/status/500")}, retry={"max_attempts": 1})
    run = begin(acme, make_workflow(acme, [step("extract"), step("load", "extract", job=str(failing)),
                                           step("report", "load")]))  # fmt: skip
    victim = processes.dispatcher()
    processes.worker()
    with web.tab("localhost") as tab:
        tab.open("/admin/login/")
        log_in(tab)
        tab.open(f"{BASE}/dead-letters/")
        tab.page.get_by_role("link", name="Replay all").first.click()
        tab.page.get_by_label("Rate per s").fill(RATE)
        does(tab, "Replay all", "the target is up again")
        operation = the_operation(acme)
        wait_for(lambda: now_of(acme, operation).succeeded > LETTERS // 10, "the first of them")
        kill(victim)
        left = now_of(acme, operation)
        tab.page.get_by_role("link", name="See it").click()
        assert f"of at most {RATE}" in tab.page.inner_text("#content") and left.pending
        tab.page.get_by_role("link", name="Pause", exact=True).click()
        does(tab, "Pause", "a dispatcher has died")
        processes.dispatcher()
        wait_for(lambda: now_of(acme, operation).running == 0, "what ran to end")
        stands = now_of(acme, operation)
        assert (stands.state, stands.pending > 0) == ("paused", True)
        tab.open("/admin/operations/")
        assert "the target is up again" in tab.page.inner_text("#content table")
        tab.page.get_by_role("link", name="Resume", exact=True).click()
        does(tab, "Resume", "another one is there")
        wait_for(lambda: now_of(acme, operation).finished_at is not None, "the end")
        tab.page.get_by_role("link", name="See it").click()
        assert "completed" in tab.page.inner_text(".lead") and f"succeeded {LETTERS}" in tab.page.inner_text("#content")
        assert f"/t/acme/admin/operations/{operation}/" not in links(tab, "/admin/operations/")
        assert f"/t/acme/admin/operations/{operation}/" in links(tab, "/admin/operations/?show=ended")
        came = Counter(one.headers["idempotency-key"] for one in receiver.requests if one.path == "/ok")
        assert set(came.values()) == {1} and len(came) == LETTERS, "each exactly once"
        states = Counter(one["state"] for one in executions_of(conn, acme) if one["id"] in set(dead))
        assert states == {"succeeded": LETTERS}

        wait_for(lambda: state_of(conn, run) == "failed", "the run to fail")
        tab.open(f"{BASE}/workflow-runs/?state=failed")
        tab.page.get_by_role("row").filter(has_text=str(run)[-6:]).get_by_role("link").click()
        graph = tab.page.locator("svg.graph")
        assert colours(tab) == ["step-succeeded", "step-failed", "step-skipped"]
        graph.get_by_role("link", name="load (job): failed").click()
        marked = tab.page.locator("tr:target")
        assert "load" in marked.inner_text() and "failed" in marked.inner_text()
        mend(acme, failing, receiver.url())
        tab.page.get_by_role("link", name="Retry failed and downstream").click()
        does(tab, "Retry failed and downstream", "the address was wrong")
        wait_for(lambda: state_of(conn, run) == "succeeded", "the run to succeed")
        tab.page.get_by_role("link", name="See it").click()
        assert colours(tab) == ["step-succeeded"] * 3 and tab.page.locator("svg.gantt").count() == 3


def does(tab: Tab, label: str, reason: str) -> None:
    """On a verb's page: looks, says why, does, and is at the receipt."""
    form = tab.page.locator("form.verb-form")
    form.get_by_label("Reason").fill(reason)
    look = form.get_by_role("button", name="Show what it would do")
    if look.count():
        look.click()
    form.get_by_role("button", name=label, exact=True).click()
    tab.page.locator("p[role=status]").wait_for()


def links(tab: Tab, path: str) -> list[str]:
    tab.open(path)
    found: list[str] = tab.page.eval_on_selector_all("#content table a", "all => all.map(a => a.getAttribute('href'))")
    return found


def colours(tab: Tab) -> list[str]:
    """Of the steps in the graph, from its beginning to its end."""
    found: list[str] = tab.page.eval_on_selector_all(
        "svg.graph rect.step", "all => all.map(one => one.getAttribute('class').split(' ')[1])"
    )
    return found


def deaths(conn: Conn, registry: Registry, tenant: Tenant, url: str) -> list[UUID]:
    """So many executions that died at their target, of one cause."""
    from apps.schedules.running import Run, Start, runs_start, share_job
    from tenants.work import in_tenant

    job = make_job(tenant, kind="http", target={"url": url}, retry={"max_attempts": 1})
    run = Run(trigger="api", fired_by="test")
    ids = in_tenant(tenant, lambda: runs_start(tenant, [Start(share_job(tenant, job), run)] * LETTERS, now=NOW))
    error = {"class": "http", "status": 500, "message": "down"}
    settle_as(conn, registry, started_now(conn, ids, UUID(int=1)), "failed", retryable=False, error=error)
    return list(ids)


def begin(tenant: Tenant, workflow: UUID) -> UUID:
    from apps.schedules.running import Run, run_start, share_job
    from tenants.work import database_now, in_tenant

    run = Run(trigger="api", fired_by="test")
    made: UUID = in_tenant(tenant, lambda: run_start(tenant, share_job(tenant, workflow), run, now=database_now()))
    return made


def the_operation(tenant: Tenant) -> UUID:
    from apps.operations.models import Operation
    from tenants.work import in_tenant

    found: UUID = in_tenant(tenant, lambda: Operation.objects.get(action="replay").pk)
    return found


def now_of(tenant: Tenant, operation: UUID) -> Operation:
    """While a dispatcher works on it."""
    from apps.operations.models import Operation
    from tenants.work import in_tenant

    found: Operation = in_tenant(tenant, lambda: Operation.objects.get(pk=operation))
    return found


def state_of(conn: Conn, run: UUID) -> str:
    row = conn.execute("SELECT state FROM t_acme.workflows_run WHERE execution_id = %s", [run]).fetchone()
    return str(row[0]) if row else ""


def mend(tenant: Tenant, job: UUID, url: str) -> None:
    """A new version of the job: what is retried runs that."""
    from apps.schedules.services import job_update
    from tenants.work import database_now

    job_update(tenant=tenant, actor=actor(tenant), job_id=job, patch={"target": {"url": url}}, now=database_now())
