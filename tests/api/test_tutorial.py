"""docs/api.md is run as it stands: its shell in one session, its Python as one program, against real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from embedded.folder import choose_port
from tests.conftest import wait_until
from tests.fixtures_api import Api
from tests.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs/api.md").read_text().partition("\n## Tutorial\n")[2].partition("\n## ")[0]
MOST_S = 100
START_S = 90.0  # five processes begin at once


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL, re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(processes: Processes, conn: psycopg.Connection[Any], api: Api) -> Iterator[dict[str, str]]:
    """The variables that the tutorial begins with; web, dispatcher, worker and the demo's receiver run."""
    web, receiver = choose_port(remembered=None), choose_port(remembered=None)
    processes.web(web)
    processes.program("receiver", "-m", "demo.receiver", str(receiver))
    processes.dispatcher()
    processes.worker()
    wait_until(lambda: _count(conn, "tickets_worker") >= 1, "the worker", timeout_s=START_S)
    wait_until(lambda: " Listening at: " in processes.log("web"), "the web server", timeout_s=START_S)
    yield {
        "KEY": str(api.key), "API": f"http://127.0.0.1:{web}/api/v1", "RECEIVER": f"http://127.0.0.1:{receiver}",
        "no_proxy": "*",
    }  # fmt: skip


def run(command: list[str], place: dict[str, str], tmp_path: Path) -> str:
    done = subprocess.run(
        command, env={**os.environ, **place}, cwd=tmp_path, capture_output=True, text=True, timeout=MOST_S
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(4 * MOST_S)
def test_the_tutorial_works_as_it_stands(place: dict[str, str], tmp_path: Path, api: Api) -> None:
    script = "set -euo pipefail\n" + "".join(blocks("sh"))
    told = run(["bash", "-c", script], place, tmp_path)
    assert '"state": "succeeded"' in told
    assert '"code": "stale"' in told
    assert api.get("jobs").body["items"] == [] and api.get("schedules").body["items"] == []

    (tmp_path / "integration.py").write_text("".join(blocks("python")))
    for _ in range(2):  # also where everything is there already
        told = run([sys.executable, "integration.py"], place, tmp_path)
        assert told.splitlines() == [
            "invoices succeeded",
            "reminders succeeded",
            "invalid {'/timout_s': 'unknown_field', '/target': 'required'}",
        ]
    assert sorted(one["external_id"] for one in api.get("jobs").body["items"]) == ["invoices", "reminders"]
    assert len(api.get("schedules").body["items"]) == 2


def test_its_links_lead_somewhere() -> None:
    for page in ("api.md", "reference/operations.md", "reference/filters.md", "reference/errors.md"):
        text = (ROOT / "docs" / page).read_text()
        for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text)):
            if target.startswith(("http:", "https:")):
                continue
            found = (ROOT / "docs" / page).parent / target if target else ROOT / "docs" / page
            assert found.exists(), (page, target)
            anchors = {_anchor(line) for line in found.read_text().splitlines() if line.startswith("#")}
            assert not anchor or anchor in anchors, (page, target, anchor)


def _anchor(heading: str) -> str:
    """As GitHub makes them."""
    text = heading.lstrip("#").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _count(conn: psycopg.Connection[Any], table: str) -> int:
    row = conn.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])
