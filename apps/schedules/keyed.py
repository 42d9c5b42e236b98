"""Concurrency keys in SQL: which flow the runs of a job with such a key fall into.

The rule is the job's as it is now; the value is that of the run: its own payload, or its schedule's version's, or that
of the job's version that it runs; of labels the job's, the schedule's and its own, of which later ones win.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from kernel.limitrules import Flow, flow_of

Conn = psycopg.Connection[Any]
CHUNK = 5_000  # runs whose values are in memory at a time

# As kernel.limitrules.value_at: the rule's pointers have no step that the two would read differently. What can be no
# value is not sent; nor is a number of more digits than a whole one of 64 bits has.
_READ = """
SELECT m.id, m.job_id, m.rule::text,
       CASE WHEN jsonb_typeof(m.value) IN ('string', 'boolean')
                 OR jsonb_typeof(m.value) = 'number' AND length(m.value::text) <= 20 THEN m.value::text END
FROM (SELECT {of}.id, j.id AS job_id, cv.concurrency_key AS rule,
             CASE WHEN cv.concurrency_key ? 'label' THEN ({labels}) -> (cv.concurrency_key->>'label')
                  ELSE ({payload}) #> ARRAY(
                      SELECT replace(replace(p.step, '~1', '/'), '~0', '~')
                      FROM unnest(regexp_split_to_array(substr(cv.concurrency_key->>'payload', 2), '/'))
                           WITH ORDINALITY AS p(step, n) ORDER BY p.n) END AS value
      FROM {rows}
      JOIN {{schema}}.schedules_job j ON j.id = {of}.job_id
      JOIN {{schema}}.schedules_jobversion cv ON cv.job_id = j.id AND cv.version = j.version {more}
      WHERE {of}.id = ANY(%s) AND cv.concurrency_key IS NOT NULL) m
"""

_OF_EXECUTIONS = _READ.format(
    of="e", rows="{schema}.executions_execution e",
    more="""
      LEFT JOIN {schema}.schedules_jobversion rv ON rv.job_id = e.job_id AND rv.version = e.job_version
      LEFT JOIN {schema}.schedules_schedule s ON s.id = e.schedule_id
      LEFT JOIN {schema}.schedules_scheduleversion sv
             ON sv.schedule_id = e.schedule_id AND sv.version = e.schedule_version AND sv.own_payload""",
    labels="j.labels || coalesce(s.labels, jsonb_build_object()) || coalesce(e.labels, jsonb_build_object())",
    payload="CASE WHEN e.payload IS NOT NULL THEN e.payload WHEN sv.own_payload THEN sv.payload ELSE rv.payload END",
)  # fmt: skip

_OF_SCHEDULES = _READ.format(
    of="s", rows="{schema}.schedules_schedule s",
    more="JOIN {schema}.schedules_scheduleversion sv ON sv.schedule_id = s.id AND sv.version = s.version",
    labels="j.labels || s.labels", payload="CASE WHEN sv.own_payload THEN sv.payload ELSE cv.payload END",
)  # fmt: skip


def flows_of_executions(conn: Conn, schema: str, ids: Sequence[UUID]) -> dict[UUID, Flow]:
    """The flows of these executions, whose rows are there; those whose job has no key are left out."""
    return dict(_read(conn, _OF_EXECUTIONS, schema, ids))


def flows_of_schedules(conn: Conn, schema: str, ids: Collection[UUID]) -> dict[UUID, Flow]:
    """The flows of what these schedules fire from now on; those whose job has no key are left out."""
    return dict(_read(conn, _OF_SCHEDULES, schema, list(ids)))


def _read(conn: Conn, query: str, schema: str, ids: Sequence[UUID]) -> Iterator[tuple[UUID, Flow]]:
    statement = sql.SQL(query).format(schema=sql.Identifier(schema))
    for start in range(0, len(ids), CHUNK):
        for key, job_id, rule, value in conn.execute(statement, [list(ids[start : start + CHUNK])]):
            yield key, flow_of(job_id, json.loads(rule), None if value is None else json.loads(value))
