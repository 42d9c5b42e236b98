"""What is written of a schedule's occurrences, in the tables and in the archive; oldest first, page by page."""

from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from typing import Any
from uuid import UUID

import psycopg

from apps.archive.reading import archived_dispositions
from apps.dispatch.completeness.comparing import Record
from tenants.models import Tenant
from tenants.statements import run_in

Conn = psycopg.Connection[Any]
FIRED = ("schedule", "catch_up")
LATER = ("backfill", "replay")
PAGE = 5_000
BEFORE = 3  # rows for several occurrences do not overlap: one of the last before a range may reach into it

_FIRED = "schedule_id = $1 AND trigger IN ('schedule', 'catch_up')"
_PAGE = f"""
SELECT nominal_at, until_at, state, reason FROM {{schema}}.executions_execution
WHERE {_FIRED} AND nominal_at > $2 AND nominal_at <= $3 ORDER BY nominal_at LIMIT $4
"""
_FIRST_PAGE = f"""
SELECT * FROM (
    SELECT nominal_at, until_at, state, reason FROM {{schema}}.executions_execution
    WHERE {_FIRED} AND nominal_at <= $2 ORDER BY nominal_at DESC LIMIT {BEFORE}) b
WHERE until_at > $2
UNION ALL SELECT * FROM ({_PAGE}) p ORDER BY nominal_at
"""
_LATER = """
SELECT DISTINCT nominal_at FROM {schema}.executions_execution
WHERE schedule_id = $1 AND trigger IN ('backfill', 'replay') AND nominal_at BETWEEN $2 AND $3
"""
_RAN_SINCE = f"""
SELECT EXISTS (SELECT 1 FROM {{schema}}.executions_execution
               WHERE {_FIRED} AND nominal_at > $2 AND state <> 'skipped')
"""


class Hot:
    """The records of a schedule that are in the tables: of (after, until], and those before that reach into it."""

    def __init__(self, conn: Conn, schema: str, schedule_id: UUID, *, after: datetime, until: datetime) -> None:
        self._conn, self._schema, self._schedule_id = conn, schema, schedule_id
        self._after, self._until = after, until

    def records(self) -> Iterator[Record]:
        """All of them, oldest first."""
        after, query = self._after, _FIRST_PAGE
        while True:
            values = [self._schedule_id, after, self._until, PAGE]
            rows = run_in(self._conn, query, self._schema, values).fetchall()
            for row in rows:
                yield Record._make(row)
            if len(rows) < PAGE:
                return
            after, query = rows[-1][0], _PAGE

    def made_later(self, first: datetime, last: datetime) -> list[datetime]:
        """Which occurrences from `first` to `last` were made up for by a backfill."""
        return [row[0] for row in run_in(self._conn, _LATER, self._schema, [self._schedule_id, first, last])]


class Whole(Hot):
    """The same with those that are archived."""

    def __init__(self, conn: Conn, tenant: Tenant, schedule_id: UUID, *, after: datetime, until: datetime) -> None:
        super().__init__(conn, tenant.schema_name, schedule_id, after=after, until=until)
        self._archived = archived_dispositions(tenant, schedule_id, since=after, until=until, conn=conn)

    def records(self) -> Iterator[Record]:
        old = (
            Record(one.nominal_at, one.until_at, one.state, one.reason)
            for one in self._archived
            if one.trigger in FIRED
        )
        return merge(super().records(), old, key=lambda one: one.nominal_at)

    def made_later(self, first: datetime, last: datetime) -> list[datetime]:
        old = [one.nominal_at for one in self._archived if one.trigger in LATER and first <= one.nominal_at <= last]
        return old + super().made_later(first, last)


def ran_since(conn: Conn, schema: str, schedule_id: UUID, at: datetime) -> bool:
    """Whether a later occurrence has an execution."""
    row = run_in(conn, _RAN_SINCE, schema, [schedule_id, at]).fetchone()
    return row is not None and bool(row[0])
