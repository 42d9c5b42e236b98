"""`platform/` is a source root. As a package it would hide Python's own `platform` from everything that runs here."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_platform_is_not_a_package() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()


@pytest.mark.parametrize("extra", ["", "import sys; sys.path.insert(0, 'platform');"], ids=["root", "both roots"])
def test_import_platform_is_the_standard_library(extra: str) -> None:
    code = f"{extra}import platform; platform.system(); print(platform.__file__)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == Path(sysconfig.get_path("stdlib")) / "platform.py"
