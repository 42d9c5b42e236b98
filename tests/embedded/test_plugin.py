"""The services of a test run end with it, however it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.fixtures_db import database_drop, with_database

ROOT = Path(__file__).resolve().parents[2]
WaitFor = Callable[..., object]
INNER = """
import os, signal
def test_end():
    print("ports", os.environ["DATABASE_URL"], os.environ["BROKER_URL"], flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # xdist's workers ignore it, and so do their children
    os.kill(os.getpid(), signal.{signal})
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_service_outlives_its_run(number: str, tmp_path: Path, wait_for: WaitFor) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text(INNER.format(signal=number))
    named = ("DATABASE_URL", "MIGRATION_DATABASE_URL", "BROKER_URL", "PYTEST_XDIST_WORKER")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-q", "-c", "pyproject.toml", "-p", "no:cacheprovider", str(inner)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in named},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode != 0
    line = next(line for line in run.stdout.splitlines() if "ports " in line)
    ports = [urlsplit(url).port for url in line.split("ports ")[1].split()]
    assert len(set(ports)) == 2
    for port in ports:
        assert port is not None
        wait_for(lambda port=port: not listens(port), f"port {port} to be closed")


def test_a_database_goes_though_a_session_of_the_application_is_still_in_it() -> None:
    """The owner may not end that session, nor autovacuum: a run failed on what the run before it had left."""
    name = f"left_{os.getpid()}"
    application, owner = os.environ["DATABASE_URL"], os.environ["MIGRATION_DATABASE_URL"]
    with psycopg.connect(owner, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        left = psycopg.connect(with_database(application, name))
        database_drop(name, application_url=application, owner_url=owner)
        assert admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None
        left.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
