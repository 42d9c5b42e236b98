"""`make run` from a copy of the checkout: reaches working runs, survives a killed part, stops in time, goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from embedded.folder import choose_port

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("manage.py", "platform", "tenants", "apps", "workers", "templates")
NAMED = ("DATABASE_URL", "MIGRATION_DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE", "SECRET_KEY")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
REACHES_RESULTS_S = 100
STOPS_S = 16

WaitFor = Callable[..., Any]


class Run:
    """One `make run`, without the making of an environment."""

    def __init__(self, checkout: Path, *, port: int) -> None:
        self.checkout = checkout
        self.fields: set[str] = set()  # of the last answer's header
        self.output = checkout / "output.txt"
        kept = {name: value for name, value in os.environ.items() if name not in NAMED}
        env = {**kept, "PORT": str(port), "PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'platform'}"}
        command = [sys.executable, "-m", "demo"]
        with self.output.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=checkout, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def said(self) -> str:
        return self.output.read_text()

    def demo(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.checkout / "var" / "demo.json").read_text())
        return found

    def stop(self, number: signal.Signals) -> float:
        """Seconds that it took to end."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(timeout=60)
        return time.monotonic() - began

    def get(self, path: str, *, tenant: int = 0) -> Any:
        demo = self.demo()
        key = demo["tenants"][tenant]["api_key"]
        request = urllib.request.Request(demo["base_url"] + path, headers={"Authorization": f"Bearer {key}"})
        with OPENER.open(request, timeout=10) as answer:
            self.fields = set(answer.headers)
            return json.load(answer)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture
def start(checkout: Path) -> Iterator[Callable[[int], Run]]:
    runs: list[Run] = []

    def one(port: int) -> Run:
        runs.append(Run(checkout, port=port))
        return runs[-1]

    yield one
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


@pytest.mark.timeout(400)
def test_it_runs_stops_and_goes_on(start: Callable[[int], Run], wait_for: WaitFor) -> None:
    port = choose_port(remembered=None)
    run = start(port)
    reached = wait_for(
        lambda: ("First results:" in run.said() and "succeeded" in run.said()) or run.process.poll() is not None,
        "the first results", timeout_s=REACHES_RESULTS_S,
    )  # fmt: skip
    assert reached
    assert run.process.poll() is None, run.said()

    demo = run.demo()
    assert set(demo) == {"base_url", "admin", "operators", "tenants"}
    roles = [one["role"] for one in demo["operators"]]
    assert roles == ["viewer", "responder", "operator", "platform", "auditor"]
    assert set(demo["admin"]) == {"url", "username", "password"}
    assert [set(tenant) for tenant in demo["tenants"]] == [{"slug", "host", "api_key", "console"}] * 2
    assert demo["base_url"] == f"http://127.0.0.1:{port}"
    assert (run.checkout / "var" / "demo.json").stat().st_mode & 0o077 == 0
    known = (run.checkout / "var" / "env").read_text().splitlines()
    assert f"PUBLIC_URL=http://127.0.0.1:{port}" in known, "or links of commands lead nowhere"
    for tenant in (0, 1):
        wait_for(lambda tenant=tenant: run.get("/api/v1/executions?state=dead", tenant=tenant)["items"], "dead letters")
        assert len(run.get("/api/v1/schedules?page_size=500", tenant=tenant)["items"]) > 200
        workflows = {one["name"] for one in run.get("/api/v1/workflows", tenant=tenant)["items"]}
        assert workflows == {"load-regions", "export-orders"}
        assert {"RateLimit", "RateLimit-Policy"} <= run.fields

    os.kill(process_in(run.checkout / "var" / "valkey"), signal.SIGKILL)
    wait_for(lambda: "valkey ended; starting it again" in run.said(), "the killed broker to be noticed")
    postmaster = int((run.checkout / "var" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGKILL)
    wait_for(lambda: "postgresql ended; starting it again" in run.said(), "the killed database to be noticed")
    killed_at = datetime.now(UTC).isoformat()
    later = "/api/v1/executions?" + urlencode({"state": "succeeded", "created_after": killed_at})
    wait_for(lambda: answer(run, later), "runs after both were killed", timeout_s=60)

    assert run.stop(signal.SIGINT) < STOPS_S
    assert run.process.returncode == 0, run.said()

    again = start(port)
    wait_for(lambda: "First results:" in again.said(), "the second run", timeout_s=REACHES_RESULTS_S)
    assert again.demo() == demo, "the same logins and keys"
    assert again.stop(signal.SIGTERM) < STOPS_S


def answer(run: Run, path: str) -> list[Any]:
    """The items of a list; none while the web does not answer."""
    try:
        items: list[Any] = run.get(path)["items"]
    except (OSError, ValueError):
        return []
    return items


def process_in(folder: Path) -> int:
    """The process whose working directory that is."""
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if place.readlink() == folder:
                return int(place.parent.name)
    raise LookupError(folder)


@pytest.mark.parametrize("place", ["var", "var/log"])
def test_a_file_in_the_way_ends_it_with_one_line(start: Callable[[int], Run], checkout: Path, place: str) -> None:
    data = checkout / "var"
    kept = data.rename(checkout / "kept") if data.exists() else None
    try:
        (checkout / place).parent.mkdir(exist_ok=True)
        (checkout / place).write_text("")
        run = start(choose_port(remembered=None))
        assert run.process.wait(timeout=60) == 1
        assert run.said().startswith("make run: ")
        assert run.said().endswith("cannot be a folder: a file is in its way\n")
    finally:
        shutil.rmtree(data) if data.is_dir() else data.unlink()
        if kept is not None:
            kept.rename(data)


def test_a_taken_port_ends_it_with_one_line(start: Callable[[int], Run]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run = start(port)
        assert run.process.wait(timeout=60) == 1
        assert run.said() == f"make run: port {port} is in use; choose another: PORT={port + 1} make run\n"
