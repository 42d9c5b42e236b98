"""Setting up the demo, rehearsed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tenants.test_commands import Conn, everything, run

if TYPE_CHECKING:
    from tenants.models import Tenant


@pytest.mark.long
def test_a_rehearsal_changes_nothing(conn: Conn, acme: Tenant, globex: Tenant, settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR, before = tmp_path, everything(conn)
    code, out, err = run(
        "demo_setup", "--base-url", "http://a.test", "--receiver", "http://127.0.0.1:5001", "--dry-run"
    )
    assert (code, err) == (0, "") and "acme: 0 schedules" not in out and "schedules would be made" in out
    assert everything(conn) == before and not list(tmp_path.iterdir())
