"""Jobs and schedules through their forms: previews, faults in their place, round trips, and two people at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.portal.stock import Stock, stock

if TYPE_CHECKING:
    from tenants.models import Tenant

DAILY = "FREQ=DAILY;BYHOUR=4;BYMINUTE=0;BYSECOND=0"
NEW = "/console/schedules/new"


@pytest.fixture
def kept(acme: Tenant, conn: Any, registry: Any) -> Stock:
    return stock(acme, conn, registry)


def values(response: Any) -> dict[str, str]:
    """What a browser would send back."""
    return {name: one.value for name, one in response.context["form"].fields.items() if one.kind != "check"}


def test_a_schedule_is_previewed_then_made(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant, "editor")
    form = {
        **values(browser.get(f"{NEW}?job={kept.job}")),
        "cron": "30 2 * * *\n0 9 * * 1",
        "timezone": "Europe/Berlin",
    }
    page = browser.post(NEW, {**form, "do": "preview"}, status=200)
    assert len(page.context["forecast"].runs) == 10 and "Europe/Berlin" in page.content.decode()
    made = browser.post(NEW, {**form, "name": "twice", "do": "save"})
    page = browser.text(made["Location"])
    assert "twice" in page and "30 2 * * *" in page


def test_a_preview_says_what_saving_would(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    form = {
        **values(browser.get(NEW)),
        "cron": "99 * * * *",
        "timezone": "Mars/Olympus",
        "jitter_s": "x",
        "payload": "{",
    }
    page = browser.post(NEW, {**form, "do": "preview"}, status=400).content.decode()
    for name in ("jitter_s", "payload"):
        assert f'id="error-{name}"' in page
    form |= {"jitter_s": "0", "payload": ""}
    page = browser.post(NEW, {**form, "do": "save"}, status=400).content.decode()
    for name in ("name", "job", "cron", "timezone"):
        assert f'id="error-{name}"' in page
    assert "99 * * * *" in page, "what was written stays"


def test_the_live_preview_is_a_piece_of_the_page(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    form = {**values(browser.get(NEW)), "cron": "0 3 * * *", "do": "preview"}
    answer = browser.post(NEW, form, status=200, X_Shardbeat_Fragment="preview")
    assert "<html" not in answer.content.decode() and "<table" in answer.content.decode()


@pytest.mark.parametrize(
    ("kind", "members", "trigger"),
    [
        ("every_s", {"every": "5", "unit": "60"}, {"every_s": 300}),
        ("at", {"at": "2040-01-01T08:00:00Z"}, {"at": "2040-01-01T08:00:00Z"}),
        ("rrule", {"rrule": DAILY}, {"rrule": DAILY}),
        ("other", {"trigger": '{"every": {"weeks": 2}}'}, {"every": {"weeks": 2}}),
    ],
)  # fmt: skip
def test_each_kind_of_trigger_comes_back_as_it_was(
    kept: Stock, console_of: Any, kind: str, members: dict[str, str], trigger: dict[str, Any]
) -> None:
    browser = console_of(kept.tenant)
    form = {**values(browser.get(f"{NEW}?job={kept.job}")), "name": kind, "kind": kind, **members, "do": "save"}
    path = browser.post(NEW, form)["Location"]
    given = values(browser.get(f"{path}/edit"))
    assert given["kind"] == kind and all(given[name] for name in members)
    before = browser.get(path).context["shape"]
    assert all(before["trigger"][name] == value for name, value in trigger.items())
    browser.post(f"{path}/edit", {**given, "do": "save"})
    after = browser.get(path).context["shape"]
    assert after["trigger"] == before["trigger"] and after["version"] == before["version"], "saved as it was: no change"


def test_a_schedule_of_a_workflow_is_made_and_comes_back(kept: Stock, acme: Tenant, console_of: Any) -> None:
    from apps.audit.services import Actor
    from apps.workflows.definitions.services import workflow_create
    from tests.api.makers import utc_now

    actor = Actor(name="test", role="admin", tenant_id=acme.pk)
    data = {"name": "<i>steps</i>", "steps": [{"name": "wait", "delay_s": 1}]}
    workflow = workflow_create(tenant=acme, actor=actor, data=data, now=utc_now()).job.pk
    browser = console_of(acme)
    form = {**values(browser.get(NEW)), "name": "of steps", "job": f"workflow:{workflow}", "cron": "0 3 * * *"}
    assert browser.post(NEW, {**form, "do": "preview"}, status=200).context["forecast"].runs
    path = browser.post(NEW, {**form, "do": "save"})["Location"]
    page = browser.get(path)
    assert page.context["shape"]["workflow"] == str(workflow) and "<i>" not in page.content.decode()
    assert f"jobs/{workflow}" not in page.content.decode(), "it has no page among the jobs"
    given = values(browser.get(f"{path}/edit"))
    assert given["job"] == f"workflow:{workflow}"
    browser.post(f"{path}/edit", {**given, "do": "save"})
    assert browser.get(path).context["shape"]["version"] == 1
    assert "of steps" in browser.get("/console/schedules").content.decode()


def test_an_edit_keeps_what_the_form_has_no_field_for(kept: Stock, acme: Tenant, console_of: Any) -> None:
    from apps.audit.services import Actor
    from apps.schedules.services import schedule_update
    from tests.api.makers import utc_now

    more = {
        "windows": [{"from": "08:00", "to": "18:00", "days": ["mon"]}], "misfire_max": 4, "overlap_max": 3,
        "misfire": "fire_latest_n", "overlap": "buffer_all", "misfire_order": "newest", "outside": "next_opening",
    }  # fmt: skip
    actor = Actor(name="test", role="admin", tenant_id=acme.pk)
    schedule_update(tenant=acme, actor=actor, schedule_id=kept.schedule, patch=more, now=utc_now())
    browser, path = console_of(acme), f"/console/schedules/{kept.schedule}"
    given = {**values(browser.get(f"{path}/edit")), "name": "renamed", "do": "save"}
    browser.post(f"{path}/edit", given)
    shape = browser.get(path).context["shape"]
    assert shape["name"] == "renamed"
    assert {name: shape[name] for name in more} == more


def test_an_edit_shows_old_against_new(kept: Stock, console_of: Any) -> None:
    browser, path = console_of(kept.tenant), f"/console/schedules/{kept.schedule}/edit"
    given = {**values(browser.get(path)), "cron": "0 4 * * *", "do": "preview"}
    change = browser.post(path, given, status=200).context["forecast"].change
    assert len(change.added) and len(change.removed) and change.kept == 0


def test_two_people_edit_a_schedule(kept: Stock, console_of: Any) -> None:
    first, second = console_of(kept.tenant, "editor"), console_of(kept.tenant, "admin")
    path = f"/console/schedules/{kept.schedule}/edit"
    mine, theirs = values(first.get(path)), values(second.get(path))
    second.post(path, {**theirs, "cron": "0 5 * * *", "jitter_s": "7", "do": "save"})
    page = first.post(path, {**mine, "cron": "0 6 * * *", "do": "save"}, status=409)
    text = page.content.decode()
    assert "Somebody changed this schedule" in text and "0 5 * * *" in text and "0 6 * * *" in text
    assert {"trigger", "jitter s"} <= {name for name, _, _ in page.context["stale"]}
    first.post(path, {**values(page), "do": "save"})
    assert first.get(path).context["form"]["cron"].value == "0 6 * * *"


def test_names_that_are_taken(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    form = {**values(browser.get(f"{NEW}?job={kept.job}")), "name": "NIGHTLY", "cron": "0 3 * * *", "do": "save"}
    page = browser.post(NEW, form, status=409)
    assert 'id="error-name"' in page.content.decode(), page.context["form"].errors
    job = {**values(browser.get("/console/jobs/new")), "name": "Nightly Job", "url": "http://127.0.0.1:9999/x"}
    assert 'id="error-name"' in browser.post("/console/jobs/new", job, status=409).content.decode()


def test_a_job_is_made_and_changed(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant, "editor")
    form = values(browser.get("/console/jobs/new"))
    wrong = {**form, "url": "ftp://x", "headers": "none", "timeout_s": "soon", "payload": "{"}
    page = browser.post("/console/jobs/new", wrong, status=400).content.decode()
    for name in ("headers", "timeout_s", "payload"):
        assert f'id="error-{name}"' in page
    page = browser.post("/console/jobs/new", {**form, "url": "ftp://x"}, status=400).content.decode()
    assert 'id="error-url"' in page and 'id="error-name"' in page
    good = {
        **form, "name": "hello", "url": "http://127.0.0.1:9999/a?b=1", "headers": "X-A: b: c\r\nX-B: d\r\n",
        "labels": "team: billing", "max_attempts": "5", "base_s": "2.3456789", "max_concurrency": "2",
    }  # fmt: skip
    path = browser.post("/console/jobs/new", good)["Location"]
    shape = browser.get(path).context["shape"]
    assert shape["target"]["headers"] == {"X-A": "b: c", "X-B": "d"} and shape["retry"]["max_attempts"] == 5
    again = values(browser.get(f"{path}/edit"))
    browser.post(f"{path}/edit", again)
    assert browser.get(path).context["job"].version == 1, "saved as it was: no change"


def test_the_limits_of_a_job_come_back_as_they_were(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant, "editor")
    form = {**values(browser.get("/console/jobs/new")), "name": "limited", "url": "http://127.0.0.1:9999/x"}
    wrong = {**form, "key_name": "/customer/id", "rate_burst": "3"}
    for more in ({}, {"key_by": "payload", "key_name": "customer", "rate_runs": "0"}, {"key_by": "label"}):
        page = browser.post("/console/jobs/new", {**wrong, **more, "key_max": "x"}, status=400).content.decode()
        assert 'id="error-key_name"' in page or 'id="error-key_max"' in page
    limits = {"key_by": "payload", "key_name": "/customer/id", "key_max": "2", "rate_runs": "60"}
    path = browser.post("/console/jobs/new", {**form, **limits})["Location"]
    shape = browser.get(path).context["shape"]
    assert shape["concurrency_key"] == {"payload": "/customer/id", "max": 2}
    assert shape["rate_limit"] == {"runs": 60, "per_s": 60, "burst": 6}
    page = " ".join(browser.text(path).split())
    assert "/customer/id" in page and "60 in 1 min" in page, page
    again = values(browser.get(f"{path}/edit"))
    browser.post(f"{path}/edit", again)
    assert browser.get(path).context["job"].version == 1, "saved as it was: no change"
    browser.post(f"{path}/edit", {**again, "key_by": "", "key_name": "", "rate_runs": "", "rate_burst": ""})
    shape = browser.get(path).context["shape"]
    assert (shape["concurrency_key"], shape["rate_limit"]) == (None, None)


def test_a_jobs_credentials_stay_through_an_edit(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant), f"/console/jobs/{kept.job}"
    given = values(browser.get(f"{path}/edit"))
    assert "***" in given["url"] and "***" in given["headers"]
    query = (
        f"SELECT target::text FROM {kept.tenant.schema_name}.schedules_jobversion WHERE job_id = %s ORDER BY version"
    )
    before = conn.execute(query, [kept.job]).fetchall()
    browser.post(f"{path}/edit", {**given, "timeout_s": "33"})
    after = conn.execute(query, [kept.job]).fetchall()
    assert len(after) == len(before) + 1 and after[-1] == before[-1]


def test_a_target_that_the_fields_can_not_say_is_json(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    form = {**values(browser.get("/console/jobs/new")), "name": "py", "mode": "json", "kind": "python"}
    assert (
        'id="error-target"' in browser.post("/console/jobs/new", {**form, "target": "[]"}, status=400).content.decode()
    )
    path = browser.post("/console/jobs/new", {**form, "target": '{"task": "shardbeat.noop"}'})["Location"]
    given = values(browser.get(f"{path}/edit"))
    assert given["mode"] == "json" and "shardbeat.noop" in given["target"]


def test_two_people_edit_a_job(kept: Stock, console_of: Any) -> None:
    browser, path = console_of(kept.tenant), f"/console/jobs/{kept.job}/edit"
    mine = values(browser.get(path))
    browser.post(path, {**mine, "timeout_s": "44"})
    page = browser.post(path, {**mine, "timeout_s": "55"}, status=409)
    assert ("Time-out of an attempt", "44", "55") in page.context["differs"]
    browser.post(path, values(page))


def test_quotas_are_told_in_the_form(kept: Stock, acme: Tenant, console_of: Any) -> None:
    from tenants.models import Plan

    Plan.objects.filter(pk=acme.plan_id).update(max_schedules=1, max_jobs=1)
    try:
        browser = console_of(acme)
        form = {**values(browser.get(f"{NEW}?job={kept.job}")), "name": "b", "cron": "0 3 * * *", "do": "save"}
        assert "b" in browser.post(NEW, form, status=429).content.decode()
        job = {**values(browser.get("/console/jobs/new")), "name": "b", "url": "http://127.0.0.1:9999/x"}
        browser.post("/console/jobs/new", job, status=429)
    finally:
        Plan.objects.filter(pk=acme.plan_id).update(max_schedules=None, max_jobs=None)


def test_huge_and_odd_input_is_told(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    form = {**values(browser.get(f"{NEW}?job={kept.job}")), "name": "n" * 5_000, "cron": "0 3 * * *", "do": "save"}
    browser.post(NEW, form, status=400)
    browser.post(NEW, {**form, "name": "ok", "labels": "no colon"}, status=400)
    browser.post(NEW, {**form, "name": "ok", "more": '{"name": "x"}'}, status=400)
    browser.post(NEW, {**form, "name": "a\0b"}, status=400)
    browser.post(NEW, {}, status=400)
    browser.post(NEW, {**form, "name": "ok", "kind": "every_s", "every": "9" * 14, "unit": "0"}, status=400)
