"""The console in a real browser: with and without script, by keyboard, light and dark, wide and narrow, axe-clean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures_browser import Tab, Web, made_member
from tests.fixtures_people import PASSWORD
from tests.fixtures_portal import HOSTILE
from tests.portal.stock import stock

if TYPE_CHECKING:
    from tenants.models import Tenant

LONG = "reconcile-the-ledgers-of-all-european-subsidiaries-" * 3


def make_job(tab: Tab, name: str) -> None:
    tab.open("/console/jobs/new")
    tab.page.get_by_label("Name", exact=False).first.fill(name)
    tab.page.get_by_label("URL").fill("http://127.0.0.1:9999/ok")
    tab.page.get_by_role("button", name="Make the job").click()
    tab.page.wait_for_selector(f"text={name} is made")


def test_a_person_goes_all_the_way(acme: Tenant, web: Web) -> None:
    with web.tab("acme.localhost") as tab:
        page = tab.page
        tab.sign_in(made_member(acme, "admin"), PASSWORD)
        make_job(tab, "hello")
        tab.open("/console/schedules/new")
        page.get_by_label("Name").first.fill("hello nightly")
        page.locator("#id_job").select_option(label="hello")
        page.get_by_label("Cron expression").fill("30 2 * * *")
        page.get_by_label("Time zone").fill("Europe/Berlin")
        page.wait_for_selector("#preview table")  # without a button: the preview follows the form
        assert "Europe/Berlin" in page.locator("#preview").inner_text()
        page.get_by_label("Interval").check()
        assert not page.get_by_label("Cron expression").is_visible(), "only the fields of the kind are shown"
        page.get_by_label("Cron", exact=True).check()
        page.get_by_role("button", name="Make the schedule").click()
        page.wait_for_selector("text=hello nightly is made")
        page.get_by_role("link", name="Pause").click()
        page.get_by_label("Why").fill("holidays")
        page.get_by_role("button", name="Pause the schedule").click()
        page.wait_for_selector("text=Paused. Resume takes it back.")
        assert "holidays" in page.inner_text("main")
        page.get_by_role("link", name="Run now").click()
        page.get_by_role("button", name="Run it once, now").click()
        page.wait_for_selector("text=It was started.")
        page.get_by_role("link", name="Cancel").click()
        page.get_by_role("button", name="Cancel the execution").click()
        page.wait_for_selector("text=Cancelled.")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/console/login**")


def test_who_is_invited_joins(acme: Tenant, web: Web) -> None:
    """A browser sends the form of a page with a secret in its address; with `Origin: null` it would be refused."""
    with web.tab("acme.localhost") as tab, web.tab("acme.localhost") as other:
        tab.sign_in(made_member(acme, "admin"), PASSWORD)
        tab.open("/console/members/invite")
        tab.page.get_by_label("E-mail").fill("new@acme.test")
        tab.page.get_by_role("button", name="Make the invitation").click()
        tab.page.wait_for_selector("text=token=")
        [link] = re.findall(r"/console/invitation\?token=\S+", tab.page.inner_text("main"))
        other.open(link)
        other.page.get_by_label("Password", exact=True).fill(PASSWORD)
        other.page.get_by_label("Password again").fill(PASSWORD)
        other.page.get_by_role("button", name="Join").click()
        other.page.wait_for_url("**/console/")
        assert "new@acme.test" in other.page.inner_text("header")


def test_everything_works_without_script(acme: Tenant, web: Web) -> None:
    with web.tab("acme.localhost", script=False, width=390) as tab:
        page = tab.page
        tab.sign_in(made_member(acme, "editor"), PASSWORD)
        make_job(tab, "hello")
        page.locator("summary", has_text="Menu").click()
        page.get_by_role("navigation", name="Pages, short").get_by_role("link", name="Schedules").click()
        page.get_by_role("link", name="New schedule").click()
        page.get_by_label("Name").first.fill("every five")
        page.locator("#id_job").select_option(label="hello")
        page.get_by_label("Interval").check()
        page.get_by_label("Every", exact=True).fill("5")
        page.get_by_role("button", name="Preview").click()
        assert page.locator("#preview tbody tr").count() == 10
        page.get_by_role("button", name="Make the schedule").click()
        page.wait_for_selector("text=every five is made")


@pytest.mark.timeout(300)  # some fifty pages, each looked at by axe
@pytest.mark.parametrize("looks", ["each page in one", pytest.param("each page in all", marks=pytest.mark.long)])
def test_every_page_is_clean_for_everybody(acme: Tenant, conn: Any, registry: Any, web: Web, looks: str) -> None:
    kept = stock(acme, conn, registry, name=f"{HOSTILE} {LONG}"[:180], payload={HOSTILE: [LONG, "</pre><script>"]})
    admin, viewer = made_member(acme, "admin"), made_member(acme, "viewer")
    mine = [*kept.paths, "/console/keys", "/console/members", "/console/audit", "/console/usage"]
    verbs = [path for path in kept.verbs if "/operations/" not in path]  # which look like the others
    every = slice(None) if looks == "each page in all" else slice(None, None, 2)
    others = slice(None) if looks == "each page in all" else slice(1, None, 2)
    for email, paths, dark, width in (
        (admin, [*mine, *verbs][every], False, 1280), (admin, [*mine, *verbs][others], True, 390),
        (viewer, kept.paths[5:][every], True, 1280),
    ):  # fmt: skip
        with web.tab("acme.localhost", dark=dark, width=width) as tab:
            tab.expected.append("status of 409")  # a verb that its state does not allow
            tab.open("/console/login")
            assert not tab.findings(), tab.findings()
            tab.sign_in(email, PASSWORD)
            for path in paths:
                answer = tab.page.goto(f"{tab.base}{path}")
                assert answer is not None and answer.status in (200, 409), path
                assert not tab.findings(), (path, dark, width, tab.findings())


def test_no_column_of_a_list_is_cut_off(acme: Tenant, web: Web) -> None:
    """Cards hide what is wider than they are; beside the navigation there is less room than the window has."""
    cut = "[...document.querySelectorAll('.card.flush')].some(one => one.scrollWidth > one.clientWidth)"
    with web.tab("acme.localhost", width=880) as tab:
        tab.sign_in(made_member(acme, "admin"), PASSWORD)
        make_job(tab, LONG[:100])
        for path in ("", "jobs", "keys", "members", "audit", "usage"):
            tab.open(f"/console/{path}")
            assert not tab.page.evaluate(cut), path


def test_empty_pages_are_clean(globex: Tenant, web: Web) -> None:
    with web.tab("globex.localhost", dark=True) as tab:
        tab.sign_in(made_member(globex, "admin"), PASSWORD)
        for path in ("", "jobs", "schedules", "executions", "dead-letters", "webhooks", "keys", "members", "audit"):
            tab.open(f"/console/{path}")
            assert not tab.findings(), (path, tab.findings())


def test_faults_lead_to_their_fields(acme: Tenant, web: Web) -> None:
    with web.tab("acme.localhost", width=390) as tab:
        tab.sign_in(made_member(acme, "editor"), PASSWORD)
        tab.open("/console/schedules/new")
        tab.page.get_by_label("Cron expression").fill("99 * * * *")
        tab.page.eval_on_selector("form.form", "form => form.noValidate = true")
        tab.expected.append("status of 400")
        tab.page.get_by_role("button", name="Make the schedule").click()
        alert = tab.page.get_by_role("alert")
        assert "Please correct this" in alert.inner_text()
        assert not tab.findings(), tab.findings()
        alert.get_by_role("link", name="Cron expression").click()
        assert tab.page.evaluate("document.activeElement.id") in ("id_cron", "main", "")
        assert tab.page.locator("#id_cron").get_attribute("aria-invalid") == "true"


def test_by_keyboard_alone(acme: Tenant, conn: Any, registry: Any, web: Web) -> None:
    kept = stock(acme, conn, registry)
    with web.tab("acme.localhost") as tab:
        page = tab.page
        tab.sign_in(made_member(acme, "operator"), PASSWORD)
        tab.open(f"/console/dead-letters/{kept.letter}")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")  # the way back, then the verbs
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Replay"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "what has the focus shows it"
        page.keyboard.press("Enter")
        page.wait_for_url("**/replay")
        page.get_by_label("Note").focus()
        page.keyboard.type("mended")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=It runs again.")


def test_two_tabs_on_two_tenants(acme: Tenant, globex: Tenant, conn: Any, registry: Any, web: Web) -> None:
    kept = stock(acme, conn, registry)
    with web.tab("acme.localhost") as one, web.tab("globex.localhost", beside=one) as two:
        one.sign_in(made_member(acme, "admin"), PASSWORD)
        two.sign_in(made_member(globex, "admin"), PASSWORD)
        two.open(f"/console/schedules/{kept.schedule}", status=404)
        one.open(f"/console/schedules/{kept.schedule}")
        make_job(two, "theirs")
        one.open("/console/jobs")
        assert "theirs" not in one.page.inner_text("main") and "nightly job" in one.page.inner_text("main")
        hue = "getComputedStyle(document.querySelector('.tile')).backgroundColor"
        assert one.page.evaluate(hue) != two.page.evaluate(hue), "each tenant wears its colour"


def test_what_is_shown_once_is_selected_with_one_press(acme: Tenant, web: Web) -> None:
    with web.tab("acme.localhost", width=390) as tab:
        page = tab.page
        tab.sign_in(made_member(acme, "admin"), PASSWORD)
        tab.open("/console/keys/new")
        page.get_by_label("Name").first.fill("deploy")
        page.get_by_role("button", name="Make the key").click()
        code = page.locator(".once code")
        code.click()
        assert page.evaluate("getSelection().toString()").strip() == code.inner_text().strip()
        assert not tab.findings(), tab.findings()
        page.get_by_role("link", name="I have it").click()
        page.wait_for_url("**/console/keys/*")
