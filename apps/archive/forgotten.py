"""From when on a tenant's history is whole, in the tables or in files: completeness can say nothing of what was before.

The plan's retention can't tell: it may have been shorter when the rows were deleted.
"""

from datetime import datetime
from typing import Any

import psycopg

from apps.archive.models import READABLE_STATES
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_FORGET = """
INSERT INTO {schema}.archive_forgotten AS f (id, before) VALUES (1, $1)
ON CONFLICT (id) DO UPDATE SET before = excluded.before WHERE f.before < excluded.before
"""

# What is of a batch's day or earlier was written by the end of that day.
_ARCHIVED_TO = """
SELECT (max(day) + 1)::timestamp AT TIME ZONE 'UTC' FROM {schema}.archive_archivebatch WHERE state = ANY($1)
"""


def forgotten(conn: Conn, schema: str, *, before: datetime) -> None:
    """Executions that ended before that instant are deleted for good in this transaction."""
    run_in(conn, _FORGET, schema, [before])


def kept_from(conn: Conn, schema: str) -> datetime | None:
    """All executions of occurrences from this instant on are there; None: nothing was ever deleted."""
    row = run_in(conn, "SELECT before FROM {schema}.archive_forgotten", schema, []).fetchone()
    return None if row is None else row[0]


def archived_to(conn: Conn, schema: str) -> datetime | None:
    """From when on the tables alone are whole, because nothing of it was archived; None: nothing is archived at all."""
    row = run_in(conn, _ARCHIVED_TO, schema, [list(READABLE_STATES)]).fetchone()
    return None if row is None else row[0]
