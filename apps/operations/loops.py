"""The loop of operations, in every dispatcher: the operation that waits longest takes one turn, then the next one.

Any number of dispatchers share the work: an operation that somebody works on is passed over, by its row in the due
index.
Settings name `loops`, since dispatch knows nothing of operations.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import psycopg
from django.db import close_old_connections, connection, transaction

from apps.dispatch.keeper import Keeper
from apps.due import operations as due_operations
from apps.due.operations import DueOperation
from apps.operations import turn
from apps.operations.models import Operation
from apps.operations.states import sources_of
from apps.operations.turn import ERROR_CHARS, Turn
from kernel.backoff import delay_s
from kernel.service import IDLE_S, Pass, Runnable
from tenants import door
from tenants.models import Tenant
from tenants.work import LOST_RACE, database_now

log = logging.getLogger(__name__)
LOCK_TIMEOUT_MS = 1_000  # others wait meanwhile for what the turn has locked already
# What a frozen process has locked is free after a while, as with the other loops, which get that from `door.connect`.
GUARDED = "SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)"
SUSPENDED_S = 30.0  # until a tenant that stands still is looked at again
AGAIN_MAX_S = 30.0
FAILURES_MAX = 12  # turns in a row; then the operation has failed


def loops(keeper: Keeper) -> Sequence[tuple[str, Runnable, float]]:
    """What a dispatcher adds: names, services and how long they idle. The rows need no lease, so no keeper."""
    return [(OperationService.name, OperationService(), IDLE_S)]


class OperationService:
    """One thread, with its own connection of Django: items are carried out by the services of single requests."""

    name = "operations"

    def run_once(self) -> Pass:
        try:
            return self._pass()
        except Exception:
            connection.close()  # whatever it was, the next pass begins with a fresh one
            raise

    def close(self) -> None:
        connection.close()

    def _pass(self) -> Pass:
        close_old_connections()  # the server's process behind one remembers each table of each tenant
        if not due_operations.any_due(door.raw()):  # costs one round trip, and is mostly the answer
            return Pass()
        with transaction.atomic():
            conn, now = door.raw(), database_now()
            due = due_operations.take(conn, now=now)
            if due is None:
                return Pass()
            tenant = Tenant.objects.select_related("plan").filter(pk=due.tenant_id).first()
            if tenant is None:
                due_operations.remove(conn, due.operation_id)
            elif tenant.status != Tenant.Status.ACTIVE:
                later = now + timedelta(seconds=SUSPENDED_S)
                due_operations.put(conn, due.operation_id, tenant_id=due.tenant_id, due_at=later)
            else:
                conn.execute(GUARDED, [str(LOCK_TIMEOUT_MS), str(door.IDLE_IN_TRANSACTION_MS)])
                return Pass(self._turn(tenant, due), full=True)
        return Pass(full=True)

    def _turn(self, tenant: Tenant, due: DueOperation) -> dict[str, int]:
        conn = door.raw()
        try:
            with door.inside(tenant), transaction.atomic():
                operation = turn.lock(due.operation_id)
                one = None
                if operation is not None:
                    one = Turn(tenant, operation, now=database_now(), failures=due.failures)
                    one.run()
        except Exception as error:
            if conn.closed:
                raise
            return self._failed(tenant, due, error)
        if one is None or one.due_at is None:
            due_operations.remove(conn, due.operation_id)
        else:
            due_operations.put(conn, due.operation_id, tenant_id=tenant.pk, due_at=one.due_at)
        return {"turns": 1, **(one.counts if one is not None else Counter())}

    def _failed(self, tenant: Tenant, due: DueOperation, error: Exception) -> dict[str, int]:
        """The turn is undone; the next one comes later, and is careful. After many the operation has failed."""
        conn, now, failures = door.raw(), database_now(), due.failures + 1
        lost_race = isinstance(error, LOST_RACE) or isinstance(error.__cause__, LOST_RACE)
        wait_s = 0.0 if lost_race and failures == 1 else delay_s(failures, base_s=0.5, factor=2, max_s=AGAIN_MAX_S)
        if isinstance(error, psycopg.OperationalError):
            log.warning("operation %s of %s waits %.1f s: %s", due.operation_id, tenant.slug, wait_s, error)
        else:
            log.error("operation %s of %s waits %.1f s", due.operation_id, tenant.slug, wait_s, exc_info=error)
        due_operations.failed(conn, due.operation_id, due_at=now + timedelta(seconds=wait_s))
        if failures >= FAILURES_MAX:
            text = f"{type(error).__name__}: {error}"[:ERROR_CHARS]
            with door.inside(tenant):
                found = Operation.objects.filter(pk=due.operation_id, state__in=sources_of("fail"))
                if found.update(state="failed", error=text):
                    due_operations.put(conn, due.operation_id, tenant_id=tenant.pk, due_at=now)
        return {"failures": 1}
