"""Runs of workflows on the console: looked at, paused, answered by a person, run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.workflows.rows import ASKS, WAITS, run_with_rows

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.fixture
def run(acme: Tenant) -> UUID:
    return run_with_rows(acme, text="Ship it?")


def test_a_run_shows_its_graph_its_steps_and_who_waits_for_whom(
    acme: Tenant, console_of: Any, conn: Any, run: UUID
) -> None:
    browser, path = console_of(acme), f"/console/workflow-runs/{run}"
    assert str(run) in browser.text("/console/workflow-runs?state=running")
    assert str(run) not in browser.text("/console/workflow-runs?state=failed")
    assert "Ship it?" in browser.text("/console/approvals")
    page = browser.text(path)
    assert f'src="{path}/picture"' in page
    for name in ("extract", ASKS, WAITS):
        assert f"{path}/steps/{name}/explain" in page
    assert f"{path}/steps/{ASKS}/approve" in page and f"{path}/steps/{WAITS}/skip" in page
    picture = browser.get(f"{path}/picture")
    assert picture["Content-Type"] == "image/svg+xml" and "extract" in picture.content.decode()
    assert browser.get(f"{path}/steps/nothing/explain", status=404)
    assert browser.get(f"{path}/steps/nothing/skip", status=404)
    assert browser.get(f"{path}/retry", status=200)
    for beside in ("run.on_failure", "undo.extract"):
        conn.execute(
            f"UPDATE {acme.schema_name}.workflows_steprun SET step = %s WHERE state = 'failed' AND run_id = %s",
            [beside, run],
        )
        assert f"{path}/steps/{beside}/explain" in browser.text(path)
        assert beside in browser.text(f"{path}/steps/{beside}/explain")


def test_a_run_is_paused_answered_and_cancelled(acme: Tenant, console_of: Any, conn: Any, run: UUID) -> None:
    browser, path = console_of(acme, "operator"), f"/console/workflow-runs/{run}"
    browser.get(f"{path}/resume", status=409)
    browser.post(f"{path}/pause", {"reason": "holidays"})
    assert "holidays" in browser.text(path)
    browser.post(f"{path}/resume", {})
    browser.get(f"{path}/steps/{WAITS}/approve", status=409)
    browser.post(f"{path}/steps/{WAITS}/skip", {"reason": ""}, status=400)
    browser.post(f"{path}/steps/{ASKS}/approve", {"reason": "looks good"})
    (made,) = conn.execute(
        f"SELECT id FROM {acme.schema_name}.executions_execution WHERE step = %s", [WAITS]
    ).fetchone()
    assert f'href="{path}"' in browser.text(f"/console/executions/{made}"), "its step leads back to the run"
    states = dict(conn.execute(f"SELECT step, state FROM {acme.schema_name}.workflows_steprun").fetchall())
    assert states == {"extract": "failed", ASKS: "succeeded", WAITS: "running"}
    assert "looks good" in browser.text(path)
    browser.post(f"{path}/cancel", {})
    browser.get(f"{path}/pause", status=409)
    actions = {row[0] for row in conn.execute("SELECT action FROM audit_auditevent WHERE object_id = %s", [str(run)])}
    assert {"workflowrun.pause", "workflowrun.resume", "workflowrun.approve"} <= actions


def test_an_approval_asks_for_its_role(acme: Tenant, console_of: Any, run: UUID) -> None:
    editor = console_of(acme, "editor")
    editor.post(f"/console/workflow-runs/{run}/steps/{ASKS}/approve", {}, status=403)
