"""The API over archives: the same answers as before, by id and by range."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from apps.archive.erasing import erase_some, receipt
from apps.archive.files import Store
from kernel.clock import utc_now
from tests.archive.hands import BEFORE, OLD_DAY, archive, history
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
CHANGES = ("as_of", "archived")


def told(answer: Any) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in CHANGES}


def all_of(api: Api, query: str) -> list[dict[str, Any]]:
    """All pages of a list."""
    found, cursor = list[dict[str, Any]](), ""
    while True:
        page = api.get(f"executions?{query}{cursor}")
        assert page.status == 200, page.body
        found += page.body["items"]
        if page.body["next_cursor"] is None:
            return found
        cursor = f"&cursor={page.body['next_cursor']}"


def test_what_is_archived_answers_as_before(
    conn: Conn, acme: Any, files: Store, api: Api, other_api: Api, settings: Any
) -> None:
    """By id with attempts and letters, in lists with filters over two days, page by page."""
    schema = acme.schema_name
    ids = [str(one) for one in history(conn, schema, 7) + history(conn, schema, 4, at=OLD_DAY + timedelta(days=2))]
    days = f"created_before={BEFORE:%Y-%m-%dT%H:%M:%SZ}"
    before = {
        one: [api.get(f"executions/{one}{path}").body for path in ("", "/attempts", "/dead-letters")] for one in ids
    }
    listed = {query: all_of(api, f"{days}{query}") for query in ("", "&state=dead", "&label=team:red", "&trigger=api")}
    assert listed[""] and all_of(api, f"archived=true&{days}") == []
    archive(conn, acme, files)
    assert all_of(api, days) == []

    for one in ids:
        execution, attempts, letters = before[one]
        now = api.get(f"executions/{one}").body
        assert told(now) == told(execution) and now["archived"] and not execution["archived"]
        assert api.get(f"executions/{one}/attempts").body == attempts
        assert api.get(f"executions/{one}/dead-letters").body == letters
    for query, rows in listed.items():
        found = all_of(api, f"archived=true&{days}{query}&page_size=3")
        assert [told(one) for one in found] == [told(one) for one in rows]
    two = next(one for one in ids if before[one][0]["attempt_count"] == 2)
    page = api.get(f"executions/{two}/attempts?page_size=1").body
    rest = api.get(f"executions/{two}/attempts?page_size=1&cursor={page['next_cursor']}").body
    assert page["items"] + rest["items"] == before[two][1]["items"] and rest["next_cursor"] is None
    dead = next(one for one in ids if before[one][2]["items"])
    assert api.get(f"executions/{dead}/dead-letters?status=open&count=true").body["count"] == 0

    assert other_api.get(f"executions/{ids[0]}").status == 404
    assert all_of(other_api, "archived=true") == []
    for wrong in ("count=true", "order=created_at"):
        assert api.get(f"executions?archived=true&{wrong}").status == 400
    settings.ARCHIVE_URL = ""
    assert api.get(f"executions/{ids[0]}").code == "archive_off"


@pytest.mark.parametrize("path", ["", "/attempts", "/dead-letters"])
def test_a_file_that_is_gone_is_said(conn: Conn, acme: Any, files: Store, api: Api, path: str) -> None:
    (one,) = history(conn, acme.schema_name, 1)
    archive(conn, acme, files)
    files.remove(f"{acme.schema_name}-{acme.pk}")
    answer = api.get(f"executions/{one}{path}")
    assert (answer.status, answer.code) == (500, "archive_damaged")


def test_the_console_shows_what_is_archived_and_erases_it(
    conn: Conn, acme: Any, files: Store, console_of: Any
) -> None:  # fmt: skip
    ids = history(conn, acme.schema_name, 10)
    archive(conn, acme, files)
    browser = console_of(acme)
    assert str(ids[0]) not in browser.text("/console/executions?window=all")
    assert str(ids[0]) in browser.text("/console/executions?window=archived")
    page, dead = f"/console/executions/{ids[0]}", f"/console/executions/{ids[4]}"
    assert "was read from a file" in browser.text(page) and "TimedOut" in browser.text(dead)
    assert "restore it first" in browser.text(page) and "restore it first" in browser.text(f"{page}/rerun", status=409)
    assert "why" in browser.post(f"{dead}/erase", {"reason": ""}, status=400).content.decode()
    browser.post(f"{dead}/erase", {"reason": "asked for"})
    shown = browser.text(dead)
    assert "contents were erased" in shown and "TimedOut" not in shown and "It was erased" in shown
    assert receipt(acme, ids[4]).left == [ids[4]], "its file is written anew by the next clean-up"
    assert erase_some(acme, now=utc_now()) == 1 and browser.text(dead).count("TimedOut") == 0
    console_of(acme, "operator").post(f"{page}/erase", {"reason": "asked for"}, status=403)
