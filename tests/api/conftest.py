"""What the API's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.api.makers import Makers
from tests.api.pulling import RETRY
from tests.api.world import THINGS, World
from tests.fixtures_api import Api

if TYPE_CHECKING:
    from tenants.registry import Registry


@pytest.fixture(autouse=True)
def web(database: None) -> Iterator[None]:
    """Every test of the API has the database; who listens for those that wait ends with it."""
    from apps.api.waiting import room

    yield
    room.close()


@pytest.fixture
def make(api: Api) -> Makers:
    """Makes jobs, schedules and executions of acme."""
    return Makers(api)


@pytest.fixture
def world(api: Api, make: Makers, conn: psycopg.Connection[Any], registry: Registry) -> World:
    """Makes whatever a path of the API names."""
    return World(api, make, conn, registry)


@pytest.fixture
def things(world: World) -> dict[str, str]:
    """The ids of one thing of each kind, by the name that paths give them."""
    from apps.api.openapi import openapi_document

    for path in openapi_document()["paths"]:
        if any(f"{{{name}}}" in path for name in THINGS.keys() - world.ids.keys()):
            world.with_things(path)
    return world.ids


@pytest.fixture
def fire(conn: psycopg.Connection[Any], registry: Registry) -> Callable[[datetime], dict[str, int]]:
    """One pass of a dispatcher over all shards at an instant."""
    from django.conf import settings

    from apps.dispatch.firing import fire_batch

    shards = range(settings.SHARDS)
    return lambda now: fire_batch(conn, registry, shards, now=now, limit=1000, fired_by=lambda entry: "test")


@pytest.fixture
def worker(acme: Any) -> Api:
    """A key that may only work on queues."""
    from tenants.keys import apikey_create

    return Api(apikey_create(tenant=acme, name="worker", role="worker")[1])


@pytest.fixture
def pull(make: Makers) -> Callable[..., dict[str, Any]]:
    """Makes a run that waits in a queue; `job` holds members of its job."""

    def submit(queue: str = "invoices", *, job: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
        made = make.job(**{"kind": "pull", "queue": queue, "target": {"size": "A4"}, "retry": RETRY, **(job or {})})
        return make.execution(job=made["id"], **members)

    return submit


@pytest.fixture
def reconcile(conn: psycopg.Connection[Any], registry: Registry) -> Callable[[], dict[str, int]]:
    """One look of the reconciler for attempts that nobody runs any more."""
    from apps.dispatch.reconcile import end_lost
    from apps.schedules.definitions import Definitions

    return lambda: end_lost(conn, registry, Definitions()).counts
