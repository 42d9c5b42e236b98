"""Runs of workflows below /t/<slug>/: the run with its picture, its steps, and executions that wait for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.console.conftest import HOSTILE
from tests.fixtures_flow import make_ticket
from tests.workflows.rows import run_with_rows

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.fixture
def run(acme: Tenant) -> UUID:
    """One that goes on, with hostile texts."""
    return run_with_rows(acme, text=HOSTILE)


def test_a_run_is_shown_with_its_picture_and_its_steps(page: Any, run: UUID) -> None:
    base = f"/t/acme/admin/workflows/run/{run}"
    texts = [page.get(path).content.decode() for path in (f"{base}/change/", "/t/acme/admin/workflows/run/")]
    texts.append(page.get(f"/t/acme/admin/workflows/steprun/?q={run}").content.decode())
    assert f'src="{base}/picture/"' in texts[0] and f"{base}/explain/" in texts[0]
    assert "extract" in texts[2] and "3 step runs" in texts[2]
    texts.append(page.get(f"{base}/explain/").content.decode())
    for text in texts:
        assert "<script>alert" not in text and "<img src=x" not in text
    picture = page.get(f"{base}/picture/")
    assert picture["Content-Type"] == "image/svg+xml" and picture["Content-Security-Policy"].startswith("default-src")
    assert "extract" in picture.content.decode() and "failed" in picture.content.decode()


def test_pages_of_runs_are_their_tenants_alone(page: Any, run: UUID) -> None:
    assert page.get(f"/t/globex/admin/workflows/run/{run}/change/").status_code == 302  # not there
    for view in ("picture", "explain"):
        assert page.get(f"/t/globex/admin/workflows/run/{run}/{view}/").status_code == 404


def test_what_waits_for_what_is_listed(page: Any, acme: Tenant) -> None:
    parent = make_ticket(acme)
    child = make_ticket(acme, depends_on=[str(parent)])
    for one in (parent, child):
        text = page.get(f"/t/acme/admin/workflows/dependency/?q={one}").content.decode()
        assert str(parent) in text and str(child) in text
        assert (
            f"/t/acme/admin/workflows/dependency/?q={one}"
            in page.get(f"/t/acme/admin/executions/execution/{one}/change/").content.decode()
        )
