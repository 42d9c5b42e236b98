"""What people do with operations: ask for one, rehearse it, pause, resume, cancel, undo, change its pace.

Each service is one transaction with its audit row. Who changes an operation waits for the dispatcher that works on it:
its row in the due index comes first, then its own.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.due import operations as due_operations
from apps.operations import asked_by, turn
from apps.operations.kinds import kind_of
from apps.operations.kinds.base import NewItem
from apps.operations.models import Operation
from apps.operations.outlined import outline
from apps.operations.pacing import Pace
from apps.operations.states import sources_of
from apps.operations.turn import CANARY_FAILED, MAX_ITEMS, TOO_MANY
from kernel.errors import Conflict, Faults, NotFound, Stale
from kernel.ids import uuid7
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

COUNT_ROWS = 10_000  # of one statement of a dry run
SAMPLE = 20

PAYLOAD_GIVEN = "(not kept here)"


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for: the filter and the kind's own members as they were given."""

    action: str
    target: str
    filter: Any
    params: Mapping[str, Any]
    pace: Pace
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What an operation would be about. Nothing was written."""

    operation: Operation  # not stored
    count: int
    sample: list[NewItem]
    warnings: list[str]


def operation_create(*, tenant: Tenant, actor: Actor, wish: Wish, now: datetime) -> Operation:
    """Asks for an operation: a dispatcher plans it and works it off. InvalidInput; NotFound for an unknown kind."""

    def work() -> Operation:
        one = _made(tenant, actor, wish, now)
        one.save(force_insert=True)
        due_operations.put(door.raw(), one.pk, tenant_id=tenant.pk, due_at=now)
        outline(door.raw(), one, tenant_id=tenant.pk, now=now)
        after = {"action": one.action, "target": one.target, "filter": one.filter, "params": _noted(one.params)}
        _note(actor, "create", one, now, tenant, after=after, reason=one.reason)
        return one

    return in_tenant(tenant, work)


def operation_rehearse(*, tenant: Tenant, actor: Actor, wish: Wish, now: datetime) -> Rehearsed:
    """How many things it would be about, with the first of them. InvalidInput; Conflict for more than MAX_ITEMS."""

    def work() -> Rehearsed:
        one = _made(tenant, actor, wish, now)
        kind = kind_of(one.action, one.target)
        sample: list[NewItem] = []
        count, after = 0, None
        while True:
            found = kind.planned(tenant, one, after=after, size=COUNT_ROWS)
            count += len(found.items)
            sample += found.items[: SAMPLE - len(sample)]
            after = found.after
            if count > MAX_ITEMS:
                raise Conflict(TOO_MANY, code="too_many_items")
            if after is None:
                break
        return Rehearsed(one, count, sample, kind.warnings(tenant, one, count=count, now=now))

    return in_tenant(tenant, work)


def operation_pause(
    *, tenant: Tenant, actor: Actor, operation_id: UUID, now: datetime, reason: str = "",
    expect: Collection[int] | None = None,
) -> Operation:  # fmt: skip
    """Nothing more of it is started until it is resumed; what runs goes on. Conflict when it has ended; Stale.

    One that its canary holds stays so: whoever resumes it has to see that.
    """

    def change(one: Operation) -> None:
        if _held(one):
            return
        if one.state != "paused":
            _moves(one, "pause")
        one.state, one.paused_reason, one.waits_for = "paused", reason, ""

    return _change(tenant, actor, operation_id, "pause", now, change, reason=reason, expect=expect)


def operation_resume(
    *, tenant: Tenant, actor: Actor, operation_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> Operation:
    """It goes on; also after its canary failed: somebody has looked at that. Conflict when it has ended; Stale."""

    def change(one: Operation) -> None:
        if one.state in ("planning", "running"):
            return
        _moves(one, "resume")
        one.canary_passed = one.canary_passed or _held(one)
        one.state, one.paused_reason = ("running" if one.is_planned else "planning"), ""

    return _change(tenant, actor, operation_id, "resume", now, change, expect=expect)


def operation_cancel(
    *, tenant: Tenant, actor: Actor, operation_id: UUID, now: datetime, reason: str = "",
    expect: Collection[int] | None = None,
) -> Operation:  # fmt: skip
    """What is pending is never started; what runs goes on. Conflict when it has ended otherwise; Stale."""

    def change(one: Operation) -> None:
        if one.state == "cancelled":
            return
        _moves(one, "cancel")
        one.state, one.waits_for = "cancelled", ""
        one.finished_at = None if one.running else now

    return _change(tenant, actor, operation_id, "cancel", now, change, reason=reason, expect=expect)


def operation_undo(
    *, tenant: Tenant, actor: Actor, operation_id: UUID, now: datetime, reason: str = "",
    expect: Collection[int] | None = None,
) -> Operation:  # fmt: skip
    """Takes back what can be: what it started and nobody has begun is cancelled, what it paused goes on, and so on.

    Items for which it is too late keep their state, with the reason. Conflict when its kind can't be undone, when
    nothing was done, or while it is planned; Stale.
    """

    def change(one: Operation) -> None:
        if one.state in ("undoing", "undone"):
            return
        if not kind_of(one.action, one.target).undoes:
            raise Conflict(f"Nothing takes back a {one.action!r} of {one.target.replace('_', ' ')}.", code="no_undo")
        _moves(one, "undo")
        if not one.running + one.succeeded:
            raise Conflict("Nothing was done that could be taken back.", code="nothing_to_undo")
        one.state, one.cursor, one.looked_n, one.waits_for, one.finished_at = "undoing", None, 0, "", None

    return _change(tenant, actor, operation_id, "undo", now, change, reason=reason, expect=expect)


def operation_repace(
    *, tenant: Tenant, actor: Actor, operation_id: UUID, now: datetime, given: Mapping[str, Any],
    expect: Collection[int] | None = None,
) -> Operation:  # fmt: skip
    """Changes how fast it goes, of the members of a pace those that are given. InvalidInput; Conflict at its end."""

    def change(one: Operation) -> None:
        if one.state not in sources_of("cancel"):
            raise _ended(one)
        faults = Faults()
        Pace.of(one).changed(given, faults).write(one)
        faults.raise_if_any()
        one.next_at = None  # the new pace counts from now

    return _change(tenant, actor, operation_id, "update", now, change, expect=expect, shown=tuple(given))


def _noted(params: Mapping[str, Any]) -> dict[str, Any]:
    """As the trail has them: a payload is what runs are about, and nothing erases rows of the trail."""
    return {name: PAYLOAD_GIVEN if name == "payload" else value for name, value in params.items()}


def _change(
    tenant: Tenant, actor: Actor, operation_id: UUID, verb: str, now: datetime, change: Callable[[Operation], None], *,
    reason: str = "", expect: Collection[int] | None, shown: tuple[str, ...] = ("state",),
) -> Operation:  # fmt: skip
    def work() -> Operation:
        conn = door.raw()
        due_operations.lock(conn, operation_id)
        one = turn.lock(operation_id)
        if one is None:
            raise NotFound("There is no such operation.")
        if expect is not None and one.revision not in expect:
            raise Stale("The operation has changed since it was read.")
        was = one.values()
        change(one)
        changed = one.changed_since(was)
        if not changed:
            return one
        one.revision += 1
        written = Operation.objects.filter(pk=one.pk, state=was["state"], revision=was["revision"])
        if not written.update(**changed, revision=one.revision):
            raise RuntimeError(f"operation {one.pk} changed while it was locked")
        if one.finished_at is None:
            due_operations.put(conn, one.pk, tenant_id=tenant.pk, due_at=now)
        else:
            due_operations.remove(conn, one.pk)
            if was["finished_at"] is None:
                kind_of(one.action, one.target).ended(tenant, one, now=now)
        outline(conn, one, tenant_id=tenant.pk, now=now)
        told = [name for name in shown if name in changed]
        _note(
            actor, verb, one, now, tenant, reason=reason, before={name: was[name] for name in told},
            after={name: changed[name] for name in told},
        )  # fmt: skip
        return one

    return in_tenant(tenant, work)


def _made(tenant: Tenant, actor: Actor, wish: Wish, now: datetime) -> Operation:
    kind = kind_of(wish.action, wish.target)
    faults = Faults()
    filter_ = kind.filtered(wish.filter, faults)
    faults.raise_if_any()  # a wrong filter is told alone
    params = kind.checked(tenant, wish.params, faults)
    faults.raise_if_any()
    one = Operation(
        id=uuid7(), action=wish.action, target=wish.target, filter=filter_, params=params, state="planning",
        frozen_at=now, created_at=now, created_by=actor.stored, reason=wish.reason,
        actor=asked_by.kept(door.raw(), actor, tenant_id=tenant.pk),
    )  # fmt: skip
    wish.pace.write(one)
    return one


def _moves(one: Operation, name: str) -> None:
    """Conflict when the operation can't go this way."""
    if one.state not in sources_of(name):
        raise _ended(one)


def _held(one: Operation) -> bool:
    """Whether its canary has failed; without a failure the words are somebody's own reason for a pause."""
    return one.state == "paused" and one.paused_reason == CANARY_FAILED and one.failed > 0


def _ended(one: Operation) -> Conflict:
    return Conflict(f"The operation is {one.state}.", code="operation_not_open")


def _note(actor: Actor, verb: str, one: Operation, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=f"operation.{verb}", object_type="operation", object_id=one.pk, now=now,
        tenant_id=tenant.pk, **more,
    )  # fmt: skip
