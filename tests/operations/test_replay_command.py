"""`manage.py replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tenants.models import Tenant
from tenants.registry import Registry
from tests.commands import run_command
from tests.fixtures_flow import executions_of, letters_of, make_job, rows_of, ticket_of
from tests.operations.fixtures import work_off
from tests.operations.test_letters import deaths, run_what_waits

Conn = psycopg.Connection[Any]


def replay(*arguments: str) -> tuple[int, Any, str]:
    """Exit code, the answer (JSON where asked for) and standard error."""
    code, text, error = run_command("replay", "--tenant", "acme", *arguments)
    return code, json.loads(text) if text and "json" in arguments else text, error


def test_some_by_their_ids_at_once(conn: Conn, registry: Registry, acme: Tenant, tmp_path: Path) -> None:
    first, second = deaths(conn, registry, acme, make_job(acme), 2)
    letters = {key: str(row["id"]) for key, row in letters_of(conn, acme).items()}
    code, answer, _ = replay("--id", letters[first], "--dry-run", "--format", "json")
    assert (code, answer["items"][0]["execution"], ticket_of(conn, first)) == (0, str(first), None)
    payload = tmp_path / "payload.json"
    payload.write_text('{"fixed": true}')
    nowhere = str(uuid4())
    code, answer, _ = replay(
        "--id", letters[first], "--id", nowhere, "--payload", f"@{payload}", "--note", "mended", "--format", "json"
    )
    done, refused = answer["items"]
    made = next(run for run in executions_of(conn, acme) if run["id"] == UUID(done["execution"]))
    assert (made["replay_of"], made["payload"]) == (first, {"fixed": True})
    assert (code, refused["id"], refused["code"]) == (1, nowhere, "not_found")
    code, text, _ = replay("--id", letters[second])
    assert (code, text.strip()) == (0, f"{letters[second]}: execution {second} runs")
    assert ticket_of(conn, second)["state"] == "ready"


def test_many_by_a_filter_with_their_progress(
    conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = make_job(acme), make_job(acme)
    deaths(conn, registry, acme, job, 3)
    deaths(conn, registry, acme, other, 1)
    code, text, _ = replay("--filter", f"job={job}", "--dry-run")
    assert (code, text.splitlines()[0]) == (0, "3 open dead letters would be replayed.")
    code, answer, _ = replay("--all", "--dry-run", "--format", "json")
    assert (answer["count"], len(answer["sample"]), rows_of(conn, acme, "operations_operation")) == (4, 4, [])

    def meanwhile(seconds: float) -> None:
        newest = max(row["id"] for row in rows_of(conn, acme, "operations_operation"))
        work_off(acme, newest, most=3)
        run_what_waits(conn, registry, acme, outcomes.pop(0))

    monkeypatch.setattr("apps.operations.watching.sleep", meanwhile)
    outcomes = ["failed", "succeeded", "succeeded"]
    arguments = ("--filter", f"job={job}", "--rate", "500", "--max-in-flight", "50", "--canary", "1", "--wait")
    code, text, progress = replay(*arguments)
    assert code == 1
    assert "paused (canary_failed): of 3 letters 2 pending, 1 failed." in text
    assert "1/3  33 %  paused" in progress
    outcomes = ["succeeded"] * 3
    code, answer, progress = replay("--all", "--stop-after", "5", "--wait", "--format", "json")
    assert (code, answer["state"], answer["counts"]["succeeded"]) == (0, "completed", 4)
    assert "[##############################] 4/4 100 %  completed" in progress


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say which ones"),
        (["--id", "x"], "is no id"),
        (["--id", str(uuid4()), "--all"], "either ids or a filter"),
        (["--id", str(uuid4()), "--rate", "5"], "a filter instead of ids"),
        (["--filter", "job"], "name=value"),
        (["--filter", "job=x"], "/filter/job: must be an id"),
        (["--filter", "state=dead"], "no such filter"),
        (["--all", "--fingerprint", "f"], "leave the filters out"),
        (["--all", "--rate", "0"], "/rate_per_s"),
        (["--all", "--payload", "{"], "no JSON"),
        (["--all", "--payload", "@/nowhere/at/all"], "can't be read"),
        (["--all", "--max-replays", "0"], "1 or more"),
        (["--all", "--note", "x" * 501], "500 are allowed"),
    ],
)
def test_bad_input(acme: Tenant, arguments: list[str], said: str) -> None:
    code, _, error = replay(*arguments)
    assert (code, said in error) == (2, True), error
