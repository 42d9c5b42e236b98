"""Real browsers: Debian's Chromium on the pages of a real web process, with everything that it complains about."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

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
LEFT = "net::ERR_ABORTED"  # the page was left before its icon had come


@dataclass
class Tab:
    """One page of a browser, and what the browser found wrong on it."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str, *, status: int = 200) -> None:
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
        from axe_playwright_python.sync_playwright import Axe

        self.page.evaluate(SETTLED)
        found = Axe().run(self.page, options={"runOnly": list(rules), "preload": False}).response["violations"]
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
        """A window of its own, or another tab `beside` one with the same cookies."""
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
        yield tab
        page.close()
        if beside is None:
            context.close()


def chromium() -> str | None:
    """Where this machine has it."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture
def web(processes: Processes, wait_for: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """Skipped where there is no Chromium."""
    path = chromium()
    if path is None:
        pytest.skip(f"needs one of {', '.join(NAMES)}")
    from django.db import connections
    from playwright.sync_api import sync_playwright

    port = _free_port()
    processes.web(port)
    wait_for(lambda: _answers(port), "the web process to answer")
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # playwright's loop is this thread's; nothing runs in it
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield Web(port, browser)
        browser.close()
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

    def opened(dialog: Dialog) -> None:
        complain(f"a dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", said)
    page.on("pageerror", lambda error: complain(str(error)))
    page.on("dialog", opened)
    page.on("requestfailed", failed)
    page.on("request", asked)


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
