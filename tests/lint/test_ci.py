"""What CI does on a machine without a browser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("wish", "status", "told"),
    [("", 0, "will be skipped"), ("required", 1, "BROWSER_TESTS=skip runs the others"), ("skip", 0, "")],
)
def test_a_missing_browser_is_a_failure_unless_told_otherwise(
    wish: str, status: int, told: str, tmp_path: Path
) -> None:
    for name in ("uname", "id"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    environment = {"PATH": str(tmp_path), "INSTALL_PACKAGES": "0", "BROWSER_TESTS": wish}
    done = subprocess.run(
        [str(shutil.which("bash")), str(ROOT / ".ci" / "browser")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status and told in done.stderr and bool(done.stderr) == bool(told)
