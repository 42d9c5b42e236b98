"""A run of a workflow as rows, for pages that show it: one step has failed, one asks a person, one waits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from tests.workflows.engine import make_workflow, step

if TYPE_CHECKING:
    from tenants.models import Tenant

ASKS, WAITS = "approve", "load"


def run_with_rows(tenant: Tenant, *, text: str = "") -> UUID:
    """Such a run; `text` stands wherever people or programs may write."""
    from apps.schedules.running import Run as Wish
    from apps.schedules.running import run_start, share_job
    from apps.workflows.models import Run, StepRun
    from kernel.clock import utc_now
    from tenants.work import in_tenant

    asks = {"role": "operator", "message": text or "Go on?"}
    steps = [step("extract"), step(ASKS, ("extract", "failed"), approval=asks), step(WAITS, ASKS)]
    now, workflow = utc_now(), make_workflow(tenant, steps, payload={"a": text})

    def begin() -> UUID:
        wish = Wish(trigger="api", fired_by="test")
        made = run_start(tenant, share_job(tenant, workflow), wish, now=now)
        Run.objects.create(
            execution_id=made, root_id=made, workflow_id=workflow, version=1, state="running", open=2, failed=1,
            input={"text": text}, error={"message": text}, paused_reason=text, started_at=now,
        )  # fmt: skip
        for name, kind, state in (
            ("extract", "job", "failed"),
            (ASKS, "approval", "running"),
            (WAITS, "job", "waiting"),
        ):
            StepRun.objects.create(
                run_id=made, step=name, type=kind, state=state, note=text, pending=int(state == "waiting"),
                finished_at=now if state == "failed" else None, error={"message": text}, started_at=now,
            )  # fmt: skip
        return made

    return in_tenant(tenant, begin)
