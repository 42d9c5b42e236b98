"""What the tests of webhooks share with those of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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


@pytest.fixture
def plan(database: None) -> Iterator[Callable[..., None]]:
    """Sets limits of the tenants' plan; they are as before afterwards."""
    from tenants.models import Plan

    (before,) = Plan.objects.filter(name="standard").values("max_jobs", "max_webhooks")

    def limit(**limits: Any) -> None:
        Plan.objects.filter(name="standard").update(**limits)

    yield limit
    Plan.objects.filter(name="standard").update(**before)
