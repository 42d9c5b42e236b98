"""Many things at once, from a list to the receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.operations.fixtures import read, work_off
from tests.portal.stock import stock

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_a_list_offers_what_can_be_done_to_all_of_it(acme: Tenant, conn: Any, registry: Any, console_of: Any) -> None:
    kept = stock(acme, conn, registry)
    browser = console_of(acme, "operator")
    work_off(acme, kept.operation)
    assert "nightly job" in browser.text(f"/console/operations/{kept.operation}"), "items are named"
    page = browser.get(f"/console/executions?window=all&state=dead&job={kept.job}")
    [offer] = page.context["offers"]
    asked = browser.text(offer.url)
    assert "1 executions" in asked and str(kept.job) in asked
    assert "must be a number" in browser.post(offer.url, {"rate_per_s": "fast"}, status=400).content.decode()
    detail = browser.post(offer.url, {"reason": "the supplier is back", "canary": "1"})["Location"]
    made = detail.rpartition("/")[2]
    work_off(acme, made, most=4)
    shown = browser.text(detail)
    assert "the supplier is back" in shown and f"/console/executions/{kept.dead}" in shown
    assert f"/api/v1/operations/{made}/receipt" in shown
    assert f"/console/executions/{kept.dead}" not in browser.text(f"{detail}?state=failed")
    seen = str(browser.get(f"{detail}/pace").context["form"]["revision"].value)
    browser.post(f"{detail}/pace", {"rate_per_s": "2.3456789", "max_in_flight": "1000000", "revision": seen})
    assert read(acme, made).rate_per_s == 2.3456789
    form = browser.get(f"{detail}/pace").context["form"]
    assert (form["rate_per_s"].value, form["max_in_flight"].value) == ("2.3456789", "1000000"), "sent back as it is"
    browser.post(f"{detail}/undo", {"revision": seen}, status=409)
    browser.post(f"{detail}/undo", {"revision": str(read(acme, made).revision), "reason": "too early"})
    assert work_off(acme, made).state == "undone"
    assert "It is undone." in browser.text(f"{detail}/cancel", status=409)
    nothing = browser.text("/console/executions/bulk-rerun?run_key=none", status=409)
    assert "There are no executions like this." in nothing
    browser.get("/console/executions/bulk-rerun?state=nonsense", status=400)
