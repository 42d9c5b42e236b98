"""Asking for an operation: what every bulk request has in common."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from rest_framework.response import Response

from apps.api.endpoint import Endpoint
from apps.api.etags import tagged
from apps.api.reading import MAX_REASON_CHARS
from apps.operations import pacing
from apps.operations.kinds.base import NewItem
from apps.operations.models import Operation
from apps.operations.pacing import Pace
from apps.operations.reading import counts_of
from apps.operations.services import Rehearsed, Wish, operation_create, operation_rehearse
from apps.schedules.input_fields import Fields
from kernel.errors import Faults

COMMON = ("filter", "dry_run", "reason", *pacing.NAMES)


class WishEndpoint(Endpoint):
    """`action` on `target`: 202 with the operation, or 200 with what it would be about."""

    action: ClassVar[str]
    target: ClassVar[str]

    def asked(self) -> Response:
        """The answer to a bulk request. InvalidInput."""
        wish, dry_run = read_wish(self.action, self.target, self.body)
        if dry_run:
            found = operation_rehearse(tenant=self.tenant, actor=self.actor, wish=wish, now=self.now)
            return Response(rehearsed_shape(found))
        made = operation_create(tenant=self.tenant, actor=self.actor, wish=wish, now=self.now)
        return tagged(operation_shape(made), made.revision, status=202, location=f"/api/v1/operations/{made.pk}")


def read_wish(action: str, target: str, body: Any) -> tuple[Wish, bool]:
    """What a body asks for, and whether only to rehearse it. InvalidInput; the filter is read by its kind."""
    faults = Faults()
    fields = Fields(body, faults)
    reason = fields.text("reason", most=MAX_REASON_CHARS, lines=True) or ""
    dry_run = fields.flag("dry_run")
    data: Mapping[str, Any] = fields.data
    pace = Pace().changed({name: data[name] for name in pacing.NAMES if name in data}, faults)
    faults.raise_if_any()
    params = {name: value for name, value in data.items() if name not in COMMON}
    return Wish(action, target, data.get("filter"), params, pace, reason), dry_run


def operation_shape(one: Operation) -> dict[str, Any]:
    """An operation as the API answers it."""
    return {
        "id": one.pk, "action": one.action, "target": one.target, "filter": one.filter, "params": one.params,
        "state": one.state, "frozen_at": one.frozen_at, "is_planned": one.is_planned,
        "counts": counts_of(one),
        **{name: getattr(one, name) for name in pacing.NAMES},
        "canary_passed": one.canary_passed, "waits_for": one.waits_for or None, "reason": one.reason,
        "paused_reason": one.paused_reason or None, "error": one.error or None, "created_by": one.created_by,
        "created_at": one.created_at, "started_at": one.started_at, "finished_at": one.finished_at,
    }  # fmt: skip


def rehearsed_shape(found: Rehearsed) -> dict[str, Any]:
    """What a dry run answers."""
    one = found.operation
    return {
        "action": one.action, "target": one.target, "filter": one.filter, "params": one.params, "count": found.count,
        "sample": [_sample(item) for item in found.sample], "warnings": found.warnings,
    }  # fmt: skip


def _sample(item: NewItem) -> dict[str, Any]:
    at: datetime | None = item.nominal_at
    return {"target": item.target_id, "nominal_at": at}
