"""Every page that reads: for both ends of the roles, with hostile content, empty, and for nobody of another tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.fixtures_portal import HOSTILE
from tests.portal.stock import Stock, stock

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.fixture
def kept(acme: Tenant, conn: Any, registry: Any) -> Stock:
    return stock(acme, conn, registry)


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_every_page_is_there(kept: Stock, console_of: Any, role: str) -> None:
    browser = console_of(kept.tenant, role)
    for path in kept.paths:
        assert "<h1" in browser.text(path)


def test_empty_pages_say_what_to_do(acme: Tenant, console_of: Any) -> None:
    browser = console_of(acme)
    assert "Nothing is set up yet." in browser.text("/console/")
    for path in ("jobs", "schedules", "executions", "dead-letters", "operations", "webhooks", "keys"):
        assert 'class="empty"' in browser.text(f"/console/{path}")


def test_what_is_written_by_others_is_only_text(acme: Tenant, conn: Any, registry: Any, console_of: Any) -> None:
    kept = stock(acme, conn, registry, name=HOSTILE, payload={HOSTILE: [HOSTILE, "</pre></textarea><script>"]})
    browser = console_of(acme)
    for path in [*kept.paths, f"/console/jobs/{kept.job}/edit", f"/console/schedules/{kept.schedule}/edit"]:
        page = browser.text(path)
        assert "<script>alert" not in page and "<img src=x" not in page, path
    assert "&lt;script&gt;alert(1)" in browser.text(f"/console/schedules/{kept.schedule}")


def test_credentials_are_on_no_page(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    for path in [*kept.paths, f"/console/jobs/{kept.job}/edit"]:
        assert "hush" not in browser.text(path), path


def test_a_large_payload_is_cut(acme: Tenant, conn: Any, registry: Any, console_of: Any) -> None:
    kept = stock(acme, conn, registry, payload={"a": "x" * 200_000})
    page = console_of(acme).text(f"/console/executions/{kept.done}")
    assert len(page) < 60_000 and "more characters" in page


def test_nothing_of_another_tenant_is_there(kept: Stock, globex: Tenant, console_of: Any) -> None:
    stranger = console_of(globex)
    for path in kept.paths:
        if any(character.isdigit() for character in path):  # of an id
            assert stranger.get(path, status=404), path
        else:
            assert "nightly" not in stranger.text(path), path


def test_ids_that_are_none_and_filters_that_are_nonsense(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    nowhere = "00000000-0000-7000-8000-000000000000"
    for kind in ("jobs", "schedules", "executions", "dead-letters"):
        assert "There is nothing here" in browser.text(f"/console/{kind}/{nowhere}", status=404)
        assert browser.client.get(f"/console/{kind}/1").status_code == 404
        nonsense = "state=x&job=%00&schedule='&trigger=%F0%9F%92%A9&status=all&name=%00%ff&before=x&window=y&kind=z"
        browser.get(f"/console/{kind}?{nonsense}")
    browser.get(f"/console/schedules/{kept.schedule}?count=999999999")


def test_filters_choose(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    dead = browser.text("/console/executions?state=dead")
    assert str(kept.dead) in dead and str(kept.done) not in dead
    assert str(kept.done) not in browser.text("/console/executions?trigger=schedule&window=all")
    assert str(kept.waiting) in browser.text(f"/console/executions?job={kept.job}&window=7d")
    assert "nightly job" not in browser.text("/console/jobs?status=paused").partition("</form>")[2]
    assert str(kept.letter) not in browser.text("/console/dead-letters?status=resolved")
    assert str(kept.schedule) in browser.text("/console/schedules?name=NIGHT&status=active")


def test_pages_of_a_list_have_no_gap(kept: Stock, console_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.portal import executions
    from apps.presenting import paging

    for module in (executions, paging):
        monkeypatch.setattr(module, "PAGE_ROWS", 1)
    browser, path, seen = console_of(kept.tenant), "/console/executions", []
    for _ in range(4):
        listed = browser.get(path).context["listed"]
        seen += [one.row.id for one in listed.rows]
        path = "/console/executions" + listed.older
    assert seen == sorted((kept.waiting, kept.done, kept.dead, kept.run), reverse=True) and listed.older == ""


def test_a_run_is_told_from_due_to_end(kept: Stock, console_of: Any) -> None:
    browser = console_of(kept.tenant)
    told = [one.what for one in browser.get(f"/console/executions/{kept.dead}").context["events"]]
    assert told[0] in ("Due", "Made") and told[-1] == "Dead" and "Attempt 1 failed" in told
    assert "waited to be released" in browser.text(f"/console/executions/{kept.waiting}")
    page = browser.get("/console/executions/" + str(kept.dead))
    parts, row = page.context["parts"], page.context["row"]
    assert sum(one.seconds for one in parts) == pytest.approx((row.finished_at - row.actual_at).total_seconds())


def test_a_statement_that_takes_too_long_says_how_to_ask_for_less(
    kept: Stock, console_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.portal import executions, pages

    def slow(*_: Any, **__: Any) -> Any:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")  # lint: allow no-sleep-in-tests: the database's, ended by its time-out

    monkeypatch.setattr(pages, "STATEMENT_MS", 50)
    monkeypatch.setattr(executions, "executions_read", slow)
    assert "This takes too long" in console_of(kept.tenant).text("/console/executions", status=503)


def test_runs_that_wait_for_each_other_are_linked(kept: Stock, console_of: Any) -> None:
    from apps.audit.services import Actor
    from apps.dispatch.submission import execution_submit
    from tests.api.makers import utc_now

    data = {"job": str(kept.job), "depends_on": [str(kept.waiting)]}
    actor = Actor(name="test", role="admin", tenant_id=kept.tenant.pk)
    child = execution_submit(tenant=kept.tenant, actor=actor, data=data, now=utc_now())
    browser = console_of(kept.tenant)
    for one, other, word in ((child, kept.waiting, "Depends on"), (kept.waiting, child, "Waited for by")):
        page = browser.text(f"/console/executions/{one}")
        assert word in page and f'href="/console/executions/{other}"' in page


def test_an_execution_leads_to_the_run_that_it_is_a_step_of(kept: Stock, console_of: Any, conn: Any) -> None:
    run = UUID(int=7)
    conn.execute(
        "UPDATE t_acme.executions_execution SET workflow_run_id = %s, step = 'load' WHERE id = %s", [run, kept.done]
    )
    page = console_of(kept.tenant).text(f"/console/executions/{kept.done}")
    assert f'<bdi>load</bdi> of <a class="mono" href="/console/workflow-runs/{run}">' in page
