"""What was refused to somebody who is known: noted in the trail, after the refused effect was taken back.

That is what lacks a role or a scope, names a state that is not the one that was read, or is beyond a limit of the plan.
Keys on hosts of others are noted where they are read (`middleware`). Not noted are requests beyond a limit of requests,
which would fill the trail instead of the platform, and faults of the input.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rest_framework.request import Request

from apps.audit.refused import NOTED, note, or_log
from apps.audit.services import Actor, record
from kernel.errors import BatchRefused, Forbidden, QuotaExceeded, ShardbeatError

IF_MATCH_REQUIRED = 428
OBJECT_ID_CHARS = 64  # of the audit trail


class NotAllowed(Forbidden):
    """Role or scopes do not reach for `action`."""

    def __init__(self, action: str, reason: str, detail: str, code: str, needs: str) -> None:
        super().__init__(detail, code=code, needs=needs)
        self.action, self.reason = action, reason


def note_refusal(error: Exception, request: Request, view: Any) -> None:
    """One row, when this error is such a refusal. An unreachable database takes nothing away from the answer."""
    actor = getattr(request, "_user", None)  # not `user`, which would authenticate once more
    if not isinstance(error, ShardbeatError) or not isinstance(actor, Actor):
        return
    cause = error.__cause__
    if isinstance(cause, BatchRefused):
        or_log(lambda: note_items(cause.refused.values(), view))
        return
    if not isinstance(error, NOTED) and error.status != IF_MATCH_REQUIRED:
        return
    reason, action = "", getattr(view, "actions", {}).get("GET" if request.method == "HEAD" else request.method)
    if isinstance(error, NotAllowed):
        action, reason = error.action, error.reason
    if action is None:
        return
    note(
        error, actor=actor, action=action, object_id=object_of(view.kwargs), now=view.now, tenant_id=actor.tenant_id,
        reason=reason,
    )  # fmt: skip


def note_items(refused: Iterable[ShardbeatError], view: Any) -> None:
    """What of many at a time was beyond a limit: one row for each limit, which says how many items it refused."""
    beyond = [one for one in refused if isinstance(one, QuotaExceeded)]
    action = view.actions[view.request.method]
    for quota, count in Counter(one.extra["quota"] for one in beyond).items():
        limits = next(one.extra for one in beyond if one.extra["quota"] == quota)
        told = {"quota": quota, "limit": limits["limit"], "use": limits["use"], "items": count}
        record(
            actor=view.actor, action=action, object_type=action.partition(".")[0], object_id="", now=view.now,
            tenant_id=view.actor.tenant_id, allowed=False, reason=QuotaExceeded.code, after=told,
        )  # fmt: skip


def object_of(kwargs: dict[str, Any]) -> str:
    """What the trail says that it was about: never a token, and no more than it can hold."""
    name, value = next(iter(kwargs.items()), ("", ""))
    return "" if name == "token" else str(value).replace("\0", "")[:OBJECT_ID_CHARS]
