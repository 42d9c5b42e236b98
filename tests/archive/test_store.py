"""The same on an S3-compatible store, and what is said when a store does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from moto.server import ThreadedMotoServer

from apps.archive import catalogue
from apps.archive.errors import ArchiveDamaged, ArchiveUnreachable
from apps.archive.files import Store, store
from apps.archive.reading import archived_execution
from apps.archive.restoring import batch_restore
from apps.archive.verifying import batch_check
from tests.archive.hands import archive, everything, history, states

Conn = psycopg.Connection[Any]
BUCKET = "s3://archives/shardbeat"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, settings: Any) -> Store:
    import fsspec

    settings.ARCHIVE_URL = BUCKET
    settings.ARCHIVE_OPTIONS = {"key": "k", "secret": "s", "endpoint_url": endpoint}
    fsspec.filesystem("s3", **settings.ARCHIVE_OPTIONS).mkdir("archives")
    return store()


def test_archive_read_verify_and_restore_on_s3(conn: Conn, acme: Any, bucket: Store, settings: Any) -> None:
    schema = acme.schema_name
    ids = history(conn, schema, 50)
    before = everything(conn, schema)
    assert archive(conn, acme, bucket).counts["executions"] == 50
    [batch] = catalogue.of_days(conn, schema, first=None, last=None, states=["done"])
    assert batch_check(bucket, batch) == [] and len(bucket.files(catalogue.folder_of(acme.schema_name, acme.pk))) == 4
    assert archived_execution(acme, ids[7], conn=conn) is not None
    until = datetime.now(UTC) + timedelta(days=1)
    assert batch_restore(conn, acme, bucket, batch, keep_until=until).refused == []
    assert (everything(conn, schema), states(conn, schema)) == (before, ["restored"])
    assert bucket.files(catalogue.folder_of(acme.schema_name, acme.pk)) == []
    with pytest.raises(ArchiveDamaged):
        bucket.read("nothing/here")
    bucket.check()
    settings.ARCHIVE_URL = "s3://nowhere/x"
    with pytest.raises(ArchiveUnreachable, match="nowhere"):
        store().check()


def test_a_store_that_does_not_answer_costs_nothing(conn: Conn, acme: Any, settings: Any) -> None:
    schema = acme.schema_name
    history(conn, schema, 5)
    before = everything(conn, schema)
    settings.ARCHIVE_URL = BUCKET
    settings.ARCHIVE_OPTIONS = {
        "key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:9",
        "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1},
    }  # fmt: skip
    with pytest.raises(ArchiveUnreachable):
        archive(conn, acme, store())
    assert everything(conn, schema) == before
    with pytest.raises(ArchiveUnreachable):
        store().check()
    settings.ARCHIVE_URL, settings.ARCHIVE_OPTIONS = "gopher://x", {}
    with pytest.raises(ArchiveUnreachable, match="ARCHIVE_URL"):
        store()
