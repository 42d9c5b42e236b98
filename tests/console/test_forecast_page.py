"""The page Forecast: what it shows is what is expected, and a dry run is exact."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from apps.console.forecasting import change_words, heat, short
from kernel.clock import utc_now
from tests.console.test_browser import log_in
from tests.fixtures_browser import Web
from tests.fixtures_flow import make_job, make_schedule
from tests.flow.test_forecast import new_service, settled

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
HOUR = timedelta(hours=1)


def test_the_week_an_hour_a_minute_and_a_dry_run(page: Any, conn: Conn, registry: Any, acme: Any, globex: Any) -> None:
    assert "There is no forecast yet" in page.get("/admin/forecast/").content.decode()
    now = utc_now()
    full = now.replace(minute=0, second=0, microsecond=0) + 2 * HOUR
    at = f"{full.minute} {full.hour} * * *"
    job = make_job(acme, now=now)
    made = [make_schedule(acme, job, cron=at, now=now, name=f"<b>{number}</b>") for number in range(6)]
    make_schedule(globex, cron=at, timezone="UTC", now=now)
    make_schedule(globex, cron="30 4 * * *", timezone="Europe/Berlin", now=now)
    registry.refresh(force=True)
    settled(new_service(registry), conn, now)

    found = page.get("/admin/forecast/")
    text = found.content.decode()
    assert found.status_code == 200 and "<b>" not in text.replace("<b></b>", "")
    assert found.context["worst"] == (full, 7) and found.context["minute"] == full
    assert [(slug, runs) for slug, runs, _, _ in found.context["who"]] == [("acme", 6), ("globex", 1)]
    assert any(f"/t/acme/admin/schedules/{one}/" in text for one in made)
    cells = [cell for row in found.context["rows"] for cell in row.cells if cell is not None]
    assert len(cells) == 168 and sum(cell.runs for cell in cells) == 7 * 8

    stamp = f"{full:%Y-%m-%dT%H:%MZ}"
    tried = page.get("/admin/forecast/", {"at": stamp, "tenant": "acme", "jitter_s": "900"}).context["trial"]
    assert (tried.runs, tried.fullest_before) == (6, 7) and tried.fullest_after < 7
    assert sum(runs for _, runs in tried.after) == sum(runs for _, runs in tried.before) == 7
    assert page.get("/admin/forecast/?tenant=nobody&at=x&hour=%00&zone=No/Where&jitter_s=1").status_code == 200
    assert not found.context["sampled"] and "Nobody has kept" not in text and "not in it yet" not in text
    conn.execute(
        "UPDATE due_forecast SET made_at = made_at - interval '6 min', shards = 60,"
        " peaks = jsonb_set(peaks, '{0,entries}', '900')"
    )
    told = page.get("/admin/forecast/").content.decode()
    assert "Nobody has kept this since" in told and "4 of the shards are not in it yet" in told
    assert "Tenants are about: from 8 of 900 due entries." in told
    assert (
        "not known by minutes" in page.get(f"/admin/forecast/?hour={full + 72 * HOUR:%Y-%m-%dT%H:%MZ}").content.decode()
    )


def test_the_way_to_a_quieter_minute_in_a_browser(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, web: Web
) -> None:
    """From the week to the hour, to the fullest minute, who is in it, and what jitter would make of it."""
    now = utc_now()
    full = now.replace(minute=17, second=0, microsecond=0) + 3 * HOUR
    job, at = make_job(acme, now=now), f"17 {full.hour} * * *"
    for number in range(6):
        make_schedule(acme, job, cron=at, timezone="UTC", now=now, name=f"report {number}")
    make_schedule(globex, cron=at, timezone="UTC", now=now)
    registry.refresh(force=True)
    settled(new_service(registry), conn, now)
    with web.tab("localhost") as tab:
        page = tab.page
        tab.open("/admin/login/")
        log_in(tab)
        page.keyboard.press("g")
        page.keyboard.press("f")
        page.wait_for_url("**/admin/forecast/")
        page.locator("table.heat td a", has_text="7").first.click()
        page.wait_for_url("**hour=**")
        drawn = page.locator("section[aria-labelledby=hour] svg").get_attribute("aria-label") or ""
        assert f"most in {full:%H:%M}, 7 runs" in drawn
        page.locator("section[aria-labelledby=fullest] tbody a").first.click()
        page.wait_for_url("**at=**")
        assert page.locator("section[aria-labelledby=minute] tbody tr").count() == 2
        page.get_by_role("link", name="Try jitter for acme").click()
        page.wait_for_url("**tenant=acme**")
        page.locator("#jitter_s").select_option("900")
        page.get_by_role("button", name="Try", exact=True).click()
        page.wait_for_url("**jitter_s=900**")
        told = page.locator("#dry-run ~ p.note").inner_text()
        assert "6 runs of acme would be spread over 15 min" in told and "instead of 7" in told
        page.get_by_text("Minute by minute").click()
        tables = page.locator("section[aria-labelledby=dry-run] details table")
        before, after = (sum(map(int, one.locator("td.num").all_inner_texts())) for one in tables.all())
        assert before == after == 7, "they are moved, none is lost"
    due = conn.execute("SELECT count(DISTINCT due_at) FROM due_dueentry").fetchone()
    assert due == (1,), "a dry run"


def test_hours_that_a_clock_repeats_share_a_cell_and_skipped_ones_are_none() -> None:
    start = utc_now().replace(year=2027, month=10, day=30, hour=22, minute=0, second=0, microsecond=0)
    changes = [{"zone": "Europe/Berlin", "at": start + 27 * HOUR, "by_s": -3_600}]
    hours = [(start + number * HOUR, 10) for number in range(48)]
    rows = heat(hours, zone="Europe/Berlin", capacity=12.0, changes=changes, links={}, chosen=start)
    doubled = next(cell for row in rows for cell in row.cells if cell is not None and cell.runs == 20)
    assert doubled.level == "h4" and "83% of capacity" in doubled.title and doubled.full == "above 70 % of capacity"
    assert change_words(changes[0]) == "Europe/Berlin: the clock goes back 1 h"
    spring = [(start.replace(month=3, day=27) + number * HOUR, 10) for number in range(48)]
    rows = heat(spring, zone="Europe/Berlin", capacity=None, changes=(), links={}, chosen=None)
    assert sum(cell is None for cell in rows[1].cells) == 1
    assert [short(one) for one in (0, 999, 1_000, 9_940, 12_345, 3_400_000)] == [
        "0",
        "999",
        "1.0k",
        "9.9k",
        "12k",
        "3.4M",
    ]
