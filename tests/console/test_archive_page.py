"""The catalogue of an archive, as operators see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from apps.archive.files import store
from tests.archive.hands import archive, done_batches, history


def test_the_catalogue_is_listed_and_each_batch_can_be_opened(
    page: Any, acme: Any, conn: psycopg.Connection[Any], settings: Any, tmp_path: Path
) -> None:
    settings.ARCHIVE_URL = str(tmp_path)
    history(conn, acme.schema_name, 7)
    archive(conn, acme, store())
    [batch] = done_batches(conn, acme.schema_name)
    base = "/t/acme/admin/archive/archivebatch/"
    listed = page.get(f"{base}?state=done").content.decode()
    assert "May 20, 2026" in listed or "2026-05-20" in listed
    assert str(batch.id) not in page.get(f"{base}?state=expired").content.decode()
    opened = page.get(f"{base}{batch.id}/change/").content.decode()
    assert batch.path in opened and batch.manifest_sha256 in opened
    assert page.get(f"{base}add/").status_code == 403
