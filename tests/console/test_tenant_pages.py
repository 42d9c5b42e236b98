"""The admin below /t/<slug>/: the path decides, and nothing of it stays behind."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from kernel.ids import attempt_id
from tests.console.conftest import HOSTILE, logged_in

TABLES = (
    "schedules/job", "schedules/jobversion", "schedules/schedule", "executions/execution", "executions/attempt",
    "deadletters/deadletter",
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_each_table_is_listed_with_the_tenants_band(page: Any, acme: Any, history: Any, table: str) -> None:
    history(acme)
    response = page.get(f"/t/acme/admin/{table}/")
    assert response.status_code == 200
    text = response.content.decode()
    assert 'class="tenant-band band-' in text and "<strong>acme</strong>" in text
    assert "<script>alert" not in text and "<img src=x" not in text


def test_the_index_and_each_row_can_be_opened(page: Any, acme: Any, history: Any) -> None:
    execution = history(acme, payload='{"deep": {"api_key": "hush", "text": "' + "x" * 10_000 + '"}}')
    assert page.get("/t/acme/admin/").status_code == 200
    text = page.get(f"/t/acme/admin/executions/execution/{execution}/change/").content.decode()
    assert "hush" not in text
    assert "more characters" in text
    assert "&lt;script&gt;alert(1)" in text and "<script>alert" not in text
    assert f'href="/t/acme/admin/executions/attempt/?q={execution}"' in text
    attempts = page.get(f"/t/acme/admin/executions/attempt/?q={execution}").content.decode()
    assert "1 attempt" in attempts
    last = UUID(int=2**128 - 1)  # that there can be
    assert page.get(f"/t/acme/admin/executions/attempt/?q={last}").status_code == 200


def test_secrets_in_a_jobs_target_are_masked(page: Any, acme: Any, history: Any) -> None:
    history(acme)
    from apps.schedules.models import JobVersion
    from tenants import door

    with door.inside(acme):
        pk = JobVersion.objects.values_list("pk", flat=True)[0]
    text = page.get(f"/t/acme/admin/schedules/jobversion/{pk}/change/").content.decode()
    assert "hush" not in text and "***" in text and "seen" in text


def test_two_tabs_on_two_tenants_stay_apart(browser: Any, acme: Any, globex: Any, history: Any) -> None:
    tab = browser()
    ours, theirs = history(acme, name="ours"), history(globex, name="theirs")
    for _ in range(3):
        first = tab.get("/t/acme/admin/executions/execution/").content.decode()
        second = tab.get("/t/globex/admin/executions/execution/").content.decode()
        assert str(ours) in first and str(theirs) not in first
        assert str(theirs) in second and str(ours) not in second
        assert "/t/globex/" not in first and "/t/acme/" not in second
    assert tab.get(f"/t/globex/admin/executions/execution/{ours}/change/").status_code == 302  # not there
    assert "_tenant" not in str(dict(tab.session))


def test_after_a_failure_in_a_view_the_schema_is_public_again(
    page: Any, acme: Any, globex: Any, history: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The careful client looks at schema and prefix after each request."""
    from apps.console.tenant_admin import ExecutionAdmin

    ours = history(acme)

    def broken(self: Any, request: Any) -> Any:
        list(super(ExecutionAdmin, self).get_queryset(request)[:1])  # the connection has used the tenant's schema
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(ExecutionAdmin, "get_queryset", broken)
        assert page.get("/t/acme/admin/executions/execution/").status_code == 500
    other = page.get("/t/globex/admin/executions/execution/").content.decode()
    assert str(ours) not in other
    assert page.get("/admin/tenants/tenant/").status_code == 200


def test_a_list_that_takes_too_long_says_so(page: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.console import reading
    from apps.console.tenant_admin import ExecutionAdmin

    monkeypatch.setattr(reading, "STATEMENT_MS", 50)
    slow = "SELECT 1 FROM pg_sleep(1)"
    monkeypatch.setattr(ExecutionAdmin, "get_queryset", lambda self, request: _run(slow))
    response = page.get("/t/acme/admin/executions/execution/")
    assert response.status_code == 503
    assert "Narrow the list" in response.content.decode()
    assert "/t/acme/admin/executions/execution/" in response.content.decode()


@pytest.mark.parametrize("table", ["executions/execution", "executions/attempt"])
def test_an_answer_of_a_target_is_shown_as_text_and_bounded(
    page: Any, acme: Any, history: Any, conn: psycopg.Connection[Any], table: str
) -> None:
    """What a target answers is its own: markup, direction marks, a body as large as is kept."""
    execution = history(acme)
    answer = {"status": 500, "headers": {"Server": HOSTILE}, "body": HOSTILE + "x" * 60_000, "base64": False}
    error = {"class": "http_status", "message": "The target answered 500.", "status": 500, "excerpt": HOSTILE}
    conn.execute(
        f"UPDATE {acme.schema_name}.executions_execution SET result = %s, error = %s",
        [json.dumps(answer), json.dumps(error)],
    )
    conn.execute(f"UPDATE {acme.schema_name}.executions_attempt SET error = %s", [json.dumps(error)])
    key = execution if table.endswith("execution") else attempt_id(execution, 1)
    text = page.get(f"/t/acme/admin/{table}/{key}/change/").content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text and "<img src=x" not in text
    assert "x" * 5_000 not in text


def test_nothing_can_be_added_changed_or_deleted(page: Any, acme: Any, history: Any) -> None:
    execution = history(acme)
    for table in TABLES:
        assert page.get(f"/t/acme/admin/{table}/add/").status_code == 403
        text = page.get(f"/t/acme/admin/{table}/").content.decode()
        assert "delete_selected" not in text
    for verb, data in (("change", {"state": "dead"}), ("delete", {"post": "yes"})):
        path = f"/t/acme/admin/executions/execution/{execution}/{verb}/"
        assert page.post(path, data).status_code == 403
    action = {"action": "delete_selected", "_selected_action": [str(execution)]}
    page.post("/t/acme/admin/executions/execution/", action)
    assert str(execution) in page.get("/t/acme/admin/executions/execution/").content.decode()


def test_who_is_not_staff_learns_nothing_about_tenants(stranger: Any, acme: Any) -> None:
    from django.contrib.auth.models import User

    for client in (stranger, logged_in(User.objects.create_user("bob", password="not a word"))):
        for slug in ("acme", "nobody-here"):
            response = client.get(f"/t/{slug}/admin/executions/execution/?q=1")
            assert response.status_code == 302
            assert response.headers["Location"] == (f"/admin/login/?next=/t/{slug}/admin/executions/execution/%3Fq%3D1")


def test_staff_need_the_permission_to_look(acme: Any, history: Any) -> None:
    from django.contrib.auth.models import Permission, User

    history(acme)
    bob = User.objects.create_user("bob", password="not a word", is_staff=True)
    client = logged_in(bob)
    assert client.get("/t/acme/admin/executions/execution/").status_code == 403
    bob.user_permissions.add(Permission.objects.get(codename="view_execution"))
    assert client.get("/t/acme/admin/executions/execution/").status_code == 200


@pytest.mark.parametrize(
    "path", ["/t/nobody-here/admin/", "/t/public/admin/", "/t/acme/", "/t/ACME/admin/", "/t//admin/"]
)
def test_an_unknown_tenant_is_not_found(page: Any, acme: Any, path: str) -> None:
    assert page.get(path).status_code == 404


def test_the_admin_is_not_on_a_tenants_host(page: Any, acme: Any) -> None:
    for path in ("/admin/", "/admin/login/", "/t/acme/admin/"):
        assert page.get(path, headers={"host": "acme.localhost"}).status_code == 404


def test_slashes_lead_home(page: Any, acme: Any) -> None:
    assert page.get("/t/acme/admin").headers["Location"] == "/t/acme/admin/"
    assert page.get("/admin").headers["Location"] == "/admin/"
    assert page.get("/").headers["Location"] == "/admin/"


def test_searching_finds_exact_ids_and_takes_hostile_text(page: Any, acme: Any, history: Any) -> None:
    execution = history(acme)
    other = history(acme)
    for query in (str(execution), execution.hex):
        text = page.get("/t/acme/admin/executions/execution/", {"q": query}).content.decode()
        assert str(execution) in text and str(other) not in text
    for query in (HOSTILE, "' OR 1=1 --", "\x00", "{" + str(execution), "%"):
        response = page.get("/t/acme/admin/executions/execution/", {"q": query})
        assert response.status_code == 200
    job = page.get("/t/acme/admin/schedules/job/", {"q": "no such job"}).content.decode()
    assert "0 jobs" in job


@pytest.mark.parametrize(
    "query", ["made=hour", "made=older-day", "made=x", "state=dead", "state=x", "p=7", "o=1", "all="]
)
def test_filters_and_pages(page: Any, acme: Any, history: Any, query: str) -> None:
    execution = history(acme)
    response = page.get(f"/t/acme/admin/executions/execution/?{query}")
    assert response.status_code in (200, 302)
    if query == "made=hour":
        assert str(execution) in response.content.decode()
    if query in ("made=older-day", "state=dead"):
        assert str(execution) not in response.content.decode()


def test_the_count_stops_at_ten_thousand(page: Any, acme: Any, history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.console import reading

    monkeypatch.setattr(reading, "CAP", 2)
    for _ in range(3):
        history(acme)
    assert "There are more" in page.get("/t/acme/admin/executions/execution/").content.decode()


def test_lists_need_few_queries_and_leave_payloads_out(
    page: Any, acme: Any, history: Any, statements: list[str], monkeypatch: Any
) -> None:
    for _ in range(20):
        history(acme)
    monkeypatch.setattr("apps.console.snapshot.store.FRESH_S", 60.0)  # made once a second for all, not by each page
    page.get("/t/acme/admin/")
    statements.clear()
    page.get("/t/acme/admin/executions/execution/")
    reads = [one for one in statements if "SELECT" in one]
    assert len(reads) <= 12, reads
    (rows,) = [one for one in reads if "executions_execution" in one and "COUNT" not in one]
    assert '"payload"' not in rows and '"result"' not in rows
    assert "LIMIT" in rows or len(reads) <= 12


def _run(statement: str) -> Any:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_what_has_expired_is_listed_and_says_why(page: Any, acme: Any, conn: Any, registry: Any) -> None:
    from apps.outcomes.expire import expire_batch
    from tests.fixtures_flow import MINUTE, NOW, make_job, make_ticket

    job = make_job(acme, max_queue_age_s=60, total_timeout_s=900)
    execution = make_ticket(acme, job)
    waiting = "/admin/tickets/ticket/?start_by="
    assert [page.get(waiting + one).context["cl"].result_count for one in ("set", "passed")] == [1, 1]
    expire_batch(conn, registry, now=NOW + 2 * MINUTE, limit=10)
    assert page.get(waiting + "passed").context["cl"].result_count == 0
    listed = page.get("/t/acme/admin/executions/execution/?state=expired").content.decode()
    assert str(execution) in listed and "max_queue_age" in listed
    shown = page.get(f"/t/acme/admin/executions/execution/{execution}/change/").content.decode()
    assert "had 60 s to start" in shown
    versions = page.get(f"/t/acme/admin/schedules/jobversion/?q={job}").content.decode()
    assert "max queue age s" in versions.lower() and ">900<" in versions
