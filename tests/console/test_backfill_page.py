"""Backfill below /t/<slug>/: what it would do is shown first, and only what was looked at is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fixtures_flow import make_schedule
from tests.operations.fixtures import work_off

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_an_operator_runs_past_occurrences(page: Any, acme: Tenant) -> None:
    schedule = make_schedule(acme, cron="0 3 * * *")
    path = f"/t/acme/admin/schedules/schedule/{schedule}/"
    assert f"{path}backfill/" in page.get(f"{path}change/").content.decode()
    wrong = page.post(f"{path}backfill/", {"from": "x", "to": "2024-02-04", "only": "missing", "order": "asc"})
    assert "is not a time with date and hour" in wrong.content.decode()
    given = {"from": "2024-02-01", "to": "2024-02-04", "only": "missing", "order": "asc", "max_in_flight": "2"}
    looked = page.post(f"{path}backfill/", given)
    assert "Run 3 occurrences" in looked.content.decode()
    given["seen"] = looked.context["form"]["seen"].value()
    other = page.post(f"{path}backfill/", {**given, "only": "all"})
    assert "Run 3 occurrences" in other.content.decode(), "what was not looked at is not done"
    done = page.post(f"{path}backfill/", given)
    assert done.status_code == 302
    operation = done["Location"].rstrip("/").split("/")[-2]
    assert work_off(acme, operation, most=3).running == 2
    assert "2024-02-01" in page.get(done["Location"]).content.decode()
    assert page.get(f"/t/globex/admin/schedules/schedule/{schedule}/backfill/").status_code == 404
