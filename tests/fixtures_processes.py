"""Real processes of the platform, and a broker that a test may stop or empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Processes


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Valkey beside the one of all tests, always in the same place: processes that were made before know it."""
    from embedded.valkey import Valkey

    own = Valkey(tmp_path_factory.mktemp("valkey"))
    yield own
    own.stop()


@pytest.fixture
def broker(own_broker: Any) -> Any:
    """An empty Valkey of this test's own, which it may stop, start and empty."""
    own_broker.stop()
    own_broker.start()
    return own_broker


@pytest.fixture
def processes(process_env: dict[str, str], tmp_path: Path, broker: Any) -> Iterator[Processes]:
    """Starts processes on this test's database and that broker, and ends them."""
    running = Processes({**process_env, "BROKER_URL": broker.url}, tmp_path)
    yield running
    running.close()
