"""What all tests of runs need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.workflows.engine import Engine

if TYPE_CHECKING:
    from apps.dispatch.keeper import Keeper
    from tenants.models import Tenant
    from tenants.registry import Registry


@pytest.fixture
def engine(leader: Keeper, conn: psycopg.Connection[Any], registry: Registry, acme: Tenant) -> Engine:
    """Runs of acme's workflows, driven by hand."""
    from apps.dispatch.workflow_runs import WorkflowService
    from tests.fixtures_flow import OneLine

    return Engine(conn, registry, acme, WorkflowService(OneLine(conn), leader))  # type: ignore[arg-type]  # a line is what it gives
