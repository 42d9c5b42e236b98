"""What the API's tests share."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.makers import Makers
from tests.fixtures_api import Api


@pytest.fixture(autouse=True)
def web(database: None, settings: Any) -> Iterator[None]:
    """The web as it is configured; the console's part is not needed here."""
    if importlib.util.find_spec("apps.console.middleware") is None:
        settings.MIDDLEWARE = [one for one in settings.MIDDLEWARE if not one.startswith("apps.console.")]
    yield


@pytest.fixture
def make(api: Api) -> Makers:
    """Makes jobs, schedules and executions of acme."""
    return Makers(api)
