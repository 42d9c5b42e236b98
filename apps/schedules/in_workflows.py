"""Which workflows name a job, a secret or another workflow: asked before one of these goes.

The canonical definition of a workflow lists the jobs that it runs (`uses`) and the workflows that its steps run
(`calls`) and that it follows (`after`).
"""

from typing import NamedTuple
from uuid import UUID

from tenants import door

SHOWN_WORKFLOWS = 20  # in an answer that names those which use something

_CURRENT = """
SELECT w.id, w.name, count(*) OVER () FROM schedules_job w
JOIN schedules_jobversion v ON v.job_id = w.id AND v.version = w.version
WHERE w.kind = 'workflow' AND w.deleted_at IS NULL AND w.id <> %(id)s AND {uses} ORDER BY w.id LIMIT %(most)s
"""
_OF_JOB = _CURRENT.format(uses="v.target -> 'uses' ? %(text)s")
_OF_WORKFLOW = _CURRENT.format(
    uses="(v.target -> 'calls' ? %(text)s OR v.target -> 'after' @> jsonb_build_array(jsonb_build_object("
    "'workflow', %(text)s::text)))"
)


class Using(NamedTuple):
    """The first SHOWN_WORKFLOWS workflows that use something, and how many there are in all."""

    named: list[dict[str, str]]
    total: int


def workflows_running(job_id: UUID) -> Using:
    """Those that run a job now, in the tenant's schema."""
    return _using(_OF_JOB, job_id)


def workflows_naming(workflow_id: UUID) -> Using:
    """Other ones whose steps run this workflow now, or that follow it."""
    return _using(_OF_WORKFLOW, workflow_id)


def _using(query: str, wanted: UUID) -> Using:
    rows = door.raw().execute(query, {"id": wanted, "text": str(wanted), "most": SHOWN_WORKFLOWS}).fetchall()
    return Using([{"id": str(row[0]), "name": row[1]} for row in rows], rows[0][2] if rows else 0)
