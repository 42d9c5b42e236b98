"""What the tests of webhooks share with those of the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.makers import Makers
from tests.fixtures_api import Api


@pytest.fixture(autouse=True)
def web(database: None) -> Iterator[None]:
    """Who listens for those that wait ends with the test."""
    from apps.api.waiting import room

    yield
    room.close()


@pytest.fixture
def make(api: Api) -> Makers:
    """Makes jobs, schedules and executions of acme."""
    return Makers(api)
