"""A thousand tenants: made, migrated, killed, gone on. The suite has the same with a handful."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("DATABASE_URL", "MIGRATION_DATABASE_URL", "BROKER_URL")


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_thousand_tenants_are_migrated_within_the_budgets() -> None:
    """In a database of its own: the measurement itself fails when a schema was not migrated whole."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--only", "schemas", "--tenants", "1000"],
        cwd=ROOT, env={name: value for name, value in os.environ.items() if name not in SERVICES},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    nothing_s, column_s = re.findall(r"(?:nothing to do|new column everywhere): ([\d.]+) s", done.stdout)
    assert float(nothing_s) < 5 and float(column_s) < 10, done.stdout
