"""What every test has: one way to wait, reproducible random input, and a check that nothing is left behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import hypothesis
import psycopg
import pytest

T = TypeVar("T")

# One limit for every condition that a test waits for: generous, because it is only used up when something is broken.
WAIT_TIMEOUT_S = float(os.environ.get("TEST_WAIT_TIMEOUT_S", "30"))
POLL_S = 0.01
SETTLE_S = 5.0  # how long threads and transactions may take to end after their test

pytest_plugins = [f"tests.{path.stem}" for path in sorted(Path(__file__).parent.glob("fixtures_*.py"))]

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def wait_until(condition: Callable[[], T], what: str = "", *, timeout_s: float | None = None) -> T:
    """Poll until the condition returns something true, and return that. Fails the test after the global time-out."""
    deadline = time.monotonic() + (WAIT_TIMEOUT_S if timeout_s is None else timeout_s)
    pause = threading.Event()
    while not (result := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain for {what or getattr(condition, '__name__', 'a condition')}", pytrace=True)
        pause.wait(POLL_S)
    return result


@pytest.fixture(name="wait_for", scope="session")
def wait_for_fixture() -> Callable[..., object]:
    """`wait_for(lambda: ..., "the run to end")` returns the first true value."""
    return wait_until


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread and no open transaction outlives its test. Set up first, so it looks after all other fixtures ended."""
    threads, transactions = set(threading.enumerate()), _idle_in_transaction()
    yield
    wait_until(lambda: not _new_threads(threads), f"threads to end: {_new_threads(threads)}", timeout_s=SETTLE_S)
    wait_until(lambda: not _open_transactions(), "transactions of this process to end", timeout_s=SETTLE_S)
    wait_until(
        lambda: _idle_in_transaction() <= transactions, "sessions to leave their transactions", timeout_s=SETTLE_S
    )


def _new_threads(before: set[threading.Thread]) -> list[str]:
    return [thread.name for thread in set(threading.enumerate()) - before if thread.is_alive() and not thread.daemon]


def _open_transactions() -> list[str]:
    from django.db import connections

    # psycopg's connection where Django has one: a transaction status of 0 is idle.
    opened = {handler.alias: handler.connection for handler in connections.all(initialized_only=True)}
    return [name for name, raw in opened.items() if raw and not raw.closed and raw.info.transaction_status]


def _idle_in_transaction() -> set[int]:
    """Sessions of our role in this process's database that wait inside a transaction, in whatever process."""
    from django.db import connection

    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND state LIKE 'idle in transaction%%'"
    return {row[0] for row in _observer().execute(query, [connection.settings_dict["NAME"]])}


@cache
def _observer() -> psycopg.Connection[tuple[int]]:
    """A connection to another database than the tests', which they may drop."""
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
