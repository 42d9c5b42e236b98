"""Everything that can be done on the pages: with the same permissions as over the API, once, and not on stale pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.api.makers import audit
from tests.portal.stock import Stock, stock

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.fixture
def kept(acme: Tenant, conn: Any, registry: Any) -> Stock:
    return stock(acme, conn, registry)


def revision(browser: Any, path: str) -> str:
    return str(browser.get(path).context["form"]["revision"].value)


@pytest.mark.parametrize("role", ["viewer", "editor", "operator", "admin"])
def test_roles_are_those_of_the_api(kept: Stock, conn: Any, console_of: Any, role: str) -> None:
    from tenants.permissions import role_reaches

    browser = console_of(kept.tenant, role)
    for path, action in kept.verbs.items():
        allowed = role_reaches(role, action)
        answer = browser.client.get(path)
        expected = {True: (200, 409), False: (403,)}[allowed]
        assert answer.status_code in expected, (path, role)
        if not allowed:
            before = conn.execute("SELECT count(*) FROM audit_auditevent WHERE NOT allowed").fetchone()[0]
            page = browser.post(path, {}, status=403)
            after = conn.execute("SELECT count(*) FROM audit_auditevent WHERE NOT allowed").fetchone()[0]
            assert "needs the role" in page.content.decode() and after == before + 1, path


def test_what_one_may_not_is_shown_with_the_reason(kept: Stock, console_of: Any) -> None:
    viewer = console_of(kept.tenant, "viewer")
    for path in (f"jobs/{kept.job}", f"schedules/{kept.schedule}", f"executions/{kept.done}"):
        page = viewer.text(f"/console/{path}")
        assert "<button disabled" in page and "This needs the role" in page
        verbs = page.replace(f"/console/{path}/explain", "").replace(f"/console/{path}/completeness", "")  # they read
        assert f"/console/{path}/" not in verbs, "no link to a verb that is refused"


def test_verbs_of_other_tenants_are_not_there(kept: Stock, globex: Tenant, console_of: Any) -> None:
    stranger = console_of(globex)
    for path in kept.verbs:
        if not path.endswith(("/new", "/invite", "/bulk-cancel", "/bulk-pause")):
            assert stranger.client.get(path).status_code == 404
            assert stranger.client.post(path, {"revision": "1"}).status_code == 404


def test_a_schedule_is_paused_and_resumed(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "editor"), f"/console/schedules/{kept.schedule}"
    seen = revision(browser, f"{path}/pause")
    answer = browser.post(f"{path}/pause", {"reason": "the target moves", "revision": seen})
    assert answer["Location"] == path
    page = browser.text(path)
    assert "Paused. Resume takes it back." in page and "the target moves" in page and f"{path}/resume" in page
    browser.post(f"{path}/resume", {"revision": revision(browser, f"{path}/resume")})
    assert "Resumed." in browser.text(path)
    assert audit(conn, str(kept.schedule)) == ["schedule.create", "schedule.pause", "schedule.resume"]


def test_a_pause_may_end_by_itself(kept: Stock, console_of: Any) -> None:
    browser, path = console_of(kept.tenant), f"/console/schedules/{kept.schedule}"
    seen = revision(browser, f"{path}/pause")
    wrong = browser.post(f"{path}/pause", {"resume_at": "2020-01-01T08:00", "revision": seen}, status=400)
    assert "lies in the past" in wrong.content.decode()
    browser.post(f"{path}/pause", {"resume_at": "2040-01-01T08:00", "revision": seen})
    assert "2040-01-01 07:00:00" in browser.text(path), "Berlin's clock"


@pytest.mark.parametrize("verb", ["pause", "delete"])
def test_stale_pages_do_nothing(kept: Stock, conn: Any, console_of: Any, verb: str) -> None:
    browser = console_of(kept.tenant)
    for kind, key in (("schedules", kept.schedule), ("jobs", kept.job)):
        for stale in ("99", "", "1 OR 1", "-1"):
            page = browser.post(f"/console/{kind}/{key}/{verb}", {"revision": stale}, status=409)
            assert "It has changed since you looked" in page.content.decode()
    rows = conn.execute(
        "SELECT action, allowed, reason FROM audit_auditevent WHERE object_id = %s ORDER BY id", [str(kept.schedule)]
    ).fetchall()
    assert rows == [("schedule.create", True, ""), *[(f"schedule.{verb}", False, "stale")] * 4]


def test_a_schedule_runs_once_when_asked(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "editor"), f"/console/schedules/{kept.schedule}/run"
    answer = browser.post(path, {"revision": revision(browser, path), "overlap": ""})
    assert "manual" in browser.text(answer["Location"])
    refused = browser.post(path, {"revision": revision(browser, path), "overlap": "nonsense"}, status=400)
    assert "must be one of" in refused.content.decode()


def test_a_job_is_run_paused_and_resumed(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "editor"), f"/console/jobs/{kept.job}"
    wrong = browser.post(f"{path}/run", {"payload": "{", "priority": "x"}, status=400)
    assert "must be JSON" in wrong.content.decode()
    wrong = browser.post(f"{path}/run", {"priority": "11"}, status=400)
    assert 'id="error-priority"' in wrong.content.decode()
    answer = browser.post(f"{path}/run", {"payload": '{"by": "hand"}', "priority": "9"})
    assert "by&quot;: &quot;hand" in browser.text(answer["Location"])
    browser.post(f"{path}/pause", {"reason": "why not", "revision": revision(browser, f"{path}/pause")})
    assert "why not" in browser.text(path)
    browser.get(f"{path}/pause", status=409)
    browser.post(f"{path}/resume", {"revision": revision(browser, f"{path}/resume")})
    assert "job.resume" in audit(conn, str(kept.job))


def test_a_job_in_use_is_not_deleted(kept: Stock, console_of: Any) -> None:
    browser, path = console_of(kept.tenant), f"/console/jobs/{kept.job}"
    assert "Schedules use it" in browser.text(path)
    page = browser.post(f"{path}/delete", {"revision": revision(browser, f"{path}/delete")}, status=409)
    assert "nightly" in page.content.decode()
    schedule = f"/console/schedules/{kept.schedule}/delete"
    assert browser.post(schedule, {"revision": revision(browser, schedule)})["Location"] == "/console/schedules"
    assert browser.post(f"{path}/delete", {"revision": revision(browser, f"{path}/delete")})
    browser.get(path, status=404)
    assert "nightly job" in browser.text(f"/console/executions/{kept.done}"), "its history stays"


def test_an_execution_is_cancelled_once(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "operator"), f"/console/executions/{kept.waiting}"
    assert browser.post(f"{path}/cancel")["Location"] == path
    assert "Cancelled." in browser.text(path)
    browser.get(f"{path}/cancel", status=409)
    assert audit(conn, str(kept.waiting)) == ["execution.submit", "execution.cancel"]
    assert "There is nothing to cancel" not in browser.text(path) and "Run again" in browser.text(path)


def test_an_execution_is_run_again(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant, "operator")
    answer = browser.post(f"/console/executions/{kept.done}/rerun")
    assert str(kept.done) in browser.text(answer["Location"])
    assert answer["Location"].rpartition("/")[2] in browser.text(f"/console/executions/{kept.done}")
    browser.get(f"/console/executions/{kept.waiting}/rerun", status=409)
    wrong = browser.post(f"/console/executions/{kept.done}/rerun", {"payload": "{"}, status=400)
    assert "must be JSON" in wrong.content.decode()
    other = browser.post(f"/console/executions/{kept.done}/rerun", {"payload": '{"by": "hand"}'})
    assert "by&quot;: &quot;hand" in browser.text(other["Location"])


def test_a_dead_letter_is_replayed(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "operator"), f"/console/dead-letters/{kept.letter}"
    assert "must be JSON" in browser.post(f"{path}/replay", {"payload": "nope"}, status=400).content.decode()
    assert browser.post(f"{path}/replay", {"note": "mended"})["Location"] == f"/console/executions/{kept.dead}"
    page = browser.text(path)
    assert "replayed" in page and "mended" in page and "It is replayed already." in page
    browser.post(f"{path}/replay", {}, status=409)


def test_a_dead_letter_is_resolved(kept: Stock, conn: Any, console_of: Any) -> None:
    browser, path = console_of(kept.tenant, "operator"), f"/console/dead-letters/{kept.letter}"
    browser.post(f"{path}/resolve", {"note": "not needed"})
    assert "not needed" in browser.text(path)
    assert str(kept.letter) in browser.text("/console/dead-letters?status=resolved")
    browser.post(f"{path}/reopen", {"note": "needed after all"})
    assert str(kept.letter) in browser.text("/console/dead-letters") and "Resolve" in browser.text(path)


def test_a_get_changes_nothing(kept: Stock, conn: Any, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    before = conn.execute("SELECT count(*) FROM audit_auditevent").fetchone()
    for path in kept.verbs:
        browser.client.get(path)
    assert conn.execute("SELECT count(*) FROM audit_auditevent").fetchone() == before


def test_forms_without_a_token_are_refused(kept: Stock, console_of: Any) -> None:
    from django.test import Client

    browser = console_of(kept.tenant)
    strict = Client(headers={"Host": "acme.localhost"}, enforce_csrf_checks=True)
    strict.cookies = browser.client.cookies
    assert strict.post(f"/console/executions/{kept.waiting}/cancel").status_code == 403
