"""Nothing leaves the tables that its file does not say, now; and whoever dies in between costs only a delay."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.archive import archiving, catalogue, deleting, rewriting, verifying
from apps.archive.errors import ArchiveDamaged
from apps.archive.files import Store
from apps.archive.reading import archived_execution
from tests.archive.hands import BEFORE, OLD_DAY, archive, count, everything, history, letter, paths, states, workflow

Conn = psycopg.Connection[Any]


class Died(Exception):
    """Stands for kill -9: nothing after it happens."""


def dies(*args: Any, **kwargs: Any) -> Any:
    raise Died


def abandon(conn: Conn, schema: str) -> None:
    """As if it had been left for long."""
    conn.execute(f"UPDATE {schema}.archive_archivebatch SET touched_at = touched_at - interval '1 hour'")


# Where a process dies, in the order of its steps: what it calls next, and the states that it leaves.
CRASHES = (
    (archiving, "columns_now", ["writing"]),
    (archiving, "batch_sound", ["written"]),
    (archiving, "batch_delete", ["verified"]),
    (deleting, "_remove", ["verified"]),
    (archiving.catalogue, "done", ["verified"]),
)


@pytest.mark.parametrize(("module", "name", "left"), CRASHES, ids=[one[1] for one in CRASHES])
def test_a_process_that_dies_leaves_nothing_half(
    conn: Conn, acme: Any, files: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str,
    left: list[str],
) -> None:  # fmt: skip
    schema = acme.schema_name
    ids = history(conn, schema, 40)
    monkeypatch.setattr(module, name, dies)
    with pytest.raises(Died):
        archive(conn, acme, files)
    monkeypatch.undo()
    assert states(conn, schema) == left
    assert archive(conn, acme, files).busy, "somebody may still work at it"
    abandon(conn, schema)
    archive(conn, acme, files)
    assert (states(conn, schema), count(conn, schema)) == (["done"], 0)
    known = set(catalogue.paths(conn, schema))
    assert {path.removeprefix("archive/").rpartition("/")[0] for path in paths(tmp_path)} == known
    assert all(archived_execution(acme, one, conn=conn) for one in ids[::13])


def test_what_changed_since_it_was_written_stays_and_is_not_in_the_files(
    conn: Conn, second: Conn, acme: Any, files: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was edited, one with a new letter, a run whose step was, and one that somebody holds."""
    schema = acme.schema_name
    ids = history(conn, schema, 30)
    root, tree = workflow(conn, schema)
    dead = conn.execute(
        f"SELECT min(id::text)::uuid FROM {schema}.executions_execution WHERE state = 'dead'"
    ).fetchone()
    assert dead is not None
    edited, lettered, held, step = ids[1], dead[0], ids[2], tree[2]
    real = archiving.batch_delete

    def delete(*args: Any, **kwargs: Any) -> Any:
        conn.execute(f"UPDATE {schema}.executions_execution SET reason = 'x' WHERE id = ANY(%s)", [[edited, step]])
        letter(conn, schema, lettered, closed=OLD_DAY + timedelta(hours=2))
        with second.transaction():
            second.execute(f"SELECT 1 FROM {schema}.executions_execution WHERE id = %s FOR UPDATE", [held])
            return real(*args, **kwargs)

    monkeypatch.setattr(archiving, "batch_delete", delete)
    archive(conn, acme, files)
    monkeypatch.undo()
    hot = {
        row[0] for row in conn.execute(f"SELECT id FROM {schema}.executions_execution WHERE created_at < %s", [BEFORE])
    }
    assert hot == {edited, lettered, held, *tree}, "of a run all or nothing stays"
    assert states(conn, schema) == ["replaced", "done"]
    assert [archived_execution(acme, one, conn=conn) for one in hot] == [None] * len(hot)
    assert archived_execution(acme, ids[5], conn=conn) is not None
    assert len({path.rpartition("/")[0] for path in paths(tmp_path)}) == 1, "the first files are gone"
    archive(conn, acme, files)
    assert (count(conn, schema), archived_execution(acme, root, conn=conn) is not None) == (0, True)


def test_nothing_is_deleted_when_the_files_do_not_read_back_well(
    conn: Conn, acme: Any, files: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = acme.schema_name
    history(conn, schema, 20)
    before = everything(conn, schema)

    def spoil(store: Store, batch: Any) -> None:
        path = tmp_path / "archive" / batch.path / "attempts.parquet"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        verifying.batch_sound(store, batch)

    monkeypatch.setattr(archiving, "batch_sound", spoil)
    with pytest.raises(ArchiveDamaged, match=r"attempts\.parquet"):
        archive(conn, acme, files)
    assert everything(conn, schema) == before
    row = conn.execute(f"SELECT state, note FROM {schema}.archive_archivebatch").fetchone()
    assert row is not None and row[0] == "written" and "attempts.parquet" in row[1]
    monkeypatch.undo()
    abandon(conn, schema)
    assert archive(conn, acme, files).counts["executions"] == 20


def test_it_stops_when_its_time_is_over_and_goes_on_where_it_stood(
    conn: Conn, acme: Any, files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = acme.schema_name
    history(conn, schema, 60)
    monkeypatch.setattr(deleting, "CHUNK_ROWS", 20)
    turns = iter([True, True, False])  # the batch is begun, one chunk is deleted
    assert archive(conn, acme, files, more=lambda: next(turns, False)).busy
    assert (states(conn, schema), count(conn, schema)) == (["verified"], 40)
    abandon(conn, schema)
    assert archive(conn, acme, files).counts["executions"] == 60
    assert (states(conn, schema), count(conn, schema)) == (["done"], 0)


def test_two_processes_delete_each_row_once_and_one_of_them_stops(
    conn: Conn, second: Conn, acme: Any, files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one takes a batch for abandoned that is not."""
    schema = acme.schema_name
    history(conn, schema, 60)
    monkeypatch.setattr(deleting, "CHUNK_ROWS", 20)
    real = deleting._delete
    met: list[int] = []

    def delete(*args: Any) -> Any:
        if not met:
            met.append(1)
            abandon(second, schema)
            archive(second, acme, files)
        return real(*args)

    monkeypatch.setattr(deleting, "_delete", delete)
    assert archive(conn, acme, files).busy
    monkeypatch.undo()
    assert (states(conn, schema), count(conn, schema)) == (["done"], 0)
    assert archive(conn, acme, files).batches == 0


def test_days_whose_time_is_over_expire_but_for_what_is_held(
    conn: Conn, acme: Any, files: Store, tmp_path: Path
) -> None:
    from tests.archive.test_holds import place, release

    schema = acme.schema_name
    first = history(conn, schema, 5)
    history(conn, schema, 5, at=OLD_DAY + timedelta(days=3))
    archive(conn, acme, files)
    hold = place(acme, from_at=OLD_DAY, until_at=OLD_DAY + timedelta(days=1))
    assert archive(conn, acme, files, keep=timedelta(days=9)).expired == 0
    assert archive(conn, acme, files, keep=timedelta(days=8)).expired == 1, "what is held is of the first day"
    release(acme, hold)
    assert archive(conn, acme, files, keep=timedelta(days=9)).expired == 1
    assert (states(conn, schema), paths(tmp_path)) == (["expired"] * 2, [])
    assert archived_execution(acme, first[2], conn=conn) is None


def test_a_batch_is_made_again_without_what_is_erased(conn: Conn, acme: Any, files: Store, tmp_path: Path) -> None:
    schema = acme.schema_name
    ids = history(conn, schema, 20)
    archive(conn, acme, files)
    [batch] = catalogue.of_days(conn, schema, first=None, last=None, states=["done"])
    new = rewriting.batch_rewrite(conn, acme, files, batch, without=ids[:5])
    assert new is not None and new.counts["executions"] == 15
    found = [archived_execution(acme, one, conn=conn) for one in ids]
    assert [one is not None for one in found] == [False] * 5 + [True] * 15
    text = b"".join(one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())
    assert ids[0].bytes not in text
    assert rewriting.batch_rewrite(conn, acme, files, new, without=ids) is None
    assert (states(conn, schema), paths(tmp_path)) == (["replaced", "replaced"], [])
