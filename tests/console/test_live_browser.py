"""The strip in a real browser: what kill -9 of a dispatcher looks like, and what is shown when nobody answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tests.console.test_browser import log_in
from tests.fixtures_browser import Tab, Web
from tests.processes import kill

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tests.processes import Processes

PAGES = 10
ROUNDS = 4  # snapshots that are waited for
AN_HOUR_S = 3_600
SENTENCE = "[data-live=sentence]"


def test_a_killed_dispatcher_is_seen_with_evidence_and_remedy(
    acme: Tenant, conn: Any, web: Web, processes: Processes, wait_for: Callable[..., object]
) -> None:
    """kill -9 of one of two: who it was, who took over, what to do; then of the last one: nothing is dispatched."""
    first, second = processes.dispatcher(), processes.dispatcher()
    wait_for(lambda: _held_by(conn) == {first.pid, second.pid}, "both to hold shards")
    with web.tab("localhost") as tab:
        tab.open("/admin/login/")
        log_in(tab)
        tab.page.wait_for_function("() => document.querySelector('[data-live=sentence]').innerText.includes('On time')")
        kill(first)
        says(tab, f"A dispatcher died .*:{first.pid}.*took over its")
        assert _held_by(conn) == {second.pid}, "what it says is so"
        tab.page.click(f"{SENTENCE} .sentence")  # one click: the cause
        shown = tab.page.inner_text("#dispatcher_lost")
        assert f":{first.pid}" in shown and "Slices taken over" in shown
        assert "python manage.py dispatcher" in shown
        tab.page.get_by_role("link", name="Rebalance").click()  # two: the remedy
        assert "Rebalance" in tab.page.inner_text("#content h1")
        kill(second)
        tab.open("/admin/cause/")
        says(tab, "Nothing is dispatched: no dispatcher is alive")
        tab.page.reload()
        assert "Start a dispatcher" in tab.page.inner_text("#no_dispatcher")


def test_ten_pages_cost_one_snapshot_and_say_when_they_are_stale(
    acme: Tenant, conn: Any, web: Web, wait_for: Callable[..., object]
) -> None:
    """Ten open Overviews share what is made once a second; three polls without an answer are told, with the age."""
    with web.tab("localhost") as tab, ExitStack() as others:
        tab.open("/admin/login/")
        log_in(tab)
        tabs = [tab, *(others.enter_context(web.tab("localhost", beside=tab)) for _ in range(PAGES - 1))]
        asked: list[int] = []
        for one in tabs:
            one.open("/admin/")
            one.page.on("response", lambda answer: asked.append(answer.status) if "live.json" in answer.url else None)
        began, first = _made(conn)
        asked.clear()
        wait_for(lambda: _pumped(tab) and _made(conn)[1] >= first + ROUNDS, "some snapshots")
        until, last = _made(conn)
        assert last - first <= (until - began).total_seconds() + 1, "at most one a second"
        assert len(asked) > last - first, "and more was asked for than was made"
        assert set(asked) <= {200, 304}
        for one in tabs[1:]:
            one.page.close()
        pause(tab)
        tab.expected.append(r"live\.json.*ERR_FAILED|ERR_FAILED.*live\.json")
        tab.page.route("**/live.json*", lambda route: route.abort())
        tab.page.wait_for_selector("[data-live-stale] strong", state="visible")
        assert "STALE: no answer" in tab.page.inner_text("[data-live-stale]")
        assert tab.page.inner_text("[data-age]").isdigit()
        tab.page.unroute("**/live.json*")
        tab.page.wait_for_selector("[data-live-stale]", state="hidden")
        with _nobody_makes_one(conn):  # there is an answer, and it is old
            tab.page.wait_for_selector("[data-live-stale] strong", state="visible")
            assert "STALE: nobody makes new figures" in tab.page.inner_text("[data-live-stale]")
            assert int(tab.page.inner_text("[data-age]")) >= AN_HOUR_S
        tab.page.wait_for_selector("[data-live-stale]", state="hidden")


def says(tab: Tab, pattern: str) -> None:
    """Waits until the strip of the page that is open says it; nobody reloads it."""
    tab.page.wait_for_function(
        "([place, wanted]) => new RegExp(wanted).test(document.querySelector(place).innerText)", arg=[SENTENCE, pattern]
    )


def pause(tab: Tab) -> None:
    """Paused, nothing is asked; it goes on when it is told to."""
    tab.page.get_by_role("button", name="Pause", exact=True).click()
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.wait_for_timeout(1_500)  # that nothing happens takes its time
    assert not asked
    tab.page.get_by_role("button", name="Go on").click()


@contextmanager
def _nobody_makes_one(conn: Any) -> Iterator[None]:
    """Somebody is at it, it seems, and the last one is an hour old."""
    from apps.console.snapshot.store import LOCK

    conn.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    try:
        conn.execute("UPDATE console_snapshot SET made_at = made_at - %s * interval '1 second'", [AN_HOUR_S])
        yield
    finally:
        conn.execute("SELECT pg_advisory_unlock(%s)", [LOCK])


def _pumped(tab: Tab) -> bool:
    """Lets the browser's events through while something else is waited for."""
    tab.page.wait_for_timeout(50)
    return True


def _made(conn: Any) -> tuple[Any, int]:
    row = conn.execute("SELECT made_at, number FROM console_snapshot").fetchone()
    return row[0], row[1]


def _held_by(conn: Any) -> set[int]:
    """Process numbers of the dispatchers that hold shards now."""
    rows = conn.execute(
        "SELECT DISTINCT d.pid FROM due_shardlease l JOIN due_dispatcher d ON d.id = l.owner"
        " WHERE l.kind = 'fire' AND l.expires_at > clock_timestamp()"
    )
    return {row[0] for row in rows}
