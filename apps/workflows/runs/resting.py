"""Runs whose tenant stood still: that time counts neither for their deadlines nor as time for an approval.

A delay is a wait for an instant, and ends as it would have.
"""

from datetime import datetime
from typing import Any

import psycopg

from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_LOCK = """
SELECT 1 FROM {schema}.workflows_run WHERE execution_id IN (
    SELECT root_id FROM {schema}.workflows_run WHERE finished_at IS NULL) ORDER BY execution_id FOR UPDATE
"""
_DEADLINES = """
UPDATE {schema}.workflows_run SET deadline_at = deadline_at + ($2::timestamptz - greatest($1::timestamptz, started_at))
WHERE finished_at IS NULL AND deadline_at IS NOT NULL
"""
_APPROVALS = """
UPDATE {schema}.workflows_steprun SET wake_at = wake_at + ($2::timestamptz - greatest($1::timestamptz, started_at))
WHERE type = 'approval' AND state = 'running' AND wake_at IS NOT NULL
"""


def go_on(conn: Conn, schema: str, *, since: datetime, until: datetime) -> None:
    """Moves what a run and its approvals have time for by as long as they had to wait. Locks the roots in id order."""
    run_in(conn, _LOCK, schema, [])
    for statement in (_DEADLINES, _APPROVALS):
        run_in(conn, statement, schema, [since, until])
