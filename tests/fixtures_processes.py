"""Real processes of the platform, and a broker that a test may stop or empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Processes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Any]:
    """A Valkey of this test's own, which it may stop, start and empty."""
    from embedded.valkey import Valkey

    own = Valkey(tmp_path / "valkey")
    own.start()
    yield own
    own.stop()


@pytest.fixture
def processes(process_env: dict[str, str], tmp_path: Path, broker: Any) -> Iterator[Processes]:
    """Starts processes on this test's database and that broker, and ends them."""
    running = Processes({**process_env, "BROKER_URL": broker.url}, tmp_path)
    yield running
    running.close()
