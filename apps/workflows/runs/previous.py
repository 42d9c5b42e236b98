"""Steps that wait for themselves: a step with `depends_on_previous` starts when it went well in the run before.

The run before is the nearest older run of the workflow that has the step; it went well when it succeeded or was
skipped for another reason than a failure. Nothing of that run is locked: the next run is looked at when the step has
ended there, and after LOOK_S.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.workflows.runs.deciding import DEADLINE, FAIL_FAST, UPSTREAM_FAILED, End
from tenants.statements import run_in

Conn = psycopg.Connection[Any]
REASON = "previous_run"
LOOK_S = 15  # until it is looked at again, when nobody told that the step before has ended
FOR_A_FAILURE = (UPSTREAM_FAILED, FAIL_FAST, DEADLINE)

_BEFORE = """
SELECT m.step, b.run_id, b.state FROM unnest($1::text[]) AS m(step) CROSS JOIN LATERAL (
    SELECT s.run_id, s.state, s.reason FROM {schema}.workflows_run r
    JOIN {schema}.workflows_steprun s ON s.run_id = r.execution_id AND s.step = m.step AND s.item IS NULL
    WHERE r.workflow_id = $2 AND r.execution_id < $3
    ORDER BY r.execution_id DESC LIMIT 1) b
WHERE NOT (b.state = 'succeeded' OR b.state = 'skipped' AND b.reason <> ALL($4))
"""

# The next run alone: what follows that one waits for it in turn.
_FOLLOWING = """
SELECT n.run_id FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS m(workflow_id, run_id, step) CROSS JOIN LATERAL (
    SELECT s.run_id, s.state, s.reason FROM {schema}.workflows_run r
    JOIN {schema}.workflows_steprun s ON s.run_id = r.execution_id AND s.step = m.step AND s.item IS NULL
    WHERE r.workflow_id = m.workflow_id AND r.execution_id > m.run_id
    ORDER BY r.execution_id LIMIT 1) n
WHERE n.state = 'waiting' AND n.reason = $4
"""


class Before(NamedTuple):
    """The step in an older run, where it did not go well, or not yet."""

    run_id: UUID
    state: str


class Went(NamedTuple):
    """A step that went well."""

    workflow_id: UUID
    run_id: UUID
    step: str


def went_well(end: End) -> bool:
    """Whether the next run may start this step."""
    return end.state == "succeeded" or (end.state == "skipped" and end.reason not in FOR_A_FAILURE)


def held(conn: Conn, schema: str, *, workflow_id: UUID, run_id: UUID, steps: Collection[str]) -> dict[str, Before]:
    """Those of a run's steps that may not start yet, with what each waits for."""
    if not steps:
        return {}
    parameters = [sorted(steps), workflow_id, run_id, list(FOR_A_FAILURE)]
    return {row[0]: Before(row[1], row[2]) for row in run_in(conn, _BEFORE, schema, parameters)}


def following(conn: Conn, schema: str, went: Sequence[Went]) -> list[UUID]:
    """Runs of which a step has waited for one of these."""
    if not went:
        return []
    columns: list[Any] = [list(column) for column in zip(*went, strict=True)]
    return sorted({row[0] for row in run_in(conn, _FOLLOWING, schema, [*columns, REASON])})
