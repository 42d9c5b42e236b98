"""A tenant's schedules: the list, one of them, the form with its preview, and what can be done to one."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.conftest import HOSTILE
from tests.fixtures_flow import NOW, make_job, make_schedule
from tests.operations.fixtures import work_off

if TYPE_CHECKING:
    from tenants.models import Tenant

BASE = "/t/acme/admin/schedules/"
MASKED = {"token": "hush", "n": 1}


def values(response: Any) -> dict[str, str]:
    """What a browser would send back."""
    return {name: one.value for name, one in response.context["form"].fields.items()}


def do(page: Any, schedule: Any, verb: str, **given: Any) -> Any:
    """Looks at a verb, then does what was looked at; the receipt."""
    url = f"/t/acme/admin/do/schedule.{verb}/{schedule}/"
    looked = page.post(url, {**given, "look": "1", "reason": "because"}) if given else page.get(url)
    why = looked.context["why"]
    seen = {name: why[name].value() or "" for name in ("version", "meant", "seen")}
    done = page.post(url, {**given, **seen, "reason": "because"})
    assert done.status_code == 303, unescape(done.content.decode())
    return page.get(done["Location"])


def test_the_list_says_what_runs_when_and_who_paused_it(page: Any, acme: Tenant, fired: Any, conn: Any) -> None:
    schedule = fired(name=HOSTILE[:80])
    other = make_schedule(acme, name="the other one")
    do(page, other, "pause")
    text = page.get(BASE).content.decode()
    assert text.count('<svg class="strip"') == 2 and "The last 3, oldest first: 3 ready" in text
    assert "by <bdi>admin:ada</bdi>" in text and "<bdi>because</bdi>" in text and "Every minute" in text
    assert str(schedule) in text and "<script>alert" not in text
    paused = page.get(f"{BASE}?status=paused").content.decode()
    assert "the other one" in paused and str(schedule) not in paused
    assert "No schedule is like this" in page.get(f"{BASE}?name=nothing%00").content.decode()


def test_a_schedule_shows_its_next_runs_in_words(page: Any, acme: Tenant, fired: Any) -> None:
    schedule = fired(
        name=HOSTILE[:80], timezone="Europe/Berlin", payload=MASKED,
        windows=[{"from": "08:00", "to": "18:00"}], trigger={"cron": "0 */6 * * *"}, jitter_s=30,
    )  # fmt: skip
    answer = page.get(f"{BASE}{schedule}/")
    text = answer.content.decode()
    ahead = answer.context["next_runs"]
    assert len(ahead.runs) == 20 and ahead.left_out, "what the windows leave out stands between the runs"
    assert "outside of the daily windows" in text and "spread by jitter" in text and "+01:00" in text
    assert "hush" not in text and "<script>alert" not in text
    assert len(page.get(f"{BASE}{schedule}/?count=100").context["next_runs"].runs) == 100
    assert page.get(f"/t/globex/admin/schedules/{schedule}/").status_code == 404


def test_old_is_seen_against_new_before_it_is_saved(page: Any, acme: Tenant) -> None:
    from apps.audit.models import AuditEvent

    schedule = make_schedule(acme, cron="0 3 * * *", payload=MASKED, name="nightly")
    edit = f"{BASE}{schedule}/edit/"
    opened = page.get(edit)
    assert "hush" not in opened.content.decode(), "a secret's mask stands for it"
    given = {**values(opened), "cron": "0 4 * * *", "reason": "later is better", "do": "save"}
    not_yet = page.post(edit, given)
    assert ("trigger", {"cron": "0 3 * * *"}, {"cron": "0 4 * * *"}) in not_yet.context["changes"]
    assert len(not_yet.context["forecast"].change.added) >= 19 and not_yet.context["notice"]
    fragment = page.post(edit, {**given, "cron": "0 5 * * *"}, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in fragment and "0 5 * * *" in fragment and 'name="seen"' in fragment
    faulty = page.post(edit, {**given, "cron": "99 * * * *"}, headers={"HX-Request": "true"})
    assert faulty.status_code == 200 and "tone-bad" in faulty.content.decode()
    given = {**given, "seen": values(not_yet)["seen"]}
    assert page.post(edit, {**given, "reason": ""}).status_code == 400
    saved = page.post(edit, given)
    assert saved.status_code == 303, saved.content.decode()
    receipt = page.get(saved["Location"])
    assert "Saved as version 2" in receipt.content.decode()
    assert receipt.context["shape"]["payload"] == MASKED, "what was masked stays"
    assert AuditEvent.objects.filter(action="schedule.update", reason="later is better").count() == 1
    stale = page.post(edit, {**given, "cron": "0 6 * * *"})
    assert stale.status_code == 409
    assert ("trigger", {"cron": "0 4 * * *"}, {"cron": "0 6 * * *"}) in stale.context["changes"]
    done = do(page, f"{schedule}/1", "restore").content.decode()
    assert "is as it was, and version 3 now" in done
    assert page.get(f"{BASE}{schedule}/").context["shape"]["trigger"] == {"cron": "0 3 * * *"}


def test_a_new_one_is_previewed_then_made(page: Any, acme: Tenant) -> None:
    job = make_job(acme)
    new = f"{BASE}new/"
    given = {**values(page.get(f"{new}?job={job}")), "cron": "30 2 * * *", "timezone": "Europe/Berlin", "do": "save"}
    looked = page.post(new, given)
    assert len(looked.context["forecast"].runs) == 20 and looked.context["notice"]
    nameless = page.post(new, {**given, "seen": values(looked)["seen"]})
    assert nameless.status_code == 400 and 'id="error-name"' in nameless.content.decode()
    given["name"] = "brand new"
    made = page.post(new, {**given, "seen": values(page.post(new, given))["seen"]})
    assert made.status_code == 303
    assert "It is made, and due from now on." in page.get(made["Location"]).content.decode()


def test_it_is_paused_with_what_that_leaves_out_and_goes_on(page: Any, acme: Tenant) -> None:
    from kernel.clock import utc_now

    schedule = make_schedule(acme, cron="0 * * * *", misfire="fire_latest_n", misfire_max=2)
    until = f"{utc_now() + timedelta(hours=5):%Y-%m-%dT%H:%M}Z"
    url = f"/t/acme/admin/do/schedule.pause/{schedule}/"
    looked = page.post(url, {"resume_at": until, "look": "1"}).context["preview"]
    lines = {line.name: line.value for line in looked.lines}
    assert lines["Missed meanwhile"].startswith("5, from") and lines["Of those would run"] == "0"
    assert "past" in page.post(url, {"resume_at": "2001-01-01T00:00Z", "look": "1"}).content.decode()
    opened = page.get(url).context["why"]
    assert "is paused. It goes on by itself at" in do(page, schedule, "pause", resume_at=until).content.decode()
    seen = {name: opened[name].value() or "" for name in ("version", "meant", "seen")}
    stale = page.post(url, {**seen, "reason": "too late"})
    assert stale.status_code == 409 and "What has changed" in stale.content.decode()
    detail = page.get(f"{BASE}{schedule}/").content.decode()
    assert "by <bdi>admin:ada</bdi>: <bdi>because</bdi>" in detail and "It goes on by itself" in detail
    receipt = do(page, schedule, "resume", catch_up="on").content.decode()
    assert "goes on." in receipt and "schedule.pause" in receipt, "the receipt offers the way back"
    assert "was started as" in do(page, schedule, "trigger").content.decode()
    assert "is deleted" in do(page, schedule, "delete").content.decode()
    assert page.get(f"{BASE}{schedule}/").status_code == 404


def test_past_occurrences_run_after_they_were_looked_at(page: Any, acme: Tenant) -> None:
    schedule = make_schedule(acme, cron="0 3 * * *")
    given = {"begin": "2024-02-01", "end": "2024-02-04", "only": "missing", "order": "asc", "max_in_flight": "2"}
    url = f"/t/acme/admin/do/schedule.backfill/{schedule}/"
    wrong = page.post(url, {**given, "begin": "x", "look": "1"})
    assert "From: " in wrong.context["preview"].refused
    looked = page.post(url, {**given, "look": "1"}).context["preview"]
    assert {line.name: line.value for line in looked.lines}["Would run"] == "3"
    receipt = do(page, schedule, "backfill", **given)
    operation = receipt.context["told"]["link"].rstrip("/").split("/")[-1]
    assert work_off(acme, operation, most=3).running == 2


@pytest.fixture
def fired(acme: Tenant, conn: Any, registry: Any) -> Any:
    """Makes a schedule that has fired three times."""
    from tests.fixtures_flow import fire_all

    def make(**changes: Any) -> Any:
        schedule = make_schedule(acme, misfire="fire_all", now=NOW, **changes)
        fire_all(conn, registry, now=NOW + timedelta(minutes=3))
        return schedule

    return make
