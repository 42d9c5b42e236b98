"""Who asked an execution to end: by itself, as a step of a workflow's run, or with the run that it is a part of."""

from datetime import datetime
from uuid import UUID

from django.db.models import Q

from apps.dispatch.explaining.ended import By
from apps.dispatch.explaining.trail import last_by
from apps.executions.models import Execution
from apps.workflows.models import Run, StepRun
from apps.workflows.runs.values import STOPPING
from tenants.models import Tenant

CANCELS = ("execution.cancel", "workflowrun.cancel")
OF_STEP = "workflowrun.cancel_step"


def stopped_by(tenant: Tenant, execution_id: UUID, *, named: bool) -> By | None:
    """The nearest that the trail names, since the execution is there; None where it names nobody.

    A run that stopped by itself, at a failure or at its deadline, stopped its steps.
    """
    found = last_by(tenant, execution_id, CANCELS, named=named)
    of = Execution.objects.filter(pk=execution_id).only("workflow_run_id", "step", "created_at").first()
    part = None if of is None or of.workflow_run_id is None else (of.workflow_run_id, of.step or "", of.created_at)
    while found is None and part is not None:
        found, part = _as_step(tenant, *part, named=named), _above(part[0])
    return found


def _as_step(tenant: Tenant, run_id: UUID, step: str, made_at: datetime, *, named: bool) -> By | None:
    of_it = Q(action__in=CANCELS) | Q(action=OF_STEP) & (Q(after__step=step) | Q(after__branch=True))
    by = last_by(tenant, run_id, [*CANCELS, OF_STEP], named=named, only=of_it & Q(at__gte=made_at))
    run = Run.objects.filter(pk=run_id).only("reason", "finished_at").first()
    if by is not None or run is None or run.reason not in STOPPING:
        return by
    ended_at = StepRun.objects.filter(run_id=run_id, step=step, item=None).values_list("finished_at", flat=True).first()
    return By("the platform", ended_at or made_at, f"its run stopped ({run.reason})", system=True)


def _above(run_id: UUID) -> tuple[UUID, str, datetime] | None:
    """The step whose sub-workflow a run is, and when that run was made."""
    found = Run.objects.filter(pk=run_id).exclude(parent_step_id=None).values_list("parent_step_id", flat=True).first()
    step = None if found is None else StepRun.objects.filter(pk=found).values_list("run_id", "step").first()
    made_at = Execution.objects.filter(pk=run_id).values_list("created_at", flat=True).first()
    return None if step is None or made_at is None else (*step, made_at)
