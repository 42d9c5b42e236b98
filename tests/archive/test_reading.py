"""What is archived reads as it did before: the lists and rows of the tables are the oracle."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.archive import catalogue, listing, parquet, reading
from apps.archive.errors import ArchiveDamaged, ArchiveOff
from apps.archive.files import Store, store
from apps.archive.rows import rows_of
from apps.archive.tables import RUNS, STEPS
from apps.deadletters.models import DeadLetter
from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import execution_read, executions_read
from apps.executions.reading_attempts import attempts_of
from apps.workflows.dependencies.depending_reading import linked_of
from kernel.keyset import Position
from tenants import door
from tests.archive.hands import BEFORE, OLD_DAY, archive, history, workflow

Conn = psycopg.Connection[Any]
ROOT = Path(__file__).resolve().parents[2]


def listed(read: Any, tenant: Any, wanted: ExecutionFilter, *, size: int) -> list[Any]:
    """All rows, page by page; none is empty where more come, unless it says where to go on."""
    rows: list[Any] = []
    after: Position | None = None
    while True:
        page = read(tenant, wanted, after=after, size=size)
        assert len(page.rows) <= size
        rows += page.rows
        if page.after is None:
            return rows
        assert after is None or page.after.id < after.id, "the next page goes on below"
        after = page.after


def test_lists_of_files_are_those_of_the_tables(
    conn: Conn, acme: Any, files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = acme.schema_name
    monkeypatch.setattr(parquet, "GROUP_ROWS", 500)
    history(conn, schema, 700)
    last = history(conn, schema, 300, at=OLD_DAY + timedelta(days=1, minutes=3), step=timedelta(minutes=7))
    root, _ = workflow(conn, schema, at=OLD_DAY + timedelta(minutes=4), days=3)
    some = execution_read(acme, last[41])
    of_schedule = execution_read(acme, last[20]) or some
    replay = conn.execute(f"SELECT replay_of FROM {schema}.executions_execution WHERE replay_of IS NOT NULL").fetchone()
    assert some is not None and of_schedule is not None and replay is not None
    filters = [
        ExecutionFilter(),
        ExecutionFilter(states=("dead", "ready")),
        ExecutionFilter(states=("running",)),
        ExecutionFilter(job_ids=[some.job_id], triggers=("api",)),
        ExecutionFilter(job_ids=[]),
        ExecutionFilter(schedule_id=of_schedule.schedule_id),
        ExecutionFilter(run_key=some.run_key),
        ExecutionFilter(replay_of=replay[0]),
        ExecutionFilter(workflow_run_id=root),
        ExecutionFilter(error_class="TimedOut"),
        ExecutionFilter(labels={"team": "red"}, states=("succeeded",)),
        ExecutionFilter(created_after=OLD_DAY + timedelta(minutes=5), created_before=OLD_DAY + timedelta(hours=30)),
        ExecutionFilter(nominal_after=OLD_DAY + timedelta(minutes=2), started_before=OLD_DAY + timedelta(minutes=9)),
        ExecutionFilter(finished_after=OLD_DAY + timedelta(hours=25), finished_before=OLD_DAY + timedelta(hours=27)),
    ]
    hot = [[row for row in listed(executions_read, acme, one, size=500) if row.created_at < BEFORE] for one in filters]
    assert [bool(one) for one in hot] == [number not in (2, 4) for number in range(len(filters))]
    archive(conn, acme, files)
    monkeypatch.setattr(listing, "LOOK_ROWS", 400)  # pages end early
    for size in (170, 500):
        chosen = slice(None) if size == 500 else slice(0, None, 6)
        assert [listed(reading.archived_range, acme, one, size=size) for one in filters[chosen]] == hot[chosen]


def test_one_execution_reads_as_before_with_all_that_goes_with_it(conn: Conn, acme: Any, files: Store) -> None:
    schema = acme.schema_name
    ids = history(conn, schema, 60)
    root, tree = workflow(conn, schema)
    wanted = [*ids[::7], root, *tree]
    with door.inside(acme):
        letters = {one.execution_id: one for one in DeadLetter.objects.all()}
    before = {}
    for key in wanted:
        row = execution_read(acme, key)
        assert row is not None
        attempts = attempts_of(acme, row, before=None, size=10).rows
        before[key] = (row, attempts, [one[:3] for one in linked_of(door.raw(), schema, key, most=1).parents])
    archive(conn, acme, files)
    for key in wanted:
        found = reading.archived_execution(acme, key)
        assert execution_read(acme, key) is None and found is not None
        assert (found.execution, found.attempts, [one[:3] for one in found.parents]) == before[key]
        told = [(one.pk, one.error, one.note, one.resolved_at) for one in found.letters]
        assert told == [(one.pk, one.error, one.note, one.resolved_at) for one in [letters.get(key)] if one]
    [batch] = catalogue.holding(conn, schema, root)
    [run] = rows_of(batch, RUNS, "execution_id", [root.bytes])
    assert run["input"] == '{"x": 2}' and len(rows_of(batch, STEPS, "run_id", [root.bytes])) == 2
    assert reading.archived_execution(acme, ids[0].__class__(int=ids[0].int + 1)) is None
    schedule = before[ids[7]][0].schedule_id
    assert schedule is not None
    ends = reading.archived_dispositions(acme, schedule, since=OLD_DAY, until=OLD_DAY + timedelta(seconds=20))
    assert len(ends) == 10 and {one.trigger for one in ends} == {"schedule"}
    assert [one.nominal_at for one in ends] == sorted(one.nominal_at for one in ends)


def test_what_can_t_be_read_is_told(conn: Conn, acme: Any, files: Store, tmp_path: Any, settings: Any) -> None:
    ids = history(conn, acme.schema_name, 10)
    archive(conn, acme, files)
    [path] = tmp_path.rglob("executions.parquet")
    path.write_bytes(b"PAR1 no PAR1")
    with pytest.raises(ArchiveDamaged, match="damaged"):
        reading.archived_execution(acme, ids[0])
    path.unlink()
    with pytest.raises(ArchiveDamaged, match="missing"):
        reading.archived_range(acme, ExecutionFilter(), size=5)
    settings.ARCHIVE_URL = ""
    with pytest.raises(ArchiveOff):
        store()
    with pytest.raises(ArchiveOff):
        reading.archived_execution(acme, ids[0])


def test_who_reads_no_files_does_not_carry_what_reads_them() -> None:
    """A dispatcher's memory has a budget; pyarrow would be half of it."""
    program = (
        "import django, sys; django.setup()\n"
        "import apps.archive.reading, apps.archive.keeping, apps.operations.loops\n"
        "import config.urls, workers.archiving, workers.housekeeping\n"
        "import apps.dispatch.management.commands.dispatcher\n"
        "sys.exit(bool({'pyarrow', 'fsspec'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT).returncode == 0
