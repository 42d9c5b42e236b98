"""A backfill sees what is archived as it saw it before, and says of what was deleted for good that it is not known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from apps.archive.files import Store
from apps.archive.forgotten import forgotten
from tests.archive.hands import NOW, OLD_DAY, archive, history
from tests.fixtures_flow import make_schedule
from tests.operations.test_backfill import backfill as asked
from tests.operations.test_backfill import rehearse, runs, turns

Conn = psycopg.Connection[Any]
HOUR = timedelta(hours=1)


def test_what_is_archived_is_recognised(conn: Conn, acme: Any, files: Store) -> None:
    """Of eleven hours six have a run, one of which died."""
    schema = acme.schema_name
    schedule = make_schedule(acme, cron="0 * * * *", now=OLD_DAY)
    conn.execute("UPDATE due_dueentry SET nominal_at = %s, due_at = %s", [NOW, NOW])
    ids = history(conn, schema, 12, at=OLD_DAY, step=HOUR)
    conn.execute(
        f"UPDATE {schema}.executions_execution SET schedule_id = %s WHERE nominal_at IS NOT NULL AND id = ANY(%s)",
        [schedule, ids],
    )
    query = f"SELECT id FROM {schema}.executions_execution WHERE state = 'dead' AND nominal_at = %s"
    [(died,)] = conn.execute(query, [OLD_DAY + 10 * HOUR]).fetchall()
    range_ = {"from": (OLD_DAY + 2 * HOUR).isoformat(), "to": (OLD_DAY + 13 * HOUR).isoformat()}
    expected = {"ran": 5, "failed": 1, "missing": 5}
    assert rehearse(acme, schedule, **range_).standings == expected

    archive(conn, acme, files)
    assert not conn.execute(query, [OLD_DAY + 10 * HOUR]).fetchall(), "it is in files alone"
    assert rehearse(acme, schedule, **range_).standings == expected
    turns(acme, asked(acme, schedule, **range_, only="failed").pk)
    [again] = runs(conn, acme, schedule)
    assert again["replay_of"] == died

    forgotten(conn, schema, before=OLD_DAY + 6 * HOUR)
    seen = rehearse(acme, schedule, **range_)
    assert seen.standings == {"ran": 5, "alive": 1, "missing": 3, "not_known": 2}
    assert seen.count == 3 and "2 occurrences nothing is known" in seen.warnings[0]


def test_an_archive_that_can_t_be_read_is_told(conn: Conn, acme: Any, files: Store, api: Any, settings: Any) -> None:
    schedule = make_schedule(acme, cron="0 * * * *", now=OLD_DAY)
    history(conn, acme.schema_name, 6, at=OLD_DAY, step=HOUR)
    archive(conn, acme, files)
    settings.ARCHIVE_URL = ""
    body = {"from": OLD_DAY.isoformat(), "to": (OLD_DAY + 5 * HOUR).isoformat(), "dry_run": True}
    assert api.post(f"schedules/{schedule}/backfill", body).code == "archive_off"
