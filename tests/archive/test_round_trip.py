"""From the tables to files and back: nothing is lost, changed or left over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from apps.archive import restoring
from apps.archive.files import Store
from apps.archive.verifying import batch_check
from tests.archive.hands import archive, count, done_batches, everything, history, paths, states, workflow

Conn = psycopg.Connection[Any]


def test_what_is_archived_leaves_the_tables_and_comes_back_as_it_was(
    conn: Conn, acme: Any, files: Store, tmp_path: Path
) -> None:
    schema = acme.schema_name
    history(conn, schema, 1_203)
    history(conn, schema, 30, at=datetime(2026, 5, 22, 23, 59, 50, tzinfo=UTC))
    _, tree = workflow(conn, schema)
    before = everything(conn, schema)
    run = archive(conn, acme, files)
    assert (run.counts["executions"], run.counts["workflow_steps"], run.counts["dependencies"]) == (
        1_233 + len(tree),
        3,
        1,
    )
    assert (count(conn, schema), states(conn, schema)) == (0, ["done"] * 3)
    assert archive(conn, acme, files).batches == 0
    batches = done_batches(conn, schema)
    assert [one.day.day for one in batches] == [20, 22, 23]
    assert [batch_check(files, one) for one in batches] == [[], [], []]
    assert all(path.startswith(f"archive/{schema}-{acme.pk}/2026/05/2") for path in paths(tmp_path))

    until = datetime.now(UTC) + timedelta(days=1)
    for batch in batches:
        found = restoring.batch_restore(conn, acme, files, batch, keep_until=until)
        assert (found.counts, found.refused) == ({**found.counts, **batch.counts}, [])
    assert everything(conn, schema) == before
    assert (states(conn, schema), paths(tmp_path)) == (["restored"] * 3, [])
    assert archive(conn, acme, files).batches == 0, "what was restored is not archived again at once"
