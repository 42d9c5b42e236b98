"""Backfills on the pages: first what it would do, then it is asked for, and its page tells how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.operations.fixtures import work_off
from tests.portal.stock import Stock, stock

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.fixture
def kept(acme: Tenant, conn: Any, registry: Any) -> Stock:
    return stock(acme, conn, registry)


def test_what_was_looked_at_is_what_is_done(kept: Stock, globex: Tenant, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "operator"), f"/console/schedules/{kept.schedule}/backfill"
    assert path in browser.text(f"/console/schedules/{kept.schedule}")
    wrong = browser.post(path, {"from": "yesterday", "max_in_flight": "x"}, status=400).content.decode()
    assert 'id="error-from"' in wrong and 'id="error-to"' in wrong and 'id="error-max_in_flight"' in wrong
    given = {"from": "2024-03-30", "to": "2024-04-02", "only": "missing", "order": "asc", "max_in_flight": "2"}
    looked = browser.post(path, given, status=200)
    assert "Run 3 occurrences" in looked.content.decode() and "2024-03-30 02:00:00" in looked.content.decode()
    given["seen"] = looked.context["form"]["seen"].value
    changed = browser.post(path, {**given, "to": "2024-04-01"}, status=200)
    assert "Run 2 occurrences" in changed.content.decode(), "what was not looked at is not done"
    assert 'class="empty"' in browser.text("/console/backfills")

    page = browser.post(path, given)["Location"]
    work_off(kept.tenant, page.rsplit("/", 1)[1], most=2)
    shown = browser.text(page)
    assert "2 running, 1 pending" in shown and "/pause" in shown and "Ends about" in shown and "2024-03-31" in shown
    assert page in browser.text(f"/console/backfills?schedule={kept.schedule}")
    stranger = console_of(globex)
    assert stranger.client.get(page).status_code == 404 and page not in stranger.text("/console/backfills")
