"""Commands and the periodic task: what they do, what they say, and how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from apps.archive import manifest
from apps.archive.files import Store
from apps.archive.inserting import _default
from kernel.clock import utc_now
from tenants.models import Plan
from tests.archive.hands import NOW, archive, count, done_batches, everything, history, paths, states, workflow
from tests.tenants.test_commands import run

Conn = psycopg.Connection[Any]


@pytest.fixture
def archiving(acme: Any) -> Iterator[None]:
    """The plan keeps history for 20 days, and archives for 30 more."""
    Plan.objects.filter(pk=acme.plan_id).update(retention_days=20, archive_days=30)
    yield
    Plan.objects.filter(pk=acme.plan_id).update(retention_days=30, archive_days=0)


def test_archive_verify_and_restore_by_command(
    conn: Conn, acme: Any, archiving: None, files: Store, tmp_path: Path
) -> None:
    schema = acme.schema_name
    history(conn, schema, 40)
    _, tree = workflow(conn, schema)
    before = everything(conn, schema)
    named = ("archive", "--tenant", "acme", "--before", "2026-06-01")
    code, out, _ = run(*named, "--dry-run", "--format", "json")
    days = json.loads(out)["tenants"]["acme"]
    assert (code, days, states(conn, schema)) == (0, {"2026-05-20": 40 + len(tree)}, [])
    code, out, _ = run(*named)
    assert code == 0 and f"acme: {40 + len(tree)} executions" in out and "1 new batches" in out
    assert run("verify", "--tenant", "acme") == (0, run("verify", "--tenant", "acme")[1], "")

    restore = ("restore", "--tenant", "acme", "--execution", str(tree[2]), "--reason", "case 12")
    assert f"Would come back: {len(tree)} executions" in run(*restore, "--dry-run")[1]
    assert run(*restore)[0] == 0
    assert (count(conn, schema), states(conn, schema)) == (len(tree), ["replaced", "done"])
    assert run(*restore)[0] == 2, "it is not archived any more"
    assert run("restore", "--tenant", "acme", "--from", "2026-05-01", "--to", "2026-05-31")[0] == 0
    assert everything(conn, schema) == before
    trail = conn.execute("SELECT actor, action, reason FROM audit_auditevent ORDER BY id").fetchall()
    assert trail == [("command:restore", "archive.restore", "case 12"), ("command:restore", "archive.restore", "")]
    assert run(*named)[1] == "acme: nothing new\n", "what was restored is kept for some days"


def test_a_day_that_is_given_removes_no_file_before_its_time(
    conn: Conn, acme: Any, archiving: None, files: Store
) -> None:
    """Retention and archive are 20 and 30 days: what is 40 days old stays in its file for 10 more."""
    now = utc_now()
    history(conn, acme.schema_name, 10, at=now - timedelta(days=40), today=now - timedelta(hours=1))
    assert run("archive", "--tenant", "acme")[0] == 0
    assert run("archive", "--tenant", "acme", "--before", f"{now:%Y-%m-%d}")[0] == 0
    assert states(conn, acme.schema_name) == ["done"]
    assert run("archive", "--tenant", "acme", "--before", "0001-01-01")[0] == 2
    assert run("restore", "--tenant", "acme", "--from", "2026-05-02", "--to", "2026-05-01")[0] == 2


def test_verify_finds_what_is_wrong_and_removes_strays(
    conn: Conn, acme: Any, archiving: None, files: Store, tmp_path: Path
) -> None:
    schema = acme.schema_name
    history(conn, schema, 10)
    archive(conn, acme, files)
    [batch] = done_batches(conn, schema)
    folder = tmp_path / "archive" / batch.path
    stray = folder.parent / "019e0000-0000-7000-8000-000000000000" / "executions.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"x")
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    for name, spoil, kind in (
        ("attempts.parquet", lambda data: data[:-9] + b"x" + data[-8:], "changed"),
        ("executions.parquet", None, "damaged"),
        ("manifest.json", lambda data: data.replace(b'"rows": 10', b'"rows": 11'), "changed"),
    ):
        path = folder / name
        if spoil is None:
            path.unlink()
        else:
            path.write_bytes(spoil(kept[path]))
        code, out, _ = run("verify", "--all", "--format", "json")
        found = {(one["kind"], one["path"].rpartition("/")[2]) for one in json.loads(out)["findings"]}
        assert (code, found) == (1, {(kind, name), ("stray", stray.parent.name)})
        path.write_bytes(kept[path])
    code, out, _ = run("verify", "--all", "--remove-strays", "--dry-run")
    assert (code, "1 files that no batch knows; would be removed." in out, stray.exists()) == (1, True, True)
    code, out, _ = run("verify", "--all", "--remove-strays")
    assert "1 files that no batch knows; removed." in out
    assert (code, "Nothing is wrong." in out, len(paths(tmp_path))) == (0, True, len(kept))


def test_what_has_no_room_in_the_tables_stays_archived(conn: Conn, acme: Any, files: Store, archiving: None) -> None:
    """Another row has taken a run key meanwhile: that execution stays, the others come."""
    schema = acme.schema_name
    ids = history(conn, schema, 10)
    archive(conn, acme, files)
    taken = history(conn, schema, 1, at=NOW)[0]
    conn.execute(f"UPDATE {schema}.executions_execution SET run_key = %s WHERE id = %s", [f"key {ids[3]}", taken])
    code, out, _ = run("restore", "--tenant", "acme", "--day", "2026-05-20")
    assert code == 1 and f"{ids[3]} stays archived" in out
    assert (count(conn, schema), states(conn, schema)) == (9, ["replaced", "done"])
    [batch] = done_batches(conn, schema)
    assert batch.counts["executions"] == 1


def test_files_of_another_version_are_read_or_refused(
    conn: Conn, acme: Any, files: Store, archiving: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of files that lack a column that there is now get what a new row gets; a newer form is refused."""
    from apps.archive import tables, writing

    schema = acme.schema_name
    history(conn, schema, 6, letters=False)
    before = everything(conn, schema)
    real = tables.columns_of
    lacking = {"delays", "count", "reason"}
    monkeypatch.setattr(writing, "columns_of", lambda *args: [one for one in real(*args) if one.name not in lacking])
    archive(conn, acme, files)
    monkeypatch.undo()
    assert run("restore", "--tenant", "acme", "--day", "2026-05-20")[0] == 0
    assert conn.execute(
        f"SELECT DISTINCT delays, count, reason FROM {schema}.executions_execution WHERE created_at < '2026-06-01'"
    ).fetchall() == [(None, 1, "")]
    assert everything(conn, schema)["attempts"] == before["attempts"]
    assert (_default("executions_execution", "count"), _default("executions_execution", "delays")) == (1, None)

    conn.execute(f"DELETE FROM {schema}.archive_archivebatch")
    monkeypatch.setattr(manifest, "FORMAT", 2)
    archive(conn, acme, files)
    monkeypatch.undo()
    code, out, _ = run("verify", "--tenant", "acme")
    assert code == 1 and "this version reads up to 1" in out
    assert orjson.loads(next(tmp_path.rglob("manifest.json")).read_bytes())["format"] == 2


def test_what_is_refused(acme: Any, files: Store, settings: Any) -> None:
    for arguments, said in (
        (("archive", "--tenant", "acme"), "archive_days 0"),
        (("archive", "--tenant", "nobody"), "no tenant"),
        (("archive", "--all", "--before", "soon"), "no day"),
        (("archive", "--all", "--before", "2999-01-01"), "to come"),
        (("restore", "--tenant", "acme"), "Give one of"),
        (("restore", "--tenant", "acme", "--from", "2026-05-01"), "belong together"),
        (("restore", "--tenant", "acme", "--day", "2026-05-01", "--keep-days", "0"), "1 to 3650"),
        (("restore", "--tenant", "acme", "--execution", "x"), "no id"),
    ):
        code, _, err = run(*arguments)
        assert code == 2 and said in err, (arguments, err)
    settings.ARCHIVE_URL = ""
    assert run("verify", "--all")[::2] == (2, "There is no archive: ARCHIVE_URL is not set.\n")


def test_the_tasks_share_the_work(
    conn: Conn, acme: Any, globex: Any, archiving: None, files: Store, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """History of plans with archive days leaves by the archive alone; one tenant's trouble is not the others'."""
    from apps.dispatch.examining import examine
    from apps.usage.archives import totals
    from tenants import door
    from workers.archiving import archive as task
    from workers.housekeeping import health, retention

    def doctor() -> tuple[bool, str]:
        return next((one.ok, one.detail) for one in examine(conn, settings.BROKER_URL) if one.name == "archive")

    old = datetime.now(UTC) - timedelta(days=25)
    for tenant in (acme, globex):
        history(conn, tenant.schema_name, 10, at=old, today=old + timedelta(days=24))
    settings.ARCHIVE_URL = ""
    assert (retention()["executions"], task(), health()["archives_failing"]) == (0, {}, 0)
    assert "no ARCHIVE_URL" in caplog.text and doctor()[0] is False
    settings.ARCHIVE_URL = str(files._root)
    owner = door.connect("test", owner=True)
    owner.execute("ALTER TABLE t_globex.executions_execution RENAME TO away")
    try:
        found = task()
    finally:
        owner.execute("ALTER TABLE t_globex.away RENAME TO executions_execution")
        owner.close()
    assert (found["tenants"], found["executions"], found["failed"]) == (2, 10, 1)
    seen = totals(conn)
    assert (seen.tenants, seen.executions, seen.failing, health()["archives_failing"]) == (2, 10, 1, 1)
    assert doctor() == (False, "1 tenants failed at their last run: see the log of the workers")
    assert task()["executions"] == 10
    seen = totals(conn)
    assert (seen.executions, seen.failing, seen.overdue_s) == (20, 0, 0) and seen.bytes > 10_000
    assert doctor() == (True, "answers")
    Plan.objects.filter(pk=acme.plan_id).update(archive_days=0)
    assert (task()["tenants"], totals(conn).tenants) == (0, 0)
