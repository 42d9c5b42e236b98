"""Whether a schedule is complete in a range: what it had to account for against what is written of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from apps.archive.forgotten import kept_from
from apps.dispatch.completeness.comparing import Comparison, compare
from apps.dispatch.completeness.expecting import Expected, expected
from apps.dispatch.completeness.records import Hot, Whole
from apps.dispatch.zonehistory import zone_changes
from apps.schedules.history_store import history_with_due
from kernel.errors import FieldError, InvalidInput, NotFound
from tenants import door
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Completeness:
    """What was found for a schedule from `since` (inclusive) to `until` (not so), as of a time.

    `due_from` is the occurrence that is to be fired next, if there is one.
    """

    schedule_id: UUID
    since: datetime
    until: datetime
    as_of: datetime
    expected: Expected
    found: Comparison
    due_from: datetime | None

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, as far as can be said."""
        return not self.found.missing


def completeness_of(
    tenant: Tenant, schedule_id: UUID, *, since: datetime, until: datetime, now: datetime,
    most: int | None = None, pointer: str = "/from",
) -> Completeness:  # fmt: skip
    """Looks at a schedule, deleted or not; what is later than `now` is left out. NotFound.

    InvalidInput, with a `pointer` to where the range begins, when it has more than `most` occurrences.
    """
    conn = door.raw()
    asked = _expecting(conn, tenant.schema_name, schedule_id, since, until, now)
    if most is not None and (count := asked.expected.count()) > most:
        detail = (
            f"The range has {count:,} occurrences, and at most {most:,} are looked at in one call: give a later one."
        )
        raise InvalidInput([FieldError(pointer, "range", detail)])
    return _compared(asked, partial(Whole, conn, tenant, schedule_id))


def hot_completeness_of(
    conn: Conn, schema: str, schedule_id: UUID, *, since: datetime, until: datetime, now: datetime
) -> Completeness:
    """The same of a range that is too young for the archive."""
    asked = _expecting(conn, schema, schedule_id, since, until, now)
    return _compared(asked, partial(Hot, conn, schema, schedule_id))


def _expecting(
    conn: Conn, schema: str, schedule_id: UUID, since: datetime, until: datetime, now: datetime
) -> Completeness:  # fmt: skip
    """What was expected, with nothing found yet."""
    until = max(since, min(until, now + _MICROSECOND))
    read = history_with_due(conn, schema, schedule_id)
    if read is None:
        raise NotFound("There is no such schedule.")
    history, due_from = read
    zones = {stretch.spec.zone for stretch in history.stretches if stretch.spec is not None}
    wanted = expected(
        history, since=since, until=until, kept_from=kept_from(conn, schema), zones=zone_changes(conn, zones)
    )  # fmt: skip
    return Completeness(schedule_id, since, until, now, wanted, Comparison(), due_from)


def _compared(asked: Completeness, written_of: Callable[..., Hot]) -> Completeness:
    parts = asked.expected.parts
    if not parts:
        return asked
    written = written_of(after=parts[0].after, until=parts[-1].until)
    found = compare(parts, written.records(), due_from=asked.due_from, later=written.made_later)
    return replace(asked, found=found)
