"""All pages of operators in a real browser: axe-clean light and dark, wide and narrow; by keyboard; without script.

Each page of pages_list.py is looked at with everything that a browser complains about: errors, the policy, requests to
somebody else, 5xx.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.pages_list import MISSING, PAGES, TABLES, World
from tests.console.test_browser import log_in
from tests.console.world import world
from tests.fixtures_browser import LOOKS, RULES, Tab, Web
from tests.portal.stock import stock

if TYPE_CHECKING:
    import psycopg

    from tenants.models import Tenant
    from tenants.registry import Registry

LIGHT, DARK = (1280, False), (390, True)
ALL = (LIGHT, DARK, (390, False), (1280, True))


def signed_in(tab: Tab, *, to: str = "/admin/") -> None:
    tab.open(f"/admin/login/?next={to}")
    log_in(tab)


@pytest.mark.timeout(600)  # some fifty pages, each looked at by axe
@pytest.mark.parametrize("looks", ["each page in one", pytest.param("each page in all", marks=pytest.mark.long)])
def test_every_page_is_clean(
    acme: Tenant, conn: psycopg.Connection[Any], registry: Registry, web: Web, looks: str
) -> None:
    known = world(acme, conn, registry)
    paths = list(enumerate(known.paths((*PAGES, *TABLES))))
    found: list[str] = []
    with web.tab("localhost") as tab:
        signed_in(tab)
        for width, dark in ALL if looks == "each page in all" else (LIGHT, DARK):
            dressed(tab, width, dark)
            for number, path in paths:
                if looks == "each page in all" or number % 2 == dark:
                    found += [f"{path} {width} {'dark' if dark else 'light'}: {one}" for one in seen(tab, path, dark)]
        for name in rare(tab, conn, known, slow=looks == "each page in all"):
            for width, dark in (LIGHT, DARK):
                dressed(tab, width, dark)
                found += [f"{name} {width}: {one}" for one in tab.findings(LOOKS if dark else RULES)]
    assert not found, "\n".join(found)


def dressed(tab: Tab, width: int, dark: bool) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.emulate_media(color_scheme="dark" if dark else "light")


def seen(tab: Tab, path: str, dark: bool) -> list[str]:
    """What is wrong with one page."""
    answer = tab.page.goto(f"{tab.base}{path}")
    assert answer is not None
    told = [*tab.complaints, *([] if answer.status == 200 else [f"status {answer.status}"])]
    tab.complaints.clear()
    return [*told, *tab.findings(LOOKS if dark else RULES)]


def rare(tab: Tab, conn: psycopg.Connection[Any], known: World, *, slow: bool) -> Iterator[str]:
    """Goes to what no address alone leads to, and names it. Receipts and refusals: test_roles_browser.py."""
    page, slug = tab.page, known.slug
    tab.expected += ["status of 400", "status of 409"]
    for path in known.paths(MISSING):
        tab.open(path, status=404)
        yield path
    for path, name, says in (
        (f"/t/{slug}/admin/schedules/new/", "Make the schedule", "main [role=alert]:not([hidden])"),
        (f"/t/{slug}/admin/do/schedule.backfill/{known.schedule}/", "Backfill", ".errorlist"),
    ):
        tab.open(path)
        button = page.get_by_role("button", name=name, exact=True)
        button.evaluate("one => one.form.noValidate = true")
        button.click()
        page.wait_for_selector(says)
        yield f"{path} with faults"
    path = f"/admin/do/tenant.pause/{slug}/"
    tab.open(path)
    conn.execute("UPDATE tenants_tenant SET dispatch_paused = true WHERE slug = %s", [slug])
    page.get_by_label("Reason").fill("at the same time")
    page.get_by_role("button", name="Pause dispatch").click()
    page.wait_for_selector("text=What has changed")
    yield f"{path} when it has changed"
    if slow:  # three seconds each
        tab.expected.append("status of 503")
        for path in (f"/t/{slug}/admin/executions/", f"/t/{slug}/admin/executions/execution/"):
            with conn.transaction():
                conn.execute(f"LOCK TABLE t_{slug}.executions_execution")
                tab.open(path, status=503)
            yield f"{path} when it takes too long"


def test_by_keyboard_and_without_script(
    acme: Tenant, conn: psycopg.Connection[Any], registry: Registry, web: Web
) -> None:
    kept = stock(acme, conn, registry)
    with web.tab("localhost") as tab:
        signed_in(tab)
        by_keyboard(tab, str(kept.waiting))
    with web.tab("localhost", script=False, width=390) as tab:
        signed_in(tab)
        without_script(tab, str(kept.schedule))
    with pytest.raises(AssertionError, match=r"status of 404 by .*/nothing/'"), web.tab("localhost") as tab:
        tab.page.goto(f"{tab.base}/nothing/")  # what nobody asked about is noticed


def by_keyboard(tab: Tab, run: str) -> None:
    """From the first page to the end of a run, without a mouse."""
    page, press, text = tab.page, tab.page.keyboard.press, tab.page.keyboard.type
    press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
    press("Enter")
    assert page.evaluate("document.activeElement.id") == "content-start"
    press("y")  # the sentence, on whatever page
    page.wait_for_url("**/admin/cause/?code=*#*")
    press("g")
    press("l")
    page.wait_for_url("**/admin/live/")
    press("?")
    assert "Live" in page.locator("dialog#keys[open]").inner_text()
    assert not tab.findings(), tab.findings()
    press("Space")  # the switch has the focus: single keys are off, for whoever dictates
    press("Escape")
    press("g")
    press("o")
    press("/")
    assert page.url.endswith("/admin/live/") and not page.locator("dialog[open]").count()
    page.get_by_role("button", name="Keys").focus()
    press("Enter")
    press("Space")
    press("Escape")

    press("/")
    text("workers")
    page.wait_for_selector("#palette .found a >> text=Workers & queues")
    assert not tab.findings(), tab.findings()
    press("Escape")
    press("Control+k")
    page.locator("#palette-q").fill("")
    text(run)
    page.wait_for_selector(f"#palette .found a >> text={run}")
    press("ArrowDown")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid", "what has the focus shows it"
    press("Enter")
    page.wait_for_url(f"**/t/acme/admin/executions/{run}/")
    press("c")
    page.wait_for_url("**/do/execution.cancel/**")
    page.locator("[name=reason]").focus()
    text("by keyboard")
    press("Tab")
    press("Enter")
    page.wait_for_selector("text=cancelled")


def without_script(tab: Tab, schedule: str) -> None:
    """Finding, filtering, keeping the view, and a verb, on a phone."""
    page = tab.page
    page.get_by_role("link", name="Find").click()
    page.locator("#find-q").fill(schedule)
    page.locator("main").get_by_role("button", name="Find").click()
    page.locator(".found a").first.click()
    page.wait_for_url(f"**/t/acme/admin/schedules/{schedule}/")
    page.locator("details.menu summary").click()
    page.get_by_role("navigation", name="Places, menu").get_by_role("link", name="Executions").click()
    page.locator(".chips").get_by_role("link", name="dead", exact=True).click()
    assert page.locator("main tbody tr").count() == 1
    page.get_by_role("link", name="Save view").click()
    page.get_by_label("Name", exact=True).fill("Failed for good")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/t/acme/admin/executions/?*state=dead*")
    page.locator("details.menu summary").click()
    assert page.get_by_role("navigation", name="Places, menu").get_by_role("link", name="Failed for good").is_visible()
    page.locator("main tbody a").first.click()
    page.get_by_role("link", name="Run again").click()
    page.locator("[name=reason]").fill("once more")
    page.get_by_role("button", name="Run again").click()
    assert "once more" in page.inner_text("main") or "Audit" in page.inner_text("main")
