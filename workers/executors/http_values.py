"""What a run is called in templates: see `kernel.templates.NAMES`."""

from typing import Any

from workers.executors.base import Work


def values_of(work: Work) -> dict[str, Any]:
    """The values that a target's templates may use."""
    return {
        "run_key": work.run_key,
        "execution_id": str(work.execution_id),
        "attempt": work.attempt,
        "nominal_at": work.nominal_at,
        "trigger": work.execution_kind,
        "tenant": {"slug": work.tenant_slug},
        "job": {"id": str(work.job_id), "name": work.job_name},
        "schedule": None if work.schedule_id is None else {"id": str(work.schedule_id), "name": work.schedule_name},
        "payload": work.payload,
        "labels": work.labels,
    }
