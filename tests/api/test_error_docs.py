"""docs/reference/errors.md lists every code that the code knows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    "apps/api",
    "apps/schedules",
    "apps/secrets",
    "apps/dispatch/submission.py",
    "apps/dispatch/submit.py",
    "apps/outcomes",
    "tenants/work.py",
    "kernel",
]
CODE = re.compile(r'\bcode\s*=\s*"([a-z_]+)"')


def codes() -> set[str]:
    """Codes of problems that are written in the sources of the API and of what it calls."""
    found: set[str] = set()
    for source in SOURCES:
        place = ROOT / ("platform/kernel" if source == "kernel" else source)
        for path in [place] if place.suffix else place.rglob("*.py"):
            found |= set(CODE.findall(path.read_text()))
    return found


def test_every_code_of_a_problem_is_documented() -> None:
    documented = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs/reference/errors.md").read_text()))
    internal = {"error", "forbidden", "conflict", "no_tenant"}
    assert len(codes()) >= 25
    assert codes() - internal <= documented
