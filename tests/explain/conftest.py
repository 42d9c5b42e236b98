from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.explain.stage import Stage

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry


@pytest.fixture
def stage(acme: Tenant, conn: psycopg.Connection[Any], registry: Registry, plan: Callable[..., None]) -> Stage:
    """Everything is alive and nothing waits."""
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    made = Stage(conn, acme, registry, plan, row[0])
    made.serve()
    return made
