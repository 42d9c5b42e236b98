"""Erasing one execution everywhere: what it was about goes, that it ran stays.

First a request is noted, for the execution and all that goes with it (`apps.executions.erasures`); from then on none of
it can be run again. Then `erase_some` empties what is noted, in short transactions, as often as it takes: a process
that is killed, a delivery that is on its way or a store that does not answer leaves rows that the next run goes on
with. An execution is done when neither the tables nor any file may hold anything of it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
from django.db import OperationalError, connection

from apps.archive import erasing_rows, holds
from apps.archive.holding import REASON_CHARS
from apps.audit.services import Actor, record
from apps.executions import erasures
from apps.executions.erasures import Erased
from apps.outcomes.cancel import execution_cancel
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant, rehearsing

if TYPE_CHECKING:  # what reads files is loaded by whoever erases: most processes never do (`archive.reading`)
    from apps.archive.erasing_files import Family

log = logging.getLogger(__name__)
MOST = 10_000  # executions that go with one
CHUNK = 50  # that one transaction erases
NOTHING = UUID(int=0)
BY = Actor(name="system:erasure", role="admin")
TOLD_OF_ERASED = "what it tells of is erased"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was asked to be erased with an execution, itself among it."""

    execution_id: UUID
    parts: Sequence[Erased]

    @property
    def erased_at(self) -> datetime:
        return next(one.at for one in self.parts if one.execution_id == self.execution_id)

    @property
    def left(self) -> list[UUID]:
        """What is still to do: it is on its way, or its file can't be written just now."""
        return [one.execution_id for one in self.parts if one.done_at is None]


def execution_erase(
    *, tenant: Tenant, actor: Actor, execution_id: UUID, reason: str, now: datetime, everything: bool = False,
    files: bool = True,
) -> Receipt:  # fmt: skip
    """Erases an execution that has ended: of a workflow's run also all that it started. Asked again it is told anew.

    `everything` takes also the run that it is a step of, and what was run again of it or what it was run again from.
    Without `files` archives are left to the next clean-up: writing one anew takes seconds. Nobody is shown what is in
    them meanwhile.
    InvalidInput without a reason; NotFound; Conflict while it or what goes with it goes on or is under a legal hold;
    what `archive.reading` raises when it is archived and can't be read.
    """
    if not reason.strip() or len(reason) > REASON_CHARS:
        detail = f"must say why, in at most {REASON_CHARS} characters."
        raise InvalidInput([FieldError("/reason", "required", detail)])
    from apps.archive.erasing_files import family

    cold = family(door.raw(), tenant, execution_id, everything=everything, limit=MOST)
    in_tenant(tenant, lambda: _ask(tenant, actor, execution_id, reason, now, everything, cold))
    erase_some(tenant, now=now, only=execution_id, files=files)
    return receipt(tenant, execution_id)


def would_erase(*, tenant: Tenant, execution_id: UUID, now: datetime, everything: bool = False) -> list[UUID]:
    """What `execution_erase` would take, by id, but for deliveries. Refuses what that would, but for the reason."""
    from apps.archive.erasing_files import family

    conn, schema = door.raw(), tenant.schema_name
    cold = family(conn, tenant, execution_id, everything=everything, limit=MOST)
    with rehearsing(True):
        in_tenant(tenant, lambda: _ask(tenant, BY, execution_id, "rehearsed", now, everything, cold))
    ids = erasing_rows.belonging(conn, schema, {execution_id, *cold.rows}, everything=everything, limit=MOST + 1)
    return sorted(erasing_rows.present(conn, schema, ids) | set(cold.rows))


def receipt(tenant: Tenant, execution_id: UUID) -> Receipt:
    """What came of a request. NotFound when nothing was erased with this execution."""
    conn, schema = door.raw(), tenant.schema_name
    found = erasures.of(conn, schema, [execution_id]).get(execution_id)
    if found is None:
        raise NotFound("This execution was not erased.")
    return Receipt(execution_id, erasures.asked(conn, schema, found.asked_id))


def erase_some(
    tenant: Tenant, *, now: datetime, only: UUID | None = None, more: Callable[[], bool] = lambda: True,
    files: bool = True,
) -> int:  # fmt: skip
    """Goes on with what was asked, of one request or of all; how many executions came to their end."""
    count, after = 0, NOTHING
    while more() and (chunk := _undone(tenant, only, after)):
        after = chunk[-1].execution_id
        count += _chunk(tenant, chunk, now, files=files)
    return count


def _ask(
    tenant: Tenant, actor: Actor, execution_id: UUID, reason: str, now: datetime, everything: bool, cold: "Family"
) -> None:
    """Notes what is to go. Conflict, NotFound."""
    conn, schema = door.raw(), tenant.schema_name
    holds.share(conn, schema)
    ids = erasing_rows.belonging(conn, schema, {execution_id, *cold.rows}, everything=everything, limit=MOST + 1)
    if len(ids) > MOST:
        raise Conflict(f"More than {MOST:,} executions go with it; erase its parts.", code="too_many_parts")
    found = erasing_rows.locked(conn, schema, ids)
    ids = {one.id for one in found} | set(cold.rows)
    if execution_id not in ids:
        raise NotFound("There is no such execution.")
    alive = next((one.id for one in found if one.finished_at is None), None)
    if alive is None:
        alive = erasing_rows.goes_on(conn, schema, ids)
    if alive is not None:
        raise Conflict(f"Execution {alive} is not finished; cancel it or wait.", code="not_finished")
    archived = [*cold.rows.values(), *cold.beside.values()]
    kept = holds.held(conn, schema, ids) or list(holds.covered(holds.open_holds(conn, schema), archived))
    if kept:
        raise Conflict(f"Execution {kept[0]} is under a legal hold; release the hold first.", code="held")
    new = erasures.add(conn, schema, ids, asked_id=execution_id, at=now, by=actor.stored, reason=reason)
    if new:
        record(
            actor=actor, action="execution.erase", object_type="execution", object_id=execution_id, now=now,
            tenant_id=tenant.pk, reason=reason, after={"everything": everything, "executions": len(new)},
        )  # fmt: skip


def _undone(tenant: Tenant, only: UUID | None, after: UUID) -> Sequence[Erased]:
    conn, schema = door.raw(), tenant.schema_name
    if only is None:
        return erasures.undone(conn, schema, after=after, limit=CHUNK)
    parts = erasures.asked(conn, schema, only)
    return [one for one in parts if one.done_at is None and one.execution_id > after][:CHUNK]


def _chunk(tenant: Tenant, chunk: Sequence[Erased], now: datetime, *, files: bool) -> int:
    """Erases what can be erased now; how many are through."""
    from apps.archive.erasing_files import erase_from_files, may_be_in_files

    conn, schema = door.raw(), tenant.schema_name
    ids = [one.execution_id for one in chunk]
    for delivery in erasing_rows.live_deliveries(conn, schema, ids):
        with suppress(Conflict, NotFound):  # it has ended meanwhile
            execution_cancel(tenant=tenant, actor=BY, execution_id=delivery, now=now, reason=TOLD_OF_ERASED)
    try:
        emptied = in_tenant(tenant, lambda: _empty(tenant, chunk))
    except (psycopg.OperationalError, OperationalError):  # somebody holds a row for long; the next run comes by
        log.warning("executions of tenant %s could not be erased yet", tenant.slug, exc_info=True)
        return 0
    if emptied and may_be_in_files(conn, schema, emptied):
        # Files are not written in somebody's transaction: what it has not committed may still be taken back.
        later = connection.in_atomic_block or not files
        emptied -= set(emptied) if later else erase_from_files(conn, tenant, emptied)
    erasures.done(conn, schema, emptied, at=now)
    return len(emptied)


def _empty(tenant: Tenant, chunk: Sequence[Erased]) -> set[UUID]:
    """Erases from the tables what has ended; those that are not in them any more."""
    conn, schema = door.raw(), tenant.schema_name
    holds.share(conn, schema)
    ids = {one.execution_id for one in chunk}
    kept = set(holds.held(conn, schema, ids))  # placed since it was asked: it waits
    found = erasing_rows.locked(conn, schema, ids)
    ended = [one for one in found if one.finished_at is not None and one.id not in kept]
    gone = ids - {one.id for one in found}
    deliveries = erasing_rows.empty(conn, schema, tenant.pk, ended, gone)
    if deliveries:
        wish = chunk[0]
        erasures.add(conn, schema, deliveries, asked_id=wish.asked_id, at=wish.at, by=BY.stored, reason=wish.reason)
    return ({one.id for one in ended} | gone) - erasing_rows.sent_by_live_operations(conn, schema, ids)
