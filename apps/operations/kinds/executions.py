"""Cancelling executions, and running them again."""

from typing import Any, ClassVar

from apps.dispatch.submit import execution_rerun
from apps.executions.reading import executions_ids
from apps.operations.filters import EXECUTION_NAMES, execution_filter, kept, query_of
from apps.operations.kinds.base import Cursor, Done, Kind, Planned, TakenItem, Work
from apps.operations.kinds.paging import frozen, planned_of, position_of
from apps.operations.models import Operation
from apps.outcomes.cancel import execution_cancel
from kernel.errors import Faults
from tenants.models import Tenant


def cancel_unstarted(work: Work, item: TakenItem) -> None:
    """Cancels the execution that an item has started; Conflict when somebody has begun it."""
    assert item.made_id is not None
    execution_cancel(
        tenant=work.tenant, actor=work.actor, execution_id=item.made_id, now=work.now, reason=work.operation.reason,
        only_unstarted=True,
    )  # fmt: skip


class _OfExecutions(Kind):
    target = "executions"

    def filtered(self, given: Any, faults: Faults) -> dict[str, Any]:
        return kept(given, EXECUTION_NAMES, execution_filter, faults)

    def planned(self, tenant: Tenant, operation: Operation, *, after: Cursor | None, size: int) -> Planned:
        wanted = frozen(execution_filter(query_of(operation.filter, EXECUTION_NAMES)), operation)
        return planned_of(executions_ids(tenant, wanted, after=position_of(after), size=size))


class CancelExecutions(_OfExecutions):
    """Cancels what has not ended; what runs is asked to stop."""

    action = "cancel"
    permission = "execution.cancel"
    undoes: ClassVar[bool] = False

    def apply(self, work: Work, item: TakenItem) -> Done:
        assert item.target_id is not None
        done = execution_cancel(
            tenant=work.tenant, actor=work.actor, execution_id=item.target_id, now=work.now,
            reason=work.operation.reason,
        )  # fmt: skip
        return Done("succeeded", "stop_requested" if done.outcome == "requested" else "")


class RerunExecutions(_OfExecutions):
    """Runs what has ended again, as new executions; an undo cancels those that were not started."""

    action = "rerun"
    permission = "execution.rerun"

    def apply(self, work: Work, item: TakenItem) -> Done:
        assert item.target_id is not None
        made = execution_rerun(tenant=work.tenant, actor=work.actor, execution_id=item.target_id, now=work.now)
        return Done("running", made_id=made)

    def undo(self, work: Work, item: TakenItem) -> None:
        cancel_unstarted(work, item)
