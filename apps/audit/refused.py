"""What was refused to somebody who is known: which errors the trail keeps, and how. For the API and the pages alike.

Call it after the refused effect was taken back: the row is in a transaction of its own.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

import psycopg
from django.db import DatabaseError

from apps.audit.services import Actor, record
from kernel.errors import Forbidden, QuotaExceeded, ShardbeatError, Stale, code_of

log = logging.getLogger(__name__)
NOTED = (Forbidden, QuotaExceeded, Stale)
_LIMITS = ("quota", "limit", "use")


def note(
    error: ShardbeatError, *, actor: Actor, action: str, object_id: str, now: datetime, tenant_id: int | None,
    reason: str = "", asked: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """One row. The reason is the error's code when none is given; `asked` stands with the limits, if there are any."""
    limits = {name: error.extra[name] for name in _LIMITS if name in error.extra}
    or_log(
        lambda: record(
            actor=actor, action=action, object_type=action.partition(".")[0], object_id=object_id, now=now,
            tenant_id=tenant_id, allowed=False, reason=reason or code_of(error),
            after={**limits, **(asked or {})} or None,
        )
    )  # fmt: skip


def or_log(write: Callable[[], None]) -> None:
    """The answer does not wait for a database that takes nothing."""
    try:
        write()
    except (DatabaseError, psycopg.Error, ShardbeatError) as lost:
        log.warning("a refusal was not noted: %s", lost)
