"""Real browsers: Debian's Chromium on the pages of a real web process, with everything that it complains about."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Playwright, Request, Response

    from tests.processes import Processes

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Headless, also as root, and without a word to anybody outside.
OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# Those that another width or other colours can break.
LOOKS = ("color-contrast", "target-size", "link-in-text-block", "scrollable-region-focusable")
WAIT_MS = 20_000
# Told to the test through the console, wherever it happens.
LISTEN = """
document.addEventListener("securitypolicyviolation", (e) => console.error("policy", e.violatedDirective, e.blockedURI));
"""

# What is on its way from one colour to another is no finding.
SETTLED = "Promise.allSettled(document.getAnimations().map(one => one.finished))"
# Only what is wrong: to tell what is right, too, takes axe as long again.
AXE = "options => axe.run(options).then(found => found.violations)"
LEFT = "net::ERR_ABORTED"  # the page was left before its icon had come
# What the variable BROWSER_TESTS says about a machine without Chromium.
REQUIRED, SKIP = "required", "skip"


@dataclass
class Tab:
    """One page of a browser, and what the browser found wrong on it: nothing, when the tab is closed.

    `expected` holds patterns of what the test brings about itself.
    """

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    @property
    def unexpected(self) -> list[str]:
        return [one for one in self.complaints if not any(re.search(known, one) for known in self.expected)]

    def open(self, path: str, *, status: int = 200) -> None:
        """Goes there; a status that is an error is expected then."""
        if status >= 400:
            self.expected.append(f"status of {status} .*{re.escape(path)}$")
        answer = self.page.goto(f"{self.base}{path}")
        assert answer is not None and answer.status == status, f"{path}: {answer and answer.status}"

    def sign_in(self, email: str, password: str, *, path: str = "/console/") -> None:
        self.page.goto(f"{self.base}{path}")
        self.page.get_by_label("E-mail").fill(email)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Sign in", exact=True).click()
        self.page.wait_for_url(f"{self.base}{path}")

    def findings(self, rules: Sequence[str] = RULES) -> list[str]:
        """What axe finds against WCAG 2.2 AA, and whether the page is wider than the window."""
        from axe_playwright_python.base import AXE_SCRIPT

        if not self.page.evaluate(f"{SETTLED}.then(() => Boolean(window.axe))"):
            self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate(AXE, {"runOnly": list(rules), "preload": False, "resultTypes": ["violations"]})
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        told = [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]
        return [*told, *([f"{wide} px wider than the window"] if wide > 0 else [])]


@dataclass
class Web:
    """A web process, and browsers on it."""

    port: int
    browser: Browser

    @contextmanager
    def tab(
        self, host: str, *, dark: bool = False, width: int = 1280, script: bool = True, beside: Tab | None = None
    ) -> Iterator[Tab]:  # fmt: skip
        """A window of its own, or another tab `beside` one with the same cookies. Fails on what it complains about."""
        context = (
            beside.page.context
            if beside is not None
            else self.browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light",
                java_script_enabled=script,
            )
        )  # fmt: skip
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        tab = Tab(page, f"http://{host}:{self.port}")
        if script:
            page.add_init_script(LISTEN)
        _listen(page, tab.complaints.append)
        try:
            yield tab
        finally:
            page.close()  # and all that it has said is here
            if beside is None:
                context.close()
        assert not tab.unexpected, f"{host}: {tab.unexpected}"


def chromium() -> str | None:
    """Where this machine has it."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Engine:
    """Chromium and what drives it: started once, for all tests of this process; each has windows of its own.

    Its loop is this thread's and "runs" as long as Chromium does. Between tests it is out of sight, or nothing else
    could have a loop.
    """

    def __init__(self, path: str) -> None:
        from playwright.sync_api import sync_playwright

        self._path, self._manager = path, sync_playwright()
        self._playwright: Playwright = self._manager.start()
        self._loop = asyncio.get_running_loop()
        self._browser: Browser | None = None
        asyncio._set_running_loop(None)

    @contextmanager
    def browser(self) -> Iterator[Browser]:
        """The browser, started again when it has died."""
        asyncio._set_running_loop(self._loop)
        try:
            if self._browser is None or not self._browser.is_connected():
                self._browser = self._playwright.chromium.launch(executable_path=self._path, args=list(OPTIONS))
            yield self._browser
        finally:
            asyncio._set_running_loop(None)

    def stop(self) -> None:
        asyncio._set_running_loop(self._loop)
        self._manager.__exit__()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Skipped where there is no Chromium, unless BROWSER_TESTS=required; and where BROWSER_TESTS=skip."""
    path, wish = chromium(), os.environ.get("BROWSER_TESTS", "")
    if wish == SKIP:
        pytest.skip(f"BROWSER_TESTS={SKIP}")
    if path is None:
        told = f"needs one of {', '.join(NAMES)}"
        if wish == REQUIRED:
            pytest.fail(told)
        pytest.skip(told)
    started = Engine(path)
    yield started
    started.stop()


@pytest.fixture
def web(
    engine: Engine, processes: Processes, wait_for: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Web]:  # fmt: skip
    """A web process of this test's, and the browser."""
    from django.db import connections

    port = _free_port()
    processes.web(port)
    wait_for(lambda: _answers(port), "the web process to answer")
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # playwright's loop is this thread's; nothing runs in it
    with engine.browser() as browser:
        yield Web(port, browser)
        connections.close_all()  # those that the test opened while the loop ran: Django keeps them apart


def _listen(page: Page, complain: Callable[[str], None]) -> None:
    """Everything that a page must not bring about."""

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complain(f"{message.text} {(message.location or {}).get('url', '')}".strip())

    def asked(request: Request) -> None:
        if (urlsplit(request.url).hostname or "").rpartition(".")[2] != "localhost":
            complain(f"asks somebody else: {request.url}")

    def failed(request: Request) -> None:
        if request.failure != LEFT:
            complain(f"failed: {request.url} {request.failure}")

    def answered(response: Response) -> None:
        if response.status >= 400:
            complain(f"answered with a status of {response.status} by {response.url}")

    def opened(dialog: Dialog) -> None:
        complain(f"a dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", said)
    page.on("pageerror", lambda error: complain(str(error)))
    page.on("dialog", opened)
    page.on("requestfailed", failed)
    page.on("request", asked)
    page.on("response", answered)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return b"200" in line.recv(100)
    except OSError:
        return False


def made_member(tenant: Any, role: str) -> str:
    """The e-mail of a member whose password is fixtures_people.PASSWORD."""
    from django.contrib.auth.hashers import PBKDF2PasswordHasher

    from tests.fixtures_people import PASSWORD, member_of

    member = member_of(tenant, role)
    # For the web process, which does not know the fast hashes that tests may choose for themselves.
    member.user.password = PBKDF2PasswordHasher().encode(PASSWORD, "salt", iterations=1_000)
    member.user.save(update_fields=["password"])
    return str(member.email)
