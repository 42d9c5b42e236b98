from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.archive.files import Store, store


@pytest.fixture
def files(tmp_path: Path, settings: Any) -> Store:
    """An archive in a folder of this test's own."""
    settings.ARCHIVE_URL = str(tmp_path / "archive")
    settings.ARCHIVE_OPTIONS = {}
    return store()
