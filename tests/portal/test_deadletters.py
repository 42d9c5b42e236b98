"""Dead letters on the pages: by cause, and many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures_flow import letters_of, rows_of
from tests.operations.fixtures import work_off
from tests.portal.stock import Stock, stock

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.fixture
def kept(acme: Tenant, conn: Any, registry: Any) -> Stock:
    return stock(acme, conn, registry)


def test_letters_of_one_cause_are_replayed_and_closed(kept: Stock, conn: Any, console_of: Any, registry: Any) -> None:
    from tests.api.makers import kill
    from tests.fixtures_flow import make_job, make_ticket

    for _ in range(2):
        kill(conn, registry, str(make_ticket(kept.tenant, kept.job)))
    hostile = make_ticket(kept.tenant, make_job(kept.tenant, name="<script>alert(1)</script>"))
    kill(conn, registry, str(hostile))
    letters = letters_of(conn, kept.tenant)
    cause = letters[kept.dead]["fingerprint"]
    browser = console_of(kept.tenant, "operator")
    page = browser.text("/console/dead-letters/causes")
    assert page.index(cause) < page.index(letters[hostile]["fingerprint"]), "the most frequent first"
    assert "&lt;script&gt;" in page and "<script>alert" not in page
    listed = browser.text(f"/console/dead-letters?fingerprint={cause}")
    assert listed.count('data-label="Attempts"') == 3
    replay = f"/console/dead-letters/replay?fingerprint={cause}"
    assert replay in listed
    assert "<dd>3</dd>" in browser.text(replay)
    wrong = browser.post(replay, {"canary": "0", "rate_per_s": "x", "payload": "{"}, status=400).content.decode()
    assert "from 1 to" in wrong and "from 0.01 to" in wrong
    answer = browser.post(replay, {"canary": "2", "rate_per_s": "50", "reason": "the target is up"})
    assert "the target is up" in browser.text(answer["Location"])
    one = max(rows_of(conn, kept.tenant, "operations_operation"), key=lambda row: row["id"])
    assert (one["action"], one["canary"], one["rate_per_s"], one["reason"]) == ("replay", 2, 50.0, "the target is up")
    assert work_off(kept.tenant, one["id"], most=4).running == 2
    assert "1 time<" in browser.text(f"/console/dead-letters/{kept.letter}")
    browser.post("/console/dead-letters/resolve", {"reason": "known"})
    other = max(row["id"] for row in rows_of(conn, kept.tenant, "operations_operation"))
    assert work_off(kept.tenant, other).succeeded == 2
    answer = browser.client.get("/console/dead-letters/replay")
    assert answer.status_code == 409 and "No open dead letter" in answer.content.decode()


def test_whoever_may_not_is_told_so(kept: Stock, globex: Tenant, console_of: Any) -> None:
    viewer = console_of(kept.tenant, "viewer")
    page = viewer.text("/console/dead-letters")
    assert "<button disabled" in page and "/console/dead-letters/replay" not in page
    for verb in ("replay", "resolve"):
        assert viewer.client.get(f"/console/dead-letters/{verb}").status_code == 403
        viewer.post(f"/console/dead-letters/{verb}", {}, status=403)
    assert "No open dead letters" in console_of(globex).text("/console/dead-letters/causes")
