"""A server that jobs call: what came to it, and answers on demand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.executors.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    server.start()
    yield server
    server.stop()
