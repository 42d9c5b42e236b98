"""`make screenshots`: the pictures of the docs, from the demo that `make run` has going on this machine.

They are looked at before they are committed: what is ugly there is ugly for everybody.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

from tests.fixtures_browser import NAMES, OPTIONS, SETTLED, chromium  # noqa: E402  from the roots above

PICTURES = ROOT / "docs" / "pictures"
WIDE = (1280, 800)
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SLUG = "acme"


def main() -> int:
    """Takes them all; 1 without a demo or a browser."""
    browser = chromium()
    try:
        demo = json.loads((ROOT / "var" / "demo.json").read_text())
        Api(demo)("schedules?page_size=1")
    except (OSError, ValueError) as error:
        print(f"make screenshots: needs `make run` in another terminal ({error})", file=sys.stderr)
        return 1
    if browser is None:
        print(f"make screenshots: needs one of {', '.join(NAMES)}", file=sys.stderr)
        return 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    take(demo, browser)
    return 0


class Api:
    """The first tenant's REST API."""

    def __init__(self, demo: dict[str, Any]) -> None:
        self._root, self._key = demo["base_url"], demo["tenants"][0]["api_key"]

    def __call__(self, path: str, **query: str) -> Any:
        url = f"{self._root}/api/v1/{path}" + (f"?{urlencode(query)}" if query else "")
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._key}"})
        with OPENER.open(request, timeout=10) as answer:
            return json.load(answer)


def take(demo: dict[str, Any], path: str) -> None:
    """Signs in as the demo's operator and photographs each page, light or dark."""
    from playwright.sync_api import sync_playwright

    base = f"http://localhost:{urlsplit(demo['base_url']).port}"
    api = Api(demo)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        page = browser.new_page()
        page.goto(f"{base}/admin/login/")
        page.get_by_label("Username").fill(demo["admin"]["username"])
        page.get_by_label("Password").fill(demo["admin"]["password"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{base}/admin/")
        for name, (width, height), dark, open_page in _pictures(api):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme="dark" if dark else "light")
            open_page(page, base)
            page.evaluate(SETTLED)
            page.screenshot(path=PICTURES / f"{name}.png")
            print(f"docs/pictures/{name}.png  {page.url.removeprefix(base)}")
        browser.close()


def _pictures(api: Api) -> list[tuple[str, tuple[int, int], bool, Callable[[Page, str], None]]]:
    """Name, size of the window, whether it is dark, and how one gets there."""
    job = api("jobs", external_id="demo:works-at-the-third-attempt")["items"][0]["id"]
    retried = api("executions", job=job, state="succeeded")["items"][0]["id"]
    failed = next(one for one in api("workflow-runs")["items"] if one["state"] == "failed")["id"]
    return [
        ("overview", WIDE, False, _at("/admin/")),
        ("overview-dark", WIDE, True, _at("/admin/")),
        ("schedule-preview", WIDE, False, _preview),
        ("execution-timeline", (1280, 1000), False, _at(f"/t/{SLUG}/admin/executions/{retried}/")),
        ("workflow-run", WIDE, True, _at(f"/t/{SLUG}/admin/workflow-runs/{failed}/")),
        ("find", WIDE, False, _found),
    ]


def _at(path: str) -> Callable[[Page, str], None]:
    def open_page(page: Page, base: str) -> None:
        answer = page.goto(base + path)
        assert answer is not None and answer.status == 200, path

    return open_page


def _preview(page: Page, base: str) -> None:
    """A schedule in the hour that a clock change leaves out."""
    page.goto(f"{base}/t/{SLUG}/admin/schedules/new/")
    page.get_by_label("Name").first.fill("nightly report")
    page.get_by_label("Cron expression").fill("30 2 * * *")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Not before").fill("2027-03-26T00:00:00Z")  # two days before the clock goes forward
    page.wait_for_selector("#preview >> text=2027-03-28")


def _found(page: Page, base: str) -> None:
    page.goto(f"{base}/admin/")
    page.keyboard.press("Control+k")
    page.locator("#palette-q").fill(f"{SLUG} recount")
    page.wait_for_selector("#palette .found a >> text=recount")


if __name__ == "__main__":
    sys.exit(main())
