"""Files that are not what was written: they are told as such, nothing is read from them as true, and no new file makes
good what was changed. And a hold, or a death, while files are written or read."""

from __future__ import annotations

import errno
import gc
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from apps.archive import erasing_files, restoring
from apps.archive.erasing import erase_some, receipt
from apps.archive.errors import ArchiveUnreachable
from apps.archive.files import Store
from apps.archive.parquet import Writer
from apps.archive.reading import archived_execution
from apps.archive.verifying import batch_check
from tests.api.makers import utc_now
from tests.archive.hands import archive, count, done_batches, history, paths, states
from tests.archive.test_erasing import erase
from tests.archive.test_holds import place, release
from tests.fixtures_api import Api
from tests.tenants.test_commands import run

Conn = psycopg.Connection[Any]
OTHER_DAY = datetime(2026, 5, 22, 3, tzinfo=UTC)


def test_files_in_the_place_of_others_are_told_and_never_made_good(
    conn: Conn, acme: Any, files: Store, tmp_path: Path, api: Api
) -> None:
    schema = acme.schema_name
    ids = history(conn, schema, 40)
    history(conn, schema, 40, at=OTHER_DAY)
    archive(conn, acme, files)
    one, two = done_batches(conn, schema)
    here, there = tmp_path / "archive" / one.path, tmp_path / "archive" / two.path
    executions, attempts = ((here / name).read_bytes() for name in ("executions.parquet", "attempts.parquet"))
    middle = len(executions) // 2
    urls = {"executions.parquet": "executions?archived=true&page_size=50", "attempts.parquet": f"executions/{ids[4]}"}
    for name, bad in (
        ("executions.parquet", attempts),
        ("executions.parquet", (there / "executions.parquet").read_bytes()),  # as many rows, of another day
        ("executions.parquet", executions[:100] + bytes(255 - byte for byte in executions[100:middle])
         + executions[middle:]),
        ("attempts.parquet", executions),
        ("attempts.parquet", (there / "attempts.parquet").read_bytes()),
    ):  # fmt: skip
        (here / name).write_bytes(bad)
        for url in {urls[name], f"executions/{ids[4]}"}:
            answer = api.get(url)
            assert (answer.status, answer.code) == (500, "archive_damaged"), (name, url, answer.body)
        (here / name).write_bytes(executions if name == "executions.parquet" else attempts)

    assert erase(acme, ids[4], files=False).left == [ids[4]]
    (here / "dead_letters.parquet").write_bytes((there / "dead_letters.parquet").read_bytes())
    before = paths(tmp_path)
    assert erase_some(acme, now=utc_now()) == 0 and paths(tmp_path) == before
    assert {one.kind for batch in done_batches(conn, schema) for one in batch_check(files, batch)} == {"changed"}

    code, out, _ = run("restore", "--tenant", "acme", "--from", "2026-05-01", "--to", "2026-05-31", "--reason", "x")
    assert code == 1 and "2026-05-20 failed: " in out and "Back in the tables: 40 executions" in out
    trail = conn.execute("SELECT object_id FROM audit_auditevent WHERE action = 'archive.restore'").fetchall()
    assert trail == [(str(two.id),)], "what came back is in the trail, what did not is not"


def test_a_restore_that_dies_is_in_the_trail_and_goes_on_from_sound_files_only(
    conn: Conn, acme: Any, files: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = acme.schema_name
    history(conn, schema, 40)
    archive(conn, acme, files)
    [batch] = done_batches(conn, schema)

    def dies(*args: Any, **more: Any) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(restoring, "chunk_insert", dies)
        run("restore", "--tenant", "acme", "--day", "2026-05-20", "--reason", "case 7")
    assert conn.execute("SELECT reason FROM audit_auditevent WHERE action = 'archive.restore'").fetchall() == [
        ("case 7",)
    ]
    attempts = tmp_path / "archive" / batch.path / "attempts.parquet"
    kept = attempts.read_bytes()
    attempts.write_bytes(kept[:-9] + b"x" + kept[-8:])
    code, out, _ = run("restore", "--tenant", "acme", "--day", "2026-05-20")
    assert (code, count(conn, schema)) == (1, 0) and "is not the one that was written" in out
    attempts.write_bytes(kept)
    assert run("restore", "--tenant", "acme", "--day", "2026-05-20")[0] == 0
    assert (count(conn, schema), states(conn, schema)) == (40, ["restored"])


def test_a_hold_that_comes_while_a_file_is_written_anew_keeps_what_it_names(
    conn: Conn, acme: Any, files: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = history(conn, acme.schema_name, 40)
    archive(conn, acme, files)
    before, held = paths(tmp_path), []
    rewrite = erasing_files.batch_rewrite

    def meanwhile(*args: Any, **more: Any) -> Any:
        held.append(place(acme, "execution", ids[4]))
        return rewrite(*args, **more)

    monkeypatch.setattr(erasing_files, "batch_rewrite", meanwhile)
    assert erase(acme, ids[4]).left == [ids[4]]
    found = archived_execution(acme, ids[4])
    assert found is not None and found.execution.error is not None and found.letters, "the hold counts from its answer"
    assert paths(tmp_path) == before
    monkeypatch.undo()
    assert erase_some(acme, now=utc_now()) == 0
    release(acme, held[0])
    assert erase_some(acme, now=utc_now()) == 1 and receipt(acme, ids[4]).left == []
    found = archived_execution(acme, ids[4])
    assert found is not None and found.execution.error is None and not found.letters


def test_a_store_without_room_is_told_once(files: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow closes a writer that is thrown away: it has nowhere to write to any more, and must not say so."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    rows = pa.table({"a": ["x"]})
    with pytest.raises(ArchiveUnreachable, match="No space"), files.create("a/b") as sink:
        writer = Writer(sink, rows.schema)
        writer.append(rows)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    del writer
    gc.collect()
    assert said == []
