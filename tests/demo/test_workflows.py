"""The demo's workflows are made once, and follow their receiver to another port."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from demo.announce import workflow_told

if TYPE_CHECKING:
    from tenants.models import Tenant

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


def test_they_are_made_once_and_follow_their_receiver(acme: Tenant) -> None:
    from apps.schedules.models import Job, Schedule
    from apps.workflows.definitions.defined import workflow_defined, workflow_shape
    from demo import workflows
    from kernel.pools import WORKFLOW
    from tenants import door

    def there() -> dict[str, str]:
        with door.inside(acme):
            found = Job.objects.filter(kind=WORKFLOW)
            return {job.name: str(workflow_shape(workflow_defined(job))) for job in found}

    assert workflows.fill(acme, receiver="http://127.0.0.1:5001", now=NOW) == (2, 0)
    first = there()
    assert workflows.fill(acme, receiver="http://127.0.0.1:5001", now=NOW) == (0, 0)
    assert workflows.fill(acme, receiver="http://127.0.0.1:5002", now=NOW) == (0, 2)
    moved = there()
    assert moved.keys() == {"load-regions", "export-orders"}
    for name, shape in moved.items():
        assert "127.0.0.1:5001/" not in shape and shape.count(":5002/") == first[name].count(":5001/") > 2
    with door.inside(acme):
        assert Schedule.objects.count() == 2


def test_what_is_said_of_a_run() -> None:
    run = {"workflow_name": "load", "state": "succeeded", "error": None}
    assert workflow_told(run) == "load succeeded"
    failed = {**run, "state": "failed", "error": {"message": "The step a failed."}}
    assert workflow_told(failed) == "load failed (The step a failed)"
