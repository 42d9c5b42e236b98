"""The page that says whether each occurrence is accounted for, and accounting for what is missing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.fixtures_flow import NOW, executions_of, fire_all, make_schedule
from tests.flow.test_completeness import lose

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_what_is_missing_is_shown_and_accounted_for(acme: Tenant, conn: Any, registry: Any, console_of: Any) -> None:
    schedule = make_schedule(acme, misfire="fire_all")
    fire_all(conn, registry, now=NOW + timedelta(minutes=30))
    path, given = f"/console/schedules/{schedule}", "from=2025-01-06T10:00:00Z&to=2025-01-06T10:30:00Z"
    browser = console_of(acme, "operator")
    assert f'href="{path}/completeness"' in browser.text(path)
    assert "Nothing is missing" in browser.text(f"{path}/completeness?{given}")
    lose(conn, acme, *(row["id"] for row in executions_of(conn, acme, schedule)[4:6]))
    page = browser.text(f"{path}/completeness?{given}")
    assert "Of 2 occurrences nothing is written." in page and "2 of them" in page
    assert f"{path}/repair?{given.replace('&', '&amp;')}" in page
    assert "This needs the role operator" in console_of(acme, "viewer").text(f"{path}/completeness?{given}")

    seen = str(browser.get(f"{path}/repair?{given}").context["form"]["revision"].value)
    browser.post(f"{path}/repair", {"revision": seen, "from": "2025", "to": ""}, status=400)
    times = {"from": "2025-01-06T10:00:00Z", "to": "2025-01-06T10:30:00Z"}
    browser.post(f"{path}/repair", {"revision": seen, **times, "how": "skip"})
    page = browser.text(f"{path}/completeness?{given}")
    assert "2 were missing: 0 run now, 2 are recorded as skipped." in page and "Nothing is missing" in page
    assert "<dt>Skipped</dt><dd>2</dd>" in page and "gap recorded" in page
    assert "ends before it begins" in browser.text(f"{path}/completeness?from=2026-01-01T00:00Z&to=2025-01-01T00:00Z")
