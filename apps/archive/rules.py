"""What may leave the tables, whether to files or for good.

Kept whatever its age: what is not finished, what has an open dead letter or one that was closed lately, the newest
disposition of every schedule, since a lost due entry is made again from it, what was restored lately, and what is under
a legal hold. The steps of a workflow's run are kept as long as the run of their root is: a retry needs them.

Whoever uses these conditions says `holds.share` first in its transaction.
"""

from datetime import datetime
from typing import Any

import psycopg

from apps.archive import catalogue, holds

Conn = psycopg.Connection[Any]

# Of an execution `e`.
MAY_GO = f"""
    e.finished_at < %(before)s
    AND NOT EXISTS (SELECT 1 FROM {{schema}}.deadletters_deadletter d
                    WHERE d.execution_id = e.id AND (d.resolved_at IS NULL OR d.resolved_at >= %(closed)s))
    AND (e.schedule_id IS NULL OR e.trigger NOT IN ('schedule', 'catch_up')
         OR EXISTS (SELECT 1 FROM {{schema}}.executions_execution n
                    WHERE n.schedule_id = e.schedule_id AND n.nominal_at > e.nominal_at
                      AND n.trigger IN ('schedule', 'catch_up')))
    AND NOT EXISTS (SELECT 1 FROM unnest(%(kept_from)s::uuid[], %(kept_to)s::uuid[]) AS kept (low, high)
                    WHERE e.id BETWEEN kept.low AND kept.high)
    AND {holds.EXECUTION_NOT_HELD}
"""

# Beside MAY_GO, of an execution that is deleted by itself.
ITS_ROOT_MAY_GO = """
    (e.workflow_run_id IS NULL OR NOT EXISTS (
        SELECT 1 FROM {schema}.workflows_run r JOIN {schema}.workflows_run root ON root.execution_id = r.root_id
        WHERE r.execution_id = e.workflow_run_id AND (
            root.finished_at IS NULL OR root.finished_at >= %(before)s
            OR EXISTS (SELECT 1 FROM {schema}.deadletters_deadletter d
                       WHERE d.execution_id = root.execution_id AND d.resolved_at IS NULL))))
"""


def parameters(conn: Conn, schema: str, *, before: datetime, closed: datetime | None = None) -> dict[str, Any]:
    """Parameters of the conditions. Letters closed at `closed` or later keep their execution; None: only open ones."""
    kept = catalogue.kept_ranges(conn, schema)
    return {
        "before": before, "closed": closed or datetime.max.replace(tzinfo=before.tzinfo),
        "kept_from": [low for low, _ in kept], "kept_to": [high for _, high in kept],
    }  # fmt: skip
