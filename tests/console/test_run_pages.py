"""A tenant's runs as operators see them: the list, one run, and what is done to it. All its texts are hostile."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.console.conftest import HOSTILE
from tests.console.test_verbs import hidden, of_role
from tests.fixtures_flow import live_worker
from tests.portal.stock import Stock, stock
from tests.portal.test_statements import MOST_STATEMENTS, NO_QUERIES

Conn = psycopg.Connection[Any]


@pytest.fixture
def theirs(acme: Any, conn: Conn, registry: Any) -> Stock:
    return stock(acme, conn, registry, name=HOSTILE[:60], payload={"text": HOSTILE, "api_key": "hush"})


def looked(browser: Any, path: str, status: int = 200) -> str:
    found = browser.get(path)
    text: str = found.content.decode()
    assert found.status_code == status, f"{path}: {found.status_code}"
    assert "<script>alert" not in text and "<img src=x" not in text and "hush" not in text
    assert "\u202e" not in text or "<bdi" in text
    return text


def test_the_list_is_narrowed_and_its_search_leads_to_the_run(page: Any, theirs: Stock, conn: Conn) -> None:
    base = "/t/acme/admin/executions/"
    runs = (theirs.waiting, theirs.done, theirs.dead)
    listed = looked(page, base)
    assert all(f'href="{base}{one}/"' in listed for one in runs)
    for query, fits in (
        ("state=dead", {theirs.dead}), ("state=alive&trigger=api", {theirs.waiting}), (f"job={theirs.job}", set(runs)),
        ("window=1h&state=succeeded", {theirs.done}), (f"schedule={theirs.schedule}", set()),
    ):  # fmt: skip
        found = looked(page, f"{base}?{query}")
        assert {one for one in runs if f"{base}{one}/" in found} == fits, query
    assert "There is no job of this name" in looked(page, f"{base}?job=nothing&schedule=%00&state=x&window=x&before=x")
    assert page.get(f"{base}?q={theirs.dead}")["Location"] == f"{base}{theirs.dead}/"
    conn.execute(
        f"UPDATE {theirs.tenant.schema_name}.executions_execution SET run_key = 'k 1' WHERE id = %s", [theirs.done]
    )
    found = looked(page, f"{base}?q=k+1")
    assert f"{base}{theirs.done}/" in found and f"{base}{theirs.dead}/" not in found
    assert str(theirs.dead) not in looked(page, "/t/globex/admin/executions/?window=all")
    assert page.get(f"/t/globex/admin/executions/{theirs.dead}/").status_code == 404


def test_a_run_is_told_with_all_that_belongs_to_it(
    page: Any, theirs: Stock, conn: Conn, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = theirs.tenant.schema_name
    answer = {
        "status": 500, "headers": {"Server": HOSTILE, "Set-Cookie": "hush"}, "body": HOSTILE + "x" * 60_000,
        "base64": False, "truncated": True,
    }  # fmt: skip
    conn.execute(
        f"UPDATE {schema}.executions_execution SET result = %s, delays = %s, started_at = actual_at + interval '25 s',"
        " queued_at = actual_at + interval '20 s', created_at = actual_at WHERE id = %s",
        [json.dumps(answer), json.dumps([{"code": "job_concurrency", "s": 18}]), theirs.done],
    )
    conn.execute(
        f"UPDATE {schema}.executions_attempt SET started_at = (SELECT started_at FROM {schema}.executions_execution"
        " WHERE id = execution_id) WHERE execution_id = %s",
        [theirs.done],
    )
    worker = live_worker(conn, queues=["http.shared.0"])
    conn.execute(
        f"UPDATE {schema}.executions_attempt SET worker_id = %s WHERE execution_id = %s", [worker, theirs.done]
    )
    text = looked(page, f"/t/acme/admin/executions/{theirs.done}/")
    assert "It started 25 s late: 20 s until it was released, 5.0 s until a worker took it." in text
    assert "Attempt 1 started" in text and f"on worker test:1 ({worker})" in text
    assert "18 s:" in text and "job_concurrency" in text
    assert "Status 500" in text and "more characters" in text and "x" * 5_000 not in text
    assert "curl --globoff" in text and "token=***" in text and "Authorization: ***" in text.replace("&#x27;", "'")
    dead = looked(page, f"/t/acme/admin/executions/{theirs.dead}/")
    assert "dead letter" in dead and "Attempt 1 failed" in dead
    waiting = looked(page, f"/t/acme/admin/executions/{theirs.waiting}/")
    monkeypatch.setattr("apps.console.snapshot.store.FRESH_S", 1e6)  # one for all pages of a second, not of a test
    base = "/t/acme/admin/executions/"
    for path in (
        f"{base}{theirs.done}/", f"{base}{theirs.waiting}/", base,
        f"{base}?job={theirs.job}&schedule={theirs.schedule}&state=dead&trigger=api",
        "/admin/live/", "/admin/live/?tenant=acme&state=ready",
    ):  # fmt: skip
        statements.clear()
        looked(page, path)
        asked = [one for one in statements if not one.startswith(NO_QUERIES)]
        assert len(asked) <= MOST_STATEMENTS, (path, len(asked), asked)
    assert "Now: ready" in waiting and f"/t/acme/admin/do/execution.cancel/{theirs.waiting}/" in waiting


def test_cancel_and_run_again_with_a_reason_and_a_way_back(theirs: Stock, conn: Conn) -> None:
    responder, viewer, base = of_role("responder"), of_role("viewer"), "/t/acme/admin/do"
    assert "Your role may not do this" in looked(viewer, f"/t/acme/admin/executions/{theirs.done}/")
    url = f"{base}/execution.rerun/{theirs.done}/"
    sent = hidden(looked(responder, url))
    assert viewer.post(url, {**sent, "reason": "x"}).status_code == 403
    receipt = looked(responder, responder.post(url, {**sent, "reason": "once more"})["Location"])
    [(new,)] = conn.execute(
        f"SELECT id FROM {theirs.tenant.schema_name}.executions_execution WHERE replay_of = %s", [theirs.done]
    ).fetchall()
    undo = f"{base}/execution.cancel/{new}/"
    assert f'href="{undo}"' in receipt
    done = responder.post(undo, {**hidden(looked(responder, undo)), "reason": "not needed"})
    assert "It is cancelled." in looked(responder, done["Location"])
    told = looked(responder, f"/t/acme/admin/executions/{new}/")
    assert "execution.cancel" in told and "not needed" in told
    assert "It has ended: it is cancelled." in looked(responder, undo)
    refused = looked(responder, f"{base}/execution.rerun/{theirs.waiting}/")
    assert "It has not ended" in refused
    other = responder.get(f"/t/globex/admin/do/execution.cancel/{theirs.waiting}/")
    assert other.status_code == 404, "the tenant of the path decides"
