"""Replays taken back, as long as nothing was tried: the execution is dead as before and its letter is open again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from apps.audit.services import Actor, record
from apps.deadletters import store as deadletters
from apps.deadletters.models import DeadLetter
from apps.executions import store as executions
from apps.outcomes.cancel import count_cancelled
from apps.tickets import store as tickets
from apps.workflows.dependencies.depending import dependents_decide
from kernel.errors import Conflict, NotFound
from tenants import door
from tenants.models import Tenant
from tenants.registry import tenancy_of
from tenants.work import Again, in_tenant

REASON = "replay_undone"


def deadletter_unreplay(
    *, tenant: Tenant, actor: Actor, letter_id: UUID, execution_id: UUID, before: Mapping[str, Any], now: datetime
) -> None:
    """Takes the replay of a letter back that made `execution_id` run; `before` is what the replay told.

    A reopened execution is dead again, as it was; one that was made anew is cancelled. NotFound; Conflict when it has
    started since then or the letter is no longer what the replay left. Runs of workflows start at once: Conflict.
    """

    def work() -> None:
        letter = DeadLetter.objects.filter(pk=letter_id).first()
        if letter is None:
            raise NotFound("There is no such dead letter.")
        if letter.resolution != "replayed":
            raise Conflict(f"It is not replayed: it is {letter.resolution or 'open'}.", code="not_replayed")
        conn, schema = door.raw(), tenant.schema_name
        reopened = execution_id == letter.execution_id
        followed = tickets.take_back(
            conn, execution_id, tenant_id=tenant.pk, attempt=letter.attempts if reopened else 0
        )
        if followed is None or (reopened and not before):
            raise Conflict("It has started since then.", code="already_started")
        if reopened:
            ended = executions.close_again(
                conn, schema, execution_id, died_at=letter.created_at, error=orjson.dumps(letter.error).decode(),
                reason=str(before.get("reason", "")), job_version=int(before["job_version"]),
            )  # fmt: skip
        else:
            ended = executions.cancel(conn, schema, execution_id, now=now, reason=REASON)
            count_cancelled(conn, tenant, now)
        if not ended or deadletters.open_again(conn, schema, letter_id) is None:
            raise Again
        if followed:
            state = "dead" if reopened else "cancelled"
            dependents_decide(conn, tenancy_of(tenant), {execution_id: state}, now)
        record(
            actor=actor, action="deadletter.unreplay", object_type="dead_letter", object_id=letter_id, now=now,
            tenant_id=tenant.pk, after={"execution": str(execution_id)},
        )  # fmt: skip

    in_tenant(tenant, work)
