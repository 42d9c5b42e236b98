"""Folders that root and ordinary users can and cannot use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's tmp_path is below one that only its owner may enter."""
    path = Path(tempfile.mkdtemp(prefix="shardbeat-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many megabytes; `subprocess` remounts it read-only. Needs root that may mount."""
    mounted: list[Path] = []

    def make(size_mb: int) -> Path:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(path)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(path)
        return path

    yield make
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=False)


@pytest.fixture
def python() -> Callable[..., subprocess.Popen[str]]:
    """Runs code in a process of its own, with both source roots; `ordinary=True` as a user that is not root."""

    def run(code: str, *, ordinary: bool = False) -> subprocess.Popen[str]:
        prefix: list[str] = []
        if ordinary and os.geteuid() == 0:
            prefix = ["unshare", "-U", "--map-user=65534", "--map-group=65534", "--"]
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
                pytest.skip("user name spaces are not allowed here")
        return subprocess.Popen(
            [*prefix, sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return run
