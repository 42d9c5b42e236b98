"""All pages of operators in a real browser: axe-clean light and dark, wide and narrow; by keyboard; without script.

Each page of pages_list.py is looked at with everything that a browser complains about: errors, the policy, requests to
somebody else, 5xx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.console.pages_list import PAGES, TABLES
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
    paths = list(enumerate(world(acme, conn, registry).paths((*PAGES, *TABLES))))
    found: list[str] = []
    with web.tab("localhost") as tab:
        signed_in(tab)
        for width, dark in ALL if looks == "each page in all" else (LIGHT, DARK):
            tab.page.set_viewport_size({"width": width, "height": 900})
            tab.page.emulate_media(color_scheme="dark" if dark else "light")
            for number, path in paths:
                if looks == "each page in all" or number % 2 == dark:
                    found += [f"{path} {width} {'dark' if dark else 'light'}: {one}" for one in seen(tab, path, dark)]
    assert not found, "\n".join(found)


def seen(tab: Tab, path: str, dark: bool) -> list[str]:
    """What is wrong with one page."""
    answer = tab.page.goto(f"{tab.base}{path}")
    assert answer is not None
    told = [*tab.complaints, *([] if answer.status == 200 else [f"status {answer.status}"])]
    tab.complaints.clear()
    return [*told, *(tab.findings(LOOKS if dark else RULES) if answer.status == 200 else [])]


def test_by_keyboard_and_without_script(
    acme: Tenant, conn: psycopg.Connection[Any], registry: Registry, web: Web
) -> None:
    kept = stock(acme, conn, registry)
    with web.tab("localhost") as tab:
        signed_in(tab)
        by_keyboard(tab, str(kept.waiting))
        assert not tab.complaints, tab.complaints
    with web.tab("localhost", script=False, width=390) as tab:
        signed_in(tab)
        without_script(tab, str(kept.schedule))


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
