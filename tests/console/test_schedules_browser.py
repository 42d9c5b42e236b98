"""Schedules in a real browser: what the preview shows is what runs, and past ones run while it is paused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import wait_until
from tests.console.test_browser import log_in
from tests.fixtures_browser import Tab, Web
from tests.fixtures_flow import fire_all, make_job, make_schedule

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry
    from tests.processes import Processes

Conn = psycopg.Connection[Any]
BASE = "/t/acme/admin/schedules/"
BERLIN = "Europe/Berlin"


def last_sunday(year: int, month: int) -> datetime:
    """The day on which Berlin's clock changes."""
    end = datetime(year, month, 31, tzinfo=UTC)
    return end - timedelta(days=(end.weekday() + 1) % 7)


def previewed(tab: Tab) -> list[tuple[str, str, str]]:
    """What the preview says: local time with offset, UTC, notes."""
    tab.page.wait_for_selector("#preview .runs")
    return [
        (f"{row.locator('.local').inner_text()}{row.locator('.offset').inner_text()}",
         row.locator(".at").inner_text(), " ".join(row.locator(".said").all_inner_texts()))
        for row in tab.page.locator("#preview .runs tbody tr").all()
    ]  # fmt: skip


def made(tab: Tab, job: UUID, name: str, **given: str) -> tuple[UUID, list[tuple[str, str, str]]]:
    """A schedule made in the browser, and what was shown before; there is a preview before there is a name."""
    tab.open(f"{BASE}new/?job={job}")
    for field, value in given.items():
        tab.page.locator(f"#id_{field}").fill(value)
    shown, seen = previewed(tab), tab.page.locator("#preview input[name=seen]")
    before = seen.input_value()
    tab.page.locator("#id_name").fill(name)
    wait_until(lambda: seen.input_value() != before, "the preview to follow the form")
    tab.page.get_by_role("button", name="Make the schedule").click()
    tab.page.wait_for_selector("text=It is made, and due from now on.")
    return UUID(tab.page.url.partition("?")[0].rstrip("/").split("/")[-1]), shown


def test_what_the_preview_shows_is_what_runs(acme: Tenant, conn: Conn, registry: Registry, web: Web) -> None:
    """Through both clock changes, the driven clock stopping at each instant that was shown."""
    year = datetime.now(UTC).year + 1
    gap, fold = last_sunday(year, 3), last_sunday(year, 10)
    job = make_job(acme)
    with web.tab("localhost") as tab:
        tab.open("/admin/login/")
        log_in(tab)
        starts = [f"{day:%Y-%m-%dT%H:%M}" for day in (gap - timedelta(days=2), fold - timedelta(hours=2))]
        schedules = [
            made(tab, job, "in the gap", cron="30 2 * * *", timezone=BERLIN, start_at=starts[0]),
            made(tab, job, "both passes", cron="*/30 1-3 * * *", timezone=BERLIN, start_at=starts[1]),
        ]
        assert f"{gap:%Y-%m-%d} 03:00:00+02:00" in schedules[0][1][2][0]
        assert "the clock skips its time; it runs right after" in schedules[0][1][2][2]
        passes = [local for local, _, _ in schedules[1][1] if local.startswith(f"{fold:%Y-%m-%d} 02:30")]
        assert passes == [f"{fold:%Y-%m-%d} 02:30:00+02:00", f"{fold:%Y-%m-%d} 02:30:00+01:00"]
        for schedule, shown in schedules:
            instants = [datetime.fromisoformat(f"{at}+00:00") for _, at, _ in shown]
            for at in instants:
                fire_all(conn, registry, now=at)
            assert ran(conn, acme, schedule) == instants, "each that was shown, once, and no other"
            tab.open(f"{BASE}{schedule}/")
            assert "20 ready" in (tab.page.locator("svg.strip").get_attribute("aria-label") or "")


@pytest.mark.timeout(180)
def test_it_stands_still_while_its_past_runs(acme: Tenant, conn: Conn, web: Web, processes: Processes) -> None:
    """Pause with a reason, backfill, resume: in the browser, with a dispatcher and a worker."""
    processes.dispatcher()
    processes.worker()
    schedule = make_schedule(acme, cron="* * * * * *", now=datetime.now(UTC), name="each second")
    with web.tab("localhost") as tab:
        page, content = tab.page, tab.page.locator("#content")
        tab.open("/admin/login/")
        log_in(tab)
        wait_until(lambda: states(conn, acme, schedule).count("succeeded") >= 2, "runs of each second")
        tab.open(f"{BASE}{schedule}/")
        content.get_by_role("link", name="Pause", exact=True).click()
        page.get_by_label("Reason").fill("looking at it")
        content.get_by_role("button", name="Pause", exact=True).click()
        page.wait_for_selector("text=each second is paused.")
        before = states(conn, acme, schedule)
        content.get_by_role("link", name="See it", exact=True).click()
        said = page.inner_text("#content")
        assert "by admin:ada: looking at it" in said and "stays so until somebody resumes it" in said
        content.get_by_role("link", name="Backfill", exact=True).click()
        page.get_by_label("From:").fill("2024-02-01T00:00:00")
        page.get_by_label("To:").fill("2024-02-01T00:00:05")
        page.get_by_label("Reason").fill("the report lacks them")
        content.get_by_role("button", name="Show what it would do", exact=True).click()
        page.wait_for_selector("text=Would run")
        assert "5" in page.locator("tr", has_text="Would run").inner_text()
        content.get_by_role("button", name="Backfill", exact=True).click()
        page.wait_for_selector("text=The backfill was asked for")
        wait_until(lambda: states(conn, acme, schedule, "backfill").count("succeeded") == 5, "the backfill to be done")
        assert len(states(conn, acme, schedule)) == len(before), "it stood still all the while"
        tab.open(f"{BASE}{schedule}/")
        content.get_by_role("link", name="Resume", exact=True).click()
        page.get_by_label("Reason").fill("seen enough")
        content.get_by_role("button", name="Resume", exact=True).click()
        page.wait_for_selector("text=each second goes on.")
        wait_until(lambda: len(states(conn, acme, schedule)) > len(before), "it to go on")


def ran(conn: Conn, tenant: Tenant, schedule: UUID) -> list[datetime]:
    """The instants of its runs."""
    query = "SELECT nominal_at FROM {}.executions_execution WHERE schedule_id = %s AND state <> 'skipped' ORDER BY 1"
    return [row[0] for row in conn.execute(query.format(tenant.schema_name), [schedule])]


def states(conn: Conn, tenant: Tenant, schedule: UUID, trigger: str = "schedule") -> list[str]:
    """Of its executions with this trigger."""
    query = "SELECT state FROM {}.executions_execution WHERE schedule_id = %s AND trigger = %s"
    return [row[0] for row in conn.execute(query.format(tenant.schema_name), [schedule, trigger])]
