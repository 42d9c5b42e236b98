"""Concurrency keys in SQL: which flow the runs of a job with such a key fall into.

The rule is the job's as it is now; the value is that of the run: in its own payload, or its schedule's version's, or
that of the job's version that it runs; of labels the job's, the schedule's and its own, of which later ones win.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from kernel.limitrules import Flow, flow_of

Conn = psycopg.Connection[Any]
CHUNK = 5_000  # runs whose values are in memory at a time


def value_sql(*, rule: str, labels: str, payload: str) -> str:
    """An expression for the value of a rule's key, as JSON text; null when it has none.

    As kernel.limitrules.value_of: pointers have no step that the two would read differently. What can be no value is
    not sent; nor is a number of more digits than a whole one of 64 bits has.
    """
    return f"""(SELECT CASE WHEN jsonb_typeof(v.value) IN ('string', 'boolean')
                 OR jsonb_typeof(v.value) = 'number' AND length(v.value::text) <= 20 THEN v.value::text END
        FROM (SELECT CASE
            WHEN {rule} IS NULL THEN NULL
            WHEN jsonb_exists({rule}, 'label') THEN ({labels}) -> ({rule}->>'label')
            ELSE ({payload}) #> ARRAY(
                SELECT replace(replace(p.step, '~1', '/'), '~0', '~')
                FROM unnest(regexp_split_to_array(substr({rule}->>'payload', 2), '/')) WITH ORDINALITY AS p(step, n)
                ORDER BY p.n) END AS value) v)"""


_EXECUTION_VALUE = value_sql(
    rule="cv.concurrency_key",
    labels="j.labels || coalesce(s.labels, jsonb_build_object()) || coalesce(e.labels, jsonb_build_object())",
    payload="CASE WHEN e.payload IS NOT NULL THEN e.payload WHEN sv.own_payload THEN sv.payload ELSE rv.payload END",
)
_OF_EXECUTIONS = f"""
SELECT e.id, j.id, cv.concurrency_key::text, {_EXECUTION_VALUE}
FROM {{schema}}.executions_execution e
JOIN {{schema}}.schedules_job j ON j.id = e.job_id
JOIN {{schema}}.schedules_jobversion cv ON cv.job_id = j.id AND cv.version = j.version
LEFT JOIN {{schema}}.schedules_jobversion rv ON rv.job_id = e.job_id AND rv.version = e.job_version
LEFT JOIN {{schema}}.schedules_schedule s ON s.id = e.schedule_id
LEFT JOIN {{schema}}.schedules_scheduleversion sv
       ON sv.schedule_id = e.schedule_id AND sv.version = e.schedule_version
WHERE e.id = ANY(%s) AND cv.concurrency_key IS NOT NULL
"""

_SCHEDULE_VALUE = value_sql(
    rule="cv.concurrency_key", labels="j.labels || s.labels",
    payload="CASE WHEN sv.own_payload THEN sv.payload ELSE cv.payload END",
)  # fmt: skip
_OF_SCHEDULES = f"""
SELECT s.id, j.id, cv.concurrency_key::text, {_SCHEDULE_VALUE}
FROM {{schema}}.schedules_schedule s
JOIN {{schema}}.schedules_scheduleversion sv ON sv.schedule_id = s.id AND sv.version = s.version
JOIN {{schema}}.schedules_job j ON j.id = s.job_id
JOIN {{schema}}.schedules_jobversion cv ON cv.job_id = j.id AND cv.version = j.version
WHERE s.id = ANY(%s) AND cv.concurrency_key IS NOT NULL
"""


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
            yield key, flow_of(job_id, orjson.loads(rule), None if value is None else orjson.loads(value))
