"""What operators tell workers to listen to while they run: kept by group and host, so restarts change nothing.

Each change is one row and one line of the trail, in one transaction. Workers read it every few seconds.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db import transaction

from apps.audit.services import Actor, record
from apps.tickets.models import Subscription
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound
from kernel.listening import Told, pattern_of
from tenants import door

Conn = psycopg.Connection[Any]
WORDS_MAX = 500  # of a group: every worker reads them all, and holds every queue against them
REASON_CHARS, HOST_CHARS, GROUP_CHARS = 300, 200, 40

TOLD = """
SELECT pattern, listens FROM tickets_subscription
WHERE worker_group = %(group)s AND host IN ('', %(host)s) ORDER BY id
"""


class Scope(NamedTuple):
    """Which workers are told: those of a group ("" is the shared one), on one host or ("") on all."""

    group: str = ""
    host: str = ""

    def __str__(self) -> str:
        group = f"group {self.group}" if self.group else "the shared workers"
        return f"{group} on {self.host}" if self.host else group


def told(conn: Conn, *, group: str, host: str) -> list[Told]:
    """What a worker of this group and host was told, in the order in which it was said."""
    return [Told._make(row) for row in conn.execute(TOLD, {"group": group, "host": host})]


def check(scope: Scope, pattern: str, reason: str) -> None:
    """InvalidInput for what can't be told."""
    faults = []
    try:
        pattern_of(pattern)
    except ValueError as error:
        faults.append(FieldError("/pattern", "invalid", str(error)))
    for pointer, text, most in (
        ("/group", scope.group, GROUP_CHARS), ("/host", scope.host, HOST_CHARS), ("/reason", reason, REASON_CHARS),
    ):  # fmt: skip
        if len(text) > most:
            faults.append(FieldError(pointer, "too_long", f"At most {most} characters."))
    if faults:
        raise InvalidInput(faults)


def subscription_tell(
    *, scope: Scope, pattern: str, listens: bool, actor: Actor, now: datetime, reason: str = ""
) -> Subscription:
    """Tells workers to listen to what fits the pattern, or not to: it takes the place of an earlier word on the same.

    InvalidInput for what is no pattern, Conflict when a group was told too much.
    """
    check(scope, pattern, reason)
    with transaction.atomic():
        _lock(scope)
        before = _take_away(scope, [pattern])
        if Subscription.objects.filter(worker_group=scope.group).count() >= WORDS_MAX:
            raise Conflict(f"{WORDS_MAX} are the most that a group can be told. Take some back first (reset).")
        made = Subscription.objects.create(
            worker_group=scope.group, host=scope.host, pattern=pattern, listens=listens, reason=reason,
            created_by=actor.stored, created_at=now,
        )  # fmt: skip
        record(
            actor=actor, action=f"subscription.{'add' if listens else 'drop'}", object_type="subscription",
            object_id=pattern, now=now, tenant_id=None, before=before[0] if before else None, after=_said(made),
            reason=reason,
        )  # fmt: skip
    return made


def subscription_reset(
    *, scope: Scope, actor: Actor, now: datetime, pattern: str | None = None, reason: str = ""
) -> int:
    """Takes back what exactly these workers were told, of one pattern or all of it; returns how many words that were.

    NotFound when the pattern was never said to them.
    """
    with transaction.atomic():
        _lock(scope)
        before = _take_away(scope, None if pattern is None else [pattern])
        if pattern is not None and not before:
            raise NotFound(f"Nothing was said of {pattern} to {scope}.")
        for one in before:
            record(
                actor=actor, action="subscription.reset", object_type="subscription", object_id=one["pattern"], now=now,
                tenant_id=None, before=one, reason=reason,
            )  # fmt: skip
    return len(before)


def _lock(scope: Scope) -> None:
    """Changes of one group come one after the other: their order is what they mean."""
    door.raw().execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"subscription {scope.group}"])


def _take_away(scope: Scope, patterns: Sequence[str] | None) -> list[dict[str, Any]]:
    rows = Subscription.objects.filter(worker_group=scope.group, host=scope.host).order_by("pk")
    if patterns is not None:
        rows = rows.filter(pattern__in=patterns)
    before = [_said(one) for one in rows]
    rows.delete()
    return before


def _said(one: Subscription) -> dict[str, Any]:
    return {"group": one.worker_group, "host": one.host, "pattern": one.pattern, "listens": one.listens}
